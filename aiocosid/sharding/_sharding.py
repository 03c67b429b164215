"""The contract of a sharding, which maps keys to node names, and sharding by remainder.  No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ..abc.checks import check_integer, is_integer
from ..errors import InvalidArgumentError
from ._range import Ordered, ShardRange

__all__ = ("MAX_NODES", "ModCycle", "Sharding", "check_kind", "check_prefix", "check_range")

MAX_NODES: Final = 1_000_000
"""The names of all nodes are kept in memory; more nodes would be a mistake in a unit or a divisor.
"""

K = TypeVar("K", bound=Ordered)


class Sharding(ABC, Generic[K]):
    """Maps keys to the names of nodes, which are tables or databases.  Immutable; never waits."""

    __slots__ = ()

    @property
    @abstractmethod
    def effective_nodes(self) -> tuple[str, ...]:
        """The names of all nodes, in their order."""

    @abstractmethod
    def exact(self, value: K, /) -> str:
        """Return the name of the node that holds a key.

        Raises:
            InvalidArgumentError: no node holds the key.
        """

    def sharding_id(self, value: K, /) -> int:
        """Return the number of the node that holds a key, for ids that contain their shard.

        It is the node's place in `effective_nodes`, from 0.

        Raises:
            InvalidArgumentError: no node holds the key.
        """
        return self.effective_nodes.index(self.exact(value))

    @abstractmethod
    def range(self, values: ShardRange[K], /) -> tuple[str, ...]:
        """Return the names of the nodes that may hold a key of a range, each once and in order.

        Nodes that cannot hold such a key are left out; an empty range has no nodes.

        Raises:
            InvalidArgumentError: an end of the range is not a key.
        """


def check_kind(argument: str, value: object, kind: type, expected: str) -> None:
    """Raise `InvalidArgumentError` unless it is of a class."""
    if not isinstance(value, kind):
        raise InvalidArgumentError(argument, value, f"must be {expected}")


def check_prefix(value: object) -> None:
    """Raise `InvalidArgumentError` unless it is text."""
    check_kind("logic_name_prefix", value, str, "a string such as 'order_'")


def check_range(values: object) -> None:
    """Raise `InvalidArgumentError` unless it is a range."""
    check_kind("values", values, ShardRange, "a ShardRange, such as ShardRange.closed(1, 5)")


@dataclass(frozen=True, slots=True)
class ModCycle(Sharding[int]):
    """The node of a key is ``key % divisor``: ``ModCycle(4, "order_")`` has order_0 to order_3.

    A negative key has Python's remainder, which is never negative.

    Attributes:
        divisor: the number of nodes, 1 to 1,000,000.
        logic_name_prefix: the prefix of the nodes' names.
    """

    divisor: int
    logic_name_prefix: str
    _nodes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` if an argument is outside its range."""
        check_integer("divisor", self.divisor, at_least=1, at_most=MAX_NODES)
        check_prefix(self.logic_name_prefix)
        nodes = tuple(f"{self.logic_name_prefix}{rest}" for rest in range(self.divisor))
        object.__setattr__(self, "_nodes", nodes)

    @property
    def effective_nodes(self) -> tuple[str, ...]:
        """The names of all nodes, by remainder."""
        return self._nodes

    def exact(self, value: int, /) -> str:
        """Return the name of the node that holds a key.

        Raises:
            InvalidArgumentError: the key is not an integer.
        """
        if not is_integer(value):
            raise InvalidArgumentError("value", value, "must be an integer")
        return self._nodes[value % self.divisor]

    def sharding_id(self, value: int, /) -> int:
        """Return the number of the node that holds a key, which is the remainder.

        Raises:
            InvalidArgumentError: the key is not an integer.
        """
        self.exact(value)  # raises
        return value % self.divisor

    def range(self, values: ShardRange[int], /) -> tuple[str, ...]:
        """Return the names of the nodes that may hold a key of a range.

        The nodes are in the order of the keys: with four nodes, the keys 3 to 5 are on nodes 3, 0
        and 1.  If all nodes are named, they are in the order of the remainders.  A range without a
        lower end begins at 0, as ids do and as in CosId; for negative keys, give it a lower end.

        Raises:
            InvalidArgumentError: an end is not an integer, or the value is not a range.
        """
        check_range(values)
        for end in (values.lower, values.upper):
            if end is not None and not is_integer(end):
                raise InvalidArgumentError("values", str(values), "must be a range of integers")
        if values.upper is None:
            return self._nodes
        first = 0 if values.lower is None else values.lower + values.lower_open
        count = values.upper - values.upper_open - first + 1
        if count >= self.divisor:
            return self._nodes
        begin = first % self.divisor
        end = begin + max(count, 0)
        return self._nodes[begin:end] + self._nodes[: max(end - self.divisor, 0)]
