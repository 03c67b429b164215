"""Ids of whole seconds that are prepared ahead of the clock.  Pure.

uid-generator's ring holds each id.  Here the ids of one second and machine id are a range, so the
ring is the span from the next id to the end of what is prepared.  Three things bound it: its
capacity, how far ids may be ahead of the clock, and the fence of the lease.
"""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Final

from ._sequencer import Behind, Full, Limited, Sequencer
from .options import SECOND_MS

if TYPE_CHECKING:
    from ._layout import SnowflakeLayout
    from ._sequencer import Refusal
    from .options import RingOptions

__all__ = ("Ring",)

NS_PER_MS: Final = 1_000_000
PERCENT: Final = 100


class Ring(Sequencer):
    """A sequencer that may be ahead of the clock, and returns to it from both sides.

    The sequence begins at 0 in each second.  Unused ids of a second that has passed are dropped.

    Attributes:
        options: its size, when it is filled, and how far it may be ahead.
        fills: how often it was filled.
    """

    __slots__ = ("_borrow", "_end", "fills", "options")

    _end: int

    def __init__(
        self,
        layout: SnowflakeLayout,
        options: RingOptions,
        *,
        machine_id: int,
        floor_tick: int,
        term: int = 0,
    ) -> None:
        """Start above a tick, like `Sequencer`; the layout's ticks are seconds."""
        self.options = options
        self._borrow = int(options.max_borrow)
        self.fills = 0
        super().__init__(
            layout, machine_id=machine_id, floor_tick=floor_tick, reset_threshold=None, term=term
        )

    @property
    def rules(self) -> tuple[object, ...]:
        """The settings that all generators of one sequencer share."""
        chosen = self.options
        return *super().rules, chosen.boost, chosen.padding_factor, chosen.max_borrow

    @property
    def capacity(self) -> int:
        """How many ids it holds when it is full."""
        return self.layout.ids_per_tick * self.options.seconds

    def filled(self, now_ms: int) -> int:
        """Return how many prepared ids are left, without those of seconds that have passed."""
        tick, first = self._position(self.layout.tick_at(now_ms))
        filled = (self._end - tick) * self.layout.ids_per_tick - first
        return min(max(0, filled), self.capacity)  # it holds more if the clock has stepped back

    def borrowed(self, now_ms: int) -> int:
        """Return how many seconds the last id is ahead of the clock."""
        ahead = self._tick - self.layout.tick_at(now_ms)
        return max(0, ahead) if self.handed_out else 0

    def refill(self, now_ms: int, limit_ms: int) -> int | None:
        """Fill it if it is below its padding factor.

        Returns:
            The fence to request from the lease before it is needed, or None.
        """
        if limit_ms < 0:
            return None
        options = self.options
        if self.filled(now_ms) * PERCENT < self.capacity * options.padding_factor:
            self._fill(now_ms, limit_ms)
        now_tick = self.layout.tick_at(now_ms)
        tick = self._position(now_tick)[0]
        if self.layout.tick_at(limit_ms) - tick >= max(options.seconds, tick - now_tick):
            return None
        wanted_ms = self.wanted_ms(now_ms)
        return wanted_ms if wanted_ms > limit_ms else None

    def _fill(self, now_ms: int, limit_ms: int) -> None:
        now_tick = self.layout.tick_at(now_ms)
        tick = self._position(now_tick)[0]
        latest = min(now_tick + self._borrow, self.layout.last_tick, self.layout.tick_at(limit_ms))
        end = min(tick + self.options.seconds, latest + 1)
        if end > self._end:
            self._end = end
            self.fills += 1

    def available(self, now_ms: int, limit_ms: int) -> int:
        """Return how many ids, prepared or not, may be taken now, up to the lease's limit."""
        if limit_ms < 0:
            return 0
        now_tick, tick_at = self.layout.tick_at(now_ms), self.layout.tick_at
        tick, sequence = self._position(now_tick)
        latest = min(now_tick + self._borrow, self.layout.last_tick, tick_at(limit_ms))
        return max(0, (latest - tick + 1) * self.layout.ids_per_tick - sequence)

    def wanted_ms(self, now_ms: int) -> int:
        """Return a fence for two rings, or three times the borrowed time, so that calls are few."""
        now_tick = self.layout.tick_at(now_ms)
        tick = self._position(now_tick)[0]
        span = max(self.options.seconds, tick - now_tick) * 2
        latest = min(now_tick + self._borrow, self.layout.last_tick)
        return self.layout.ms_of(min(tick + span - 1, latest))

    def _position(self, now_tick: int) -> tuple[int, int]:
        """Return the tick and sequence of the next id, if this were the clock's second."""
        sequence = self._sequence
        if self._size:  # a piece is exposed
            sequence = self._first + self._size - length_hint(self._held) - 1
        if self._is_touched and sequence < self._max_sequence and self._tick >= now_tick:
            return self._tick, sequence + 1
        return max(self._tick + 1, now_tick), 0

    # Overrides of the sequencer's steps.

    def _move(self, machine_id: int, floor_tick: int) -> None:
        super()._move(machine_id, floor_tick)
        self._end = self._tick + 1  # the tick after the last prepared one

    def _check(self, now_tick: int, now_ms: int, limit_ms: int) -> Refusal | None:
        tick = self._position(now_tick)[0]
        latest = now_tick + self._borrow
        if tick > latest:
            until_ms = self.layout.ms_of(tick - self._borrow)
            if self._is_touched and self._tick <= latest:
                return Full(until_ms)
            return Behind(until_ms, max(1, until_ms - now_ms), not self._is_touched)
        if tick > self.layout.last_tick:
            self.layout.ids(tick, self._machine_id, 0, 0)  # raises
        if self.layout.ms_of(tick) > limit_ms:
            return Limited(self.wanted_ms(now_ms))
        if tick >= self._end:
            self._fill(now_ms, limit_ms)
        return None

    def _slot(self, now_tick: int, *, filling: bool) -> tuple[int, int]:  # noqa: ARG002 - nothing passed is filled
        return self._position(now_tick)

    def _capacity(self, now_tick: int) -> int:  # noqa: ARG002 - as above
        return 0

    def _window(self, tick: int, now_ms: int) -> tuple[int, int]:
        """Make the lease be checked again after a second, however far ahead the piece is."""
        begin_ms = self.layout.ms_of(tick - self._borrow)
        until_ms = min(self.layout.ms_of(tick + 1), now_ms + SECOND_MS)
        return begin_ms * NS_PER_MS, until_ms * NS_PER_MS
