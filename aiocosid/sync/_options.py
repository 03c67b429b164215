"""The options of the kinds for threads: those of `aiocosid.provider`, and how many ids at once."""

from __future__ import annotations

from typing import TypedDict

from .._kinds import (
    NamedCached,
    NamedChain,
    NamedCosId,
    NamedGroups,
    NamedInner,
    NamedLeaf,
    NamedSegment,
    NamedSnowflake,
)

__all__ = (
    "BatchOptions",
    "BatchedCached",
    "BatchedChain",
    "BatchedCosId",
    "BatchedGroups",
    "BatchedInner",
    "BatchedLeaf",
    "BatchedSegment",
    "BatchedSnowflake",
)


class BatchOptions(TypedDict, total=False):
    """How a `SyncIdGenerator` takes ids.

    Attributes:
        batch: ids that it takes at once; see `SyncIdGenerator` for the default.
    """

    batch: int | None


class BatchedSegment(NamedSegment, BatchOptions, total=False):
    """The options of `SyncIdProvider.segment`."""


class BatchedChain(NamedChain, BatchOptions, total=False):
    """The options of `SyncIdProvider.segment_chain`."""


class BatchedLeaf(NamedLeaf, BatchOptions, total=False):
    """The options of `SyncIdProvider.leaf`."""


class BatchedGroups(NamedGroups, BatchOptions, total=False):
    """The options of `SyncIdProvider.grouped`."""


class BatchedSnowflake(NamedSnowflake, BatchOptions, total=False):
    """The options of `SyncIdProvider.snowflake`."""


class BatchedCached(NamedCached, BatchOptions, total=False):
    """The options of `SyncIdProvider.cached`."""


class BatchedCosId(NamedCosId, BatchOptions, total=False):
    """The options of `SyncIdProvider.cosid`."""


class BatchedInner(NamedInner, BatchOptions, total=False):
    """The options of `SyncIdProvider.int32` and `SyncIdProvider.uncertainty`."""
