"""What a lease does while it is open: takes a machine id, renews it, and gives it back."""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from .._life.clock import as_cosid_error, call_bounded
from .._life.open_state import OpenState
from ..abc import MachineGrant
from ..abc.events import (
    MachineIdDistributed,
    MachineIdGuarded,
    MachineIdGuardFailed,
    MachineIdLost,
    MachineIdsQuarantined,
)
from ..abc.machines import RELEASE_MARGIN
from ..abc.restart import Found
from ..errors import (
    ClockTooManyBackwardsError,
    ClosedError,
    CosIdError,
    ForkedError,
    MachineIdLostError,
    MachineIdQuarantineError,
    MachineIdUnavailableError,
    StoreError,
    StoreNotInitializedError,
    StoreUnavailableError,
)
from ._bound import DiskBound, not_locked
from ._options import USUAL_LEAD
from .instance_ids import namesake

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._life.open_state import Home
    from ..abc import MachineIdDistributor
    from ..abc.events import Event
    from ._bound import MarkDemand
    from ._options import FittedOptions

__all__ = ("Issuer", "Leasing")

logger = logging.getLogger("aiocosid")

LOSSES: Final = 3  # in a row, while the lease was valid: another process uses our instance id
SETTLED: Final = 3  # renewals after which an id counts as stable, and earlier losses are forgotten
MS: Final = 1000

OFFLINE_PATIENCE: Final = 0.4  # seconds for the store's answer, if the id can be used without it


class Issuer(Protocol):
    """A sequencer that issues ids under a lease."""

    @property
    def last_ms(self) -> int:
        """No id was issued with a later time, in milliseconds since 1970."""
        ...


class Leasing(OpenState):
    """One opening of a `MachineIdLease`: its two ends, and the task that extends them.

    Each call to the store has a timeout; each failure is counted and logged.

    Attributes:
        machine_id: the id; -1 while there is none.
        term: how many ids were taken so far, also by earlier openings.
        floor_ms: ids of this term have to be later, in milliseconds since 1970.
        taken_ms: the wall clock when the id was taken, in milliseconds.
        issuers: what issues ids under it, by name.
        ends_at: when the lease ends, by the monotonic clock.
        mark_ms: no id is issued with a later time; -1 for none at all.
        session: the store's session of the last renewal.
        changed: set when the lease is next renewed, lost or taken again.
        hurry: whether it is to be renewed now.
        refusal: why it could not be opened.
        last_error: the error of the last call, or None.
        mark_wait: seconds waited for the marks of former owners to pass.
        renewals: renewals that the store has accepted.
        failures: calls that failed.
        losses: how often the id was lost.
    """

    __slots__ = (
        *("_bits", "_bound", "_call_by", "_demand", "_distributor", "_is_left", "_is_marked"),
        *("_opened", "_options", "_past_ms", "_patience", "_quarantine_ends_at", "_settling"),
        *("_signed_ms", "_started", "_thefts", "_watching"),
        *("changed", "ends_at", "failures", "floor_ms", "hurry", "issuers", "last_error", "losses"),
        *("machine_id", "mark_ms", "mark_wait", "refusal", "renewals", "session", "taken_ms"),
        "term",
    )

    def __init__(
        self,
        home: Home,
        before: Leasing | None,
        *,
        distributor: MachineIdDistributor,
        bits: int,
        options: FittedOptions,
        demand: MarkDemand,
    ) -> None:
        """Begin.

        Args:
            home: what the lease gives to it.
            before: the lease's last opening.
            distributor: the source of the id.
            bits: the width of the id.
            options: the lease's.
            demand: what the issuers want of the time mark.
        """
        super().__init__(
            home,
            before,
            namespace=distributor.namespace,
            name=distributor.instance_id.text,
            instrument=options.instrument,
        )
        self._distributor = distributor
        self._options = options
        self._bits = bits
        self._demand = demand
        self.term: int = 0 if before is None else before.term
        # No id of an earlier opening was issued with a later time.
        self._past_ms: int = -1 if before is None else before.last_issued_ms()
        self.issuers: dict[str, Issuer] = {}
        self._call_by = inf  # by the monotonic clock: when opening gives up
        self._patience: float = options.call_timeout  # seconds for an answer of the store
        self._started = self.clock.monotonic()
        self._is_marked = True  # a mark may be why the floor is ahead of the clock
        self._is_left = False  # the id was given back, or nobody will do that any more
        self.last_error: CosIdError | None = None
        self.failures = 0
        self._quarantine_ends_at: float | None = None  # monotonic; None: no quarantine known
        self.machine_id = self.floor_ms = self.taken_ms = self.mark_ms = -1
        self.ends_at = -inf
        self._signed_ms = -1  # by the wall clock: when the last renewal was sent
        self._bound = DiskBound(
            distributor, home, bits=bits, demand=demand, call_timeout=options.call_timeout
        )
        self.session: int = 0
        self.mark_wait = 0.0
        self.changed = anyio.Event()
        self.hurry = False
        self._watching: anyio.Event | None = None  # set when its task has ended
        self._opened = anyio.Event()
        self.refusal: CosIdError | None = None
        self.renewals = self.losses = 0
        self._settling = self._thefts = 0

    def limit_ms(self) -> int:
        """Return the latest time that ids may have now, in ms since 1970; -1 for none at all."""
        is_good = self.clock.monotonic() < self.ends_at
        if not is_good or not (self._bound.offline or self._distributor.session == self.session):
            return -1
        return min(self.mark_ms, self._bound.limit_ms())

    def reach_ms(self) -> int:
        """Return the latest time up to which the next renewal may let ids be."""
        return min(self.mark_ms, self._bound.until_ms)

    @property
    def seconds_left(self) -> float:
        """How long the id may be used without a further renewal."""
        return max(0.0, self.ends_at - self.clock.monotonic())

    def last_issued_ms(self) -> int:
        """Return the latest time of an id, also of the openings before; -1 if there is none."""
        last_ms: int = max((issuer.last_ms for issuer in self.issuers.values()), default=-1)
        return max(last_ms, self._past_ms)

    def emit(self, kind: Callable[..., Event], **facts: object) -> None:
        """Tell the instrument of an event, under the instance id, which may have changed."""
        self.name = self._distributor.instance_id.text
        super().emit(kind, **facts)

    # Calls to the store, and the pauses between them.

    async def _call(self, method: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        """Call the store once, with a timeout; return an error instead of raising it."""
        answer = await call_bounded(
            partial(method, *args, **named),
            store=self._distributor.store,
            clock=self.clock,
            within=min(self._patience, self._call_by - self.clock.monotonic()),
            shield=True,
        )
        return ClosedError(self.label) if self._is_left else answer

    def _note(self, error: CosIdError, attempt: int) -> None:
        self.last_error = error
        self.failures += 1
        if attempt == 1:
            logger.warning("%s: %s", self.label, error)
        self.emit(MachineIdGuardFailed, error=error, attempt=attempt)
        if isinstance(error, MachineIdQuarantineError):
            is_first = self._quarantine_ends_at is None
            self._quarantine_ends_at = self.clock.monotonic() + error.seconds_left
            if is_first:
                self.emit(MachineIdsQuarantined, seconds_left=error.seconds_left)

    def quarantine_left(self) -> float:
        """Return the seconds for which the store hands out no ids, by its last answer."""
        if self._quarantine_ends_at is None:
            return 0.0
        return max(0.0, self._quarantine_ends_at - self.clock.monotonic())

    # Opening.

    async def start(self, retire: Callable[[CosIdError], object]) -> None:
        """Take an id, and wait until ids may be issued under it.

        Args:
            retire: ends the lease, with a reason.
        """
        self._started = self.clock.monotonic()
        watching = self._watching = anyio.Event()

        def unstarted() -> None:
            self._opened.set()
            watching.set()

        if not self.start_soon(self._watch, watching, retire, task="guard", unstarted=unstarted):
            self._watching = None
            raise ClosedError(self.label)  # with the provider whose tasks run there
        await self._opened.wait()
        if self.refusal is not None:
            raise self.refusal
        self.check()
        await self._wait_for_floor()

    async def wait_for_id(self) -> None:
        """Wait while its user opens it, or while it takes another id after a loss."""
        limit = self._options.patience
        with self.clock.move_on_after(limit) as scope:
            while self.mark_ms < 0 and self.ended is None:
                await self.changed.wait()
        if self.refusal is not None:
            raise self.refusal.again()
        if scope.cancelled_caught:
            raise self._unavailable(limit, self.last_error) from self.last_error

    def _unavailable(self, waited: float, cause: CosIdError | None) -> CosIdError:
        reason, remedy = ("", "") if cause is None else (str(cause), cause.remedy)
        return MachineIdUnavailableError(
            self.namespace, waited=waited, reason=reason, remedy=remedy
        )

    def refuse(self, error: CosIdError) -> None:
        """Note why it cannot be opened, unless it was closed meanwhile: then nothing is wrong."""
        if self.ended is None:
            self.refusal = error

    async def _take(self) -> None:
        """Take a machine id and raise its mark; tries until the start timeout."""
        started, attempt = self.clock.monotonic(), 0
        answered: CosIdError | None = None
        self._call_by = started + self._options.patience
        try:
            while (error := await self._try_to_take()) is not None:
                attempt += 1
                self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and self._options.takes_another:
                    self._lose(error)  # before the first renewal: a process of the same instance id
                    self._thefts += 1
                    if self._thefts >= LOSSES:
                        raise namesake(self._distributor, "takes its machine id away") from error
                elif not error.retryable or not isinstance(error, StoreError):
                    raise error
                if answered is None or self.clock.monotonic() < self._call_by:
                    answered = error  # otherwise it says only that this call had no time left
                waited = self.clock.monotonic() - started
                pause = self._options.pause(self._distributor.interval, attempt)
                if waited + pause >= self._options.patience:
                    raise self._unavailable(waited, answered) from answered
                await self.sleep_for(pause)
                self.check()
        finally:
            self._call_by = inf

    async def _try_to_take(self) -> CosIdError | None:
        now_ms = self.clock.now_ms()
        threshold = self._options.broken_threshold
        latest = 2**62 if threshold is None else now_ms + int(threshold * MS)
        found = await self._bound.find()
        if found is None:
            return not_locked()
        alone_ms = self._bound.floor_without_store(found, now_ms)
        if alone_ms is not None:
            self._patience = min(self._patience, OFFLINE_PATIENCE)
        taken = await self._call(
            self._distributor.distribute, self._bits, now_ms=now_ms, latest_ms=latest
        )
        self._patience = self._options.call_timeout
        is_unknown = isinstance(taken, StoreUnavailableError | MachineIdQuarantineError)
        if is_unknown and alone_ms is not None and not isinstance(taken, StoreNotInitializedError):
            return await self._begin_alone(taken, found, alone_ms)
        if isinstance(taken, CosIdError):
            return taken
        self._begin_term(taken, now_ms, found)
        return await self._renew()

    async def _begin_alone(
        self, error: CosIdError, found: Found, floor_ms: int
    ) -> CosIdError | None:
        """Begin with the id of a former process, up to the mark that the store has confirmed."""
        record, now_ms = self._bound.record_to_begin_with(found), self.clock.now_ms()
        if record is None:
            return error  # the next attempt may learn above which time ids have to be
        self._begin_term(MachineGrant(record.machine_id, floor_ms), now_ms, Found())
        self.mark_ms = record.mark_ms
        self.ends_at = self.clock.monotonic() + (record.mark_ms - now_ms) / MS
        refused = await self._bound.bind(self, renewal=record.renewal)
        if refused is None:
            self._note(error, 1)
            self.hurry = True  # the store is asked again and again
        else:
            self.mark_ms, self.ends_at, self.machine_id = -1, -inf, -1
        return refused

    def _begin_term(self, grant: MachineGrant, now_ms: int, found: Found) -> None:
        renewed_ms = self.floor_ms if self.renewals else None
        floor_ms = self._bound.floor_ms(grant.floor_ms, found, renewed_ms)
        self.machine_id, self._is_marked = grant.machine_id, grant.is_marked
        self.floor_ms = max(floor_ms, self.last_issued_ms())
        self.taken_ms = now_ms
        self.term += 1
        ahead = (floor_ms - now_ms) / MS
        self.emit(MachineIdDistributed, machine_id=grant.machine_id, wait=max(0.0, ahead))
        logger.info("%s: machine id %d", self.label, grant.machine_id)

    async def _wait_for_floor(self) -> None:
        """Wait until the clock is past all ids that the former owner may have issued.

        A mark is ahead of the clock by its writer's lead and the borrowed time, a stamp by a second
        more; if it is further ahead, the clock is wrong.  An issuer that may borrow begins above it
        at once.  Where there are no marks, nothing explains a time that is ahead, nor where only
        CosId has had the id.
        """
        began, waited = self.clock.monotonic(), 0.0
        options, borrowable = self._options, int(self._demand.borrowable * MS)
        longest = inf if options.broken_threshold is None else options.broken_threshold
        if self._distributor.keeps_marks and self._is_marked:
            lead = max(options.lead_seconds, USUAL_LEAD)
            longest += lead + self._demand.borrowable + RELEASE_MARGIN
        while (ahead := self.floor_ms - self.clock.now_ms()) >= borrowable:
            if ahead + int(waited * MS) > longest * MS:  # the wall clock may step back meanwhile
                raise ClockTooManyBackwardsError(backwards=ahead / MS, threshold=longest)
            self._check_patience((ahead - borrowable) / MS)
            await self.sleep_for((ahead - borrowable + 1) / MS)
            self.check()
            waited = self.clock.monotonic() - began
        self.mark_wait += waited

    def _check_patience(self, ahead: float) -> None:
        """Raise if a wait of so many seconds is longer than the caller allows."""
        limit, waited = self._options.start_timeout, self.clock.monotonic() - self._started
        if limit is not None and waited + ahead > limit:
            reason = f"a former owner's time mark is {ahead:g} s ahead of the clock"
            remedy = "wait that long, or allow it with a longer start_timeout"
            raise MachineIdUnavailableError(
                self.namespace, waited=waited, reason=reason, remedy=remedy
            )

    # Renewing.

    async def _watch(self, watching: anyio.Event, retire: Callable[[CosIdError], object]) -> None:
        """Take an id and renew it until closed; take another one after a loss.

        It runs in a task of its own: cancelling the opener does not interrupt a call that takes an
        id.
        """
        attempt = 0
        try:
            await self._take()
            self._opened.set()
            while not self.has_ended():
                pause = self._options.pause(self._distributor.interval, attempt)
                if not self.hurry:
                    await self.sleep_for(pause)
                error = None if self.has_ended() else await self._keep()
                if self.has_ended():
                    break
                attempt = 0 if error is None else attempt + 1
                if error is not None:
                    self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and not self._options.takes_another:
                    retire(error)
        except Exception as error:  # noqa: BLE001 - a stranger's distributor, whatever it answers
            if self.ended is None:
                ours = as_cosid_error(self._distributor.store, error)
                (retire if self._opened.is_set() else self.refuse)(ours)
        finally:
            self._opened.set()
            watching.set()
            self.notify()

    async def _keep(self) -> CosIdError | None:
        """Renew the id, or take one if there is none."""
        self.hurry = False
        if self.machine_id < 0:
            return await self._take_anew()
        was_good = self.clock.monotonic() < self.ends_at
        error = await self._renew()
        if isinstance(error, MachineIdLostError):
            self._lose(error)
            await self._bound.void(self.last_issued_ms())
            # An id that was lost with the store's session was not taken over by another process.
            is_theft = was_good and self._distributor.session == self.session
            self._thefts = self._thefts + 1 if is_theft else 0
            if self._thefts >= LOSSES:
                raise namesake(self._distributor, "takes its machine id away")
            if self._options.takes_another:
                self._note(error, 1)
                return await self._take_anew()
        elif error is None:
            self._settling += 1
            if self._settling >= SETTLED:
                self._thefts = 0
        else:
            await self._bound.keep(self)
        return error

    def _lose(self, error: MachineIdLostError) -> None:
        self.emit(MachineIdLost, machine_id=self.machine_id, error=error)
        self.ends_at = -inf
        self.mark_ms = -1
        self.machine_id = -1
        self._settling = 0
        self.losses += 1
        self.notify()

    async def _take_anew(self) -> CosIdError | None:
        error = await self._try_to_take()
        if error is None and self.floor_ms >= self.clock.now_ms():
            self.mark_wait += (self.floor_ms - self.clock.now_ms()) / MS  # issuers wait for it
        return error

    async def _renew(self) -> CosIdError | None:
        """Renew once, with a mark ahead of the clock; the lease counts from before the call.

        While the lease is valid no other process can have been given the id, even if the store has
        lost its data.
        """
        sent_at, now_ms, options = self.clock.monotonic(), self.clock.now_ms(), self._options
        due_ms = self._demand.mark_ms(now_ms, options.lead_seconds, options.use_time)
        mark_ms = max(self.mark_ms, self.floor_ms, due_ms)
        machine_id, by = self.machine_id, self._distributor
        session = by.session
        is_good = self._is_surely_ours()
        call = by.reassert if is_good else by.guard
        done = await self._call(call, machine_id, now_ms=now_ms, mark_ms=mark_ms)
        if isinstance(done, CosIdError):
            return done
        if is_good and not self._is_surely_ours():  # the lease had expired before the answer
            return StoreUnavailableError(by.store, "its answer came after the lease had ended")
        if by.session != session:
            return StoreUnavailableError(by.store, "its session was interrupted meanwhile")
        self.session = session
        self.ends_at = sent_at + options.use_time
        self.mark_ms, self._signed_ms = mark_ms, now_ms
        self.renewals += 1
        self.last_error = self._quarantine_ends_at = None
        took = self.clock.monotonic() - sent_at
        self.emit(MachineIdGuarded, machine_id=machine_id, mark_ms=mark_ms, took=took)
        return await self._bound.bind(self)

    def _is_surely_ours(self) -> bool:
        """Whether the lease is valid by both clocks: a suspended host stops the monotonic one."""
        longest = self._options.lease_time
        ends_at = self.ends_at - max(0.0, self._options.offline - longest)
        is_good: bool = self.clock.monotonic() < ends_at
        return is_good and self.clock.now_ms() < self._signed_ms + longest * MS

    def notify(self) -> None:
        """Let those go on who wait for a change of the lease."""
        self.changed.set()
        self.changed = anyio.Event()

    # Closing.

    def stop(self, reason: CosIdError) -> None:
        """End the lease at once."""
        self.ends_at = -inf
        self.end(reason)
        if not isinstance(reason, ForkedError):
            self.wake()
            self.notify()

    async def drain(self) -> None:
        """Give the id back, once no task renews it any more."""
        if self._watching is not None:
            with self.clock.move_on_after(self._options.close_timeout):
                await self._watching.wait()
            self._watching = None
        if self.machine_id >= 0 and self._bound.offline:
            # The mark stays: the next process may start without the store as well.
            await self._bound.leave(self)
            self.machine_id = -1
        machine_id, self.machine_id = self.machine_id, -1
        if machine_id >= 0:
            # A millisecond later: the next owner may be CosId, which issues ids in the same
            # millisecond.
            last_ms = max(self.last_issued_ms() + 1, self.floor_ms)
            error = await self._call(self._distributor.revert, machine_id, last_ms=last_ms)
            if isinstance(error, CosIdError):
                self._note(error, 1)
        self._is_left = True
