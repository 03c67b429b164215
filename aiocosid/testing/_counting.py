"""A provider for tests: for any name, its ids are 1, 2, 3."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Self, overload

import anyio

from .._life.callers import MAX_BATCH
from ..abc import DEFAULT_NAMESPACE, IdGenerator, Provider, Statistics
from ..abc.checks import check_integer
from ..errors import IdOverflowError
from ..generators.text import StringIdGenerator
from ..provider.hosting import check_ids
from ..snowflake import COSID_MS
from ..sync import SyncProvider
from ._clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from anyio.abc import TaskStatus

    from ..abc import AnyGenerator, Clock, IdConverter, TextIdGenerator
    from ..snowflake import SnowflakeLayout

__all__ = ("CountingProvider", "GivenIds")


class GivenIds(IdGenerator):
    """Returns given ids at once: on any event loop, in any thread, opened or not.

    Attributes:
        name: the generator's name.
    """

    __slots__ = ("__weakref__", "_ids", "_last", "_lock", "name")

    def __init__(self, name: str, ids: Iterable[int]) -> None:
        """Describe a generator.

        Args:
            name: the name in statistics and messages.
            ids: the ids, in this order; once they are used up, calls raise `IdOverflowError`.
        """
        self.name: str = name
        self._ids = iter(ids)
        self._last = 0
        self._lock = threading.Lock()

    def next_id_nowait(self) -> int:
        """Return the next of the ids.

        Raises:
            IdOverflowError: the ids are used up.
        """
        with self._lock:
            for each in self._ids:
                self._last = each
                return each
        raise IdOverflowError(self.name, limit=self._last)

    async def next_id(self) -> int:
        """Return the next of the ids; see `next_id_nowait`."""
        return self.next_id_nowait()

    async def next_ids(self, n: int) -> list[int]:
        """Return the next ``n`` of the ids; see `next_id_nowait`."""
        check_integer("n", n, at_least=1, at_most=MAX_BATCH)
        return [self.next_id_nowait() for _ in range(n)]

    def statistics(self) -> Statistics:
        """Return its name and kind."""
        return Statistics(kind=type(self).__name__, namespace=DEFAULT_NAMESPACE, name=self.name)

    def __repr__(self) -> str:
        """Show the name and the last id."""
        return f"<{type(self).__name__} {self.name} last={self._last}>"

    async def run(self, *, task_status: TaskStatus[object] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until it is cancelled."""
        task_status.started(self)
        await anyio.sleep_forever()

    async def __aenter__(self) -> Self:
        """Do nothing."""
        return self

    async def aclose(self) -> None:
        """Do nothing."""


class CountingProvider(Provider):
    """Generators by name, created on request; each counts 1, 2, 3 ...

    It needs no store, no opening and no event loop, so synchronous and asynchronous tests, and
    threads, can use it in the same way.

    Attributes:
        clock: the clock of its Snowflakes, which stands still.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Create a provider without any name.

        Args:
            clock: the clock of its Snowflakes; a `ManualClock` by default.
        """
        self.clock: Clock = clock or ManualClock()
        self._generators: dict[str, AnyGenerator] = {}
        self._sync: SyncProvider[CountingProvider] | None = None

    @overload
    def __getitem__(self, name: str, /) -> AnyGenerator: ...

    @overload
    def __getitem__(self, name: tuple[str, type[int]], /) -> IdGenerator: ...

    @overload
    def __getitem__(self, name: tuple[str, type[str]], /) -> TextIdGenerator: ...

    def __getitem__(self, name: str | tuple[str, type[int | str]], /) -> AnyGenerator:
        """Return the generator with this name, which counts from 1 unless `give` was called for it.

        ``ids["order", int]`` is a generator of numbers, also for a type checker.

        Raises:
            InvalidArgumentError: the generator's ids have the other type.
        """
        if isinstance(name, str):
            return self._generators.get(name) or self.give(name, count(1))
        name, of = name
        found = self[name]
        check_ids(name, found, of)
        return found

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that were requested."""
        return iter(tuple(self._generators))

    def __len__(self) -> int:
        """Count the names that were requested."""
        return len(self._generators)

    def __repr__(self) -> str:
        """Say how many generators it has."""
        return f"<{type(self).__name__} generators={len(self)}>"

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return the statistics of the generators, by name."""
        return {name: each.statistics().as_tree() for name, each in self._generators.items()}

    @overload
    def give(self, name: str, ids: Iterable[int]) -> GivenIds: ...

    @overload
    def give(
        self, name: str, ids: Iterable[int], *, converter: IdConverter
    ) -> StringIdGenerator: ...

    def give(
        self, name: str, ids: Iterable[int], *, converter: IdConverter | None = None
    ) -> AnyGenerator:
        """Set the ids of a name from now on, and return its generator.

        Args:
            name: the name.
            ids: the ids in order, for example ``itertools.count(1000)``; once a list is used up,
                calls raise `IdOverflowError`.
            converter: formats the ids as text; without it they are numbers.
        """
        given = GivenIds(name, ids)
        generator = given if converter is None else StringIdGenerator(given, converter)
        self._generators[name] = generator
        return generator

    def give_snowflakes(
        self,
        name: str,
        layout: SnowflakeLayout = COSID_MS,
        *,
        machine_id: int = 0,
        converter: IdConverter | None = None,
    ) -> AnyGenerator:
        """Set Snowflakes with `clock`'s time as the ids of a name, and return its generator.

        They have the clock's time and begin with sequence 1, like real ones.  If the sequence of a
        tick is used up, the ids of the next tick follow at once.

        Args:
            name: the name.
            layout: the layout of the ids.
            machine_id: the machine id in them.
            converter: formats the ids as text; without it they are numbers.

        Raises:
            InvalidArgumentError: the machine id does not fit the layout.
        """
        ids = _snowflakes(layout, machine_id, self.clock)
        layout.compose(0, machine_id, 0)  # raises now instead of at the first id
        return (
            self.give(name, ids) if converter is None else self.give(name, ids, converter=converter)
        )

    @property
    def sync(self) -> SyncProvider[CountingProvider]:
        """The same generators for synchronous code, as a provider of `aiocosid.sync`.

        ``ids.sync["order"].next_id()`` and ``await ids["order"].next_id()`` share their numbers.
        """
        if self._sync is None:
            self._sync = SyncProvider(lambda: self)
        return self._sync

    def close(self) -> None:
        """End the thread that `sync` started."""
        if self._sync is not None:
            self._sync.close()

    async def __aenter__(self) -> Self:
        """Do nothing, because it is always open."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing; the next ``async with`` continues with the same numbers."""


def _snowflakes(layout: SnowflakeLayout, machine_id: int, clock: Clock) -> Iterator[int]:
    size, number = layout.ids_per_tick, -1
    while True:
        number = max(number + 1, layout.tick_at(clock.now_ms()) * size + 1)
        tick, sequence = divmod(number, size)
        yield layout.compose(tick, machine_id, sequence)
