"""Statistics of a leased machine id."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("MachineIdStatistics",)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdStatistics:
    """The state of a `MachineIdLease` at one moment.

    Attributes:
        namespace: the namespace of the machine id.
        instance_id: the holder.
        machine_id: the id, or None while there is none.
        bits: its width.
        term: how many ids were taken so far, counted over all openings.
        seconds_left: how long it may be used without a further renewal; ``inf`` for an id that is
            held by a lock of the system.
        mark_ms: no id is issued with a later time, unix time in milliseconds; -1 for none at all.
        mark_wait: seconds waited, or still to be waited, for the marks of former owners to pass.
        renewals: renewals that the store has accepted.
        failures: calls to the store that failed.
        losses: how often the id was lost.
        last_error: the error of the last call, or None if it succeeded.
        quarantine_left: seconds for which the store hands out no ids, because it may have lost the
            record of who holds which, by its last answer; ``inf`` if that does not end by itself.
        taken_ms: when the id was taken, unix time in milliseconds; -1 while there is none.
    """

    namespace: str
    instance_id: str
    machine_id: int | None
    bits: int
    term: int
    seconds_left: float
    mark_ms: int
    mark_wait: float
    renewals: int
    failures: int
    losses: int
    last_error: Exception | None
    quarantine_left: float = 0.0
    taken_ms: int = -1
