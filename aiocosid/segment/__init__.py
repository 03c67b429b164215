"""Ids from ranges that are reserved in a store."""

from __future__ import annotations

from ._double_buffer import MAX_STEP as MAX_STEP
from ._double_buffer import PREFETCH_AT as PREFETCH_AT
from ._double_buffer import SEGMENT_DURATION as SEGMENT_DURATION
from ._group import GroupedStatistics as GroupedStatistics
from ._group import MakeDistributor as MakeDistributor
from ._grouped import GroupedSegmentId as GroupedSegmentId
from ._groups import GroupBy as GroupBy
from ._leaf_segment_id import LeafSegmentId as LeafSegmentId
from ._leaf_segment_id import RowStepped as RowStepped
from ._pace import MAX_DISTANCE as MAX_DISTANCE
from ._pace import MAX_IDS_AHEAD as MAX_IDS_AHEAD
from ._segment import FOREVER as FOREVER
from ._segment import IdSegment as IdSegment
from ._segment_chain_id import SegmentChainId as SegmentChainId
from ._segment_id import SegmentId as SegmentId
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
    "RowStepped",
    "SegmentChainId",
    "SegmentId",
    "SegmentStatistics",
)
