"""Common to the task queues: a provider while a worker runs, and dependencies by name."""

from __future__ import annotations

import asyncio
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from .. import generator_named
from ._source import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..abc import Provider
    from ._source import Source

__all__ = ("NAMES", "KeptOpen", "check_names")


class KeptOpen:
    """Opens and closes a source in one task, whatever tasks `open` and `close` are called in.

    A source of a user's may hold a task group, which cannot be left in another task.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    async def open(self, check: Callable[[Provider], object] = lambda _: None) -> Provider:
        """Open it, and check it; what either raises is raised, and nothing is open then."""
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


NAMES: Final[dict[Callable[..., object], str]] = {}
"""Of each dependency that gives a generator: the generator's name."""


def check_names(functions: Iterable[Callable[..., object]], provider: Provider) -> None:
    """Raise unless the provider has all generators that functions depend on.

    Raises:
        InvalidArgumentError: it has not; the error has the names that there are.
    """
    for function in functions:
        for name in _names(function):
            generator_named(name, provider)


def _names(function: Callable[..., object]) -> Iterator[str]:
    """Return the names that the parameters of a function ask for, or those of its dependencies."""
    try:
        parameters = signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError):
        return  # the framework says so itself, if it cannot read it either
    for parameter in parameters:
        marks: tuple[Any, ...] = getattr(parameter.annotation, "__metadata__", ())
        for mark in (*marks, parameter.default):
            dependency: Any = getattr(mark, "dependency", None)
            if not callable(dependency):
                continue
            if dependency in NAMES:
                yield NAMES[dependency]
            else:
                yield from _names(dependency)
