"""Histories of calls, and whether they kept strict order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from typing import NamedTuple


class GrantReceipt(NamedTuple):
    """One call: when it began and ended, on one clock; its lowest and highest id."""

    begin: float
    end: float
    lowest: int
    highest: int


def violations(history: Iterable[GrantReceipt]) -> list[tuple[GrantReceipt, GrantReceipt]]:
    """Return pairs of calls of which the second began after the first had ended, and got less."""
    found: list[tuple[GrantReceipt, GrantReceipt]] = []
    taken = list(history)
    by_end = sorted(taken, key=lambda each: each.end)
    ended, top = 0, GrantReceipt(0, 0, 0, 0)  # the call with the highest id that has ended
    for each in sorted(taken):
        while by_end[ended].end < each.begin:
            top = max(top, by_end[ended], key=lambda one: one.highest)
            ended += 1
        if each.lowest <= top.highest:
            found.append((top, each))
    return found


class History:
    """Records calls.

    Attributes:
        calls: those that have ended with ids.
        ids: all of their ids.
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        """Read a clock; by default each moment is one later than the one before."""
        self.calls: list[GrantReceipt] = []
        self.ids: list[int] = []
        self._now = now or partial(next, count())

    async def take(self, call: Callable[[int], Awaitable[list[int]]], n: int = 1) -> list[int]:
        """Make a call for ``n`` ids, and record it."""
        begin = self._now()
        ids = await call(n)
        self.calls.append(GrantReceipt(begin, self._now(), min(ids), max(ids)))
        self.ids += ids
        return ids

    def check(self) -> None:
        """Fail unless all ids are different and in strict order."""
        assert len({*self.ids}) == len(self.ids)
        assert violations(self.calls) == []
