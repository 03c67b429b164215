"""Ids in Taskiq: a provider that is open while a worker runs, and dependencies of its tasks."""

from __future__ import annotations

import asyncio
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from taskiq import Context, TaskiqDepends, TaskiqEvents

from ..abc import SHARE, AnyGenerator, Provider
from ..errors import NotOpenError
from ..provider.default import generator_named
from .source import STATE_KEY, opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from taskiq import AsyncBroker, TaskiqState

    from .source import Source

__all__ = ("Ids", "generator", "provider", "setup_ids")

_NAMES: Final[dict[Callable[..., object], str]] = {}
"""The generator's name for each dependency."""


def setup_ids(broker: AsyncBroker, source: Source) -> None:
    """Keep a provider open in each worker process of a broker.

    Tasks find it with `generator` and `Ids`, and other code finds it as the process's default
    provider.  If it cannot be opened, or lacks a generator on which a task depends, the worker does
    not start.  Processes that only send tasks open nothing; an ``InMemoryBroker`` is itself a
    worker.

    Args:
        broker: the broker, before its ``startup()``.
        source: a provider that is not open yet; or a function, called at each start, that returns a
            provider or an asynchronous context manager of one.
    """
    ids = _KeptOpen(source)

    def check(found: Provider) -> None:
        _check_names((task.original_func for task in broker.get_all_tasks().values()), found)

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
    """Return a dependency that provides a generator by its name.

    The same name gives the same dependency, so a test can replace it::

        OrderIds = Annotated[IdGenerator, TaskiqDepends(generator("order"))]

        broker.dependency_overrides[generator("order")] = lambda: counted

    Args:
        name: the generator's name; ``__share__`` by default.
    """

    async def dependency(ids: Annotated[Provider, TaskiqDepends(provider)]) -> AnyGenerator:
        return generator_named(name, ids)

    _NAMES[dependency] = name
    return dependency


Ids: TypeAlias = Annotated[Provider, TaskiqDepends(provider)]
"""The provider of the worker, as the annotation of a parameter."""


class _KeptOpen:
    """Opens and closes a source in one task, whichever tasks call `open` and `close`.

    A user's own source may contain a task group, which cannot be exited in another task.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    async def open(self, check: Callable[[Provider], object] = lambda _: None) -> Provider:
        """Open and check it; if either raises, nothing stays open."""
        self._ending = asyncio.Event()
        is_open: asyncio.Future[Provider] = asyncio.get_running_loop().create_future()

        async def live() -> None:
            async with opened(self._source) as provider:
                check(provider)
                is_open.set_result(provider)
                await self._ending.wait()

        self._task = task = asyncio.create_task(live(), name="aiocosid provider")
        try:
            await asyncio.wait((task, is_open), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            self._task = None
            task.result()  # raises
        return is_open.result()

    async def close(self) -> None:
        """Close it; idempotent."""
        self._ending.set()
        task, self._task = self._task, None
        if task is not None:
            await task


def _check_names(functions: Iterable[Callable[..., object]], provider: Provider) -> None:
    """Raise unless the provider has all generators that functions depend on.

    Raises:
        InvalidArgumentError: a generator is missing; the error lists the existing names.
    """
    for function in functions:
        for name in _names_of(function):
            generator_named(name, provider)


def _names_of(function: Callable[..., object]) -> Iterator[str]:
    """Return the names that a function's parameters, or those of its dependencies, request."""
    try:
        parameters = signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError):
        return  # the framework reports it, if it cannot read it either
    for parameter in parameters:
        marks: tuple[Any, ...] = getattr(parameter.annotation, "__metadata__", ())
        for mark in (*marks, parameter.default):
            dependency: Any = getattr(mark, "dependency", None)
            if not callable(dependency):
                continue
            if dependency in _NAMES:
                yield _NAMES[dependency]
            else:
                yield from _names_of(dependency)
