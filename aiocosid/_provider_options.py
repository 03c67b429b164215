"""What a provider's generators can be told, declared once: for `IdProvider` and for threads alike.

Public as part of `aiocosid.provider`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from .abc import InstanceId, MachineIdDistributor
    from .events import Instrument
    from .machine import MachineIdLease
    from .segment._group_parts import SegmentKind
    from .snowflake import CosIdText, OnUnavailable, SnowflakeLayout

__all__ = (
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
)


# Ids from a counter.


class SegmentIdOptions(TypedDict, total=False):
    """The options of `SegmentId`."""

    ttl: float | None
    wait_timeout: float
    fetch_timeout: float | None
    close_timeout: float
    max_id: int
    give_back: bool
    instrument: Instrument | None


class SegmentChainOptions(SegmentIdOptions, total=False):
    """The options of `SegmentChainId`."""

    safe_distance: int
    max_distance: int
    max_ids_ahead: int
    quiet_period: float


class StepOptions(TypedDict, total=False):
    """The counter of a generator: ids per segment, and where a new one starts."""

    step: int
    offset: int


class NamedSegment(SegmentIdOptions, StepOptions, total=False):
    """What `IdProvider.segment` can be told."""


class NamedChain(SegmentChainOptions, StepOptions, total=False):
    """What `IdProvider.segment_chain` can be told."""


class NamedLeaf(SegmentIdOptions, StepOptions, total=False):
    """What `IdProvider.leaf` can be told."""

    prefetch_at: float
    segment_duration: float
    max_step: int


class NamedGroups(SegmentChainOptions, StepOptions, total=False):
    """What `IdProvider.grouped` can be told."""

    kind: SegmentKind
    max_groups: int


# Ids from a clock and a machine id.


class LeaseTerms(TypedDict, total=False):
    """The options of `MachineIdLease` that a provider hands on."""

    on_lost: Literal["redistribute", "raise"]
    peer_safe_guard: float | None
    lead: float | None
    start_timeout: float
    call_timeout: float


class MachineOptions(LeaseTerms, total=False):
    """Where machine ids come from, and how they are leased.

    Attributes:
        machine: what hands them out, as `ManualMachineIdDistributor`, or a lease; None for the
            provider's store, to which the next three belong.
        instance_id: who asks; by default an instance that nobody else is.
        safe_guard: seconds without a sign of life after which an id may go to somebody else.
        interval: seconds between two signs of life.
    """

    machine: MachineIdDistributor | MachineIdLease | None
    instance_id: InstanceId | str | None
    safe_guard: float
    interval: float


class ClockOptions(TypedDict, total=False):
    """What all kinds on a clock can be told."""

    broken_threshold: float | None
    max_forward_jump: float | None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None


class SnowflakeOptions(ClockOptions, total=False):
    """What `IdProvider.snowflake` and `IdProvider.cosid` both can be told."""

    sequence_reset_threshold: int | None


class NamedSnowflake(SnowflakeOptions, MachineOptions, total=False):
    """What `IdProvider.snowflake` can be told."""

    layout: SnowflakeLayout | None
    random_start: int | None


class NamedCached(ClockOptions, MachineOptions, total=False):
    """What `IdProvider.cached` can be told."""

    layout: SnowflakeLayout | None
    boost: int
    padding_factor: int
    max_borrow: float
    refill_interval: float | None


class NamedCosId(SnowflakeOptions, MachineOptions, total=False):
    """What `IdProvider.cosid` can be told."""

    text: CosIdText | None


# Ids that carry their shard.


class SequenceOptions(TypedDict, total=False):
    """The options of `RedisStore.sequence_distributor`."""

    key: str | None
    max_sequence: int
    tolerance: int
    margin: int
    ttl: int


class NamedSharded(SequenceOptions, total=False):
    """What `IdProvider.sharded` can be told."""

    sharding_id: int
    on_unavailable: OnUnavailable
    lane: MachineIdDistributor | MachineIdLease | None
    batch: int | None
    nodes: int
    broken_threshold: float | None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None
