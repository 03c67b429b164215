"""Detects that a store lost writes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .._life import fork
from .._life.fork import NotCopyable
from ..abc import MAX_ID, IdSegmentDistributor
from ..abc.checks import check_max_id, check_step
from ..errors import ForkedError, IdOverflowError, StoreRolledBackError
from ..errors.base import REOPEN

__all__ = ("HighWater", "WatchedDistributor")


class HighWater:
    """The highest max id that one distributor object has seen, and the process that saw it.

    Replies to concurrent calls may arrive in any order, so a reply is compared with the value at
    the time when its own call was sent::

        sent = water.sent()
        max_id = await ...
        water.check(distributor, max_id, step=step, sent=sent)
    """

    __slots__ = ("_born", "_highest")

    def __init__(self) -> None:
        self._highest: int | None = None
        self._born = fork.generation

    def baseline(self) -> int | None:
        """Return the value to compare the reply of a call sent now with; None at first."""
        return self._highest

    def check(
        self, distributor: IdSegmentDistributor, max_id: int, *, step: int, baseline: int | None
    ) -> int:
        """Return ``max_id`` if a sound store could have answered it, and remember it.

        A store that only adds answers at least ``baseline + step``.

        Raises:
            StoreRolledBackError: the counter went backwards since the call was sent.
        """
        check_max_id(distributor, max_id, step=step, baseline=baseline)
        if self._highest is None or max_id > self._highest:
            self._highest = max_id
        return max_id

    def missing(self, distributor: IdSegmentDistributor, *, step: int) -> StoreRolledBackError:
        """Return the error for a counter that has answered before, and is missing now."""
        return StoreRolledBackError(
            distributor.store,
            namespace=distributor.namespace,
            name=distributor.name,
            seen=0,
            expected=(self._highest or 0) + step,
        )

    def raise_to(self, reached: int) -> None:
        """Expect at least the value that another object has seen."""
        self._highest = max(reached, self._highest or 0)

    def ensure_own(self, what: object, *, remedy: str = REOPEN) -> None:
        """Raise in a forked child that has not called `adopt`.

        Raises:
            ForkedError: ``what`` belongs to the parent process.
        """
        if self._born != fork.generation:
            raise ForkedError(str(what), remedy=remedy)

    def adopt(self) -> None:
        """Bind it to this process: the values that the parent saw before the fork still hold."""
        self._born = fork.generation


class WatchedDistributor(NotCopyable, IdSegmentDistributor):
    """Checks each reply against those before.

    A subclass takes the range, in `_grant`.
    """

    __slots__ = ("_water",)

    fork_remedy: str = REOPEN
    """The remedy for a forked child, in messages."""

    def __init__(self, **described: Any) -> None:  # noqa: ANN401 - a contract's
        """Describe a counter; see `aiocosid.abc.IdSegmentDistributor`."""
        super().__init__(**described)
        self._water = HighWater()

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect; then its range is a gap, and no later call gets its
        reply.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: the counter holds no integer; nothing was written.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            StoreRolledBackError: the counter is lower than it was, or gone.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        self._check(step)
        baseline = self._water.baseline()
        try:
            max_id = await self._grant(step)
        finally:
            self._water.ensure_own(self)  # suspended across a fork: the range is the parent's
        return self._water.check(self, max_id, step=step, baseline=baseline)

    @abstractmethod
    async def _grant(self, step: int) -> int:
        """Take a range, and return its last id."""

    def _check(self, step: int) -> None:
        check_step(step)
        if self.offset + step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(self, remedy=self.fork_remedy)

    def resume_above(self, reached: int) -> None:
        """Continue where another object for this counter ended: it exists, and is not lower.

        Args:
            reached: the highest max id that the store has answered to the other object.
        """
        self._water.raise_to(reached)

    async def aopen(self) -> None:
        """Get ready in this process."""
        self._water.adopt()
