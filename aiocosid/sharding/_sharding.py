"""The contract of a sharding: which node holds a key, and which hold a range of keys.  Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from ..errors import InvalidArgumentError
from ._range import Ordered, ShardRange

__all__ = ("MAX_NODES", "Sharding", "check_kind", "check_prefix", "check_range")

MAX_NODES: Final = 1_000_000
"""The names of all nodes are kept: more than that is a mistake in a unit or a divisor."""

K = TypeVar("K", bound=Ordered)


class Sharding(ABC, Generic[K]):
    """Names the nodes, tables or databases, that hold keys.  Never changes, and never waits."""

    __slots__ = ()

    @property
    @abstractmethod
    def effective_nodes(self) -> tuple[str, ...]:
        """The names of all nodes, in their order."""

    @abstractmethod
    def exact(self, value: K, /) -> str:
        """Return the name of the node that holds a key.

        Raises:
            InvalidArgumentError: no node holds it.
        """

    @abstractmethod
    def range(self, values: ShardRange[K], /) -> tuple[str, ...]:
        """Return the names of the nodes that may hold a key of a range, each once, in their order.

        No node is named that cannot hold one, and none if no key is in the range.

        Raises:
            InvalidArgumentError: an end of it is no key.
        """


def check_kind(argument: str, value: object, kind: type, expected: str) -> None:
    """Raise `InvalidArgumentError` unless it is of a class."""
    if not isinstance(value, kind):
        raise InvalidArgumentError(argument, value, expected=expected)


def check_prefix(value: object) -> None:
    """Raise `InvalidArgumentError` unless it is text."""
    check_kind("logic_name_prefix", value, str, "text, as in 'order_'")


def check_range(values: object) -> None:
    """Raise `InvalidArgumentError` unless it is a range."""
    check_kind("values", values, ShardRange, "a ShardRange, as ShardRange.closed(1, 5)")
