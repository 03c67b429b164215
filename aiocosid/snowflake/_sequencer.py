"""Decides which ids may be issued at a given time.  Pure.

Its position, tick and sequence, only goes forward.  The tick of every id is at most the clock
reading of the call, above the floor that came with the machine id, and at most the limit of its
lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import length_hint
from typing import TYPE_CHECKING, Final

from .._life.atomic_step import refuse_reentry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._layout import SnowflakeLayout

__all__ = (
    "EMPTY",
    "MAX_TICKS_BACK",
    "PIECE",
    "SHUT",
    "Behind",
    "Full",
    "Limited",
    "Sequencer",
)

PIECE: Final = 10_000
"""The maximum number of ids between two turns of the event loop."""

MAX_TICKS_BACK: Final = 3
"""How many unused past ticks may still be filled, since a sleep until the next tick overshoots."""

NS_PER_MS: Final = 1_000_000
SECOND_MS: Final = 1000

EMPTY: Final[Iterator[int]] = iter(range(0))


@dataclass(frozen=True, slots=True)
class Full:
    """The sequence of the current tick is used up.

    Attributes:
        until_ms: when the next tick begins.
    """

    until_ms: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The clock is behind the last id's time.

    Attributes:
        until_ms: the clock reading that the next id needs.
        by_ms: how far the clock is behind that reading.
        is_floor: whether it is behind the ids that a former owner may have issued.
    """

    until_ms: int
    by_ms: int
    is_floor: bool


@dataclass(frozen=True, slots=True)
class Limited:
    """The lease does not allow ids of this time.

    Attributes:
        needed_ms: the fence that is needed.
    """

    needed_ms: int


Refusal = Full | Behind | Limited


def _lowest(_limit: int) -> int:
    return 0


class Sequencer:
    """Issues the ids of one machine id and layout; shared by all generators of one name.

    This is CosId's sequence rule: the sequence rises from tick to tick and restarts only above a
    threshold, so that at a low rate ``id % n`` is spread evenly.  The first sequence is 1; 0 occurs
    only after a tick that was used up.

    Attributes:
        layout: composes the ids.
        reset_threshold: the sequence restarts in a new tick once it has reached this; None to start
            at 0 in each tick.
        random_start: the first sequence of a new tick is random below this limit; None if it is not
            random.
        term: the lease's term of its machine id; set by the caller of `move`.
        piece: an iterator of ids, for any caller while the clock is between the two bounds.
        begin_ns: the earliest clock reading, in nanoseconds, at which they may be handed out.
        until_ns: the reading from which they may no longer be handed out.
        issued: ids handed out so far, without those of the current piece.
    """

    __slots__ = (
        "__weakref__",
        "_busy",
        "_draw",
        "_first",
        "_held",
        "_is_touched",
        "_is_wrapped",
        "_machine_id",
        "_max_sequence",
        "_sequence",
        "_size",
        "_tick",
        "begin_ns",
        "issued",
        "layout",
        "piece",
        "random_start",
        "reset_threshold",
        "term",
        "until_ns",
    )

    def __init__(
        self,
        layout: SnowflakeLayout,
        *,
        machine_id: int,
        floor_tick: int,
        reset_threshold: int | None,
        term: int = 0,
        random_start: int | None = None,
        draw: Callable[[int], int] = _lowest,
    ) -> None:
        """Start above a tick.

        Args:
            layout: composes the ids.
            machine_id: the machine id of each id.
            floor_tick: no id has this tick or an earlier one.
            reset_threshold: see the attribute.
            term: see the attribute.
            random_start: see the attribute.
            draw: returns a number from 0 to below a limit.
        """
        self.layout = layout
        self._max_sequence = layout.max_sequence
        self.reset_threshold = reset_threshold
        self.random_start, self._draw = random_start, draw
        self._sequence = 0
        self.issued = 0
        self.piece: Iterator[int] = EMPTY
        self._held: Iterator[int] = EMPTY  # the piece, even while no caller may take from it
        self._busy = False
        self.begin_ns = self.until_ns = 0
        self._first = self._size = 0
        self.term = term
        self._tick = floor_tick
        self.move(machine_id, floor_tick)

    @refuse_reentry
    def move(self, machine_id: int, floor_tick: int) -> None:
        """Continue with another machine id, above its floor and above every id issued so far.

        Raises:
            WouldBlock: as in `install`.
        """
        self._move(machine_id, floor_tick)

    def _move(self, machine_id: int, floor_tick: int) -> None:
        self._settle()
        self._machine_id = machine_id
        self._tick = max(floor_tick, self._tick)
        self._is_wrapped = False  # whether a caller waited for the next tick, or one is used up
        self._is_touched = False  # whether an id of the current tick was reserved

    @property
    def rules(self) -> tuple[object, ...]:
        """The settings that all generators sharing it must agree on."""
        return type(self), self.layout, self.reset_threshold, self.random_start

    @property
    def last_ms(self) -> int:
        """The time of the last id, or of the floor, in milliseconds since 1970.

        In a layout of seconds it is the end of the second, because the machine id's next owner may
        be CosId, which issues ids in the rest of a second.
        """
        is_second = self.layout.unit_ms == SECOND_MS and self.handed_out
        return self.layout.ms_of(self._tick) + (SECOND_MS - 1 if is_second else 0)

    @property
    def handed_out(self) -> int:
        """How many ids were handed out so far."""
        return self.issued + (self._size - length_hint(self._held) if self._size else 0)

    @property
    def in_hand(self) -> int:
        """How many ids the piece has left."""
        return length_hint(self._held)

    def _settle(self) -> None:
        """Take back the rest of the piece, from which no caller can take ids now."""
        if self._size == 0:
            return
        # The piece is made unreachable before it is counted, since another thread may be taking
        # from it.
        self.piece = EMPTY
        taken = self._size - length_hint(self._held)
        # Nothing is called from here on: a signal handler may raise in any call.
        self.begin_ns = self.until_ns = self._size = 0
        self.issued += taken
        self._sequence = self._first + taken - 1
        if taken == 0:
            # The tick counts as not begun; its first sequence is used again.
            self._is_wrapped = self._first == 0

    @refuse_reentry
    def install(
        self, now_ms: int, limit_ms: int, size: int = PIECE, lag_ms: int = 0
    ) -> Refusal | None:
        """Install a piece of at most ``size`` ids, for single ids; return None or the refusal.

        Args:
            now_ms: the latest time that the ids may have.
            limit_ms: the latest time that the lease allows.
            size: the maximum number of ids.
            lag_ms: how far the clock, on which the piece's bounds are, is ahead of ``now_ms``.

        Raises:
            WouldBlock: a signal handler or finalizer calls during another step.
        """
        self._settle()
        now_tick = self.layout.tick_at(now_ms)
        slot = self._next(now_ms, limit_ms, filling=False)
        if not isinstance(slot, tuple):
            return slot
        tick, first = slot
        stop = min(first + size, self._max_sequence + 1)
        piece = iter(self.layout.ids(tick, self._machine_id, first, stop))
        begin_ns, until_ns = self._window(tick, now_ms)
        if lag_ms:
            begin_ns, until_ns = begin_ns + lag_ms * NS_PER_MS, until_ns + lag_ms * NS_PER_MS
        # Nothing is called from here on, as above.
        self._tick, self._first, self._size = tick, first, stop - first
        self._is_touched, self._is_wrapped = True, tick < now_tick
        self.piece = self._held = piece
        self.begin_ns, self.until_ns = begin_ns, until_ns
        return None

    def _window(self, tick: int, now_ms: int) -> tuple[int, int]:
        """Return the clock readings, in nanoseconds, between which a piece may be handed out."""
        ticks = 1 if tick == self.layout.tick_at(now_ms) else MAX_TICKS_BACK + 1
        begin_ms, until_ms = self.layout.ms_of(tick), self.layout.ms_of(tick + ticks)
        return begin_ms * NS_PER_MS, until_ms * NS_PER_MS

    @refuse_reentry
    def take(self, n: int, now_ms: int, limit_ms: int) -> tuple[list[range], Refusal | None]:
        """Take up to ``n`` ids, whole ticks at once; return them and why there are fewer.

        Raises:
            WouldBlock: as in `install`.
        """
        self._settle()
        now_tick = self.layout.tick_at(now_ms)
        pieces: list[range] = []
        filling = n > self._capacity(now_tick)
        while n:
            slot = self._next(now_ms, limit_ms, filling=filling)
            if not isinstance(slot, tuple):
                return pieces, slot
            tick, first = slot
            count = min(n, self._max_sequence + 1 - first)
            pieces.append(self.layout.ids(tick, self._machine_id, first, first + count))
            self._tick, self._sequence = tick, first + count - 1
            self._is_touched, self._is_wrapped = True, tick < now_tick
            self.issued += count
            n -= count
        return pieces, None

    def check(self, now_ms: int, limit_ms: int) -> Refusal | None:
        """Return why no id may be issued now; None if one may be, or the tick is used up."""
        return self._check(self.layout.tick_at(now_ms), now_ms, limit_ms)

    def _next(self, now_ms: int, limit_ms: int, *, filling: bool) -> tuple[int, int] | Refusal:
        """Return the next free tick and sequence that the clock and the lease allow."""
        now_tick = self.layout.tick_at(now_ms)
        refusal = self._check(now_tick, now_ms, limit_ms)
        if refusal is not None:
            return refusal
        slot = self._slot(now_tick, filling=filling)
        return Full(self.layout.ms_of(now_tick + 1)) if slot is None else slot

    def _check(self, now_tick: int, now_ms: int, limit_ms: int) -> Refusal | None:
        """Return why no id may have the clock's tick, or None."""
        if now_tick < self._tick or (now_tick == self._tick and not self._is_touched):
            until = self.layout.ms_of(self._tick + (not self._is_touched))
            return Behind(until, max(1, until - now_ms), not self._is_touched)
        if self.layout.ms_of(now_tick) > limit_ms:
            return Limited(self.layout.ms_of(now_tick))
        if now_tick > self.layout.last_tick:
            self.layout.check_usable(now_ms)  # raises
        return None

    def _capacity(self, now_tick: int) -> int:
        """Count the ids that the clock's own tick has left."""
        if self._tick == now_tick and self._is_touched:
            return self._max_sequence - self._sequence
        if self.random_start is not None:
            return self._max_sequence + 2 - self.random_start  # at least
        return self._max_sequence + 1 - self._first_of_new_tick()

    def _first_of_new_tick(self) -> int:
        if self.random_start is not None:
            return self._draw(self.random_start)
        if self._is_wrapped or self.reset_threshold is None:
            return 0
        return 1 if self._sequence >= self.reset_threshold else self._sequence + 1

    def _slot(self, now_tick: int, *, filling: bool) -> tuple[int, int] | None:
        """Return the next free tick and sequence; None if all up to the clock's tick are used."""
        oldest = now_tick - MAX_TICKS_BACK
        is_rest = self._is_touched and self._sequence < self._max_sequence
        if is_rest and (self._tick == now_tick or (filling and self._tick >= oldest)):
            return self._tick, self._sequence + 1
        if self._tick == now_tick:
            self._is_wrapped = True
            return None
        if filling:
            return max(self._tick + 1, oldest), 0
        is_late = self._is_wrapped and self._sequence == self._max_sequence
        if is_late and self._tick >= oldest - 1:
            # A caller waited for the tick after the last one, and woke up late.
            return self._tick + 1, 0
        return now_tick, self._first_of_new_tick()


class Shut:
    """Replaces the sequencer while a generator is not open."""

    __slots__ = ()

    begin_ns = until_ns = handed_out = 0
    piece: Iterator[int] = EMPTY


SHUT: Final = Shut()
