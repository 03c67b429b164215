"""What the generators around another one share: its life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import anyio

from ..abc import IdGenerator, Statistics
from ..errors import IdOverflowError, InvalidArgumentError

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskStatus

__all__ = ("WrappedGenerator", "WrappedStatistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedStatistics(Statistics):
    """What a generator around another one can say about itself.

    Attributes:
        actual: the statistics of the generator inside.
    """

    actual: Statistics

    def as_tree(self) -> dict[str, Any]:
        """Return kind and ``actual``, as CosId's actuator shows them, ready for JSON."""
        return {"kind": self.kind, "actual": self.actual.as_tree()}


class WrappedGenerator(IdGenerator):
    """Opens and closes with the generator inside of it; a subclass changes or checks its ids."""

    __slots__ = ("__weakref__", "_inner")

    def __init__(self, generator: IdGenerator) -> None:
        if not isinstance(generator, IdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("generator", generator, expected="an IdGenerator")
        self._inner = generator

    def statistics(self) -> WrappedStatistics:
        """Return a frozen picture of both; cheap, and never waits."""
        actual = self._inner.statistics()
        return WrappedStatistics(
            kind=type(self).__name__, namespace=actual.namespace, name=actual.name, actual=actual
        )

    async def run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        """Open in the calling task, and stay until closed or cancelled."""
        await self._inner.run(task_status=_Stand(task_status, self))

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

    def __repr__(self) -> str:
        """Say what is inside."""
        return f"<{type(self).__name__} on {self._inner!r}>"

    def _overflow(self, limit: int) -> IdOverflowError:
        actual = self._inner.statistics()
        return IdOverflowError(f"{actual.namespace}.{actual.name}", limit=limit)


class _Stand:
    """Tells the task group about the generator instead of the one inside of it."""

    def __init__(self, status: TaskStatus[Any], generator: IdGenerator) -> None:
        self._status = status
        self._generator = generator

    def started(self, value: object = None) -> None:
        """Pass it on."""
        del value
        self._status.started(self._generator)
