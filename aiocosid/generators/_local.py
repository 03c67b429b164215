"""Generators that need only this process: their common base, and a counter."""

from __future__ import annotations

from itertools import count, islice
from operator import length_hint
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from .._life import fork
from .._life.callers import MAX_BATCH, TurnLine
from .._life.component import Component
from .._life.loop import CheckedIds
from ..abc import DEFAULT_NAMESPACE, SHARE, IdGenerator, Statistics
from ..abc.checks import check_integer, check_text
from ..errors import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..abc import Clock
    from ..errors import CosIdError

__all__ = ("CounterId", "LocalGenerator")

T = TypeVar("T")

NONE: Final[Iterator[int]] = iter(())


class LocalGenerator(Component, Generic[T]):
    """Opens at once and holds no resources.  ``for _ in self._budget`` permits one id.

    The budget limits the ids in one turn of the event loop, because an ``await`` that does not
    suspend gives the loop no turn.  It is empty while the generator is not open, so the hot path
    needs no other check.
    """

    __slots__ = ("__weakref__", "_budget", "_turns", "name", "namespace")

    _stretch: ClassVar[int]
    """Ids between two loop turns, about a millisecond."""

    _one: Callable[[], T]
    """Creates an id."""

    def __init__(self, *, namespace: str, name: str, clock: Clock | None) -> None:
        check_text("namespace", namespace)
        check_text("name", name)
        self.namespace: str = namespace
        self.name: str = name
        super().__init__(clock)
        self._reset()

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take; there is nothing to wait for."""
        return 1.0

    def _reset(self) -> None:
        self._budget = NONE
        self._turns = TurnLine()

    def statistics(self) -> Statistics:
        """Return the generator's name and kind."""
        return Statistics(kind=type(self).__name__, namespace=self.namespace, name=self.name)

    async def _wait_turn(self) -> None:
        """Return once an id may be issued, after a loop turn if one was due."""
        process, again = fork.generation, False
        self._check_usable()
        while self._is_spent():
            if await self._turns.wait(self._is_spent, again=again):
                self._renew()
            fork.ensure_own(process, self._home.label)
            self._check_usable()
            again = True

    def _is_spent(self) -> bool:
        return not length_hint(self._budget)

    def _renew(self, left: int | None = None) -> None:
        budget = range(self._stretch if left is None else left)
        check = self._home.loop_check
        self._budget = iter(budget) if check is None else CheckedIds(check, budget)
        if self._unusable is not None:
            self._budget = NONE  # a signal handler has just closed it

    def _many(self, n: int) -> list[T]:
        """Create this many ids."""
        return [self._one() for _ in range(n)]

    async def next_id(self) -> T:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        for _ in self._budget:
            return self._one()
        await self._wait_turn()
        return await self.next_id()

    def next_id_nowait(self) -> T:
        """Return the next id without waiting; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        for _ in self._budget:
            return self._one()
        # This works even if a loop turn is due, because the caller cannot wait for it.
        self._check_usable()
        self._renew()
        return self._one()

    async def next_ids(self, n: int) -> list[T]:
        """Return exactly ``n`` ids, 1 to 10 million, or none; they need not be contiguous.

        They are created in stretches, with loop turns in between.
        """
        check_integer("n", n, at_least=1, at_most=MAX_BATCH)
        made: list[T] = []
        while len(made) < n:
            await self._wait_turn()
            left = length_hint(self._budget)
            some = min(n - len(made), left)
            self._renew(left - some)
            made += self._many(some)
        return made

    def _label(self) -> str:
        return f"{type(self).__name__} {self.namespace}.{self.name}"

    async def _start(self) -> None:
        self._renew()

    def _stop(self, reason: CosIdError) -> None:
        del reason  # tasks that wait for a turn find it
        self._budget = NONE

    async def _drain(self) -> None:
        """Return at once, because no call is running."""

    @property
    def _has_to_drain(self) -> bool:
        return False

    async def _release(self) -> None:
        """Return at once, because no resource is held."""


class CounterId(LocalGenerator[int], IdGenerator):
    """Counts 1, 2, 3 ..., from 1 in each process: for tests and short-lived data.

    CosId's AtomicLongGenerator.  Each object has its own counter, which continues when the
    generator is reopened.  A forked child gets an error, because its parent continues with the same
    numbers.
    """

    __slots__ = ("_made_in", "_numbers", "_one")

    _stretch = 10_000

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str = SHARE,
        clock: Clock | None = None,
    ) -> None:
        """Describe a counter.

        Args:
            namespace: the namespace in statistics and messages.
            name: the name in statistics and messages.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._numbers = count(1)  # each step is atomic, as it runs in C
        self._one: Callable[[], int] = self._numbers.__next__
        self._made_in = fork.generation
        super().__init__(namespace=namespace, name=name, clock=clock)

    def _many(self, n: int) -> list[int]:
        return list(islice(self._numbers, n))

    async def _start(self) -> None:
        if self._made_in != fork.generation:
            raise ForkedError(self._label(), remedy="make a new one, or count in a store")
        await super()._start()
