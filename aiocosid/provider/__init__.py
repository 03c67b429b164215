"""Named generators, opened and closed together: asked for one by one, or built from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._later import later

if TYPE_CHECKING:
    from .._provider_options import LeaseTerms as LeaseTerms
    from .._provider_options import MachineOptions as MachineOptions
    from .._provider_options import NamedCached as NamedCached
    from .._provider_options import NamedChain as NamedChain
    from .._provider_options import NamedCosId as NamedCosId
    from .._provider_options import NamedGroups as NamedGroups
    from .._provider_options import NamedLeaf as NamedLeaf
    from .._provider_options import NamedSegment as NamedSegment
    from .._provider_options import NamedSharded as NamedSharded
    from .._provider_options import NamedSnowflake as NamedSnowflake
    from .._provider_options import SegmentChainOptions as SegmentChainOptions
    from .._provider_options import SegmentIdOptions as SegmentIdOptions
    from .._provider_options import SequenceOptions as SequenceOptions
    from .._provider_options import SnowflakeOptions as SnowflakeOptions
    from .._provider_options import StepOptions as StepOptions
    from .._store_urls import open_store as open_store
    from ._configured import ConfiguredProvider as ConfiguredProvider
    from ._configured import configure as configure
    from ._id_provider import IdProvider as IdProvider
    from ._id_provider import connect as connect

__all__ = (
    "ConfiguredProvider",
    "IdProvider",
    "LeaseTerms",
    "MachineOptions",
    "NamedCached",
    "NamedChain",
    "NamedCosId",
    "NamedGroups",
    "NamedLeaf",
    "NamedSegment",
    "NamedSharded",
    "NamedSnowflake",
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
            ".._provider_options": (
                "LeaseTerms MachineOptions NamedCached NamedChain NamedCosId NamedGroups "
                "NamedLeaf NamedSegment NamedSharded NamedSnowflake SegmentChainOptions "
                "SegmentIdOptions SequenceOptions SnowflakeOptions StepOptions"
            ),
            ".._store_urls": "open_store",
            "._configured": "ConfiguredProvider configure",
            "._id_provider": "IdProvider connect",
        },
    )
