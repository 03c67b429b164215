"""How long a machine id may be used: taken, renewed, lost, taken anew, given back.

The lease knows two ends.  By the monotonic clock it ends when somebody else may take the id over,
counted from before the last sign of life was sent.  By the wall clock no id may be later than the
time mark that the store holds.  Past either it is silent.
"""

from __future__ import annotations

import logging
import random
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary, ref

import anyio

from .. import _fork
from .._component import Component
from ..errors import (
    ClockTooManyBackwardsError,
    CosIdError,
    ForkedError,
    InvalidArgumentError,
    MachineIdLostError,
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
)
from ._statistics import MachineIdStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..abc import Clock, MachineGrant, MachineIdDistributor
    from ..events import Instrument

__all__ = ("Issuer", "MachineIdLease", "lease_of")

logger = logging.getLogger("aiocosid")

LEAD_SHARE: Final = 1.5  # intervals that the mark is ahead of the clock: the next one, and a margin
LEASE_SHARE: Final = 0.9  # of the safe guard: clocks differ, and a sign of life takes its time
FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
JITTER: Final = 0.1  # of an interval: many processes started at once do not stay in step
MS: Final = 1000


class Issuer(Protocol):
    """Something that stamps ids under a lease."""

    @property
    def last_ms(self) -> int:
        """No id was issued with a later time, in milliseconds since 1970."""


class MachineIdLease(Component):
    """A machine id that is ours, shared by all generators that are given this object.

    It is opened by ``async with``, by `run`, or by the first generator that is opened on it, and
    closed in the same way.

    Attributes:
        distributor: where the id comes from.
        bits: the width of the machine id.
        machine_id: the id; -1 while there is none.
        term: how many ids were taken so far; a generator that sees a new one begins above
            `floor_ms`.
        floor_ms: ids of this term have to be later, in milliseconds since 1970.
        issuers: the sequencers that stamp ids under it, by name.
    """

    __slots__ = (
        "__weakref__",
        "_broken_threshold",
        "_call_timeout",
        "_changed",
        "_close_timeout",
        "_ends_at",
        "_failures",
        "_hurry",
        "_instrument",
        "_is_shared",
        "_last_error",
        "_lead",
        "_lease_time",
        "_losses",
        "_mark_ms",
        "_mark_wait",
        "_on_lost",
        "_renewals",
        "_start_timeout",
        "_timers",
        "_users",
        "_watching",
        "bits",
        "distributor",
        "floor_ms",
        "issuers",
        "machine_id",
        "term",
    )

    def __init__(
        self,
        distributor: MachineIdDistributor,
        *,
        bits: int = 10,
        on_lost: str = "redistribute",
        peer_safe_guard: float | None = None,
        lead: float | None = None,
        broken_threshold: float | None = 2.0,
        start_timeout: float = 5.0,
        call_timeout: float = 2.0,
        close_timeout: float = 5.0,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a lease; nothing is asked for yet.

        Args:
            distributor: where the id comes from; who asks, and for which namespace.
            bits: the width of the machine id, 1 to 31, as the layouts have it that use it.
            on_lost: ``"redistribute"`` takes another id after a loss, ``"raise"`` ends the
                generators with `MachineIdLostError`.
            peer_safe_guard: seconds; the shortest safe guard duration of any instance in the
                namespace, if it is shorter than the distributor's own.
            lead: seconds that the time mark is ahead of the clock; 1.5 intervals by default.  How
                long the store may be away, and how long whoever takes the id over after a crash may
                have to wait.
            broken_threshold: seconds that a clock is waited for that is behind a stored timestamp;
                None for as long as it takes.
            start_timeout: seconds that opening tries to reach the store.
            call_timeout: seconds after which a call to the store is given up.
            close_timeout: seconds that closing may take, the id's return included.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if on_lost not in {"redistribute", "raise"}:
            raise InvalidArgumentError("on_lost", on_lost, expected="'redistribute' or 'raise'")
        if broken_threshold is not None and not broken_threshold >= 0:
            expected = "seconds, at least 0, or None"
            raise InvalidArgumentError("broken_threshold", broken_threshold, expected=expected)
        safe_guard = min(distributor.safe_guard, peer_safe_guard or inf)
        lead = distributor.interval * LEAD_SHARE if lead is None else lead
        lease_time = safe_guard * LEASE_SHARE if distributor.is_leased else inf
        if not distributor.interval < lead <= lease_time:
            raise InvalidArgumentError(
                "lead",
                lead,
                expected=f"seconds, more than the interval of "
                f"{distributor.interval:g} s and at most {lease_time:g} s, 0.9 of the safe guard",
            )
        for name, value in (
            ("start_timeout", start_timeout),
            ("call_timeout", call_timeout),
            ("close_timeout", close_timeout),
        ):
            if not 0 < value < inf:
                raise InvalidArgumentError(name, value, expected="seconds, above 0")
        self.distributor = distributor
        self.bits = bits
        self.issuers: dict[str, Any] = {}
        self._on_lost = on_lost
        self._lead = lead
        self._lease_time = lease_time
        self._broken_threshold = broken_threshold
        self._start_timeout = start_timeout
        self._call_timeout = call_timeout
        self._close_timeout = close_timeout
        self._instrument = instrument
        self._users = 0
        self._is_shared = False  # opened by a generator, and closed by the last one
        self.term = 0
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        self.machine_id = -1
        self.floor_ms = -1
        self._ends_at = -inf  # by the monotonic clock
        self._mark_ms = -1
        self._mark_wait = 0.0
        self._changed = anyio.Event()
        self._hurry = False
        self._timers: list[anyio.CancelScope] = []
        self._watching: anyio.Event | None = None
        self._last_error: Exception | None = None
        self._renewals = self._failures = self._losses = 0

    @property
    def namespace(self) -> str:
        """The namespace in which the machine id is ours."""
        return self.distributor.namespace

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self.distributor.namespace}"

    # What a generator asks.

    def limit_ms(self) -> int:
        """Return up to which time ids may be issued now, in ms since 1970; -1 for none at all."""
        return self._mark_ms if self._clock.monotonic() < self._ends_at else -1

    def hurry(self) -> None:
        """Have the time mark renewed now: the clock has jumped past it, or will soon."""
        self._hurry = True
        self._wake()

    def changed(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return what waits until the lease is renewed, lost or taken anew from now on."""
        return self._changed.wait

    @property
    def lead(self) -> float:
        """Seconds that the time mark is ahead of the clock."""
        return self._lead

    @property
    def lost(self) -> CosIdError | None:
        """Why it will never be usable again, if that is so."""
        if isinstance(self._unusable, MachineIdLostError | ForkedError):
            return self._unusable
        return None

    @property
    def last_error(self) -> Exception | None:
        """Why the last call to the store failed, if it did."""
        return self._last_error

    # Shared by generators.

    async def join(self) -> None:
        """Be used by one more generator; the first one opens it.

        Raises:
            CosIdError: as opening does.
        """
        self._users += 1
        try:
            if self._is_to_be_opened():
                self._is_shared = True
                await self._open(None)
            while self._mark_ms < 0 and self._unusable is None:
                await self.changed()()  # somebody else is opening it
            self._check_usable()
        except BaseException:
            self._users -= 1
            raise

    async def leave(self) -> None:
        """Be used by one generator less; the last one closes it if a generator opened it."""
        self._users = max(0, self._users - 1)
        if self._users == 0 and self._is_shared:
            self._is_shared = False
            await self.aclose()

    def _is_to_be_opened(self) -> bool:
        if self._born != _fork.generation:
            self._users = 1
            return True
        return self._root is None and not self._closing

    # Opening.

    async def _start(self) -> None:
        self._reset()
        await self.distributor.aopen()
        await self._take()
        self._start_watch()
        await self._wait_for_floor()

    async def _take(self) -> None:
        """Take a machine id and raise its mark; tries until the start timeout."""
        started, attempt = self._clock.monotonic(), 0
        while True:
            attempt += 1
            error = await self._try_to_take()
            if error is None:
                return
            self._note(error, attempt)
            waited = self._clock.monotonic() - started
            if not error.retryable or not isinstance(error, StoreError):
                raise error
            pause = self._pause(attempt)
            if waited + pause >= self._start_timeout:
                raise MachineIdUnavailableError(
                    self.namespace, waited=waited, reason=str(error)
                ) from error
            await self._sleep(pause)
            self._check_usable()

    async def _try_to_take(self) -> CosIdError | None:
        now_ms = self._clock.now_ms()
        threshold = self._broken_threshold
        latest = 2**62 if threshold is None else now_ms + int(threshold * MS)
        taken = await self._call(
            self.distributor.distribute, self.bits, now_ms=now_ms, latest_ms=latest
        )
        if isinstance(taken, CosIdError):
            return taken
        self._begin_term(taken, now_ms)
        return await self._renew()

    def _begin_term(self, grant: MachineGrant, now_ms: int) -> None:
        last = max((issuer.last_ms for issuer in self.issuers.values()), default=-1)
        self.machine_id = grant.machine_id
        # Not before we had it either, whatever the former owner forgot to write.
        self.floor_ms = max(grant.floor_ms, now_ms - 1, last)
        self._mark_ms = -1
        self.term += 1
        ahead = (grant.floor_ms - now_ms) / MS
        self._emit(MachineIdDistributed, machine_id=grant.machine_id, wait=max(0.0, ahead))
        logger.info("%s: machine id %d", self._label(), grant.machine_id)

    async def _wait_for_floor(self) -> None:
        """Wait until the clock has passed what the former owner may have issued.

        A mark is ahead of the clock by the lead; beyond that the clock is wrong.
        """
        began = self._clock.monotonic()
        threshold = inf if self._broken_threshold is None else self._broken_threshold
        while (ahead := (self.floor_ms - self._clock.now_ms()) / MS) >= 0:
            if ahead > self._lead + threshold:
                raise ClockTooManyBackwardsError(backwards=ahead, threshold=threshold)
            await self._sleep(ahead + 1 / MS)
            self._check_usable()
        self._mark_wait += self._clock.monotonic() - began

    # Renewing.

    def _start_watch(self) -> None:
        root = self._root
        if root is not None and self._watching is None:
            self._watching = anyio.Event()
            root.start_soon(self._watch, name=f"aiocosid guard {self._label()}")

    async def _watch(self) -> None:
        """Give signs of life until closed; take another id after a loss."""
        attempt = 0
        try:
            while self._unusable is None:
                await self._rest(self._pause(attempt) if attempt else self._interval())
                if self._unusable is not None:
                    break
                error = await self._keep()
                if error is None:
                    attempt = 0
                    continue
                attempt += 1
                self._note(error, attempt)
                if isinstance(error, MachineIdLostError) and self._on_lost == "raise":
                    self._retire(error)
        finally:
            if self._watching is not None:
                self._watching.set()
            self._notify()

    async def _keep(self) -> CosIdError | None:
        """Renew the id, or take one if there is none."""
        self._hurry = False
        if self.machine_id < 0:
            return await self._take_anew()
        error = await self._renew()
        if isinstance(error, MachineIdLostError):
            self._lose(error)
            if self._on_lost == "redistribute":
                self._note(error, 1)
                return await self._take_anew()
        return error

    def _lose(self, error: MachineIdLostError) -> None:
        self._emit(MachineIdLost, machine_id=self.machine_id, error=error)
        self._ends_at = -inf
        self._mark_ms = -1
        self.machine_id = -1
        self._losses += 1
        self._notify()

    async def _take_anew(self) -> CosIdError | None:
        error = await self._try_to_take()
        if error is None and self.floor_ms >= self._clock.now_ms():
            self._mark_wait += (self.floor_ms - self._clock.now_ms()) / MS  # issuers wait it out
        return error

    async def _renew(self) -> CosIdError | None:
        """Give one sign of life, with a mark that is ahead; the lease counts from before it."""
        sent_at, now_ms = self._clock.monotonic(), self._clock.now_ms()
        mark_ms = max(self._mark_ms, self.floor_ms, now_ms + int(self._lead * MS))
        machine_id = self.machine_id
        done = await self._call(self.distributor.guard, machine_id, now_ms=now_ms, mark_ms=mark_ms)
        if isinstance(done, CosIdError):
            return done
        self._ends_at = sent_at + self._lease_time
        self._mark_ms = mark_ms
        self._renewals += 1
        self._last_error = None
        took = self._clock.monotonic() - sent_at
        self._emit(MachineIdGuarded, machine_id=machine_id, mark_ms=mark_ms, took=took)
        self._notify()
        return None

    async def _call(self, method: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        """Call the store once, to its end or its timeout; answers an error instead of raising it."""
        try:
            with self._clock.move_on_after(self._call_timeout, shield=True):
                return await method(*args, **named)
        except CosIdError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a stranger's distributor; it has to go on
            failure = StoreError(self.distributor.store, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            return failure
        reason = f"no answer within {self._call_timeout:g} s"
        return StoreUnavailableError(self.distributor.store, reason)

    def _interval(self) -> float:
        return self.distributor.interval * random.uniform(1 - JITTER, 1)  # noqa: S311 - no secret

    def _pause(self, attempt: int) -> float:
        """Return seconds until the next attempt: longer each time, never beyond the margin."""
        longest = self._lead - self.distributor.interval
        delay = min(longest, FIRST_BACKOFF * 2 ** min(attempt - 1, 10))
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing

    async def _rest(self, seconds: float) -> None:
        if not self._hurry:
            await self._sleep(seconds)

    async def _sleep(self, seconds: float) -> None:
        """Sleep until then, until hurried or closed."""
        if self._unusable is not None:
            return
        with anyio.CancelScope() as scope:
            self._timers.append(scope)
            try:
                await self._clock.sleep(seconds)
            finally:
                self._timers.remove(scope)

    def _wake(self) -> None:
        for timer in tuple(self._timers):
            timer.cancel()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _note(self, error: CosIdError, attempt: int) -> None:
        self._last_error = error
        self._failures += 1
        if attempt == 1:
            logger.warning("%s: %s", self._label(), error)
        self._emit(MachineIdGuardFailed, error=error, attempt=attempt)

    def _emit(self, kind: type[Event], **facts: object) -> None:
        if self._instrument is None:
            return
        try:
            self._instrument.on_event(
                kind(namespace=self.namespace, name=self.distributor.instance_id.text, **facts)  # type: ignore[arg-type]  # facts
            )
        except Exception:
            logger.exception("%s: the instrument failed", self._label())

    # Closing.

    def _stop(self, reason: CosIdError) -> None:
        self._ends_at = -inf
        if isinstance(reason, ForkedError):
            self.issuers = {}
            return
        self._wake()
        self._notify()

    async def _drain(self) -> None:
        """Give the id back, once nobody renews it any more."""
        if self._watching is not None:
            with self._clock.move_on_after(self._close_timeout):
                await self._watching.wait()
            self._watching = None
        machine_id, self.machine_id = self.machine_id, -1
        if machine_id >= 0:
            last = max((issuer.last_ms for issuer in self.issuers.values()), default=-1)
            error = await self._call(
                self.distributor.revert, machine_id, last_ms=max(last, self.floor_ms, 0)
            )
            if isinstance(error, CosIdError):
                self._note(error, 1)
        self.issuers = {}
        await self.distributor.aclose()

    # Looking inside.

    def statistics(self) -> MachineIdStatistics:
        """Return a frozen picture of the lease; cheap, and never waits."""
        left = self._ends_at - self._clock.monotonic()
        return MachineIdStatistics(
            namespace=self.namespace,
            instance_id=self.distributor.instance_id.text,
            machine_id=self.machine_id if self.machine_id >= 0 else None,
            bits=self.bits,
            term=self.term,
            seconds_left=max(0.0, left),
            mark_ms=self._mark_ms,
            mark_wait=self._mark_wait,
            renewals=self._renewals,
            failures=self._failures,
            losses=self._losses,
            last_error=self._last_error,
        )

    def __repr__(self) -> str:
        """Say which id is held and for how long."""
        state = "open" if self._unusable is None else type(self._unusable).__name__
        left = max(0.0, self._ends_at - self._clock.monotonic())
        return f"<{self._label()} {state} machine_id={self.machine_id} seconds_left={left:g}>"


_leases: Final[WeakKeyDictionary[MachineIdDistributor, ref[MachineIdLease]]] = WeakKeyDictionary()


def lease_of(distributor: MachineIdDistributor, **options: Any) -> MachineIdLease:  # noqa: ANN401 - MachineIdLease's
    """Return the one lease of a distributor; made with these options if there is none yet."""
    known = _leases.get(distributor)
    lease = known() if known is not None else None
    if lease is None:
        lease = MachineIdLease(distributor, **options)
        _leases[distributor] = ref(lease)
    return lease
