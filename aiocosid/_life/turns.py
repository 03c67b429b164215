"""Who goes on when many callers find the piece used up in one turn of the event loop.

If each of a thousand busy tasks took a piece whenever the loop comes to it, one turn of the loop
would hand out a million ids, and the reply from the store would wait behind them.  So the ids that
one turn may hand out are limited, and those who come too late stand in line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("TurnLine",)


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
