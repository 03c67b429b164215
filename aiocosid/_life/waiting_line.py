"""Callers that wait for ids, in the order in which they came.  Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import CosIdError

__all__ = ("Waiter", "WaiterQueue")


class Waiter:
    """One caller.

    Attributes:
        n: how many ids it wants; 0 waits until there is any, and takes none.
        since: when it lined up, in seconds on the monotonic clock.
        sent: how many fetches had been sent by then, where that is of interest.
        wake: called when it is served or failed, or is to keep the time.
        keeps_time: whether it sees to it that those in line give up in time.
        pieces: its ids, once it is served.
        error: why it gets none.
    """

    __slots__ = ("error", "keeps_time", "n", "pieces", "sent", "since", "wake")

    def __init__(self, n: int, wake: Callable[[], object], since: float = 0, sent: int = 0) -> None:
        self.n = n
        self.since = since
        self.sent = sent
        self.pieces: list[range] | None = None
        self.error: CosIdError | None = None
        self.wake = wake
        self.keeps_time = False

    @property
    def is_done(self) -> bool:
        """Whether it has been served or failed."""
        return self.pieces is not None or self.error is not None

    def serve(self, pieces: list[range]) -> None:
        """Hand over its ids and wake it."""
        self.pieces = pieces
        self.wake()

    def fail(self, error: CosIdError) -> None:
        """Hand over an error and wake it."""
        self.error = error
        self.wake()


class WaiterQueue(OrderedDict[Waiter, None]):
    """First come, first served; nobody behind the first is served before it.

    Whoever leaves is found at once, wherever it stands: thousands may be cancelled together.

    Attributes:
        wanted: ids that all of them wait for together.
        waits: callers for ids that have ever stood here.
    """

    __slots__ = ("waits", "wanted")

    def __init__(self) -> None:
        super().__init__()
        self.wanted = self.waits = 0

    @property
    def first(self) -> Waiter:
        """The caller that has waited longest; there has to be one."""
        return next(iter(self))

    def is_first(self, waiter: Waiter) -> bool:
        """Tell whether a caller is the one that has waited longest."""
        return next(iter(self), None) is waiter

    def add(self, waiter: Waiter) -> None:
        """Let a caller stand at the end."""
        self[waiter] = None
        self.wanted += waiter.n
        self.waits += waiter.n > 0

    def discard(self, waiter: Waiter) -> None:
        """Let a caller that gives up leave, if it is still there."""
        if waiter in self:
            del self[waiter]
            self.wanted -= waiter.n

    def pass_timer_on(self, waiter: Waiter) -> None:
        """Have the caller that is first as soon as ``waiter`` has left keep the time.

        It passes the duty on itself, also if it is served or cancelled before it runs.
        """
        for each in self:
            if each is not waiter:
                each.keeps_time = True
                each.wake()
                return

    def serve(
        self, available: int, take: Callable[[int], list[range]], sent: int | None = None
    ) -> None:
        """Serve callers from the front for as long as there is enough for the first one.

        Args:
            available: ids in hand.
            take: takes that many of them away.
            sent: the number of the fetch that they come from, if only those who lined up before it
                was sent may have them.
        """
        while self:
            first = self.first
            if available < (first.n or 1) or (sent is not None and first.sent >= sent):
                break
            self._remove_first()
            available -= first.n
            first.serve(take(first.n))

    def fail(self, make_error: Callable[[], CosIdError]) -> None:
        """Fail every caller, each with an error of its own."""
        while self:
            self.fail_first(make_error())

    def fail_first(self, error: CosIdError) -> None:
        """Fail the caller that has waited longest."""
        self._remove_first().fail(error)

    def _remove_first(self) -> Waiter:
        waiter, _ = self.popitem(last=False)
        self.wanted -= waiter.n
        return waiter
