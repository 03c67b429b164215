"""The distributor of a counter on any store, and the check that detects lost writes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypedDict, Unpack

from .._life import fork
from .._life.fork import NotCopyable
from ..abc import MAX_ID, IdSegmentDistributor
from ..abc.checks import check_max_id, check_step
from ..errors import (
    CounterMissingError,
    ForkedError,
    IdOverflowError,
    InvalidArgumentError,
    StoreRolledBackError,
)
from ..errors.base import REOPEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .backend import Backend

__all__ = ("CounterDistributor", "CounterOptions", "HighWater", "WatchedDistributor", "reached_by")


class HighWater:
    """The highest max id that one distributor object has seen, and the process that saw it.

    Replies to concurrent calls may arrive in any order, so a reply is compared with the value at
    the time when its own call was sent::

        baseline = water.baseline()
        max_id = await ...
        water.check(distributor, max_id, step=step, baseline=baseline)
    """

    __slots__ = ("_fork_generation", "_highest")

    def __init__(self) -> None:
        self._highest: int | None = None
        self._fork_generation = fork.generation

    def baseline(self) -> int | None:
        """Return the value to compare the reply of a call sent now with; None at first."""
        return self._highest

    def check(
        self, distributor: IdSegmentDistributor, max_id: int, *, step: int, baseline: int | None
    ) -> int:
        """Return ``max_id`` if a store that lost nothing could have returned it, and remember it.

        A store that only adds returns at least ``baseline + step``.

        Raises:
            StoreRolledBackError: the counter went backwards since the call was sent.
        """
        check_max_id(distributor, max_id, step=step, baseline=baseline)
        if self._highest is None or max_id > self._highest:
            self._highest = max_id
        return max_id

    def missing(self, distributor: IdSegmentDistributor, *, step: int) -> StoreRolledBackError:
        """Return the error for a counter that answered before and is missing now."""
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
        if self._fork_generation != fork.generation:
            raise ForkedError(str(what), remedy=remedy)

    def adopt(self) -> None:
        """Bind it to this process; the values that the parent saw before the fork remain valid."""
        self._fork_generation = fork.generation


class CounterOptions(TypedDict, total=False):
    """Options of a counter; see `IdSegmentDistributor`."""

    namespace: str
    offset: int
    step: int


class Described(CounterOptions):
    """A counter's name and options."""

    name: str


class WatchedDistributor(NotCopyable, IdSegmentDistributor):
    """Checks each reply against the earlier ones.

    A subclass reserves the range in its `_grant`.
    """

    __slots__ = ("_water",)

    fork_remedy: str = REOPEN
    """The remedy for a forked child, in messages."""

    def __init__(self, **described: Unpack[Described]) -> None:
        """Describe a counter; see `aiocosid.abc.IdSegmentDistributor`."""
        super().__init__(**described)
        self._water = HighWater()

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect.  Its range is then a gap, and no later call receives
        its reply.

        Raises:
            InvalidArgumentError: ``step`` is not an integer, is below 1 or is above the limit;
                nothing was sent.
            IdOverflowError: the counter would pass 2^63-1, or does not fit its column; nothing was
                written.
            CounterMissingError: another system's table has no such row; nothing was written.
            CorruptCounterError: the counter holds no integer, or its row is invalid; nothing was
                written.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            StoreRolledBackError: the counter is lower than it was, or gone.
            ForkedError: the distributor, or the client under it, belongs to the parent process.
            WrongLoopError: the connections are in use on another event loop.
        """
        return await self._watched(step, self._grant)

    async def _watched(self, step: int, grant: Callable[[int], Awaitable[int]]) -> int:
        """Reserve a range, and compare it with earlier ones."""
        self._check(step)
        baseline = self._water.baseline()
        try:
            max_id = await grant(step)
        finally:
            self._water.ensure_own(self)  # after a fork, the range belongs to the parent
        return self._water.check(self, max_id, step=self._rise(step), baseline=baseline)

    def _rise(self, step: int) -> int:
        """Return the minimum by which a correct counter rises when ``step`` ids are reserved."""
        return step

    @abstractmethod
    async def _grant(self, step: int) -> int:
        """Reserve a range, and return its last id."""

    def _check(self, step: int) -> None:
        check_step(step)
        if self.step_limit is not None and step > self.step_limit:
            rule = f"must be an integer from 1 to {self.step_limit}"
            raise InvalidArgumentError("step", step, rule)
        if self.offset + step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(self, remedy=self.fork_remedy)

    def resume_above(self, reached: int) -> None:
        """Continue after another object for this counter, which exists and is at least as high.

        Args:
            reached: the highest max id that the store returned to the other object.
        """
        self._water.raise_to(reached)

    async def aopen(self) -> None:
        """Get ready in this process."""
        self._water.adopt()


class CounterDistributor(WatchedDistributor):
    """A counter on a store, advanced by one atomic step for each segment.

    A store's ``segment_distributor`` creates it.  Its first use creates the counter.  Once the
    counter has answered, it is never created again: a new counter would begin below the issued ids.
    """

    __slots__ = ("_backend", "_key", "fork_remedy", "order_risk", "store")

    def __init__(self, backend: Backend, **described: Unpack[Described]) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            backend: the store; the caller closes it.
            **described: as for `aiocosid.abc.IdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            NameTooLongError: ``{namespace}.{name}`` is longer than the store can hold.
        """
        super().__init__(**described)
        backend.check_counter(self)
        self.store: str = backend.label
        self.fork_remedy: str = backend.fork_remedy
        self.order_risk: str = backend.order_risk
        self._backend = backend
        self._key = self.namespaced_name

    async def _grant(self, step: int) -> int:
        first = self._first(step)
        try:
            return await self._backend.add(self._key, step, first=first)
        except CounterMissingError as error:
            raise self._water.missing(self, step=step) from error

    def _first(self, step: int) -> int | None:
        """Return the value of a counter that this call may create; None once it has answered."""
        return self.offset + step if self._water.baseline() is None else None

    def next_max_id_nowait(self, step: int) -> int:
        """Do the same as `next_max_id` without suspending, if the store lives in this process.

        Raises:
            WouldBlock: the store must be awaited.
            CosIdError: as for `next_max_id`.
        """
        self._check(step)
        baseline, first = self._water.baseline(), self._first(step)
        try:
            max_id = self._backend.add_nowait(self._key, step, first=first)
        except CounterMissingError as error:
            raise self._water.missing(self, step=step) from error
        return self._water.check(self, max_id, step=step, baseline=baseline)

    async def peek(self) -> int | None:
        """Return the last id reserved; see `aiocosid.abc.IdSegmentDistributor.peek`.

        Raises:
            UnsupportedByStoreError: the store has no way to read a counter.
            CosIdError: as for `next_max_id`.
        """
        self._water.ensure_own(self, remedy=self.fork_remedy)
        try:
            return await self._backend.peek(self._key)
        finally:
            self._water.ensure_own(self)

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        Raises:
            ForkedError: the client was passed in and belongs to the parent process.
        """
        await self._backend.aopen()
        await super().aopen()


def reached_by(distributor: IdSegmentDistributor) -> int | None:
    """Return the highest value that a distributor has seen of its counter; None at first."""
    water: HighWater | None = getattr(distributor, "_water", None)
    return None if water is None else water.baseline()
