"""The date before an id.  Pure but for the clock that it is given."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .._dates import TOKEN, DatePattern, moment_of, resolve_zone
from .._life.clock import SYSTEM_CLOCK
from ..abc import Clock, IdConverter
from ..errors import InvalidArgumentError, InvalidIdError
from ._checks import check_affix, check_converter, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

__all__ = ("DatePrefixIdConverter",)

FIELDS: Final = {
    "yyyy": "[0-9]{4}",
    "yy": "[0-9]{2}",
    "MM": "(?:0[1-9]|1[0-2])",
    "M": "(?:1[0-2]|[1-9])",
    "dd": "(?:0[1-9]|[12][0-9]|3[01])",
    "d": "(?:[12][0-9]|3[01]|[1-9])",
    "DDD": "(?:00[1-9]|0[1-9][0-9]|[12][0-9]{2}|3[0-5][0-9]|36[0-6])",
    "D": "(?:[12][0-9]{2}|3[0-5][0-9]|36[0-6]|[1-9][0-9]?)",
    "HH": "(?:[01][0-9]|2[0-3])",
    "H": "(?:1[0-9]|2[0-3]|[0-9])",
    "mm": "[0-5][0-9]",
    "m": "[1-5]?[0-9]",
    "ss": "[0-5][0-9]",
    "s": "[1-5]?[0-9]",
    "SSS": "[0-9]{3}",
}
"""The allowed forms of a pattern's fields; `DatePattern` supports more."""


@dataclass(frozen=True, slots=True, init=False)
class DatePrefixIdConverter(IdConverter):
    """Writes the date before each id: ``260116-42``.  CosId's DatePrefixIdConverter.

    It is the date of the conversion, as in CosId; each call of `convert_many` has one date.  So it
    may be a later one than the id is of, a text made twice may differ, and a batch of a
    `StringIdGenerator`, which converts in several calls, may have two dates.  It makes no id
    unique: numbers that restart each day need a `GroupedPrefixIdConverter`.

    Attributes:
        pattern: a date pattern of Java, such as ``yyMMdd``.
        inner: writes and reads what follows.
        delimiter: the text between date and id; it may be empty.
        zone: whose date is written; CosId takes the host's.
    """

    is_timeless: ClassVar[bool] = False

    pattern: str
    inner: IdConverter
    delimiter: str
    zone: tzinfo
    _clock: Clock = field(repr=False, compare=False)
    _dates: DatePattern = field(repr=False, compare=False)
    _form: re.Pattern[str] = field(repr=False, compare=False)

    def __init__(
        self,
        pattern: str,
        inner: IdConverter,
        delimiter: str = "-",
        *,
        zone: tzinfo | str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Choose date and place.

        Args:
            pattern: letters ``y u M d D H m s S``, text in single quotes, and signs.
            inner: writes and reads what follows.
            delimiter: the text between date and id; not empty, and no digit first, if the pattern
                has fields that vary in length.
            zone: a tzinfo, or a name as "Asia/Shanghai", "UTC" or "+08:00".
            clock: the clock; the system's by default.

        Raises:
            InvalidArgumentError: pattern or zone are unknown, or the date could not be told from
                what follows.
        """
        dates = DatePattern(pattern)
        check_converter(inner)
        check_affix("delimiter", delimiter)
        if dates.width is None and (not delimiter or delimiter[0].isdigit()):
            expected = f"a text that starts with no digit: dates as {pattern!r} vary in length"
            raise InvalidArgumentError("delimiter", delimiter, expected=expected)
        form = re.compile(_form_of(pattern) + re.escape(delimiter))
        values = {"pattern": pattern, "inner": inner, "delimiter": delimiter}
        values |= {"zone": resolve_zone(zone), "_clock": clock, "_dates": dates, "_form": form}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave what is made of the pattern out of a pickle."""
        converter = partial(type(self), zone=self.zone, clock=self._clock)
        return converter, (self.pattern, self.inner, self.delimiter)

    def as_str(self, new_id: int, /) -> str:
        """Return today's date and the text of an id."""
        return self._today() + self.inner.as_str(new_id)

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids, all with one date."""
        today = self._today()
        return [today + text for text in self.inner.convert_many(ids)]

    def as_int(self, text: str, /) -> int:
        """Return the id of a text that starts with a date of the pattern, whichever it is.

        Each field is looked at for itself, so that 30 February is a date too.

        CosId drops as many characters as pattern and delimiter have, whatever they are.
        """
        found = self._form.match(text_of(text))
        if found is None:
            expected = f"a text that starts with a date as {self.pattern!r} and {self.delimiter!r}"
            raise InvalidIdError("id", text, expected=expected)
        return self.inner.as_int(text[found.end() :])

    def as_tree(self) -> dict[str, Any]:
        """Return kind, pattern, delimiter and the converter inside."""
        return {
            "kind": type(self).__name__,
            "pattern": self.pattern,
            "delimiter": self.delimiter,
            "actual": self.inner.as_tree(),
        }

    def _today(self) -> str:
        return self._dates.format(moment_of(self._clock.now_ms(), self.zone)) + self.delimiter


def _form_of(pattern: str) -> str:
    """Return the regular expression of a pattern's texts."""
    parts: list[str] = []
    for token in (found[0] for found in TOKEN.finditer(pattern)):
        if token[0] == "'":
            parts.append(re.escape(token[1:-1].replace("''", "'") or "'"))
        elif token[0].isascii() and token[0].isalpha():
            parts.append(FIELDS[token.replace("u", "y")])
        else:
            parts.append(re.escape(token))
    return "".join(parts)
