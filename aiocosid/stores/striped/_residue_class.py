"""The ids of each store, and the coding of its place in its counter.  Pure.

The counter of a store counts in hundreds; its last two digits are the store's place, and the number
of stores.  1,200,013 is 12,000 for place 1 of 3; its last id is 12,000 * 3 - 1 = 35,999.  So each
grant shows its place: if the stores' order or number has changed, the step that would have repeated
an id detects it.

A counter is new, and grants nothing, until one process has reached every store: until then the two
digits are swapped, 1,031.  Otherwise an empty store that is added while the others cannot be
reached would grant their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...abc import MAX_ID

__all__ = ("FEWEST_STORES", "MOST_STORES", "SUFFIX", "UNIT", "ResidueClass", "highest_id")

SUFFIX: Final = "~striped"
"""The suffix of the counter's name in each store: a generator on that store alone has another
counter.
"""

UNIT: Final = 100
"""The amount that a store's counter advances for each id."""

FEWEST_STORES: Final = 2

MOST_STORES: Final = 9
"""The place and the number of stores have one digit each."""


@dataclass(frozen=True, slots=True)
class ResidueClass:
    """A store's place among those that share a counter.

    Attributes:
        number: the place, from 0.
        width: the number of stores, 2 to 9.
    """

    number: int
    width: int

    @property
    def code(self) -> int:
        """The last two digits of the counter."""
        return self.number * 10 + self.width

    def first(self, offset: int) -> int:
        """Return the first value of a new counter: it grants no ids up to ``offset``."""
        new_code = self.width * 10 + self.number
        return self.floor(offset) - self.code + new_code

    def floor(self, above: int) -> int:
        """Return the lowest value after which all ids are above ``above``."""
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
        """Return the place in a value, None if there is none; and whether the counter is new."""
        digits = divmod(value % UNIT, 10)
        number, width = sorted(digits)
        is_named = value >= 0 and number < width >= FEWEST_STORES
        return cls(number, width) if is_named else None, digits == (width, number)

    def __str__(self) -> str:
        return f"place {self.number} of {self.width}"


def highest_id(width: int) -> int:
    """Return the highest id that each of so many stores can count to."""
    return (MAX_ID // UNIT - 3) * width
