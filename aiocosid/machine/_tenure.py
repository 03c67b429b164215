"""The machine id of a lease: when its use ends, and the bound on ids that is kept on disk."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import anyio

from .._life.clock import call_bounded
from ..abc.machines import region_ids
from ..abc.restart import VOID, Found, RestartRecord
from ..errors import CosIdError, StoreUnavailableError
from ._options import lead_of
from .files import STORE
from .restart import (
    early_floor_ms,
    is_last,
    is_still_its,
    latest_ms,
    least_floor_ms,
    offline_floor_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._life.open_state import Home
    from ..abc import Clock, MachineIdDistributor

__all__ = ("DiskBound", "Issuer", "MarkDemand", "Tenure")

logger = logging.getLogger("aiocosid")

MS: Final = 1000
NEVER_MS: Final = 2**62


class MarkDemand:
    """How far ahead of the clock the issuers need the fence, also before the lease is open.

    Attributes:
        asked_ms: the fence that they requested.
        borrowable: seconds that they may be ahead of the clock.
        ahead_ms: how far ahead of the clock an issuer last prepared ids.
        prepared_ms: the wall clock at that time.
    """

    __slots__ = ("ahead_ms", "asked_ms", "borrowable", "prepared_ms")

    def __init__(self) -> None:
        self.asked_ms = self.prepared_ms = -1
        self.borrowable = 0.0
        self.ahead_ms = 0

    def fence_ms(self, now_ms: int, lead: float, use_time: float) -> int:
        """Return a fence ahead of the clock, and not below what an issuer requested.

        It is never further ahead than the id may be used after a renewal.  Where the fence is lost,
        or unknown to a Java peer, only elapsed time protects the ids below it.

        Args:
            now_ms: the wall clock.
            lead: seconds that the fence is ahead of it.
            use_time: seconds that the id may be used after a renewal.
        """
        longest = int(min(lead + self.borrowable, use_time) * MS)
        return min(max(now_ms, self.asked_ms) + int(lead * MS), now_ms + longest)


class Issuer(Protocol):
    """A sequencer that issues ids under a lease."""

    @property
    def last_ms(self) -> int:
        """No id was issued with a later time, in milliseconds since 1970."""
        ...


class Tenure:
    """The machine ids of one opening of a lease, in turn, and how long each may be used.

    Attributes:
        disk: the bound on ids that is kept on this machine's disk.
        issuers: the sequencers that issue ids under it, by name.
        machine_id: the id; -1 while there is none.
        term: how many ids were taken so far, also by earlier openings.
        floor_ms: ids of this term must have a later time, in milliseconds since 1970.
        taken_ms: the wall clock when the id was taken, in milliseconds.
        ends_at: when the lease ends, by the monotonic clock.
        fence_ms: no id is issued with a later time; -1 for none at all.
        signed_ms: the wall clock when the last renewal was sent.
        session: the store's session at the last renewal.
        on_change: set when the lease is next renewed, lost or taken again.
    """

    __slots__ = (
        *("_clock", "_distributor", "_past_ms", "on_change", "disk", "ends_at", "floor_ms"),
        *("issuers", "machine_id", "fence_ms", "session", "signed_ms", "taken_ms", "term"),
    )

    def __init__(
        self, distributor: MachineIdDistributor, disk: DiskBound, clock: Clock, before: Self | None
    ) -> None:
        """Start without an id; ``before`` belongs to the previous opening."""
        self._distributor = distributor
        self._clock = clock
        self.disk = disk
        self.issuers: dict[str, Issuer] = {}
        self.term: int = 0 if before is None else before.term
        # No id of an earlier opening was issued with a later time.
        self._past_ms: int = -1 if before is None else before.last_issued_ms()
        self.machine_id = self.floor_ms = self.taken_ms = self.fence_ms = self.signed_ms = -1
        self.ends_at = -inf
        self.session: int = 0
        self.on_change = anyio.Event()

    def begin(self, machine_id: int, floor_ms: int, now_ms: int) -> None:
        """Start to use an id, before its first renewal."""
        self.machine_id, self.taken_ms = machine_id, now_ms
        self.floor_ms = max(floor_ms, self.last_issued_ms())
        self.term += 1

    def end(self) -> None:
        """Stop using the id."""
        self.machine_id, self.fence_ms, self.ends_at = -1, -1, -inf

    def notify(self) -> None:
        """Wake all tasks that wait for a change of the lease."""
        self.on_change.set()
        self.on_change = anyio.Event()

    def limit_ms(self) -> int:
        """Return the latest time that ids may have now, in ms since 1970; -1 for none at all."""
        is_good = self._clock.monotonic() < self.ends_at
        if not is_good or not (self.disk.offline or self._distributor.session == self.session):
            return -1
        return min(self.fence_ms, self.disk.limit_ms())

    def reach_ms(self) -> int:
        """Return the latest time that the next renewal may allow for ids."""
        return min(self.fence_ms, self.disk.until_ms)

    @property
    def seconds_left(self) -> float:
        """How long the id may be used without a further renewal."""
        return max(0.0, self.ends_at - self._clock.monotonic())

    def is_surely_ours(self, lease_time: float) -> bool:
        """Whether both clocks say that the lease is valid: a suspended host stops one of them."""
        is_good: bool = self.seconds_left > max(0.0, self.disk.offline - lease_time)
        return is_good and self._clock.now_ms() < self.signed_ms + lease_time * MS

    def last_issued_ms(self) -> int:
        """Return the latest time of an id, also of earlier openings; -1 if there is none."""
        last_ms: int = max((issuer.last_ms for issuer in self.issuers.values()), default=-1)
        return max(last_ms, self._past_ms)


class DiskBound:
    """What one opening of a lease finds on its machine's disk, and keeps there.

    Without a ``state_dir`` there is no record: it finds nothing, and bounds no ids.

    Attributes:
        offline: seconds without the store for which ids may be issued, also by the next process.
        until_ms: for an instance that may start without the store, the latest time of ids that the
            record allows.
    """

    __slots__ = (
        *("_at_ms", "_bits", "_bound_ms", "_call_timeout", "_demand", "_distributor", "_found"),
        *("_home", "_place", "offline", "until_ms"),
    )

    def __init__(
        self,
        distributor: MachineIdDistributor,
        home: Home,
        *,
        bits: int,
        demand: MarkDemand,
        call_timeout: float,
    ) -> None:
        self._distributor = distributor
        self._place = distributor.restart
        self._home = home
        self._bits = bits
        self._demand = demand
        self._call_timeout = call_timeout
        self._found: Found | None = None  # on this machine, by the first attempt to take an id
        self._bound_ms = -1  # latest time of ids, at the boot clock `_at_ms`, until the renewal
        self._at_ms = -1  # -1: there is no bound, and a successor waits for the fence
        self.offline: float = 0.0 if self._place is None else self._place.offline
        self.until_ms: int = -1 if self.offline else NEVER_MS

    def limit_ms(self) -> int:
        """Return the latest time that the record on disk allows for ids now."""
        if self._at_ms < 0:
            return self.until_ms
        return min(self.until_ms, latest_ms(self._now_ms(), 0))

    def _now_ms(self) -> int:
        """Return the bound of ids, advanced by the time since it was set."""
        if self._place is None or self._at_ms < 0:
            return NEVER_MS
        return self._bound_ms + self._place.boot_ms() - self._at_ms

    # Beginning.

    async def find(self) -> Found | CosIdError:
        """Return what a former process left on this machine; nothing after the first grant.

        Returns:
            An error if ids depend on the record and another process has locked it: that process may
            still be running, and issue ids that the store does not know of.
        """
        if self._place is None:
            return Found()
        if self._found is None:
            answer = await self._call(self._place.take)
            found = answer if isinstance(answer, Found) else Found()
            needs_lock = self.offline or (found.record is not None and found.record.until_ms >= 0)
            if needs_lock and not found.lock:
                return _not_locked()
            self._found = found
        self._place.found = self._found
        return self._found

    def floor_without_store(self, found: Found, now_ms: int) -> int | None:
        """Return the time that ids must be above if the store fails; None if none may be issued."""
        ids = region_ids(self._bits, self._distributor.region_code)
        is_ours = self.offline and (found.record is None or found.record.machine_id in ids)
        return offline_floor_ms(found, self._bits, now_ms) if is_ours else None

    def record_to_begin_with(self, found: Found) -> RestartRecord | None:
        """Return the record if this process may begin with its id; None if it may not yet."""
        record, place = found.record, self._place
        if record is None or place is None or not is_still_its(record, place.former):
            return None
        return record

    def floor_ms(self, granted_ms: int, found: Found, renewed_ms: int | None) -> int:
        """Return the time that the ids of a grant must be above.

        Args:
            granted_ms: that time according to the store.
            found: what was found on this machine.
            renewed_ms: the last floor, if the id was renewed since; None if it was not.
        """
        place = self._place
        if place is None:
            return granted_ms
        floor_ms = max(granted_ms, least_floor_ms(found))
        early_ms = early_floor_ms(found, place.former)
        if renewed_ms is not None and is_last(place.renewal, place.former):
            early_ms = renewed_ms  # a call of a former process, now ended, took the id away
        self._found = Found()
        return floor_ms if early_ms is None else min(floor_ms, early_ms)

    # Once there is an id.

    async def bind(self, held: Tenure, *, renewal: str | None = None) -> CosIdError | None:
        """Set the bound of ids until the next renewal, and write it to this machine's disk.

        Until it is on the disk, a successor that calls the store waits for the fence, because the
        record that it finds is of an earlier renewal.  A successor that may start without the store
        would trust that record; so then ids stay below both bounds until the new one is on the
        disk.

        Args:
            held: the id.
            renewal: names the renewal, if a former process made it.

        Returns:
            The disk's error, if ids depend on the record.
        """
        if self._place is not None and renewal is not None:
            self._place.renewal = renewal
        at_ms = 0 if self._place is None else self._place.boot_ms()
        if self._place is None or not (at_ms or self.offline):
            held.notify()
            return None
        now_ms, former_ms = self._home.clock.now_ms(), self._now_ms()
        demand, asked_ms = self._demand, max(self._demand.asked_ms, held.floor_ms)
        if now_ms - demand.prepared_ms < self._distributor.interval * MS:
            # Otherwise an issuer that prepares ids would request another renewal right after this.
            asked_ms = max(asked_ms, now_ms + demand.ahead_ms)
        bound_ms = max(now_ms, min(asked_ms, now_ms + int(demand.borrowable * MS)))
        self._at_ms = at_ms or -1
        self._bound_ms = min(bound_ms, former_ms) if self.offline else bound_ms
        # Done last: an id that a signal handler issues from here on is below the new bound.
        bound_ms = max(bound_ms, held.last_issued_ms())
        if not self.offline:
            self._bound_ms = bound_ms
            held.notify()
            await self._write(held, bound_ms, at_ms)
            return None
        refused = await self._write(held, bound_ms, at_ms)
        if refused is None:
            self._bound_ms = bound_ms
        held.notify()
        return refused

    async def keep(self, held: Tenure) -> None:
        """Let ids continue while the store fails, if they may do so."""
        if self.offline and self.until_ms >= 0:
            await self._write(held, self._bound_ms, max(self._at_ms, 0))

    async def void(self, last_ms: int) -> None:
        """Void the record because its id is lost, so that no process begins with it.

        Args:
            last_ms: ids of the next process must be above that time.
        """
        if self._place is not None and self.offline:
            void = replace(VOID, floor_ms=last_ms)
            await self._call(partial(self._place.write, void))

    async def leave(self, held: Tenure) -> None:
        """Write that no id has a later time than those that were issued."""
        if self._place is not None:
            last_ms = max(held.last_issued_ms(), held.floor_ms, 0)
            await self._write(held, last_ms, self._place.boot_ms(), last_ms)

    async def _write(
        self, held: Tenure, bound_ms: int, at_ms: int, until_ms: int | None = None
    ) -> CosIdError | None:
        """Write the record of a bound; then ids may go up to the record's own fence."""
        place, clock = self._place, self._home.clock
        if place is None or not place.renewal:
            return None
        record = RestartRecord(
            renewal=place.renewal, boot_ms=at_ms, bound_ms=bound_ms, floor_ms=held.floor_ms
        )
        if self.offline:
            lead_ms = int(lead_of(self._distributor) * MS)
            latest = max(self.until_ms, clock.now_ms() + lead_ms, bound_ms + lead_ms)
            record = replace(
                record,
                until_ms=min(latest, held.fence_ms) if until_ms is None else until_ms,
                fence_ms=held.fence_ms,
                machine_id=held.machine_id,
                bits=self._bits,
            )
        written = await self._call(partial(place.write, record))
        if isinstance(written, CosIdError):
            return written
        if self.offline and not written:
            return _not_locked()
        if self.offline:
            self.until_ms = record.until_ms
        return None

    async def _call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - any call
        """Call this machine's disk; return an error instead of raising it."""
        clock, within = self._home.clock, self._call_timeout
        answer = await call_bounded(call, store=STORE, clock=clock, within=within, shield=True)
        if isinstance(answer, CosIdError):
            logger.warning("%s: %s", self._home.label, answer)
        return answer


def _not_locked() -> CosIdError:
    """Return the error of an instance whose ids depend on a record that it cannot lock."""
    return StoreUnavailableError(
        STORE,
        "cannot lock and write the record of this instance, on which its ids depend: another "
        "process has locked it, or the disk does not answer",
        remedy="stop the other process, or repair the disk; aiocosid tries again",
    )
