"""What the generators around another one share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._life.delegating import DelegatingLifecycle
from ..abc import IdGenerator, Statistics
from ..errors import IdOverflowError, InvalidArgumentError

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


class WrappedGenerator(DelegatingLifecycle, IdGenerator):
    """Opens and closes with the generator inside of it; a subclass changes or checks its ids."""

    __slots__ = ("__weakref__", "_inner")

    def __init__(self, generator: IdGenerator) -> None:
        if not isinstance(generator, IdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("generator", generator, expected="an IdGenerator")
        self._inner: IdGenerator = generator

    def statistics(self) -> WrappedStatistics:
        """Return a frozen picture of both; cheap, and never waits."""
        actual = self._inner.statistics()
        return WrappedStatistics(
            kind=type(self).__name__, namespace=actual.namespace, name=actual.name, actual=actual
        )

    def __repr__(self) -> str:
        """Say what is inside."""
        return f"<{type(self).__name__} on {self._inner!r}>"

    def _overflow(self, limit: int) -> IdOverflowError:
        actual = self._inner.statistics()
        return IdOverflowError(f"{actual.namespace}.{actual.name}", limit=limit)
