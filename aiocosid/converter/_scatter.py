"""Ids spread over the whole range of numbers, for stores that split by key range.  No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from ..abc import MAX_ID, IdConverter
from ..abc.checks import check_integer
from ..errors import InvalidIdError
from ._checks import check_id, text_of

__all__ = ("ScatterIdConverter",)

BITS: Final = 63
DIGITS: Final = 19  # digits of 2^63 - 1
GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: Knuth's multiplicative hash
WORD: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ScatterIdConverter(IdConverter):
    """Maps each id to another 63-bit number and back, so that neighbours are far apart.

    A store that splits its tables by key ranges (Spanner, TiDB, CockroachDB, HBase) writes rising
    ids only to its last range.  Scattered numbers go to all ranges.  They do not rise, so ``ORDER
    BY`` the key no longer sorts by time.

    Attributes:
        shard_bits: the number of leading bits that select a range, 1 to 16: ids go to
            ``2**shard_bits`` ranges and rise within each, even for Snowflakes at a low load, whose
            last bits hardly change.  0 reverses all bits, like Spanner's ``bit_reversed_positive``,
            for counters.
    """

    is_timeless: ClassVar[bool] = True

    shard_bits: int = 8

    def __post_init__(self) -> None:
        """Check the width."""
        check_integer("shard_bits", self.shard_bits, at_least=0, at_most=16)

    def scatter(self, new_id: int) -> int:
        """Return the number of an id, 0 to 2^63-1; two ids never have the same number.

        Raises:
            InvalidIdError: the argument is not an id.
        """
        check_id(new_id)
        if not self.shard_bits:
            return _reversed(int(new_id))
        rest = new_id >> self.shard_bits
        return (self._shard(new_id, rest) << BITS - self.shard_bits) | rest

    def gather(self, number: int) -> int:
        """Return the id of a scattered number.

        Raises:
            InvalidIdError: the argument is not a scattered number.
        """
        check_id(number)
        if not self.shard_bits:
            return _reversed(int(number))
        rest = number & (1 << BITS - self.shard_bits) - 1
        return rest << self.shard_bits | self._shard(number >> BITS - self.shard_bits, rest)

    def _shard(self, low: int, rest: int) -> int:
        """Return the low bits changed by a hash of the others, or changed back."""
        noise = (rest * GOLDEN & WORD) >> 64 - self.shard_bits
        return (low ^ noise) & (1 << self.shard_bits) - 1

    def as_str(self, new_id: int, /) -> str:
        """Return the scattered number in 19 digits; texts sort like the numbers."""
        return str(self.scatter(new_id)).rjust(DIGITS, "0")

    def as_int(self, text: str, /) -> int:
        """Return the id of a text of 19 digits."""
        if not (len(text_of(text)) == DIGITS and text.isdecimal() and text.isascii()):
            raise InvalidIdError("id", text, f"must be {DIGITS} digits")
        number = int(text)
        if number > MAX_ID:
            raise InvalidIdError("id", text, f"must be at most {MAX_ID}")
        return self.gather(number)

    def as_tree(self) -> dict[str, object]:
        """Return kind and width."""
        return {"kind": type(self).__name__, "shardBits": self.shard_bits}


def _reversed(number: int) -> int:
    return int(f"{number:0{BITS}b}"[::-1], 2)
