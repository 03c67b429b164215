"""A Snowflake generator without its hot path: lease, clock, ticks, and waiting callers."""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from .._life import fork
from .._life.component import RESOLUTION, Component
from .._life.turns import TurnLine
from .._life.waiting_line import Waiter, WaiterQueue
from ..abc._machine import RELEASE_MARGIN
from ..errors import (
    BusyError,
    ClockTooFarForwardError,
    ClockTooManyBackwardsError,
    ClosedError,
    CosIdError,
    ForkedError,
    MachineIdUnavailableError,
    WouldBlock,
)
from ..events import ClockBackwards, SnowflakeOpened, WaitTimedOut
from ._sequencer import PIECE, SHUT, Behind, Full, Limited, Sequencer, Shut

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Clock
    from ..events import Event
    from ..machine import MachineIdLease
    from ._layout import SnowflakeLayout
    from ._options import StampOptions
    from ._sequencer import Refusal

__all__ = ("MS", "NS_PER_MS", "Stamper")

logger = logging.getLogger("aiocosid")

NS_PER_MS: Final = 1_000_000
MS: Final = 1000
LOOK: Final = 0.1  # seconds between two readings of a clock that is behind: it may be corrected


class Stamper(Component):
    """Issues ids to callers: at once, or in order when clock, tick and lease allow it."""

    __slots__ = (
        "__weakref__",
        "_has_joined",
        "_last_seen",
        "_lease",
        "_longest_backwards",
        "_options",
        "_pool",
        "_pumping",
        "_read_ns",
        "_sequencer",
        "_served_at",
        "_turn_mark",
        "_turns",
        "_waiters",
        "_waits_for_clock",
        "_waits_for_lease",
        "_waits_for_tick",
        "layout",
        "name",
    )

    def __init__(
        self,
        lease: MachineIdLease,
        layout: SnowflakeLayout,
        name: str,
        options: StampOptions,
        clock: Clock | None,
    ) -> None:
        self.layout: SnowflakeLayout = layout
        self.name: str = name
        self._lease = lease
        self._options = options
        self._has_joined = False
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        self._sequencer: Sequencer | Shut = SHUT
        self._read_ns: Callable[[], int] = self._clock.wall_reader()
        self._waiters = WaiterQueue()
        self._turns = TurnLine()
        self._pool: deque[range] = deque()  # ids set aside for the first waiter, which needs more
        self._pumping = False
        self._served_at = -inf  # by the monotonic clock: when a waiting caller last got an id
        self._turn_mark = 0  # the number of ids handed out at the loop's last turn
        self._last_seen: tuple[int, float] | None = None
        self._longest_backwards = 0.0
        self._waits_for_tick = self._waits_for_clock = self._waits_for_lease = 0

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    @property
    def _has_to_drain(self) -> bool:
        return self._has_joined

    def _label(self) -> str:
        return f"{type(self).__name__} {self._lease.namespace}.{self.name}"

    # Now, or not.

    def _install(self) -> Refusal | None:
        """Install a piece; return None, or why there is none."""
        self._check_lease()
        sequencer = self._open_sequencer
        left = PIECE - (sequencer.handed_out - self._turn_mark)  # of this turn of the loop
        return sequencer.install(*self._now_and_limit(), left if left > 0 else PIECE)

    @property
    def _open_sequencer(self) -> Sequencer:
        sequencer = self._sequencer
        if isinstance(sequencer, Shut):
            self._check_usable()
            raise BusyError(self._label(), reason="is being opened")
        return sequencer

    def _now_and_limit(self) -> tuple[int, int]:
        now_ms = self._read_ns() // NS_PER_MS
        if self._options.max_forward_jump is not None:
            self._check_jump(now_ms)
        return now_ms, self._lease.limit_ms()

    def _check_jump(self, now_ms: int) -> None:
        monotonic = self._clock.monotonic()
        limit = self._options.max_forward_jump
        if self._last_seen is not None and limit is not None:
            seen_ms, seen_at = self._last_seen
            forward = (now_ms - seen_ms) / MS - (monotonic - seen_at)
            if forward > limit:
                raise ClockTooFarForwardError(forward=forward, limit=limit)
        self._last_seen = now_ms, monotonic

    def _check_lease(self) -> None:
        """Follow the lease into a new term, but not into a new opening."""
        lost = self._lease.lost
        if lost is not None:
            raise lost.again()
        lease, sequencer = self._lease, self._open_sequencer
        if lease.issuers.get(self.name) is not sequencer:
            raise ClosedError(
                self._label()
            )  # with the lease; others may issue ids under this name by now
        if sequencer.term != lease.term and lease.machine_id >= 0:
            sequencer.move(lease.machine_id, self._floor_tick())
            sequencer.term = lease.term

    def _floor_tick(self) -> int:
        lease, tick_at = self._lease, self.layout.tick_at
        return max(tick_at(lease.floor_ms), tick_at(lease.taken_ms) - 1)

    async def _turn_if_due(self) -> None:
        """Yield to the loop after so many ids: an await that does not suspend does not yield."""
        while self._is_turn_spent():
            if await self._turns.wait(self._is_turn_spent):
                self._turn_mark = self._open_sequencer.handed_out
            self._check_usable()

    def _is_turn_spent(self) -> bool:
        sequencer = self._sequencer
        return isinstance(sequencer, Sequencer) and (
            sequencer.handed_out - self._turn_mark >= PIECE
        )

    # Waiting.

    async def _wait(self, n: int) -> list[range]:
        """Wait in line for ``n`` ids."""
        event, process = anyio.Event(), fork.generation
        waiter, waiters = Waiter(n, event.set, self._clock.monotonic()), self._waiters
        waiters.add(waiter)
        if not self._pumping:
            self._pump_once()
        try:
            if not waiter.is_done:
                await event.wait()
            else:
                await checkpoint()
        except BaseException:
            if (
                not waiter.is_done and waiters is self._waiters
            ):  # otherwise forked, and opened again
                if waiters.first is waiter:
                    self._pool.clear()  # set aside for it; by now there may be ids above them
                waiters.discard(waiter)
            raise
        self._check_process(process)
        if waiter.pieces is not None:
            return waiter.pieces
        raise waiter.error or WouldBlock

    def _pump_once(self) -> None:
        refusal = self._serve()
        root = self._root
        if refusal is not None and root is not None and root.is_alive:
            self._pumping = True
            root.start_soon(self._pump, refusal, name=f"aiocosid wait {self._label()}")

    async def _pump(self, refusal: Refusal | None) -> None:
        """Wait for all waiting callers, and serve them in order; ends with the last one."""
        life = self._waiters
        try:
            while refusal is not None and self._waiters and self._waiters is life:
                await self._wait_out(refusal)
                refusal = self._serve() if self._unusable is None else None
        except CosIdError as error:
            self._fail(error.again)
        finally:
            if self._waiters is life:
                self._pumping = False

    def _serve(self) -> Refusal | None:
        """Serve callers from the front; return what the rest has to wait for."""
        waiters = self._waiters
        if not waiters:
            return None
        try:
            self._check_lease()
            wanted = waiters.wanted - sum(map(len, self._pool))
            refusal: Refusal | None = None
            if wanted > 0:
                pieces, refusal = self._open_sequencer.take(wanted, *self._now_and_limit())
                self._pool.extend(pieces)
                if pieces:
                    self._served_at = self._clock.monotonic()
        except CosIdError as error:
            self._fail(error.again)
            return None
        waiters.serve(sum(map(len, self._pool)), self._take)
        if not waiters:
            self._pool.clear()  # of callers that were cancelled: a gap
        return refusal

    def _fail(self, make_error: Callable[[], CosIdError]) -> None:
        """Fail all waiting callers; ids set aside for the first of them are a gap."""
        self._pool.clear()
        self._waiters.fail(make_error)

    def _take(self, n: int) -> list[range]:
        pieces: list[range] = []
        while n:
            piece = self._pool.popleft()
            if len(piece) > n:
                self._pool.appendleft(piece[n:])
                piece = piece[:n]
            pieces.append(piece)
            n -= len(piece)
        return pieces

    async def _wait_out(self, refusal: Refusal) -> None:
        if isinstance(refusal, Full):
            self._waits_for_tick += 1
            await self._sleep((refusal.until_ms * NS_PER_MS - self._read_ns()) / (NS_PER_MS * MS))
        elif isinstance(refusal, Behind):
            self._waits_for_clock += 1
            await self._wait_for_clock(refusal)
        else:
            self._waits_for_lease += 1
            await self._wait_for_lease()

    async def _wait_for_clock(self, refusal: Behind) -> None:
        """Wait for all until the clock has caught up, at most as long as the threshold."""
        began, threshold = self._clock.monotonic(), self._threshold(refusal)
        self._emit(ClockBackwards, backwards=refusal.by_ms / MS)
        behind: Refusal | None = refusal
        while isinstance(behind, Behind) and not self._has_ended():
            self._note_behind(behind)
            by = behind.by_ms / MS
            left = by
            if threshold is not None:
                left = threshold - (self._clock.monotonic() - began)
                if by > threshold or left <= RESOLUTION:
                    self._fail(self._too_far_behind(behind).again)
                    return
            await self._sleep(min(by, left, LOOK))
            if self._has_ended():
                return
            behind = self._open_sequencer.check(*self._now_and_limit())

    async def _wait_for_lease(self) -> None:
        """Wait until the lease allows ids again; each caller for ``wait_timeout`` at most.

        The time counts since it came, or since an earlier caller got an id.
        """
        lease = self._lease
        while self._waiters and self._unusable is None and lease.lost is None:
            changed = lease.changed()
            # By the current clock: it may have jumped meanwhile, and may be right again.
            limited = self._open_sequencer.check(*self._now_and_limit())
            if not isinstance(limited, Limited):
                return
            self._ask_for_more(limited)
            waited = self._clock.monotonic() - max(self._waiters.first.since, self._served_at)
            left = self._options.wait_timeout - waited
            if left <= RESOLUTION:
                self._pool.clear()  # set aside for the first of them
                self._waiters.fail_first(self._unavailable(waited))
                self._emit(WaitTimedOut, waited=self._options.wait_timeout)
                continue
            with self._clock.move_on_after(left), self._woken():
                await changed()

    def _ask_for_more(self, refusal: Limited) -> None:
        if self._lease.machine_id >= 0:
            self._lease.ask(refusal.needed_ms)

    def _threshold(self, refusal: Behind) -> float | None:
        """Return seconds to wait; a former owner's time mark may be ahead of a correct clock."""
        if self._options.broken_threshold is not None and refusal.is_floor:
            return self._options.broken_threshold + self._lease.lead + RELEASE_MARGIN
        return self._options.broken_threshold

    def _note_behind(self, refusal: Behind) -> None:
        if not refusal.is_floor:
            self._longest_backwards = max(self._longest_backwards, refusal.by_ms / MS)

    def _emit(self, make: Callable[..., Event], **facts: object) -> None:
        if self._options.instrument is None:
            return
        event = make(namespace=self._lease.namespace, name=self.name, **facts)
        try:
            self._options.instrument.on_event(event)
        except Exception:
            logger.exception("%s: the instrument failed", self._label())

    def _too_far_behind(self, refusal: Behind) -> CosIdError:
        return ClockTooManyBackwardsError(
            backwards=refusal.by_ms / MS, threshold=self._threshold(refusal) or 0.0
        )

    def _unavailable(self, waited: float) -> CosIdError:
        cause, waited = self._lease.last_error, round(waited, 3)
        reason = str(cause or "")
        error = MachineIdUnavailableError(self._lease.namespace, waited=waited, reason=reason)
        error.__cause__ = cause
        return error

    # Opening and closing.

    async def _start(self) -> None:
        self.layout.check_usable(self._clock.now_ms())
        life = self._waiters
        with self._woken() as scope:
            await self._lease.join()
        if scope.cancelled_caught:
            raise ClosedError(self._label())
        if self._waiters is not life or self._has_ended():  # closed, perhaps opened again
            await self._lease.leave()
            raise ClosedError(self._label())
        self._has_joined = True
        self._sequencer = self._attached()
        self._emit(SnowflakeOpened, machine_id=self._lease.machine_id)

    def _attached(self) -> Sequencer:
        """Return the one sequencer of this lease and name."""
        made = self._make_sequencer()
        sequencer: Sequencer = self._lease.issuers.setdefault(self.name, made)
        if sequencer.rules != made.rules:
            raise BusyError(
                self._label(), reason="is in use with another layout, threshold or ring"
            )
        self._turn_mark = sequencer.handed_out
        return sequencer

    def _make_sequencer(self) -> Sequencer:
        """Return a new sequencer, above all ids of its machine id."""
        raise NotImplementedError

    def _stop(self, reason: CosIdError) -> None:
        self._sequencer = SHUT
        if isinstance(reason, ForkedError):
            return
        self._turns.release()
        self._fail(reason.again)
        self._wake()

    async def _drain(self) -> None:
        if self._has_joined:
            self._has_joined = False
            await self._lease.leave()

    async def _release(self) -> None:
        """Nothing to release: the lease has everything."""
