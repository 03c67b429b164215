"""Turns of the event loop: nobody keeps it from everybody else, however many ids are asked for.

A long list of ids is made in stretches, with a turn of the loop between them.

If each of a thousand busy tasks took a piece whenever the loop comes to it, one turn of the loop
would hand out a million ids, and the reply from the store would wait behind them.  So the ids that
one turn may hand out are limited, and those who come too late stand in line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("MAX_BATCH", "STRETCH", "TurnLine", "expand_ranges")

MAX_BATCH: Final = 10_000_000
"""Ids that one ``next_ids`` call may ask for; a list of them takes 400 MB."""

STRETCH: Final = 10_000
"""Ids between two turns of the event loop at most, about a millisecond."""


async def expand_ranges(pieces: Sequence[range]) -> list[int]:
    """Make a list of ranges, with a turn for the loop between long stretches."""
    if len(pieces) == 1 and len(pieces[0]) <= STRETCH:
        return list(pieces[0])
    ids: list[int] = []
    turn_at = STRETCH
    for piece in pieces:
        for start in range(0, len(piece), STRETCH):
            if len(ids) >= turn_at:
                await checkpoint()
                turn_at += STRETCH
            ids += piece[start : start + STRETCH]
    return ids


class TurnLine:
    """Lets callers go on, at least one turn of the loop later, in the order in which they came.

    They are woken in rounds: one caller while a round uses up what a turn may hand out, and twice
    as many each time otherwise.
    """

    __slots__ = ("_awake", "_is_new_round", "_line", "_width")

    def __init__(self) -> None:
        # Whoever leaves is found at once.  Made when it is needed: most never do.
        self._line: OrderedDict[anyio.Event, None] | None = None
        self._awake = 0  # callers of this round that have not run yet
        self._is_new_round = False
        self._width = 1

    async def wait(self, is_spent: Callable[[], bool], *, again: bool = False) -> bool:
        """Suspend the caller for at least one turn of the loop.

        Args:
            is_spent: tells whether this turn has handed out all that it may.
            again: the caller has been in line already, and goes to the front.

        Returns:
            Whether the caller is the first of its round, and a new turn begins with it.
        """
        if not self._awake:  # then nobody is in line either
            self._awake = 1
            self._is_new_round = True
            try:
                await checkpoint()
            except BaseException:
                self._go_on(is_spent)
                raise
            return self._go_on(is_spent)
        place = self._stand_in_line(again=again)
        try:
            await place.wait()
        except BaseException:
            if place.is_set():
                self._go_on(is_spent)
            elif self._line is not None:
                self._line.pop(place, None)
            raise
        return self._go_on(is_spent)

    def release(self) -> None:
        """Let all of them go on: there is nothing more to wait for."""
        self._wake(len(self._line or ()))

    def _stand_in_line(self, *, again: bool) -> anyio.Event:
        place = anyio.Event()
        if self._line is None:
            self._line = OrderedDict()
        self._line[place] = None
        if again:
            self._line.move_to_end(place, last=False)
        return place

    def _go_on(self, is_spent: Callable[[], bool]) -> bool:
        """One of the round runs; the last one wakes the next round."""
        first, self._is_new_round = self._is_new_round, False
        self._awake -= 1
        if not self._awake and self._line:
            self._width = 1 if is_spent() else self._width * 2
            self._wake(min(self._width, len(self._line)))
        return first

    def _wake(self, count: int) -> None:
        for _ in range(count):
            if self._line:
                self._is_new_round = True
                self._awake += 1
                self._line.popitem(last=False)[0].set()
