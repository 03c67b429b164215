"""Named generators, opened and closed together: asked for one by one, or built from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.lazy import later

if TYPE_CHECKING:
    from ..segment.options import SegmentChainOptions as SegmentChainOptions
    from ..segment.options import SegmentIdOptions as SegmentIdOptions
    from ._configured import ConfiguredProvider as ConfiguredProvider
    from ._configured import configure as configure
    from ._id_provider import IdProvider as IdProvider
    from ._id_provider import connect as connect
    from .kinds import OPTIONS as OPTIONS
    from .kinds import LeaseTerms as LeaseTerms
    from .kinds import MachineOptions as MachineOptions
    from .kinds import NamedCached as NamedCached
    from .kinds import NamedChain as NamedChain
    from .kinds import NamedCosId as NamedCosId
    from .kinds import NamedGroups as NamedGroups
    from .kinds import NamedInner as NamedInner
    from .kinds import NamedLeaf as NamedLeaf
    from .kinds import NamedRemote as NamedRemote
    from .kinds import NamedSegment as NamedSegment
    from .kinds import NamedSharded as NamedSharded
    from .kinds import NamedSnowflake as NamedSnowflake
    from .kinds import OptionSpec as OptionSpec
    from .kinds import SequenceOptions as SequenceOptions
    from .kinds import SnowflakeOptions as SnowflakeOptions
    from .kinds import StepOptions as StepOptions
    from .store_urls import SYSTEMS as SYSTEMS
    from .store_urls import open_store as open_store

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
            ".kinds": (
                "LeaseTerms MachineOptions NamedCached NamedChain NamedCosId NamedGroups "
                "NamedInner NamedLeaf NamedRemote NamedSegment NamedSharded NamedSnowflake OPTIONS "
                "OptionSpec SegmentChainOptions SegmentIdOptions SequenceOptions SnowflakeOptions "
                "StepOptions"
            ),
            ".store_urls": "SYSTEMS open_store",
            "._configured": "ConfiguredProvider configure",
            "._id_provider": "IdProvider connect",
        },
    )
