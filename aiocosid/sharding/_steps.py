"""The intervals of a timeline: how many are between two times, and where one begins.

Pure.  Months are counted as ``year * 12 + month``, all that is shorter has one length.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from ..errors import InvalidArgumentError

__all__ = ("Months", "ShardUnit", "Spans", "check_unit", "steps")

ShardUnit: TypeAlias = Literal["years", "months", "days", "hours", "minutes", "seconds"]
"""The units of an interval."""

LENGTHS: Final = {
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
}

MIDNIGHT: Final = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}

FLOORS: Final[dict[ShardUnit, dict[str, int]]] = {
    "years": {"month": 1, "day": 1, **MIDNIGHT},
    "months": {"day": 1, **MIDNIGHT},
    "days": MIDNIGHT,
    "hours": {"minute": 0, "second": 0, "microsecond": 0},
    "minutes": {"second": 0, "microsecond": 0},
    "seconds": {"microsecond": 0},
}
"""The fields that are set to their lowest value at the beginning of a unit."""


@dataclass(frozen=True, slots=True)
class Months:
    """Pieces of whole months: the first month as ``year * 12 + month - 1``, and months in each."""

    first: int
    amount: int

    def offset(self, at: datetime) -> int:
        """Return the number of the piece that holds a time; negative before the first."""
        return (at.year * 12 + at.month - 1 - self.first) // self.amount

    def begin(self, offset: int) -> datetime:
        """Return when a piece begins."""
        year, month = divmod(self.first + offset * self.amount, 12)
        return datetime(year, month + 1, 1)  # noqa: DTZ001 - local times all through


@dataclass(frozen=True, slots=True)
class Spans:
    """Pieces of one length: when the first begins, and the length."""

    first: datetime
    length: timedelta

    def offset(self, at: datetime) -> int:
        """Return the number of the piece that holds a time; negative before the first."""
        return (at - self.first) // self.length

    def begin(self, offset: int) -> datetime:
        """Return when a piece begins."""
        return self.first + offset * self.length


def steps(lower: datetime, unit: ShardUnit, amount: int) -> Months | Spans:
    """Return the pieces from the unit that holds a time on; the amount moves no begin."""
    first = lower.replace(**FLOORS[unit])  # type: ignore[arg-type]  # all are integers
    if unit in LENGTHS:
        return Spans(first, LENGTHS[unit] * amount)
    months = amount * 12 if unit == "years" else amount
    return Months(first.year * 12 + first.month - 1, months)


def check_unit(argument: str, value: object) -> ShardUnit:
    """Return a unit; raise `InvalidArgumentError` if it is none."""
    if not isinstance(value, str) or value not in FLOORS:
        expected = f"one of {', '.join(map(repr, FLOORS))}"
        raise InvalidArgumentError(argument, value, expected=expected)
    return value
