"""The waiting line for ids of a second, and how callers are served."""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from .._life import fork
from .._life.component import RESOLUTION
from .._life.turns import TurnLine
from .._life.waiting_line import Waiter, WaiterQueue
from ..errors import (
    ClockTooManyBackwardsError,
    CosIdError,
    ForkedError,
    SequenceExhaustedError,
    SequenceUnavailableError,
    WouldBlock,
)
from ..events import ClockBackwards, Starved, WaitTimedOut
from ._seconds_in_hand import NS
from ._sequence_supply import SequenceSupply
from ._sequencer import PIECE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("SequenceLine",)


class SequenceLine(SequenceSupply):
    """Hands out the supply's ids: at once, or in the order of the callers."""

    __slots__ = ("_pool", "_pumping", "_served_at", "_turn_mark", "_turns", "_waiters", "_waits")

    def _reset(self) -> None:
        super()._reset()
        self._waiters = WaiterQueue()
        self._turns = TurnLine()
        self._pool: deque[range] = deque()  # ids set aside for the first waiter, which needs more
        self._pumping = False
        self._served_at = -inf  # by the monotonic clock: when waiting callers last got ids
        self._turn_mark = 0  # the number of ids handed out at the loop's last turn
        self._waits: int = 0

    # Now, or not.

    def _install(self) -> bool:
        """Install a piece; return whether there is one."""
        now_ns, seconds = self._read_ns(), self._seconds
        left = PIECE - (seconds.issued - seconds.left - self._turn_mark)  # of this turn of the loop
        size = left if left > 0 else PIECE
        try:
            done = seconds.install(now_ns, size)
            if not done:
                self._order(1)
                done = self._fall_back(now_ns, 1) and seconds.install(now_ns, size)
        except ClockTooManyBackwardsError as error:
            self._emit(ClockBackwards, backwards=error.backwards)
            raise
        self._plan(now_ns)
        return done

    def _take_now(self, n: int) -> list[range] | None:
        """Take ``n`` ids if so many are in hand; otherwise take none."""
        now_ns = self._read_ns()
        if self._seconds.in_hand(now_ns) < n:
            return None
        self._plan(now_ns)
        return self._seconds.take(n, now_ns)

    async def _turn_if_due(self) -> None:
        """Yield to the loop after so many ids: an await that does not suspend does not yield."""
        while self._is_turn_spent():
            if await self._turns.wait(self._is_turn_spent):
                self._turn_mark = self._seconds.issued - self._seconds.left
            self._check_usable()

    def _is_turn_spent(self) -> bool:
        seconds = self._seconds
        return seconds.issued - seconds.left - self._turn_mark >= PIECE

    # Waiting.

    async def _wait(self, n: int) -> list[range]:
        """Wait in line for ``n`` ids; 0 waits until there are any, and takes none."""
        self._check_usable()
        event, process, line = anyio.Event(), fork.generation, self._waiters
        waiter = Waiter(n, event.set, self._clock.monotonic())
        line.add(waiter)
        self._waits += n > 0
        try:
            self._serve()
            if waiter.is_done:
                await checkpoint()
            else:
                self._start_pump()
            while not waiter.is_done and line is self._waiters:
                await self._wait_once(waiter, event)
        except BaseException:
            self._leave(waiter, line)
            raise
        self._check_process(process)
        if waiter.pieces is not None:
            return waiter.pieces
        raise waiter.error or WouldBlock

    async def _wait_once(self, waiter: Waiter, event: anyio.Event) -> None:
        """Wait for at most `wait_timeout` since it came, or since an earlier caller was served."""
        limit, now = self._options.wait_timeout, self._clock.monotonic()
        left = max(waiter.since, self._served_at) + limit - now
        if left <= RESOLUTION:
            self._emit(WaitTimedOut, waited=limit)
            raise self._timed_out(round(now - waiter.since, 3))
        with self._clock.move_on_after(left):
            await event.wait()

    def _leave(self, waiter: Waiter, line: WaiterQueue) -> None:
        """Leave the line, or drop the ids that were delivered in the same turn."""
        if self._waiters is not line:
            return  # opened again since, by a forked child or on another loop
        if waiter.pieces is not None:
            self._discard(waiter.n, "cancelled")
        elif waiter.error is None:
            if line.first is waiter:
                self._empty_pool()
            line.discard(waiter)
            self._serve()  # there may be enough ids for the next callers

    def _timed_out(self, waited: float) -> CosIdError:
        second, name = self._seconds.target(self._read_ns()), self._distributor.namespaced_name
        if self._availability.is_spent and not self._availability.is_away:
            reason = (
                f"all nodes together use up its seconds: {self._distributor.max_sequence} "
                "sequences each; split the name, or use more sequence bits"
            )
            return SequenceExhaustedError(name, waited=waited, reason=reason)
        if self._availability.opens > second and not self._availability.is_away:
            reason = (
                f"the store may have lost the counters before second {self._availability.opens}"
            )
            return SequenceUnavailableError(name, waited=waited, reason=reason)
        return self._unavailable(waited)

    def _serve(self) -> None:
        """Serve callers from the front, and request missing ids."""
        line = self._waiters
        try:
            while line:
                now_ns, first = self._read_ns(), line.first
                in_pool, in_hand = self._in_pool(), self._seconds.in_hand(now_ns)
                if in_pool + in_hand >= max(1, first.n):
                    self._served_at = self._clock.monotonic()
                    line.serve(in_pool + in_hand, partial(self._take, now_ns=now_ns))
                    continue
                # Ids of this second stay valid once they are set aside.
                pieces = self._seconds.take(first.n - in_pool, now_ns)
                self._pool.extend(pieces)
                if pieces:
                    self._served_at = self._clock.monotonic()
                self._order(line.wanted - self._in_pool())
                if not self._fall_back(now_ns, first.n - self._in_pool()):
                    break
            self._plan(self._read_ns())
        except ClockTooManyBackwardsError as error:
            self._emit(ClockBackwards, backwards=error.backwards)
            self._fail_all(error.again)
        except CosIdError as error:
            self._fail_all(error.again)

    def _in_pool(self) -> int:
        return sum(map(len, self._pool))

    def _take(self, n: int, now_ns: int) -> list[range]:
        pieces: list[range] = []
        while n and self._pool:
            piece = self._pool.popleft()
            if len(piece) > n:
                self._pool.appendleft(piece[n:])
                piece = piece[:n]
            pieces.append(piece)
            n -= len(piece)
        return pieces + self._seconds.take(n, now_ns) if n else pieces

    def _empty_pool(self) -> None:
        count = self._in_pool()
        self._pool.clear()
        self._discard(count, "cancelled")

    def _fail_all(self, make_error: Callable[[], CosIdError]) -> None:
        self._empty_pool()
        self._waiters.fail(make_error)

    # Waiting for time to pass.

    def _start_pump(self) -> None:
        root = self._root
        if not self._pumping and root is not None and root.is_alive:
            self._pumping = True
            self._emit(Starved)
            root.start_soon(self._pump, name=f"aiocosid wait {self._label()}")

    async def _pump(self) -> None:
        """While callers wait, check again when a second begins, or the store may be asked again."""
        line = self._waiters
        try:
            while line and line is self._waiters and not self._has_ended():
                await self._sleep(self._pause())
                if line is self._waiters and not self._has_ended():
                    self._serve()
        finally:
            if line is self._waiters:
                self._pumping = False

    def _pause(self) -> float:
        """Return the seconds until something can change by itself."""
        now, next_second = self._clock.monotonic(), (NS - self._read_ns() % NS) / NS
        pauses = [next_second, self._availability.retry_at - now, self._availability.fence_at - now]
        return max(RESOLUTION, min(each for each in pauses if each > 0))

    # Opening and closing.

    async def _start(self) -> None:
        await super()._start()
        try:
            await self._wait(0)
        except SequenceUnavailableError as error:
            cause = error.__cause__
            if isinstance(cause, CosIdError) and not cause.retryable:
                raise cause from cause.__cause__
            raise

    def _stop(self, reason: CosIdError) -> None:
        super()._stop(reason)
        if not isinstance(reason, ForkedError):
            self._turns.release()
