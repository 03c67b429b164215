"""What a Snowflake generator says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..abc import Statistics

if TYPE_CHECKING:
    from ..machine import MachineIdStatistics

__all__ = ("SnowflakeStatistics",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeStatistics(Statistics):
    """A frozen picture of a `SnowflakeId`.

    Attributes:
        layout: the layout's name, or its bits.
        machine_id: the machine id in use, or None while there is none.
        last_timestamp_ms: the time of the last id, unix time in milliseconds; -1 before the first.
        ids_handed_out: ids of this sequencer, which generators of one name share.
        waiting: callers that wait now.
        waits_for_tick: how often callers found the current tick used up.
        waits_for_clock: how often callers found the clock behind.
        waits_for_lease: how often callers found the lease not to allow any id.
        longest_backwards: seconds that the clock was behind at most.
        last_instant: the end of the layout, ISO 8601 in UTC.
        machine: the lease.
    """

    layout: str
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
