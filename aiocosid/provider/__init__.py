"""Named generators, opened and closed together: asked for one by one, or built from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._later import later

if TYPE_CHECKING:
    from .._kinds import OPTIONS as OPTIONS
    from .._kinds import LeaseTerms as LeaseTerms
    from .._kinds import MachineOptions as MachineOptions
    from .._kinds import NamedCached as NamedCached
    from .._kinds import NamedChain as NamedChain
    from .._kinds import NamedCosId as NamedCosId
    from .._kinds import NamedGroups as NamedGroups
    from .._kinds import NamedInner as NamedInner
    from .._kinds import NamedLeaf as NamedLeaf
    from .._kinds import NamedRemote as NamedRemote
    from .._kinds import NamedSegment as NamedSegment
    from .._kinds import NamedSharded as NamedSharded
    from .._kinds import NamedSnowflake as NamedSnowflake
    from .._kinds import OptionSpec as OptionSpec
    from .._kinds import SegmentChainOptions as SegmentChainOptions
    from .._kinds import SegmentIdOptions as SegmentIdOptions
    from .._kinds import SequenceOptions as SequenceOptions
    from .._kinds import SnowflakeOptions as SnowflakeOptions
    from .._kinds import StepOptions as StepOptions
    from .._store_urls import SYSTEMS as SYSTEMS
    from .._store_urls import open_store as open_store
    from ._configured import ConfiguredProvider as ConfiguredProvider
    from ._configured import configure as configure
    from ._id_provider import IdProvider as IdProvider
    from ._id_provider import connect as connect

__all__ = (
    "OPTIONS",
    "SYSTEMS",
    "ConfiguredProvider",
    "IdProvider",
    "LeaseTerms",
    "MachineOptions",
    "NamedCached",
    "NamedChain",
    "NamedCosId",
    "NamedGroups",
    "NamedInner",
    "NamedLeaf",
    "NamedRemote",
    "NamedSegment",
    "NamedSharded",
    "NamedSnowflake",
    "OptionSpec",
    "SegmentChainOptions",
    "SegmentIdOptions",
    "SequenceOptions",
    "SnowflakeOptions",
    "StepOptions",
    "configure",
    "connect",
    "open_store",
)

if not TYPE_CHECKING:  # else every name would be one of ours
    __getattr__, __dir__ = later(
        __name__,
        {
            ".._kinds": (
                "LeaseTerms MachineOptions NamedCached NamedChain NamedCosId NamedGroups "
                "NamedInner NamedLeaf NamedRemote NamedSegment NamedSharded NamedSnowflake OPTIONS "
                "OptionSpec SegmentChainOptions SegmentIdOptions SequenceOptions SnowflakeOptions "
                "StepOptions"
            ),
            ".._store_urls": "SYSTEMS open_store",
            "._configured": "ConfiguredProvider configure",
            "._id_provider": "IdProvider connect",
        },
    )
