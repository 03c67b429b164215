"""The consumer's side of a segment generator: the hot path, the boundary, the wait."""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from .._life import fork
from .._life.component import RESOLUTION
from .._life.turns import TurnLine
from .._life.waiting_line import Waiter
from .._ranges import MAX_BATCH, STRETCH, expand_ranges
from ..abc import IdGenerator
from ..abc._ids import check_integer
from ..errors import CosIdError, ForkedError, SegmentUnavailableError, WouldBlock
from ..events import WaitTimedOut
from ._segment import FOREVER
from ._statistics import SegmentStatistics
from ._supply import EMPTY, Supply, atomic_step

if TYPE_CHECKING:
    from .._life.waiting_line import WaiterQueue
    from ._segment import IdSegment

__all__ = ("MAX_BATCH", "SegmentGenerator")

SHORT_PIECE: Final = 1000  # ids between two turns for the loop while the chain is too short
LONG_PIECE: Final = STRETCH  # ids between two turns at most, about a millisecond


class SegmentGenerator(Supply, IdGenerator):
    """Hands out the ids of a supply, from a piece in hand: an iterator over a range.

    Whatever ends the use of the ids in hand (closing, fork, expiry, a store that went backwards)
    swaps the iterator for an empty one.  So the hot path asks nothing, and the slow path finds out.
    """

    __slots__ = ("_expires_at", "_expiry_watched", "_since_turn", "_stop_at", "_stride", "_turns")

    def _reset(self) -> None:
        super()._reset()
        self._turns = TurnLine()
        self._stop_at, self._stride = 0, 1  # the last id of the piece is one stride below
        self._since_turn = 0  # ids installed since the loop last had a turn
        self._expires_at = FOREVER
        self._expiry_watched = False

    # The hot path.

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        for new_id in self._exposed:
            return new_id
        return await self._next_id_slow()

    def next_id_nowait(self) -> int:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        for new_id in self._exposed:
            return new_id
        return self._next_id_nowait_slow()

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, 1 to 10 million; see `aiocosid.abc.IdGenerator.next_ids`."""
        if self._find_loop() is not self._loop:
            self._check_usable()  # raises: it may be closed, or forked from, besides
        if type(n) is int and not self._busy:
            try:  # a step, as in `atomic_step`, without the cost of calls
                self._busy = True
                self._exposed = EMPTY  # from here on nobody else can step it
                left = length_hint(self._current)
                if 0 < n <= left:
                    stop, stride = self._stop_at, self._stride
                    rest = stop - (left - n) * stride
                    self._current = iter(range(rest, stop, stride))
                    return list(range(rest - n * stride, rest, stride))
            finally:
                self._exposed = self._current if self._unusable is None else EMPTY
                self._busy = False
        return await self._next_ids_slow(n)

    # The boundary.

    async def _next_id_slow(self) -> int:
        while self._busy:  # begun by an instrument, as an eager task
            await checkpoint()
        self._check_usable()
        await self._cross()
        for new_id in self._exposed:
            return new_id
        return (await self._wait(1))[0][0]

    def _next_id_nowait_slow(self) -> int:
        self._check_usable()
        if self._busy:
            raise WouldBlock
        if self._since_turn >= LONG_PIECE:
            self._since_turn = 0  # the caller cannot be made to wait for the next turn
        self._refill()
        for new_id in self._exposed:
            return new_id
        if self._used_up:
            raise self._overflow()
        self._starve(waiting=False)
        self._order(self._nowait_segments)
        for new_id in self._exposed:
            return new_id
        self._check_usable()  # as in _line_up
        raise WouldBlock

    _nowait_segments = 0
    """Segments to ask for when `next_id_nowait` finds none."""

    async def _next_ids_slow(self, n: int) -> list[int]:
        check_integer("n", n, at_least=1, at_most=MAX_BATCH)
        while self._busy:  # as in _next_id_slow
            await checkpoint()
        self._check_usable()
        await self._cross()
        pieces = self._take_now(n)
        if pieces is None:
            pieces = await self._wait(n)
        process, chain = fork.generation, self._chain
        try:
            ids = await expand_ranges(pieces)
        except BaseException:
            if self._chain is chain:
                self._discard(n, "cancelled")
            raise
        self._check_process(process)
        return ids

    async def _cross(self) -> None:
        """Cross a boundary: give the loop a turn if one is due, and put the next piece in hand.

        An ``await`` that does not suspend never lets the loop run.  A consumer in a tight loop
        would keep the prefetcher from the reply that it waits for itself.
        """
        if not self._left():
            self._pace.note(self._chain.remaining)
            if not self._at_once:
                self._order()  # before the turn, so that it is on its way meanwhile
        again = False
        while self._is_turn_spent():
            if self._at_once and self._pace.target < LONG_PIECE:
                # The whole distance, several times over, before the loop had a turn: hunger,
                # although a store in this process has hidden it.
                self._starve(waiting=False)
            if await self._turns.wait(self._is_turn_spent, again=again):
                self._since_turn = self._left()  # put in hand meanwhile, and for this turn
            self._check_usable()
            again = True
        self._refill()

    def _is_turn_spent(self) -> bool:
        """Tell whether the next piece has to wait for a turn of the loop."""
        if self._left():
            return False
        if self._at_once:
            return self._since_turn >= LONG_PIECE
        remaining = self._chain.remaining
        limit = SHORT_PIECE if remaining < self._pace.target else LONG_PIECE
        # With none left the caller has to wait for the store, which is a turn and more.
        return self._since_turn >= limit and remaining > 0

    @atomic_step
    def _refill(self) -> None:
        """Put the next piece in hand if the last one is used up, and order what is missing."""
        if self._options.ttl != FOREVER:
            self._drop_expired()
        if not self._left():
            self._order()
            self._install()

    def _install(self) -> None:
        if self._left() or self._waiters:
            return
        # What this turn has left; who finds it spent waits for the next one.
        remaining, size = self._chain.remaining, LONG_PIECE - self._since_turn
        if self._pace.distance and not self._at_once:
            size = min(size, self._pace.piece(remaining, SHORT_PIECE))
        cut = self._chain.cut(size) if size > 0 else None
        if cut is None:
            return
        piece, segment = cut
        self._stop_at, self._stride = piece.stop, piece.step
        self._since_turn += len(piece)
        self._current = iter(piece)
        if segment.ttl != FOREVER:
            self._watch_expiry(segment.expires_at)

    @atomic_step
    def _take_now(self, n: int) -> list[range] | None:
        """Take ``n`` ids if there are so many and nobody waits for them."""
        if self._waiters or self._left() + self._chain.remaining < n:
            return None
        pieces = self._take(n)
        self._order()
        return pieces

    def _take(self, n: int) -> list[range]:
        left = self._left()
        self._current = EMPTY
        self._since_turn += max(0, n - left)
        if left == 0:
            return self._chain.take(n)
        stop, stride = self._stop_at, self._stride
        in_hand = range(stop - left * stride, stop, stride)
        if left > n:
            self._current = iter(in_hand[n:])
            return [in_hand[:n]] if n else []
        return [in_hand, *self._chain.take(n - left)]

    # Waiting.

    async def _wait(self, n: int) -> list[range]:
        """Stand in line for ``n`` ids, for as long as ``wait_timeout``."""
        event, process, line = anyio.Event(), fork.generation, self._waiters
        waiter = Waiter(n, event.set, self._sent)
        self._line_up(waiter)
        if not waiter.is_done:
            try:
                with self._clock.move_on_after(self._options.wait_timeout):
                    await event.wait()
            except BaseException:
                self._leave(waiter, line)
                raise
        elif n:
            await self._let_others_run(waiter, line)
        self._check_process(process)
        if waiter.pieces is not None:
            return waiter.pieces
        if waiter.error is not None:
            raise waiter.error
        self._leave(waiter, line)
        self._emit(WaitTimedOut, waited=self._options.wait_timeout)
        raise self._unavailable(self._options.wait_timeout)

    @atomic_step
    def _line_up(self, waiter: Waiter) -> None:
        self._check_usable()  # a store in this process may have ended us a moment ago
        in_hand = self._left() + self._chain.remaining
        if self._used_up and in_hand < max(1, waiter.n):
            raise self._overflow()
        self._waits += waiter.n > 0
        self._waiters.add(waiter)
        if in_hand == 0 and waiter.n:
            self._starve(waiting=True)
        elif in_hand >= max(1, waiter.n):
            self._serve()  # a signal handler has had them brought a moment ago
        self._order()

    async def _let_others_run(self, waiter: Waiter, line: WaiterQueue) -> None:
        """Served at once by a store in this process: give the loop its turn all the same."""
        if self._since_turn >= LONG_PIECE:
            self._since_turn = self._left() + waiter.n  # all of it is for the next turn
            try:
                await self._turns.wait(self._is_turn_spent)
            except BaseException:
                self._leave(waiter, line)
                raise

    @atomic_step
    def _leave(self, waiter: Waiter, line: WaiterQueue) -> None:
        """Give up a place in the line, or the ids that were delivered in the same turn.

        Those are never put back: ids above them may have been handed out.
        """
        if self._waiters is not line:
            return  # opened anew since, by a forked child or on another loop
        if waiter.pieces is not None:
            self._discard(waiter.n, "cancelled")
        elif waiter.error is None:
            self._waiters.discard(waiter)
            self._serve()  # there may be enough for whoever stood behind

    # Opening, expiry, closing.

    async def _start(self) -> None:
        await self._distributor.aopen()
        await self._first_ids()

    async def _first_ids(self) -> None:
        """Wait for the first segment, if opening has to bring one."""
        if not self._opens_with_ids():
            self._order()  # for who has lined up meanwhile
            return
        try:
            await self._wait(0)
        except SegmentUnavailableError as error:
            cause = error.__cause__
            if isinstance(cause, CosIdError) and not cause.retryable:
                raise cause from cause.__cause__
            raise

    def _opens_with_ids(self) -> bool:
        """Tell whether opening has to bring the first segment."""
        return True

    def _stop(self, reason: CosIdError) -> None:
        super()._stop(reason)
        if not isinstance(reason, ForkedError):
            self._turns.release()

    def _drop_expired(self) -> None:
        now = self._clock.monotonic()
        if now > self._expires_at:
            self._expire_piece()
        self._discard(self._chain.drop_expired(now), "expired")

    @atomic_step
    def _expire_piece(self) -> None:
        left = self._left()
        self._current = EMPTY
        self._discard(left, "expired")

    def _watch_expiry(self, expires_at: float) -> None:
        self._expires_at = expires_at
        root = self._root
        if not self._expiry_watched and root is not None:
            self._expiry_watched = True
            root.start_soon(self._expire_in_time, name=f"aiocosid ttl {self._label()}")

    async def _expire_in_time(self) -> None:
        """Take what is too old out of the hand; wakes once for a ttl, and fetches nothing."""
        try:
            while self._left() and self._unusable is None:
                now = self._clock.monotonic()
                if now >= self._expires_at:
                    self._expire_piece()
                else:
                    await self._sleep(max(self._expires_at - now, RESOLUTION))
        finally:
            self._expiry_watched = False

    # Looking inside.

    def statistics(self) -> SegmentStatistics:
        """Return a frozen picture of the generator; cheap, and never waits."""
        distributor, pace = self._distributor, self._pace
        remaining = self._left() + self._chain.remaining
        handed_out, now = self._handed_out(), self._clock.monotonic()
        wall = self._clock.now_ms() / 1000
        rate, head = self._meter.rate(now, handed_out), self._head()
        return SegmentStatistics(
            kind=type(self).__name__,
            namespace=distributor.namespace,
            name=distributor.name,
            step=distributor.step,
            head_sequence=self._head_sequence(),
            head_offset=None if head is None else head.offset,
            head_max_id=None if head is None else head.max_id,
            fetch_time=None if head is None else int(wall - (now - head.fetched_at)),
            is_expired=head is not None and head.is_expired(now),
            max_id=self._last_max_id,
            remaining=remaining,
            safe_distance=pace.safe_distance,
            prefetch_distance=pace.distance,
            starvations=self._starvations,
            waits=self._waits,
            waiting=len(self._waiters),
            fetches=self._fetches,
            failures=self._failures,
            ids_fetched=self._fetched,
            ids_handed_out=handed_out,
            ids_discarded=self._discarded,
            ids_given_back=self._given_back,
            rate=rate,
            seconds_left=remaining / rate if rate > 0 else None,
            last_error=self._last_error,
            ended=self._ended(),
            distributor=distributor.statistics(),
        )

    def _head(self) -> IdSegment | None:
        """Return the segment that the next id comes from, or the last one came from."""
        node = self._chain.head
        return self._chain.current if self._left() or node is None else node.segment

    def _head_sequence(self) -> int | None:
        left = self._left()
        if left:
            return self._stop_at - (left + 1) * self._stride
        head = self._chain.head
        return head.first - head.segment.stride if head is not None else self._last_max_id

    def __repr__(self) -> str:
        """Say what is held and who waits."""
        state = "open" if self._unusable is None else type(self._unusable).__name__
        left, waiting = self._left() + self._chain.remaining, len(self._waiters)
        return (
            f"<{self._label()} {state} head={self._head_sequence()} remaining={left} "
            f"distance={self._pace.distance} waiting={waiting}>"
        )
