"""Ids from ranges that are reserved in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._later import later

if TYPE_CHECKING:
    from ._chain import FOREVER as FOREVER
    from ._chain import IdSegment as IdSegment
    from ._double_buffer import MAX_STEP as MAX_STEP
    from ._double_buffer import PREFETCH_AT as PREFETCH_AT
    from ._double_buffer import SEGMENT_DURATION as SEGMENT_DURATION
    from ._group_key import GroupBy as GroupBy
    from ._group_parts import GroupedStatistics as GroupedStatistics
    from ._group_parts import MakeDistributor as MakeDistributor
    from ._grouped_id import GroupedSegmentId as GroupedSegmentId
    from ._leaf_segment_id import LeafSegmentId as LeafSegmentId
    from ._leaf_segment_id import RowStepped as RowStepped
    from ._pace import MAX_DISTANCE as MAX_DISTANCE
    from ._pace import MAX_IDS_AHEAD as MAX_IDS_AHEAD
    from ._remote_id import RemoteId as RemoteId
    from ._segment_ids import SegmentChainId as SegmentChainId
    from ._segment_ids import SegmentId as SegmentId
    from ._statistics import SegmentStatistics as SegmentStatistics

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
)

if not TYPE_CHECKING:  # else every name would be one of ours
    __getattr__, __dir__ = later(
        __name__,
        {
            "._double_buffer": "MAX_STEP PREFETCH_AT SEGMENT_DURATION",
            "._group_parts": "GroupedStatistics MakeDistributor",
            "._grouped_id": "GroupedSegmentId",
            "._group_key": "GroupBy",
            "._leaf_segment_id": "LeafSegmentId RowStepped",
            "._pace": "MAX_DISTANCE MAX_IDS_AHEAD",
            "._chain": "FOREVER IdSegment",
            "._remote_id": "RemoteId",
            "._segment_ids": "SegmentChainId SegmentId",
            "._statistics": "SegmentStatistics",
        },
    )
