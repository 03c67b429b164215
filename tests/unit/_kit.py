"""What the tests of all rooms share: calls in the background, and an ear for events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import anyio
import trio
from sniffio import current_async_library

from aiocosid.abc.events import Event
from aiocosid.testing import settle

E = TypeVar("E", bound=Event)
P = ParamSpec("P")
T = TypeVar("T")


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

    def __init__(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.scope = anyio.CancelScope()
        if current_async_library() == "trio":
            trio.lowlevel.spawn_system_task(self._run, function, args)
            return
        running = self._run(function, args)
        try:
            self.task = asyncio.create_task(running, name=f"call {function}")
        finally:
            if not hasattr(self, "task"):  # a signal handler has raised
                running.close()

    def cancel(self) -> None:
        self.scope.cancel()

    async def _run(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        with self.scope:
            try:
                self.result = await function(*args)
            except Exception as error:  # noqa: BLE001 - kept for the test to look at
                self.error = error
        self.is_done = True


async def settled(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function, or make a `Call`, and let all tasks do what they can."""
    result = function(*args, **kwargs)
    await settle()
    return result


def tasks() -> list[str]:
    """The names of the library's own tasks on this loop."""
    return _named("aiocosid")


def calls_under_way() -> list[str]:
    """What each `Call` is about that has not ended."""
    return _named("call ")


def _named(prefix: str) -> list[str]:
    names = (task.name or "" for task in anyio.get_running_tasks())
    return sorted(name for name in names if name.startswith(prefix))
