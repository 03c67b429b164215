"""Ids from ranges (segments) that are reserved in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.lazy import later

if TYPE_CHECKING:
    from ._group_key import GroupBy as GroupBy
    from ._leaf_segment_id import LeafSegmentId as LeafSegmentId
    from ._leaf_segment_id import RowStepped as RowStepped
    from ._statistics import SegmentStatistics as SegmentStatistics
    from .chain import FOREVER as FOREVER
    from .chain import IdSegment as IdSegment
    from .generator import SegmentChainId as SegmentChainId
    from .generator import SegmentId as SegmentId
    from .group_parts import GroupedStatistics as GroupedStatistics
    from .group_parts import MakeDistributor as MakeDistributor
    from .grouped_id import GroupedSegmentId as GroupedSegmentId
    from .grouped_id import WithGroup as WithGroup
    from .options import MAX_STEP as MAX_STEP
    from .options import PREFETCH_AT as PREFETCH_AT
    from .options import SEGMENT_DURATION as SEGMENT_DURATION
    from .pace import MAX_DISTANCE as MAX_DISTANCE
    from .pace import MAX_IDS_AHEAD as MAX_IDS_AHEAD
    from .remote_id import RemoteId as RemoteId

__all__ = (
    "FOREVER",
    "MAX_DISTANCE",
    "MAX_IDS_AHEAD",
    "MAX_STEP",
    "PREFETCH_AT",
    "SEGMENT_DURATION",
    "GroupBy",
    "GroupedSegmentId",
    "GroupedStatistics",
    "IdSegment",
    "LeafSegmentId",
    "MakeDistributor",
    "RemoteId",
    "RowStepped",
    "SegmentChainId",
    "SegmentId",
    "SegmentStatistics",
    "WithGroup",
)

if not TYPE_CHECKING:  # for a type checker, a module `__getattr__` would make every name valid
    __getattr__, __dir__ = later(
        __name__,
        {
            ".group_parts": "GroupedStatistics MakeDistributor",
            ".grouped_id": "GroupedSegmentId WithGroup",
            "._group_key": "GroupBy",
            "._leaf_segment_id": "LeafSegmentId RowStepped",
            ".options": "MAX_STEP PREFETCH_AT SEGMENT_DURATION",
            ".pace": "MAX_DISTANCE MAX_IDS_AHEAD",
            ".chain": "FOREVER IdSegment",
            ".remote_id": "RemoteId",
            ".generator": "SegmentChainId SegmentId",
            "._statistics": "SegmentStatistics",
        },
    )
