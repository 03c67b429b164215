"""Reads dates and times from texts of one of Java's patterns.  Pure."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from .._dates import STRFTIME, TOKEN, UNITS, VARYING, DatePattern
from ..errors import InvalidArgumentError

__all__ = ("DateTextReader",)

DIRECTIVES: Final = {java: python for python, java in STRFTIME.items()}

CENTURY: Final = 2000  # Java reads yy as 2000 to 2099


class DateTextReader:
    """Reads the texts that a pattern writes, and no others."""

    __slots__ = ("_format", "pattern")

    def __init__(self, pattern: str, *, argument: str = "pattern") -> None:
        """Read a pattern; a field that it does not have is the first: the month of ``yyyy`` is 1.

        Raises:
            InvalidArgumentError: the pattern is unknown, leaves out a field before its finest, or
                has digits right after a field that varies in length: 2026111 as ``yyyyMd`` is of
                two days.
        """
        self.pattern = DatePattern(pattern, argument=argument)
        tokens = [found[0] for found in TOKEN.finditer(pattern)]
        for token, following in pairwise(tokens):
            if token in VARYING and _may_begin_with_digit(following):
                expected = f"with a sign after {token!r}, which varies in length"
                raise InvalidArgumentError(argument, pattern, expected=expected)
        directives = [_directive(token) for token in tokens]
        twice = [d for d in directives if d in STRFTIME and directives.count(d) > 1]
        if twice:
            expected = f"with {STRFTIME[twice[0]]!r} only once"
            raise InvalidArgumentError(argument, pattern, expected=expected)
        self._format = "".join(directives)
        fields = self.pattern.fields
        needed = UNITS[: UNITS.index(fields[-1]) + 1] if fields else UNITS[:1]
        day_of_year = "%j" in self._format
        if missing := [u for u in needed if u not in fields and not (day_of_year and u == "month")]:
            raise InvalidArgumentError(argument, pattern, expected=f"with the {missing[0]}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the pattern."""
        return DateTextReader, (self.pattern.pattern,)

    def read(self, argument: str, text: str) -> datetime:
        """Return the local time of a text.

        Raises:
            InvalidArgumentError: the pattern does not write it.
        """
        try:
            at = datetime.strptime(text, self._format)  # noqa: DTZ007 - a local time
            if "%y" in self._format and at.year < CENTURY:
                at = at.replace(year=at.year + 100)
            # strptime also takes fields that are too short, and spaces in any number.
            if self.pattern.format(at) == text:
                return at
        except ValueError:
            pass
        expected = f"a date and time as {self.pattern.pattern!r} writes it"
        raise InvalidArgumentError(argument, text, expected=expected)


def _may_begin_with_digit(token: str) -> bool:
    """Tell whether the text of a part of a pattern may begin with a digit."""
    return _is_field(token) or token.lstrip("'")[:1].isdigit()


def _is_field(token: str) -> bool:
    """Tell whether a part of a pattern is letters of Java's; those of other alphabets are text."""
    return token.isascii() and token.isalpha()


def _directive(token: str) -> str:
    """Return a part of a pattern as `strptime` has it."""
    if token[0] == "'":
        return token[1:-1].replace("''", "'") or "'"  # no %: a pattern has none
    if not _is_field(token):
        return token
    java = token.replace("u", "y")
    return DIRECTIVES[VARYING.get(java, java)]
