"""What a lease does while it is open: take a machine id, renew it, and release it."""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import anyio

from .._life.clock import as_cosid_error, call_bounded
from .._life.open_state import OpenState, unavailable
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
from ._options import USUAL_LEAD
from ._tenure import DiskBound, Tenure
from .instance_ids import namesake

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._life.open_state import Home
    from ..abc import MachineIdDistributor
    from ._options import FittedOptions
    from ._tenure import MarkDemand

__all__ = ("LeaseOpening",)

logger = logging.getLogger("aiocosid")

LOSSES: Final = 3  # in a row, while the lease is valid: then another process uses our instance id
SETTLED: Final = 3  # renewals after which an id counts as stable, and earlier losses are forgotten
MS: Final = 1000

OFFLINE_PATIENCE: Final = 0.4  # seconds to wait for the store if the id can be used without it


class LeaseOpening(OpenState):
    """One opening of a `MachineIdLease`: the task that takes an id and keeps renewing it.

    Each call to the store has a timeout; each failure is counted and logged.

    Attributes:
        tenure: the id, and how long it may be used.
        is_urgent: whether the next renewal is due now.
        opened: set once ids may be issued, or opening has failed.
        refusal: why it could not be opened.
        last_error: the error of the last call, or None.
        fence_wait: seconds waited until the fences of former owners had passed.
        renewals: renewals that the store has accepted.
        failures: calls that failed.
        losses: how often the id was lost.
        quarantine_ends_at: when the store grants ids again, by its last answer and the monotonic
            clock; -inf if no quarantine is known.
    """

    __slots__ = (
        *("_bits", "_call_by", "_demand", "_distributor", "_is_left", "_is_fenced", "_options"),
        *("_patience", "_settling", "_started", "_thefts", "_watching"),
        *("failures", "is_urgent", "last_error", "losses", "fence_wait", "opened"),
        *("quarantine_ends_at", "refusal", "renewals", "tenure"),
    )

    def __init__(
        self,
        home: Home,
        before: LeaseOpening | None,
        *,
        distributor: MachineIdDistributor,
        bits: int,
        options: FittedOptions,
        demand: MarkDemand,
    ) -> None:
        """Start an opening.

        Args:
            home: what the lease and its opening share.
            before: the lease's previous opening.
            distributor: the source of the id.
            bits: the width of the id.
            options: the lease's options.
            demand: how far ahead of the clock the issuers need the fence.
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
        self._demand = demand
        self._bits = bits
        timeout = options.call_timeout
        disk = DiskBound(distributor, home, bits=bits, demand=demand, call_timeout=timeout)
        self.tenure: Tenure = Tenure(
            distributor, disk, home.clock, None if before is None else before.tenure
        )
        self._call_by = inf  # monotonic deadline for opening
        self._patience: float = timeout  # seconds for an answer of the store
        self._started = self.clock.monotonic()
        self._is_fenced = True  # whether a fence may be why the floor is ahead of the clock
        self._is_left = False  # whether the id was released, or will never be
        self._watching: anyio.Event | None = None  # set when its task has ended
        self._settling = self._thefts = 0
        self.is_urgent = False
        self.opened = anyio.Event()
        self.refusal: CosIdError | None = None
        self.last_error: CosIdError | None = None
        self.quarantine_ends_at = -inf
        self.fence_wait = 0.0
        self.renewals = self.failures = self.losses = 0

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
            is_first = self.quarantine_ends_at == -inf
            self.quarantine_ends_at = self.clock.monotonic() + error.seconds_left
            if is_first:
                self.emit(MachineIdsQuarantined, seconds_left=error.seconds_left)

    # Opening.

    def begin(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Start the task that takes an id and renews it; does not wait.

        Args:
            prepare: prepares the distributor for this lease.
        """
        watching = self._watching = anyio.Event()

        def unstarted() -> None:
            self.opened.set()
            watching.set()

        if not self.start_soon(self._watch, watching, prepare, task="guard", unstarted=unstarted):
            self.refusal = ClosedError(self.label)  # the provider that runs its tasks is closed
            unstarted()

    async def wait_for_id(self) -> None:
        """Wait until it is open, or until it has taken another id after a loss.

        Raises:
            CosIdError: it cannot be opened, was closed meanwhile, or got no id in time.
        """
        await self.opened.wait()
        if self.refusal is not None:
            raise self.refusal.again()
        self.check()
        limit = self._options.patience
        with self.clock.move_on_after(limit) as scope:
            while self.tenure.fence_ms < 0 and self.ended is None:
                await self.tenure.on_change.wait()
        if scope.cancelled_caught:
            raise self._unavailable(limit, self.last_error)

    def _unavailable(self, waited: float, cause: CosIdError | None) -> CosIdError:
        return unavailable(MachineIdUnavailableError, self.namespace, cause, waited=waited)

    async def _take(self) -> None:
        """Take a machine id and raise its fence; retry until the start timeout."""
        started, attempt = self.clock.monotonic(), 0
        answered: CosIdError | None = None
        self._call_by = started + self._options.patience
        try:
            while (error := await self._try_to_take()) is not None:
                attempt += 1
                self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and self._options.takes_another:
                    self._lose(error)  # another process with this instance id took it at once
                    self._thefts += 1
                    if self._thefts >= LOSSES:
                        raise namesake(self._distributor, "takes its machine id away") from error
                elif not error.retryable or not isinstance(error, StoreError):
                    raise error
                if answered is None or self.clock.monotonic() < self._call_by:
                    answered = error  # any later error only says that the call ran out of time
                waited = self.clock.monotonic() - started
                pause = self._options.pause(self._distributor.interval, attempt)
                if waited + pause >= self._options.patience:
                    raise self._unavailable(waited, answered)
                await self.sleep_for(pause)
                self.check()
        finally:
            self._call_by = inf

    async def _try_to_take(self) -> CosIdError | None:
        now_ms, disk = self.clock.now_ms(), self.tenure.disk
        threshold = self._options.broken_threshold
        latest = 2**62 if threshold is None else now_ms + int(threshold * MS)
        found = await disk.find()
        if isinstance(found, CosIdError):
            return found
        alone_ms = disk.floor_without_store(found, now_ms)
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
        """Begin with the id of a former process, up to the fence that the store has confirmed."""
        tenure, now_ms = self.tenure, self.clock.now_ms()
        record = tenure.disk.record_to_begin_with(found)
        if record is None:
            return error  # the next attempt may learn the time that ids must be above
        self._begin_term(MachineGrant(record.machine_id, floor_ms), now_ms, Found())
        tenure.fence_ms = record.fence_ms
        tenure.ends_at = self.clock.monotonic() + (record.fence_ms - now_ms) / MS
        refused = await tenure.disk.bind(tenure, renewal=record.renewal)
        if refused is None:
            self._note(error, 1)
            self.is_urgent = True  # the store is called again without a pause
        else:
            tenure.end()
        return refused

    def _begin_term(self, grant: MachineGrant, now_ms: int, found: Found) -> None:
        tenure = self.tenure
        renewed_ms = tenure.floor_ms if self.renewals else None
        floor_ms = tenure.disk.floor_ms(grant.floor_ms, found, renewed_ms)
        tenure.begin(grant.machine_id, floor_ms, now_ms)
        self._is_fenced = grant.is_fenced
        wait = max(0.0, (floor_ms - now_ms) / MS)
        self.emit(MachineIdDistributed, machine_id=grant.machine_id, wait=wait)
        logger.info("%s: machine id %d", self.label, grant.machine_id)

    def _fail(self, error: CosIdError) -> None:
        """End the lease, or make opening fail; do nothing if it was closed meanwhile."""
        if self.ended is None and self.opened.is_set():
            self.stop(error)
        elif self.ended is None:
            self.refusal = error
            self.opened.set()

    async def _wait_for_floor(self) -> None:
        """Wait until the clock is past all ids that the former owner may have issued; then open.

        It runs in a task of its own, so that the id is renewed meanwhile.  A fence is ahead of the
        clock by its writer's lead and the borrowed time, a stamp by one second more.  If it is
        further ahead, the clock is wrong.  An issuer that may borrow begins above it at once.  If
        the store keeps no fences, or only CosId has had the id, only a wrong clock explains a time
        that is ahead.
        """
        began, waited = self.clock.monotonic(), 0.0
        error: CosIdError | None = None
        options, borrowable = self._options, int(self._demand.borrowable * MS)
        longest = inf if options.broken_threshold is None else options.broken_threshold
        if self._distributor.keeps_fences and self._is_fenced:
            lead = max(options.lead_seconds, USUAL_LEAD)
            longest += lead + self._demand.borrowable + RELEASE_MARGIN
        while error is None and not self.has_ended():
            ahead = self.tenure.floor_ms - self.clock.now_ms()
            if ahead < borrowable:
                break
            if ahead + int(waited * MS) > longest * MS:  # the wall clock may step back meanwhile
                error = ClockTooManyBackwardsError(backwards=ahead / MS, threshold=longest)
            elif (error := self._impatience((ahead - borrowable) / MS)) is None:
                await self.sleep_for((ahead - borrowable + 1) / MS)
                waited = self.clock.monotonic() - began
        self.fence_wait += waited
        if error is not None:
            self._fail(error)
        self.opened.set()

    def _impatience(self, ahead: float) -> CosIdError | None:
        """Return an error if waiting that many seconds exceeds the start timeout."""
        limit, waited = self._options.start_timeout, self.clock.monotonic() - self._started
        if limit is None or waited + ahead <= limit:
            return None
        reason = f"a former owner's fence is {ahead:g} s ahead of the clock"
        remedy = "wait that long, or allow it with a longer start_timeout"
        return MachineIdUnavailableError(
            self.namespace, waited=waited, reason=reason, remedy=remedy
        )

    # Renewing.

    async def _watch(self, watching: anyio.Event, prepare: Callable[[], Awaitable[None]]) -> None:
        """Take an id and renew it until closed; take another one after a loss.

        It runs in a task of its own, so that cancelling the opener does not interrupt a call that
        takes an id.
        """
        attempt = 0
        try:
            self.check()  # if it was closed before this task began, nothing would wake the task
            with self.until_woken():
                await prepare()
            self.check()
            self._started = self.clock.monotonic()
            self.name = self._distributor.instance_id.text  # it differs in a forked child
            await self._take()
            self.start_soon(self._wait_for_floor, task="open", unstarted=self.opened.set)
            while not self.has_ended():
                pause = self._options.pause(self._distributor.interval, attempt)
                if not self.is_urgent:
                    await self.sleep_for(pause)
                error = None if self.has_ended() else await self._keep()
                if self.has_ended():
                    break
                attempt = 0 if error is None else attempt + 1
                if error is not None:
                    self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and not self._options.takes_another:
                    self._fail(error)
                    break
        except Exception as error:  # noqa: BLE001 - a custom distributor may raise anything
            self._fail(as_cosid_error(self._distributor.store, error))
        finally:
            self.opened.set()
            watching.set()
            self.tenure.notify()

    async def _keep(self) -> CosIdError | None:
        """Renew the id, or take one if there is none."""
        self.is_urgent = False
        tenure = self.tenure
        if tenure.machine_id < 0:
            return await self._take_again()
        was_good = tenure.seconds_left > 0
        error = await self._renew()
        if isinstance(error, MachineIdLostError):
            self._lose(error)
            await tenure.disk.void(tenure.last_issued_ms())
            # If the id was lost with the store's session, no other process has taken it.
            is_theft = was_good and self._distributor.session == tenure.session
            self._thefts = self._thefts + 1 if is_theft else 0
            if self._thefts >= LOSSES:
                raise namesake(self._distributor, "takes its machine id away")
            if self._options.takes_another:
                self._note(error, 1)
                return await self._take_again()
        elif error is None:
            self._settling += 1
            if self._settling >= SETTLED:
                self._thefts = 0
        else:
            await tenure.disk.keep(tenure)
        return error

    def _lose(self, error: MachineIdLostError) -> None:
        self.emit(MachineIdLost, machine_id=self.tenure.machine_id, error=error)
        self.tenure.end()
        self._settling = 0
        self.losses += 1
        self.tenure.notify()

    async def _take_again(self) -> CosIdError | None:
        error = await self._try_to_take()
        if error is None:  # issuers wait for its floor
            self.fence_wait += max(0, self.tenure.floor_ms - self.clock.now_ms()) / MS
        return error

    async def _renew(self) -> CosIdError | None:
        """Renew once, with a fence ahead of the clock; the lease counts from before the call.

        While the lease is valid, no other process can have been given the id, even if the store has
        lost its data.
        """
        sent_at, now_ms, options = self.clock.monotonic(), self.clock.now_ms(), self._options
        due_ms = self._demand.fence_ms(now_ms, options.lead_seconds, options.use_time)
        tenure, by = self.tenure, self._distributor
        fence_ms = max(tenure.fence_ms, tenure.floor_ms, due_ms)
        machine_id, session = tenure.machine_id, by.session
        is_good = tenure.is_surely_ours(options.lease_time)
        call = by.reassert if is_good else by.renew
        done = await self._call(call, machine_id, now_ms=now_ms, fence_ms=fence_ms)
        if isinstance(done, CosIdError):
            return done
        if is_good and not tenure.is_surely_ours(options.lease_time):
            return StoreUnavailableError(by.store, "its answer came after the lease had ended")
        if by.session != session:
            return StoreUnavailableError(by.store, "its session was interrupted meanwhile")
        tenure.session, tenure.signed_ms = session, now_ms
        tenure.fence_ms, tenure.ends_at = fence_ms, sent_at + options.use_time
        self.renewals += 1
        self.last_error, self.quarantine_ends_at = None, -inf
        took = self.clock.monotonic() - sent_at
        self.emit(MachineIdGuarded, machine_id=machine_id, fence_ms=fence_ms, took=took)
        return await tenure.disk.bind(tenure)

    # Closing.

    def stop(self, reason: CosIdError) -> None:
        """End the lease at once."""
        self.tenure.ends_at = -inf
        self.end(reason)
        if not isinstance(reason, ForkedError):
            self.wake()
            self.tenure.notify()

    async def drain(self) -> None:
        """Release the id, once no task renews it."""
        if self._watching is not None:
            with self.clock.move_on_after(self._options.close_timeout):
                await self._watching.wait()
            self._watching = None
        tenure = self.tenure
        if tenure.machine_id >= 0 and tenure.disk.offline:
            # The fence stays: the next process may also start without the store.
            await tenure.disk.leave(tenure)
            tenure.machine_id = -1
        machine_id, tenure.machine_id = tenure.machine_id, -1
        if machine_id >= 0:
            # One millisecond is added because the next owner may be CosId, which issues ids in the
            # same millisecond.
            last_ms = max(tenure.last_issued_ms() + 1, tenure.floor_ms)
            error = await self._call(self._distributor.release, machine_id, last_ms=last_ms)
            if isinstance(error, CosIdError):
                self._note(error, 1)
        self._is_left = True
