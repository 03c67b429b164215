"""Base 32 of Douglas Crockford: ids that people read out and type in.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..abc import IdConverter
from ..errors import InvalidIdError
from ._checks import check_flag, text_of
from ._radix import RadixIdConverter

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("CrockfordIdConverter",)

DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""https://www.crockford.com/base32.html: without I, L, O and U."""
CHECKS: Final = f"{DIGITS}*~$=U"
"""The check symbols, by the remainder of a division by 37."""

MOST_READ: Final = 64  # characters, hyphens among them
AS_WRITTEN: Final = str.maketrans("ILO", "110", "-")


@dataclass(frozen=True, slots=True)
class _Radix32(RadixIdConverter):
    """The digits alone."""

    digits: ClassVar[str] = DIGITS
    most: ClassVar[int] = 13


@dataclass(frozen=True, slots=True)
class CrockfordIdConverter(IdConverter):
    """Writes ids in Crockford's base 32 with a check symbol: ``000000000016JD``.

    The symbol finds every wrong digit, and every two neighbours that are swapped.  Padded texts
    sort like ids.  Small letters are read too, I and L as 1, O as 0, hyphens are passed over, and
    zeros at the front may be missing.  A hyphen in the place of a digit is a missing digit, which
    the symbol does not always find.

    Attributes:
        pad_start: whether zeros fill a text up to ``char_size``.
        char_size: the most digits that a text has, 1 to 13, not counting the check symbol.
        check: whether a check symbol follows; a text without it is then not read.
    """

    is_timeless: ClassVar[bool] = True

    pad_start: bool = True
    char_size: int = 13
    check: bool = True
    _plain: _Radix32 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_flag("check", self.check)
        object.__setattr__(self, "_plain", _Radix32(self.pad_start, self.char_size))

    @property
    def max_id(self) -> int:
        """The highest id that has a text: 32 to the power of ``char_size`` less 1, or 2^63-1."""
        return self._plain.max_id

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id from 0 to `max_id`."""
        text = self._plain.as_str(new_id)
        return text + CHECKS[new_id % len(CHECKS)] if self.check else text

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids; faster for each than `as_str`."""
        ids = list(ids)
        texts = self._plain.convert_many(ids)
        if not self.check:
            return texts
        return [text + CHECKS[each % len(CHECKS)] for text, each in zip(texts, ids, strict=True)]

    def as_int(self, text: str, /) -> int:
        """Return the id of a text, as it was written or as people write it."""
        if len(text_of(text)) > MOST_READ or not text.isascii():
            raise self._refusal(text)
        read = text.upper().translate(AS_WRITTEN)
        symbol = read[-1:]
        try:
            number = self._plain.as_int(read[:-1] if self.check else read)
        except InvalidIdError:
            raise self._refusal(text) from None
        if self.check and CHECKS[number % len(CHECKS)] != symbol:
            expected = "free of typing errors: its last character, the check symbol, does not fit"
            raise InvalidIdError("id", text, expected=expected)
        return number

    def as_tree(self) -> dict[str, Any]:
        """Return a radix converter's figures, and whether there is a check symbol."""
        return self._plain.as_tree() | {"kind": type(self).__name__, "check": self.check}

    def _refusal(self, text: str) -> InvalidIdError:
        symbol = " and a check symbol" if self.check else ""
        expected = (
            f"a text of 1 to {self.char_size} of the digits {DIGITS}{symbol}, "
            f"and an id of at most {self.max_id}"
        )
        return InvalidIdError("id", text, expected=expected)
