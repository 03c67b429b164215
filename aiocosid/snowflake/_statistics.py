"""Statistics of a Snowflake generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..abc import Statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..machine import MachineIdStatistics

__all__ = ("CachedSnowflakeStatistics", "ShardedStatistics", "SnowflakeStatistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeStatistics(Statistics):
    """A snapshot of a `SnowflakeId`, or of the one in a `CosIdGenerator`.

    Attributes:
        layout: the layout's name, or its bits.
        epoch_ms: the start of tick 0, unix time in milliseconds.
        unit_ms: length of a tick in milliseconds.
        timestamp_bits: width of the time field.
        machine_bits: width of the machine id.
        sequence_bits: width of the sequence.
        is_javascript_safe: whether all ids are at most 2^53-1.
        machine_id: the machine id in use, or None while there is none.
        last_timestamp_ms: the time of the last id, unix time in milliseconds; -1 before the first.
        ids_handed_out: ids handed out by this sequencer, which generators of one name share.
        waiting: callers that wait now.
        waits_for_tick: how often callers found the current tick used up.
        waits_for_clock: how often callers found the clock behind.
        waits_for_lease: how often the lease allowed callers no id.
        longest_backwards: the most seconds that the clock was behind.
        last_instant: the end of the layout, ISO 8601 in UTC.
        machine: the lease's statistics.
        converter: how a `CosIdGenerator` writes its text; None where ids are numbers.
    """

    layout: str
    epoch_ms: int
    unit_ms: int
    timestamp_bits: int
    machine_bits: int
    sequence_bits: int
    is_javascript_safe: bool
    machine_id: int | None
    last_timestamp_ms: int
    ids_handed_out: int
    waiting: int
    waits_for_tick: int
    waits_for_clock: int
    waits_for_lease: int
    longest_backwards: float
    last_instant: str
    machine: MachineIdStatistics
    converter: Mapping[str, str | int | bool] | None = None

    def as_tree(self) -> dict[str, object]:
        """Return the statistics as in CosId's actuator, followed by those that it does not show.

        As there, ``epoch`` and ``lastTimestamp`` count ticks since 1970, which are seconds in a
        layout of seconds.
        """
        ours = Statistics.as_tree(self)  # super() does not work in a dataclass with slots
        for key in ("kind", "epochMs", "timestampBits", "machineBits", "sequenceBits"):
            del ours[key]
        for key in ("isJavascriptSafe", "machineId", "converter"):
            del ours[key]
        last_ms = self.last_timestamp_ms
        return {
            "kind": self.kind,
            "epoch": self.epoch_ms // self.unit_ms,
            "timestampBit": self.timestamp_bits,
            "machineBit": self.machine_bits,
            "sequenceBit": self.sequence_bits,
            "safeJavascript": self.is_javascript_safe,
            "machineId": self.machine_id,
            "lastTimestamp": last_ms if last_ms < 0 else last_ms // self.unit_ms,
            "actual": None,
            "converter": None if self.converter is None else dict(self.converter),
            **ours,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedSnowflakeStatistics(SnowflakeStatistics):
    """A snapshot of a `CachedSnowflakeId`.

    Attributes:
        capacity: ids that its ring holds when it is full.
        filled: prepared ids that are left.
        fills: how often it was filled.
        borrowed: seconds that the last id is ahead of the clock.
    """

    capacity: int
    filled: int
    fills: int
    borrowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedStatistics(Statistics):
    """A snapshot of a `ShardedId`.

    Attributes:
        layout: the layout's bits, epoch and zone.
        sharding_id: the default sharding id.
        max_sequence: the highest sequence that the store grants.
        second: the second of the last id, since 1970; -1 before the first.
        remaining: buffered ids of this second.
        prefetched: buffered ids of the next second.
        rate: the mean number of ids that callers take per second.
        batch: sequences in the last request to the store.
        ids_handed_out: ids given to callers.
        ids_discarded: ids that were dropped because their second was over, or their caller had
            gone.
        ids_not_granted: how many of `ids_handed_out` came from a lane, or were guessed.
        grants: answers of the store that could be used.
        ids_granted: sequences in them.
        failures: calls to the store that failed.
        spent: answers that a second is used up.
        fenced: answers that a second's counter may have been lost.
        skewed: answers that the clocks disagree.
        waits: callers that had to wait.
        waiting: callers that wait now.
        on_unavailable: what is done while the store cannot be reached.
        is_away: whether the last call to the store failed.
        last_error: the store's latest error; None after a call that succeeded.
        last_instant: the end of the layout, ISO 8601 in UTC.
    """

    layout: str
    sharding_id: int
    max_sequence: int
    second: int
    remaining: int
    prefetched: int
    rate: float
    batch: int
    ids_handed_out: int
    ids_discarded: int
    ids_not_granted: int
    grants: int
    ids_granted: int
    failures: int
    spent: int
    fenced: int
    skewed: int
    waits: int
    waiting: int
    on_unavailable: str
    is_away: bool
    last_error: Exception | None
    last_instant: str
