"""The range of a query: all keys from one end to another.  No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..errors import InvalidArgumentError

__all__ = ("Ordered", "ShardRange")


class Ordered(Protocol):
    """A type with an order: numbers, dates, texts."""

    def __lt__(self, other: Any, /) -> bool:  # noqa: ANN401 - the same type
        """Return whether it is less than the other."""
        raise NotImplementedError


K = TypeVar("K", bound=Ordered)
T = TypeVar("T", bound=Ordered)


@dataclass(frozen=True)  # no slots: typing tries to set an attribute of ShardRange[int](...)
class ShardRange(Generic[K]):
    """The keys between two ends; an end may be missing, and may be included or not.

    The constructors have Guava's names.  If the ends are reversed, the range is empty, as with
    ``BETWEEN`` in SQL.

    Attributes:
        lower: the lower end; None if there is none.
        upper: the upper end; None if there is none.
        lower_open: whether the lower end itself is excluded.
        upper_open: whether the upper end itself is excluded.
    """

    lower: K | None = None
    upper: K | None = None
    lower_open: bool = False
    upper_open: bool = False

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` if the ends cannot be compared."""
        if self.lower is not None and self.upper is not None:
            try:
                bool(self.lower < self.upper)
            except TypeError as error:
                rule = f"must be comparable with the lower end, {self.lower!r}"
                raise InvalidArgumentError("upper", self.upper, rule) from error
        # A missing end has only one form, so that equal ranges compare equal.
        object.__setattr__(self, "lower_open", self.lower_open and self.lower is not None)
        object.__setattr__(self, "upper_open", self.upper_open and self.upper is not None)

    @staticmethod
    def closed(lower: T, upper: T) -> ShardRange[T]:
        """Return ``lower <= key <= upper``, SQL's ``BETWEEN``."""
        return ShardRange(lower, upper)

    @staticmethod
    def closed_open(lower: T, upper: T) -> ShardRange[T]:
        """Return ``lower <= key < upper``."""
        return ShardRange(lower, upper, upper_open=True)

    @staticmethod
    def open_closed(lower: T, upper: T) -> ShardRange[T]:
        """Return ``lower < key <= upper``."""
        return ShardRange(lower, upper, lower_open=True)

    @staticmethod
    def open(lower: T, upper: T) -> ShardRange[T]:
        """Return ``lower < key < upper``."""
        return ShardRange(lower, upper, lower_open=True, upper_open=True)

    @staticmethod
    def at_least(lower: T) -> ShardRange[T]:
        """Return ``key >= lower``."""
        return ShardRange(lower=lower)

    @staticmethod
    def greater_than(lower: T) -> ShardRange[T]:
        """Return ``key > lower``."""
        return ShardRange(lower=lower, lower_open=True)

    @staticmethod
    def at_most(upper: T) -> ShardRange[T]:
        """Return ``key <= upper``."""
        return ShardRange(upper=upper)

    @staticmethod
    def less_than(upper: T) -> ShardRange[T]:
        """Return ``key < upper``."""
        return ShardRange(upper=upper, upper_open=True)

    @staticmethod
    def all() -> ShardRange[Any]:
        """Return the range of all keys."""
        return ShardRange()

    def intersection(self, other: ShardRange[K]) -> ShardRange[K]:
        """Return the keys that are in both ranges, like two conditions joined with ``AND``."""
        lower, lower_open = self.lower, self.lower_open
        if lower is None or (other.lower is not None and lower < other.lower):
            lower, lower_open = other.lower, other.lower_open
        elif lower == other.lower:
            lower_open = lower_open or other.lower_open
        upper, upper_open = self.upper, self.upper_open
        if upper is None or (other.upper is not None and other.upper < upper):
            upper, upper_open = other.upper, other.upper_open
        elif upper == other.upper:
            upper_open = upper_open or other.upper_open
        return ShardRange(lower, upper, lower_open, upper_open)

    def __contains__(self, key: K) -> bool:
        """Return whether a key is in the range."""
        above = (
            self.lower is None or self.lower < key or (not self.lower_open and key == self.lower)
        )
        below = (
            self.upper is None or key < self.upper or (not self.upper_open and key == self.upper)
        )
        return above and below

    def __str__(self) -> str:
        """Return the range in mathematical notation, as Guava does: ``[1..5)``."""
        lower, upper = (
            "" if end is None else getattr(end, "isoformat", end.__str__)()
            for end in (self.lower, self.upper)
        )
        left = "(" if self.lower_open or self.lower is None else "["
        right = ")" if self.upper_open or self.upper is None else "]"
        return f"{left}{lower}..{upper}{right}"
