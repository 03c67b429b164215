"""What the tests of the generators share: calls in the background, and an ear for events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import Event
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.memory import MemoryStore

Generator = SegmentChainId | SegmentId
E = TypeVar("E", bound=Event)


def counter(*, step: int = 10, offset: int = 0) -> CounterDistributor:
    """A new counter in a store of its own."""
    return MemoryStore().segment_distributor(name="order", offset=offset, step=step)


class OneDistributor(MemoryStore):
    """Gives the same distributor to everybody."""

    def __init__(self, distributor: IdSegmentDistributor) -> None:
        super().__init__()
        self.distributor = distributor

    def segment_distributor(self, **_: Any) -> Any:
        return self.distributor


class Ear:
    """An instrument that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


class Call:
    """One call in a task of its own; holds its result or error once it has ended."""

    def __init__(
        self, group: TaskGroup, function: Callable[..., Awaitable[Any]], *args: Any
    ) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.scope = anyio.CancelScope()
        group.start_soon(self._run, function, args)

    def cancel(self) -> None:
        self.scope.cancel()

    async def _run(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        with self.scope:
            try:
                self.result = await function(*args)
            except Exception as error:  # noqa: BLE001 - kept for the test to look at
                self.error = error
        self.is_done = True


def tasks() -> list[str]:
    """The names of the library's own tasks on this loop."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return sorted(name for name in names if name.startswith("aiocosid"))


async def drain(generator: Generator) -> list[int]:
    """Take what is in hand; the next call has to wait."""
    ids: list[int] = []
    while remaining := generator.statistics().remaining:
        # One by one: a chain keeps more ahead for callers that take many at once.
        ids += [generator.next_id_nowait() for _ in range(remaining)]
    return ids
