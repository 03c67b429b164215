"""Which ids are a store's own, and how its counter says so.  Pure.

The counter of a store counts in hundreds; its last two digits are the store's place, and how many
stores there are.  1,200,013 is 12,000 for place 1 of 3; its last id is 12,000 * 3 - 1 = 35,999.  So
each grant tells for which place it is: stores in another order, or of another number, are noticed
in the very step that would have repeated an id.

A counter is new, and grants nothing, until somebody has seen every store: the two digits are the
other way round until then, 1,031.  Else an empty store that is added to others, while those are
away, would grant their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...abc import MAX_ID

__all__ = ("FEWEST_STORES", "MOST_STORES", "SUFFIX", "UNIT", "ResidueClass", "highest_id")

SUFFIX: Final = "~striped"
"""Behind the counter's name in each store: a generator on that store alone has another counter."""

UNIT: Final = 100
"""What a store's counter advances by for each id."""

FEWEST_STORES: Final = 2

MOST_STORES: Final = 9
"""One digit each for the place and for how many there are."""


@dataclass(frozen=True, slots=True)
class ResidueClass:
    """A store's place among those that share a counter.

    Attributes:
        number: from 0.
        width: how many there are, 2 to 9.
    """

    number: int
    width: int

    @property
    def code(self) -> int:
        """The last two digits of the counter."""
        return self.number * 10 + self.width

    def first(self, offset: int) -> int:
        """Return what a new counter begins with: of the ids up to ``offset`` it has none."""
        new_code = self.width * 10 + self.number
        return self.floor(offset) - self.code + new_code

    def floor(self, above: int) -> int:
        """Return the lowest value from which on all further ids are above ``above``."""
        return max(0, (above - self.number - 1) // self.width + 1) * UNIT + self.code

    def ids(self, value: int, step: int) -> range:
        """Return the ids of the grant of ``step`` ids that ended with a value."""
        last = (value // UNIT - 1) * self.width + self.number + 1
        return range(last - (step - 1) * self.width, last + 1, self.width)

    def last_id(self, value: int) -> int:
        """Return the last id that was granted when the counter has that value; 0 for none."""
        return max(0, self.ids(value, 1)[0])

    @classmethod
    def noted_in(cls, value: int) -> tuple[ResidueClass | None, bool]:
        """Return the place that a value names, None if it names none; and whether it is new."""
        digits = divmod(value % UNIT, 10)
        number, width = sorted(digits)
        is_named = value >= 0 and number < width >= FEWEST_STORES
        return cls(number, width) if is_named else None, digits == (width, number)

    def __str__(self) -> str:
        return f"place {self.number} of {self.width}"


def highest_id(width: int) -> int:
    """Return the highest id that every one of so many stores can count to."""
    return (MAX_ID // UNIT - 3) * width
