"""What can be said about a machine id that is held."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("MachineIdStatistics",)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdStatistics:
    """A frozen picture of a `MachineIdLease`.

    Attributes:
        namespace: the namespace of the machine id.
        instance_id: who holds it.
        machine_id: the id, or None while there is none.
        bits: its width.
        term: how many ids were taken so far, counted over all openings.
        seconds_left: how long it may be used without a further sign of life; ``inf`` for an id that
            a lock of the system holds.
        mark_ms: no id is issued with a later time, unix time in milliseconds; -1 for none at all.
        mark_wait: seconds waited, or still to be waited, for the marks of former owners to pass.
        renewals: signs of life that the store has taken.
        failures: calls to the store that failed.
        losses: how often the id was lost to somebody else.
        last_error: why the last call failed, or None if it did not.
        quarantine_left: seconds for which the store hands out no ids, because it may have forgotten
            who holds which, as it told us last; ``inf`` if that does not end by itself.
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
