"""What a provider hands on to its generators, typed; public as part of `aiocosid.provider`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from .events import Instrument

__all__ = ("SegmentChainOptions", "SegmentIdOptions", "SnowflakeOptions")


class SegmentIdOptions(TypedDict, total=False):
    """What `IdProvider.segment` hands on to `SegmentId`."""

    ttl: float | None
    wait_timeout: float
    fetch_timeout: float | None
    close_timeout: float
    max_id: int
    give_back: bool
    instrument: Instrument | None


class SegmentChainOptions(SegmentIdOptions, total=False):
    """What `IdProvider.segment_chain` hands on to `SegmentChainId`."""

    safe_distance: int
    max_distance: int
    max_ids_ahead: int
    quiet_period: float


class SnowflakeOptions(TypedDict, total=False):
    """What `IdProvider.snowflake` hands on to `SnowflakeId`."""

    broken_threshold: float | None
    max_forward_jump: float | None
    sequence_reset_threshold: int | None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None
