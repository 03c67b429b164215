"""Opening and closing a generator that wraps another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import anyio

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskStatus

    from ..abc import AnyGenerator

__all__ = ("DelegatingLifecycle",)


class DelegatingLifecycle:
    """Opens and closes together with the generator inside."""

    __slots__ = ()

    _inner: Any  # a generator; a subclass narrows the type

    @property
    def inner(self) -> AnyGenerator:
        """The generator inside, which it opens and closes."""
        inner: AnyGenerator = self._inner
        return inner

    async def run(self, *, task_status: TaskStatus[object] = anyio.TASK_STATUS_IGNORED) -> None:
        """Open in the calling task, and stay until closed or cancelled."""
        await self._inner.run(task_status=_StatusProxy(task_status, self))

    async def aclose(self) -> None:
        """Close; see `aiocosid.abc.IdGenerator.aclose`."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        """Open; returns when it can hand out ids."""
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self._inner.__aexit__(exc_type, exc_value, traceback)


class _StatusProxy:
    """Reports this generator to the task group, in place of the one inside."""

    def __init__(self, status: TaskStatus[object], generator: DelegatingLifecycle) -> None:
        self._status = status
        self._generator = generator

    def started(self, value: object = None) -> None:
        """Report the outer generator as started."""
        del value
        self._status.started(self._generator)
