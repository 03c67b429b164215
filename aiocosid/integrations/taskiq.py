"""Ids in Taskiq: a provider for as long as a worker runs, and dependencies of its tasks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

from taskiq import Context, TaskiqDepends, TaskiqEvents

from .. import generator_named
from ..abc import SHARE, AnyGenerator, Provider
from ..errors import NotOpenError
from ._source import STATE_KEY
from ._worker import NAMES, KeptOpen, check_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from taskiq import AsyncBroker, TaskiqState

    from ._source import Source

__all__ = ("Ids", "generator", "provider", "setup_ids")


def setup_ids(broker: AsyncBroker, source: Source) -> None:
    """Keep a provider open in each worker process of a broker.

    Tasks find it by `generator` and `Ids`, other code as the process's default provider.  If it
    cannot be opened, or lacks a generator that a task depends on, the worker does not start.
    Processes that only send tasks open nothing; an ``InMemoryBroker`` is a worker itself.

    Args:
        broker: the broker, before its ``startup()``.
        source: a provider that is not open yet; or a function that returns one, or any asynchronous
            context manager of one, and is called at each start.
    """
    ids = KeptOpen(source)

    def check(found: Provider) -> None:
        check_names((task.original_func for task in broker.get_all_tasks().values()), found)

    async def start(state: TaskiqState) -> None:
        state[STATE_KEY] = await ids.open(check)

    async def stop(state: TaskiqState) -> None:
        state.pop(STATE_KEY, None)
        await ids.close()

    broker.add_event_handler(TaskiqEvents.WORKER_STARTUP, start)
    broker.add_event_handler(TaskiqEvents.WORKER_SHUTDOWN, stop)


async def provider(context: Annotated[Context, TaskiqDepends()]) -> Provider:
    """Return the provider of the worker; a dependency.

    Raises:
        NotOpenError: `setup_ids` was not called for the broker.
    """
    found: Provider | None = context.state.get(STATE_KEY)
    if found is None:
        raise NotOpenError("the worker's provider (was setup_ids(broker, ...) called?)")
    return found


@cache
def generator(name: str = SHARE) -> Callable[..., Awaitable[AnyGenerator]]:
    """Return a dependency that gives a generator by its name.

    It is the same one for the same name, so that a test can put another generator in its place::

        OrderIds = Annotated[IdGenerator, TaskiqDepends(generator("order"))]

        broker.dependency_overrides[generator("order")] = lambda: counted

    Args:
        name: the generator's; ``__share__`` by default.
    """

    async def dependency(ids: Annotated[Provider, TaskiqDepends(provider)]) -> AnyGenerator:
        return generator_named(name, ids)

    NAMES[dependency] = name
    return dependency


Ids: TypeAlias = Annotated[Provider, TaskiqDepends(provider)]
"""The provider of the worker, as the annotation of a parameter."""
