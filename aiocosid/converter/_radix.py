"""Ids in base 62 and 36, and in Crockford's base 32.  No I/O.

Digits are written in pairs, from a table of all pairs that is created once for each base.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from ..abc import MAX_ID, IdConverter
from ..abc.checks import check_integer
from ..errors import InvalidIdError
from ._checks import are_plain, check_flag, check_id, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "CrockfordIdConverter",
    "Radix36IdConverter",
    "Radix62IdConverter",
    "RadixIdConverter",
)

PAIRS = 7  # enough for every id in radix 32 and above
LOW = 4  # the low digits, in which neighbouring ids differ


@cache
def _pairs_of(digits: str) -> tuple[str, ...]:
    return tuple(one + two for one in digits for two in digits)


@cache
def _values_of(digits: str) -> dict[str, int]:
    return {digit: value for value, digit in enumerate(digits)}


@dataclass(frozen=True, slots=True)
class RadixIdConverter(IdConverter):
    """Formats ids with the digits of its class, of which there are 32 to 62.

    Attributes:
        pad_start: whether zeros fill a text up to ``char_size``; then texts sort like ids.
        char_size: the maximum characters of a text.
        max_id: the highest id that has a text.
    """

    digits: ClassVar[str]
    most: ClassVar[int]

    pad_start: bool = True
    char_size: int = 0
    max_id: int = field(init=False, repr=False, compare=False)
    _pairs: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings, and create the table."""
        check_flag("pad_start", self.pad_start)
        check_integer("char_size", self.char_size, at_least=1, at_most=self.most)
        max_id = min(len(self.digits) ** self.char_size - 1, MAX_ID)
        object.__setattr__(self, "max_id", max_id)
        object.__setattr__(self, "_pairs", _pairs_of(self.digits))

    def __reduce__(self) -> tuple[object, ...]:
        """Leave the table out of a pickle."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id from 0 to `max_id`."""
        if type(new_id) is not int or not 0 <= new_id <= self.max_id:
            self._check(new_id)
        pairs = self._pairs
        square = len(pairs)
        fourth = square * square
        rest, low = divmod(new_id, fourth)
        high, middle = divmod(rest, fourth)
        text = (
            f"{pairs[high // fourth]}{pairs[high // square % square]}{pairs[high % square]}"
            f"{pairs[middle // square]}{pairs[middle % square]}"
            f"{pairs[low // square]}{pairs[low % square]}"
        )
        return text[-self.char_size :] if self.pad_start else text.lstrip("0") or "0"

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids; faster per id than `as_str`."""
        ids = list(ids)
        if self.char_size < LOW or not are_plain(ids, at_most=self.max_id):
            return list(map(self.as_str, ids))  # its error names the first wrong id
        texts = self._written(ids)
        return texts if self.pad_start else [text.lstrip("0") or "0" for text in texts]

    def _written(self, ids: list[int]) -> list[str]:
        """Return padded texts, if ``char_size`` is at least `LOW`.

        The text of the upper digits is computed once for consecutive ids that share them.
        """
        pairs = self._pairs
        square = len(pairs)
        fourth = square * square
        skipped = 2 * PAIRS - self.char_size
        known, upper = -1, ""
        texts: list[str] = []
        append = texts.append
        for each in ids:
            rest, low = divmod(each, fourth)
            if rest != known:
                known = rest
                high, middle = divmod(rest, fourth)
                upper = (
                    f"{pairs[high // fourth]}{pairs[high // square % square]}{pairs[high % square]}"
                    f"{pairs[middle // square]}{pairs[middle % square]}"
                )[skipped:]
            append(f"{upper}{pairs[low // square]}{pairs[low % square]}")
        return texts

    def as_int(self, text: str, /) -> int:
        """Return the id of a text, padded or not."""
        values, radix, number = _values_of(self.digits), len(self.digits), 0
        if not 0 < len(text_of(text)) <= self.char_size:
            raise self._refusal(text)
        try:
            for digit in text:
                number = number * radix + values[digit]
        except KeyError:
            raise self._refusal(text) from None
        if number > self.max_id:  # more than int64 can hold
            raise self._refusal(text)
        return number

    def as_tree(self) -> dict[str, object]:
        """Return CosId's figures; its ``maxId`` is the first id that does not fit, up to int64."""
        return {
            "kind": type(self).__name__,
            "radix": len(self.digits),
            "charSize": self.char_size,
            "padStart": self.pad_start,
            "maxId": min(len(self.digits) ** self.char_size, MAX_ID),
        }

    def _check(self, new_id: object) -> None:
        remedy = f"char_size is {self.char_size} (maximum {self.most})"
        check_id(new_id, at_most=self.max_id, remedy=remedy)

    def _refusal(self, text: str) -> InvalidIdError:
        rule = (
            f"must be 1 to {self.char_size} of the digits {self.digits}, for an id of at most "
            f"{self.max_id}"
        )
        return InvalidIdError("id", text, rule)


@dataclass(frozen=True, slots=True)
class Radix62IdConverter(RadixIdConverter):
    """Formats ids with ``0-9A-Za-z``: 11 characters fit every id.  CosId's Radix62IdConverter.

    Padded texts sort like ids in ASCII order; a database's collation may have another order.  Texts
    without padding can be read too.

    Attributes:
        pad_start: whether zeros fill a text up to ``char_size``.
        char_size: the maximum characters of a text, 1 to 11.
        max_id: the highest id that has a text: ``62**char_size - 1``, at most 2^63-1.
    """

    is_timeless: ClassVar[bool] = True
    digits: ClassVar[str] = string.digits + string.ascii_uppercase + string.ascii_lowercase
    most: ClassVar[int] = 11

    char_size: int = 11


@dataclass(frozen=True, slots=True)
class Radix36IdConverter(RadixIdConverter):
    """Formats ids with ``0-9A-Z``: 13 characters fit every id.  CosId's Radix36IdConverter.

    Padded texts sort like ids.  Texts without padding can be read too; lower-case letters cannot.

    Attributes:
        pad_start: whether zeros fill a text up to ``char_size``.
        char_size: the maximum characters of a text, 1 to 13.
        max_id: the highest id that has a text: ``36**char_size - 1``, at most 2^63-1.
    """

    is_timeless: ClassVar[bool] = True
    digits: ClassVar[str] = string.digits + string.ascii_uppercase
    most: ClassVar[int] = 13

    char_size: int = 13


DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""https://www.crockford.com/base32.html: without I, L, O and U."""
CHECKS: Final = f"{DIGITS}*~$=U"
"""The check symbols, by the remainder of a division by 37."""

MOST_READ: Final = 64  # maximum characters, including hyphens
AS_WRITTEN: Final = str.maketrans("ILO", "110", "-")


@dataclass(frozen=True, slots=True)
class _Radix32(RadixIdConverter):
    """The digits without a check symbol."""

    digits: ClassVar[str] = DIGITS
    most: ClassVar[int] = 13


@dataclass(frozen=True, slots=True)
class CrockfordIdConverter(IdConverter):
    """Writes ids in Crockford's base 32 with a check symbol: ``000000000016JD``.

    Without the symbol the texts are those of a TSID; in lower case they are also those of a
    `TypedId` after its prefix.

    The symbol detects every wrong digit, and every swap of two neighbouring digits.  Padded texts
    sort like ids.  Reading accepts lower case, takes I and L for 1 and O for 0, skips hyphens, and
    allows missing zeros at the front.  A hyphen in place of a digit counts as a missing digit,
    which the symbol does not always detect.

    Attributes:
        pad_start: whether zeros fill a text up to ``char_size``.
        char_size: the maximum digits of a text, 1 to 13, not counting the check symbol.
        check: whether a check symbol follows; texts without it are then refused.
        lower_case: whether texts are in lower case; both cases can be read.
    """

    is_timeless: ClassVar[bool] = True

    pad_start: bool = True
    char_size: int = 13
    check: bool = True
    lower_case: bool = False
    _plain: _Radix32 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_flag("check", self.check)
        check_flag("lower_case", self.lower_case)
        object.__setattr__(self, "_plain", _Radix32(self.pad_start, self.char_size))

    @property
    def max_id(self) -> int:
        """The highest id that has a text: ``32**char_size - 1``, at most 2^63-1."""
        return self._plain.max_id

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id from 0 to `max_id`."""
        text = self._plain.as_str(new_id)
        if self.check:
            text += CHECKS[new_id % len(CHECKS)]
        return text.lower() if self.lower_case else text

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids; faster per id than `as_str`."""
        ids = list(ids)
        texts = self._plain.convert_many(ids)
        if self.check:
            texts = [
                text + CHECKS[each % len(CHECKS)] for text, each in zip(texts, ids, strict=True)
            ]
        return [text.lower() for text in texts] if self.lower_case else texts

    def as_int(self, text: str, /) -> int:
        """Return the id of a text in the form of `as_str`, or as people write it."""
        if len(text_of(text)) > MOST_READ or not text.isascii():
            raise self._refusal(text)
        read = text.upper().translate(AS_WRITTEN)
        symbol = read[-1:]
        try:
            number = self._plain.as_int(read[:-1] if self.check else read)
        except InvalidIdError:
            raise self._refusal(text) from None
        if self.check and CHECKS[number % len(CHECKS)] != symbol:
            rule = "has a typing error: its last character, the check symbol, does not match"
            raise InvalidIdError("id", text, rule)
        return number

    def as_tree(self) -> dict[str, object]:
        """Return a radix converter's figures, whether there is a check symbol, and the case."""
        own = {"kind": type(self).__name__, "check": self.check, "lowerCase": self.lower_case}
        return self._plain.as_tree() | own

    def _refusal(self, text: str) -> InvalidIdError:
        symbol = " and a check symbol" if self.check else ""
        rule = (
            f"must be 1 to {self.char_size} of the digits {DIGITS}{symbol}, for an id of at most "
            f"{self.max_id}"
        )
        return InvalidIdError("id", text, rule)
