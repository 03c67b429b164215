"""Callers that wait for ids, in the order in which they came.  Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import CosIdError

__all__ = ("Waiter", "WaiterQueue")


class Waiter:
    """One waiting caller.

    Attributes:
        n: how many ids it wants; 0 waits until there are any, and takes none.
        since: when it lined up, in seconds on the monotonic clock.
        sent: how many fetches had been sent by then, where that matters.
        wake: called when it is served or failed, or takes over the timer.
        keeps_time: whether it has the timer that fails callers in time.
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
        """Give the caller its ids and wake it."""
        self.pieces = pieces
        self.wake()

    def fail(self, error: CosIdError) -> None:
        """Give the caller an error and wake it."""
        self.error = error
        self.wake()


class WaiterQueue(OrderedDict[Waiter, None]):
    """First come, first served; no caller is served before those ahead of it.

    A caller that leaves is found at once wherever it stands, since thousands may be cancelled
    together.

    Attributes:
        wanted: ids that all of them wait for together.
        waits: callers for ids that have ever waited here.
    """

    __slots__ = ("waits", "wanted")

    def __init__(self) -> None:
        super().__init__()
        self.wanted = self.waits = 0

    @property
    def first(self) -> Waiter:
        """The caller that has waited longest; the line must not be empty."""
        return next(iter(self))

    def is_first(self, waiter: Waiter) -> bool:
        """Tell whether a caller is the one that has waited longest."""
        return next(iter(self), None) is waiter

    def add(self, waiter: Waiter) -> None:
        """Add a caller at the end."""
        self[waiter] = None
        self.wanted += waiter.n
        self.waits += waiter.n > 0

    def discard(self, waiter: Waiter) -> None:
        """Remove a caller that gives up, if it is still there."""
        if waiter in self:
            del self[waiter]
            self.wanted -= waiter.n

    def pass_timer_on(self, waiter: Waiter) -> None:
        """Give the timer to the caller that is first once ``waiter`` has left.

        That caller passes it on itself, even if it is served or cancelled before it runs.
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
            available: how many ids are buffered.
            take: takes that many of them.
            sent: the number of the fetch that brought them, if only callers that lined up before
                it was sent may have them.
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
