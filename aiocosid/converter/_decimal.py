"""Decimal texts.  No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ..abc import MAX_ID, IdConverter
from ..abc.checks import check_integer
from ..errors import InvalidIdError
from ._checks import are_plain, check_flag, check_id, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("ToStringIdConverter",)

DECIMAL: Final = re.compile(r"(-?)0*([0-9]{1,19})")  # 2^63 has 19 digits
WIDEST: Final = 255


@dataclass(frozen=True, slots=True)
class ToStringIdConverter(IdConverter):
    """Formats ids in decimal, optionally with leading zeros.  CosId's ToStringIdConverter.

    An id with more digits than ``char_size`` is written in full.  Texts are read with or without
    the zeros.  Negative numbers, which no generator issues, have a text unless zeros would precede
    the sign.

    Attributes:
        pad_start: whether zeros fill a text up to ``char_size``; texts of up to that many digits
            then sort like ids.
        char_size: the length up to which zeros are added, 0 to 255; without padding also CosId's
            -1, meaning none.
    """

    is_timeless: ClassVar[bool] = True

    pad_start: bool = False
    char_size: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_flag("pad_start", self.pad_start)
        least = 0 if self.pad_start else -1
        check_integer("char_size", self.char_size, at_least=least, at_most=WIDEST)

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id."""
        if type(new_id) is not int or not 0 <= new_id <= MAX_ID:
            self._check(new_id)
        text = str(int(new_id))
        return text.rjust(self.char_size, "0") if self.pad_start else text

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids; faster per id than `as_str`."""
        ids = list(ids)
        if not are_plain(ids):
            return list(map(self.as_str, ids))  # its error names the first wrong id
        if not self.pad_start:
            return list(map(str, ids))
        width = self.char_size
        return [str(each).rjust(width, "0") for each in ids]

    def as_int(self, text: str, /) -> int:
        """Return the id of a decimal text; CosId also reads ``+1`` and full-width digits."""
        found = DECIMAL.fullmatch(text_of(text))
        number = int(found[1] + found[2]) if found else 0
        if found is None or not -MAX_ID - 1 <= number <= MAX_ID or (number == 0 and found[1]):
            rule = f"must be the decimal digits of a number up to {MAX_ID}"
            raise InvalidIdError("id", text, rule)
        if number < 0:
            self._check(number)
        return number

    def as_tree(self) -> dict[str, object]:
        """Return kind and padding."""
        return {
            "kind": type(self).__name__,
            "padStart": self.pad_start,
            "charSize": self.char_size,
        }

    def _check(self, new_id: object) -> None:
        negative = isinstance(new_id, int) and -MAX_ID - 1 <= new_id < 0
        if not negative or (self.pad_start and len(str(new_id)) < self.char_size):
            check_id(new_id)
