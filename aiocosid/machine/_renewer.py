"""Takes a machine id, renews it, takes another after a loss, and gives it back."""

from __future__ import annotations

import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary, ref

import anyio

from .._life import fork
from .._life.component import Component
from .._life.foreign_calls import as_cosid_error, call_bounded
from .._life.loop import is_dead, running_loop
from ..abc._machine import RELEASE_MARGIN
from ..errors import (
    ClockTooManyBackwardsError,
    ClosedError,
    CosIdError,
    ForkedError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdQuarantineError,
    MachineIdUnavailableError,
    StoreError,
    StoreUnavailableError,
)
from ..events import (
    Event,
    MachineIdDistributed,
    MachineIdGuarded,
    MachineIdGuardFailed,
    MachineIdLost,
    MachineIdsQuarantined,
)

if TYPE_CHECKING:
    from ..abc import Clock, MachineGrant, MachineIdDistributor
    from ._options import LeaseOptions

__all__ = ("Issuer", "LeaseRenewer")

logger = logging.getLogger("aiocosid")

LOSSES: Final = 3  # in a row, while the lease was valid: another process uses our instance id
SETTLED: Final = 3  # renewals after which an id counts as stable, and earlier losses are forgotten
FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 2.0  # seconds; at most this long after an outage has ended, it is noticed
JITTER: Final = 0.1  # of an interval: processes that started at the same time drift apart
MS: Final = 1000


class Issuer(Protocol):
    """A sequencer that issues ids under a lease."""

    @property
    def last_ms(self) -> int:
        """No id was issued with a later time, in milliseconds since 1970."""
        ...


_holders: Final[WeakKeyDictionary[MachineIdDistributor, ref[LeaseRenewer]]] = WeakKeyDictionary()
"""The lease that was opened last on a distributor."""


class LeaseRenewer(Component):
    """Keeps a lease alive: its two ends, and the task that extends them.

    Each call to the store has a timeout; each failure is counted and logged.
    """

    __slots__ = (
        "__weakref__",
        "_asked_ms",
        "_borrowable",
        "_call_by",
        "_changed",
        "_ends_at",
        "_failures",
        "_hurry",
        "_last_error",
        "_life",
        "_losses",
        "_mark_ms",
        "_mark_wait",
        "_opened",
        "_options",
        "_past_ms",
        "_quarantine_ends_at",
        "_refusal",
        "_renewals",
        "_session",
        "_settling",
        "_signed_ms",
        "_thefts",
        "_watching",
        "bits",
        "distributor",
        "floor_ms",
        "issuers",
        "machine_id",
        "taken_ms",
        "term",
    )

    def __init__(
        self,
        distributor: MachineIdDistributor,
        bits: int,
        options: LeaseOptions,
        clock: Clock | None,
    ) -> None:
        self.bits: int = bits
        self.issuers: dict[str, Any] = {}
        self.term: int = 0
        self._past_ms = -1  # no id of an earlier opening was issued with a later time
        self._borrowable = 0.0  # seconds that issuers may be ahead of the clock
        self._asked_ms = -1  # the mark that issuers asked for; also before the lease is opened
        self.distributor: MachineIdDistributor = distributor
        self._options = options
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        self._life = object()  # a new object for each opening
        self._call_by = inf  # by the monotonic clock: when opening gives up
        self._last_error: Exception | None = None
        self._failures = 0
        self._quarantine_ends_at: float | None = None  # monotonic; None: no quarantine known
        self.machine_id: int = -1
        self.floor_ms: int = -1
        self.taken_ms: int = -1
        self._ends_at = -inf  # by the monotonic clock
        self._mark_ms = -1
        self._signed_ms = -1  # by the wall clock: when the last renewal was sent
        self._session = 0  # the store's session of the last renewal
        self._mark_wait = 0.0
        self._changed = anyio.Event()
        self._hurry = False
        self._watching: anyio.Event | None = None
        self._opened = anyio.Event()
        self._refusal: CosIdError | None = None  # why it could not be opened
        self._renewals = self._losses = 0
        self._settling = self._thefts = 0

    def _last_issued_ms(self) -> int:
        last_ms: int = max((issuer.last_ms for issuer in self.issuers.values()), default=-1)
        return max(last_ms, self._past_ms)

    # Calls to the store, and the pauses between them.

    @property
    def namespace(self) -> str:
        """The namespace of the machine id."""
        return self.distributor.namespace

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self.distributor.namespace}"

    async def _call(self, method: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        """Call the store once, with a timeout; return an error instead of raising it."""
        life = self._life
        answer = await call_bounded(
            partial(method, *args, **named),
            store=self.distributor.store,
            clock=self._clock,
            within=min(self._options.call_timeout, self._call_by - self._clock.monotonic()),
            shield=True,
        )
        if self._life is not life:  # the call outlasted the closing
            return ClosedError(self._label())
        return answer

    def _interval(self) -> float:
        return self.distributor.interval * random.uniform(1 - JITTER, 1)  # noqa: S311 - no secret

    def _pause(self, attempt: int) -> float:
        """Return seconds until the next attempt: longer each time, never past the margin."""
        longest = min(LAST_BACKOFF, self._options.lead_seconds - self.distributor.interval)
        delay: float = min(longest, FIRST_BACKOFF * 2 ** min(attempt - 1, 10))
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing

    def _note(self, error: CosIdError, attempt: int) -> None:
        self._last_error = error
        self._failures += 1
        if attempt == 1:
            logger.warning("%s: %s", self._label(), error)
        self._emit(MachineIdGuardFailed, error=error, attempt=attempt)
        if isinstance(error, MachineIdQuarantineError):
            is_first = self._quarantine_ends_at is None
            self._quarantine_ends_at = self._clock.monotonic() + error.seconds_left
            if is_first:
                self._emit(MachineIdsQuarantined, seconds_left=error.seconds_left)

    def _quarantine_left(self) -> float:
        if self._quarantine_ends_at is None:
            return 0.0
        return max(0.0, self._quarantine_ends_at - self._clock.monotonic())

    def _emit(self, kind: type[Event], **facts: object) -> None:
        if self._options.instrument is None:
            return
        labels = {"namespace": self.namespace, "name": self.distributor.instance_id.text}
        try:
            self._options.instrument.on_event(kind(**labels, **facts))  # type: ignore[arg-type]  # facts
        except Exception:
            logger.exception("%s: the instrument failed", self._label())

    # Opening.

    async def _start(self) -> None:
        await self._take_over_distributor()
        try:
            await self.distributor.aopen()
            self._start_watch()
            await self._opened.wait()
            self._check_taken()
            await self._wait_for_floor()
        except CosIdError as error:
            self._refuse(error)
            raise

    async def _take_over_distributor(self) -> None:
        """Become the only lease on the distributor, which would give two leases the same id."""
        while True:
            holder = _holders.get(self.distributor)
            other = holder() if holder is not None else None
            if other is None or other is self or other._born != fork.generation:
                break
            root = other._root if other._closing is None else other._closing.root
            if root is None or is_dead(root.loop):
                break
            if other._unusable is None or root.loop is not running_loop():
                raise MachineIdInUseError(repr(self.distributor), holder=repr(other))
            await other.aclose()  # it gives its id back first; others may wait for that as well
        _holders[self.distributor] = ref(self)

    def _check_taken(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self._check_usable()

    def _refuse(self, error: CosIdError) -> None:
        if not self._has_ended():  # otherwise it was closed meanwhile, and nothing is wrong
            self._refusal = error

    async def _take(self) -> None:
        """Take a machine id and raise its mark; tries until the start timeout."""
        started, attempt = self._clock.monotonic(), 0
        answered: CosIdError | None = None
        self._call_by = started + self._options.start_timeout
        try:
            while (error := await self._try_to_take()) is not None:
                attempt += 1
                self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and self._takes_another:
                    self._lose(error)  # before the first renewal: a process of the same instance id
                    self._thefts += 1
                    if self._thefts >= LOSSES:
                        raise self._namesake() from error
                elif not error.retryable or not isinstance(error, StoreError):
                    raise error
                if answered is None or self._clock.monotonic() < self._call_by:
                    answered = error  # otherwise it says only that this call had no time left
                waited, pause = self._clock.monotonic() - started, self._pause(attempt)
                if waited + pause >= self._options.start_timeout:
                    reason = str(answered)
                    raise MachineIdUnavailableError(
                        self.namespace, waited=waited, reason=reason
                    ) from answered
                await self._sleep(pause)
                self._check_usable()
        finally:
            self._call_by = inf

    async def _try_to_take(self) -> CosIdError | None:
        now_ms = self._clock.now_ms()
        threshold = self._options.broken_threshold
        latest = 2**62 if threshold is None else now_ms + int(threshold * MS)
        taken = await self._call(
            self.distributor.distribute, self.bits, now_ms=now_ms, latest_ms=latest
        )
        if isinstance(taken, CosIdError):
            return taken
        self._begin_term(taken, now_ms)
        return await self._renew()

    def _begin_term(self, grant: MachineGrant, now_ms: int) -> None:
        self.machine_id = grant.machine_id
        self.floor_ms = max(grant.floor_ms, self._last_issued_ms())
        self.taken_ms = now_ms
        self.term += 1
        ahead = (grant.floor_ms - now_ms) / MS
        self._emit(MachineIdDistributed, machine_id=grant.machine_id, wait=max(0.0, ahead))
        logger.info("%s: machine id %d", self._label(), grant.machine_id)

    async def _wait_for_floor(self) -> None:
        """Wait until the clock is past all ids that the former owner may have issued.

        A mark is ahead of the clock by the lead and by the borrowed time, a stamp by one second
        more; if it is further ahead, the clock is wrong.  An issuer that may borrow begins above it
        at once.
        """
        began, waited = self._clock.monotonic(), 0.0
        options, borrowable = self._options, int(self._borrowable * MS)
        threshold = inf if options.broken_threshold is None else options.broken_threshold
        longest = options.lead_seconds + self._borrowable + RELEASE_MARGIN + threshold
        while (ahead := self.floor_ms - self._clock.now_ms()) >= borrowable:
            if ahead + int(waited * MS) > longest * MS:  # the wall clock may step back meanwhile
                raise ClockTooManyBackwardsError(backwards=ahead / MS, threshold=longest)
            await self._sleep((ahead - borrowable + 1) / MS)
            self._check_usable()
            waited = self._clock.monotonic() - began
        self._mark_wait += waited

    # Renewing.

    def _start_watch(self) -> None:
        root = self._root
        if root is None or not root.is_alive:
            raise ClosedError(self._label())  # with the provider whose tasks run there
        self._watching = anyio.Event()
        root.start_soon(self._watch, self._watching, name=f"aiocosid guard {self._label()}")

    async def _watch(self, ended: anyio.Event) -> None:
        """Take an id and renew it until closed; take another one after a loss.

        It runs in a task of its own: cancelling the opener does not interrupt a call that takes an
        id.
        """
        attempt, life, opened = 0, self._life, self._opened
        try:
            await self._take()
            opened.set()
            while not self._has_ended():
                await self._rest(self._pause(attempt) if attempt else self._interval())
                if self._has_ended():
                    break
                error = await self._keep()
                if self._life is not life or self._has_ended():
                    break  # closed meanwhile, perhaps opened anew
                if error is None:
                    attempt = 0
                    continue
                attempt += 1
                self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and not self._takes_another:
                    self._retire(error)
        except Exception as error:  # noqa: BLE001 - a stranger's distributor, whatever it answers
            if self._life is life:
                ours = as_cosid_error(self.distributor.store, error)
                (self._retire if opened.is_set() else self._refuse)(ours)
        finally:
            opened.set()
            ended.set()
            self._notify()

    async def _keep(self) -> CosIdError | None:
        """Renew the id, or take one if there is none."""
        self._hurry = False
        if self.machine_id < 0:
            return await self._take_anew()
        was_good = self._clock.monotonic() < self._ends_at
        error = await self._renew()
        if isinstance(error, MachineIdLostError):
            self._lose(error)
            # An id that was lost with the store's session was not taken over by another process.
            is_theft = was_good and self.distributor.session == self._session
            self._thefts = self._thefts + 1 if is_theft else 0
            if self._thefts >= LOSSES:
                self._retire(self._namesake())
            elif self._takes_another:
                self._note(error, 1)
                return await self._take_anew()
        elif error is None:
            self._settling += 1
            if self._settling >= SETTLED:
                self._thefts = 0
        return error

    @property
    def _takes_another(self) -> bool:
        return self._options.on_lost == "redistribute"

    def _namesake(self) -> CosIdError:
        """Return the error of a lease that has lost its id several times in a row."""
        who = f"instance id {self.distributor.instance_id.text!r} of namespace {self.namespace!r}"
        return MachineIdInUseError(who, holder="another process, which takes its machine id away")

    def _lose(self, error: MachineIdLostError) -> None:
        self._emit(MachineIdLost, machine_id=self.machine_id, error=error)
        self._ends_at = -inf
        self._mark_ms = -1
        self.machine_id = -1
        self._settling = 0
        self._losses += 1
        self._notify()

    async def _take_anew(self) -> CosIdError | None:
        error = await self._try_to_take()
        if error is None and self.floor_ms >= self._clock.now_ms():
            self._mark_wait += (self.floor_ms - self._clock.now_ms()) / MS  # issuers wait for it
        return error

    async def _renew(self) -> CosIdError | None:
        """Renew once, with a mark ahead of the clock; the lease counts from before the call.

        While the lease is valid no other process can have been given the id, even if the store has
        lost its data.
        """
        sent_at, now_ms = self._clock.monotonic(), self._clock.now_ms()
        mark_ms = max(self._mark_ms, self.floor_ms, self._due_mark(now_ms))
        machine_id, by = self.machine_id, self.distributor
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
        self._session = session
        self._ends_at = sent_at + self._options.lease_time
        self._mark_ms, self._signed_ms = mark_ms, now_ms
        self._renewals += 1
        self._last_error = self._quarantine_ends_at = None
        took = self._clock.monotonic() - sent_at
        self._emit(MachineIdGuarded, machine_id=machine_id, mark_ms=mark_ms, took=took)
        self._notify()
        return None

    def _is_surely_ours(self) -> bool:
        """Whether the lease is valid by both clocks: a suspended host stops the monotonic one."""
        longest = self._options.lease_time * MS
        is_good: bool = self._clock.monotonic() < self._ends_at
        return is_good and self._clock.now_ms() < self._signed_ms + longest

    def _due_mark(self, now_ms: int) -> int:
        """Return a mark that is ahead of the clock, and not below the one that an issuer asked for.

        Never by more than the lease time: where the mark is lost or unknown, as to a Java peer,
        only the elapsed time protects the ids issued below it.
        """
        lead, lease_time = self._options.lead_seconds, self._options.lease_time
        longest = int(min(lead + self._borrowable, lease_time) * MS)
        return min(max(now_ms, self._asked_ms) + int(lead * MS), now_ms + longest)

    async def _rest(self, seconds: float) -> None:
        if not self._hurry:
            await self._sleep(seconds)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # Closing.

    def _stop(self, reason: CosIdError) -> None:
        self._ends_at = -inf
        if isinstance(reason, ForkedError):
            self._past_ms = self._last_issued_ms()
            self.issuers = {}
            return
        self._wake()
        self._notify()

    async def _drain(self) -> None:
        """Give the id back, once no task renews it any more."""
        if self._watching is not None:
            with self._clock.move_on_after(self._options.close_timeout):
                await self._watching.wait()
            self._watching = None
        machine_id, self.machine_id = self.machine_id, -1
        self._past_ms = self._last_issued_ms()
        if machine_id >= 0:
            # A millisecond later: the next owner may be CosId, which issues ids in the same
            # millisecond.
            last_ms = max(self._past_ms + 1, self.floor_ms)
            error = await self._call(self.distributor.revert, machine_id, last_ms=last_ms)
            if isinstance(error, CosIdError):
                self._note(error, 1)
        self.issuers = {}

    async def _release(self) -> None:
        holder = _holders.get(self.distributor)
        if holder is not None and holder() is self:  # otherwise another lease uses it
            await self.distributor.aclose()
