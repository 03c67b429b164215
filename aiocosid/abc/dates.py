"""Moments, zones, and Java's date patterns, which CosId's settings and table names use.  Pure.

It supports those letters of ``DateTimeFormatter`` whose text contains only digits and is the same
in every language.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..errors import InvalidArgumentError
from ..errors.base import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "LAST_MS",
    "UNIX_EPOCH",
    "DatePattern",
    "DateUnit",
    "iso_text",
    "moment_of",
    "resolve_zone",
)

UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

LAST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last millisecond of `datetime`."""

# The Gregorian calendar repeats after this many years.
CYCLE_YEARS: Final = 400
CYCLE_MS: Final = 146_097 * 86_400_000

OFFSET: Final = re.compile(r"([+-])([01][0-9]|2[0-3]|[0-9])(?:(?<=[0-9]{2}):?([0-5][0-9]))?")

DateUnit: TypeAlias = Literal["year", "month", "day", "hour", "minute", "second", "millisecond"]
"""The fields of a date and time, the longest first."""

FIELDS: Final[dict[str, tuple[DateUnit, int, Callable[[datetime], int]]]] = {
    "yyyy": ("year", 4, lambda at: at.year),
    "yy": ("year", 2, lambda at: at.year % 100),
    "MM": ("month", 2, lambda at: at.month),
    "dd": ("day", 2, lambda at: at.day),
    "DDD": ("day", 3, lambda at: at.timetuple().tm_yday),
    "HH": ("hour", 2, lambda at: at.hour),
    "mm": ("minute", 2, lambda at: at.minute),
    "ss": ("second", 2, lambda at: at.second),
    "SSS": ("millisecond", 3, lambda at: at.microsecond // 1000),
}
"""Letters of a pattern: the field, how many digits it has, and its value."""

VARYING: Final = {"M": "MM", "d": "dd", "H": "HH", "m": "mm", "s": "ss", "D": "DDD"}
"""Letters whose text has as many digits as the value needs."""

UNITS: Final[tuple[DateUnit, ...]] = (
    *("year", "month", "day", "hour", "minute", "second", "millisecond"),
)

TOKEN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']")

STRFTIME: Final = {
    "%Y": "yyyy",
    "%y": "yy",
    "%m": "MM",
    "%d": "dd",
    "%j": "DDD",
    "%H": "HH",
    "%M": "mm",
    "%S": "ss",
    "%f": "SSS",
}


class DatePattern:
    """Writes dates and times in one of Java's patterns: ``yyyyMMdd``, ``yyyy-MM``, ``yy'w'MM``.

    Attributes:
        pattern: the pattern as it was given.
        width: characters of every text before the year 10000, or None if that varies.
        fields: which fields the text contains, the longest first.
    """

    __slots__ = ("_parts", "fields", "pattern", "width")

    def __init__(self, pattern: str, *, argument: str = "pattern") -> None:
        """Read a pattern.

        Args:
            pattern: letters ``y u M d D H m s S``, text in single quotes, and signs.
            argument: the argument's name in errors.

        Raises:
            InvalidArgumentError: a letter is unknown, or its text depends on a language; the
                error names what to write instead.
        """
        if type(pattern) is not str or not pattern:
            rule = "must be a date pattern such as 'yyyyMMdd'"
            raise InvalidArgumentError(argument, pattern, rule)
        if "%" in pattern:
            _refuse_strftime(argument, pattern)
        self.pattern: str = pattern
        tokens = _tokens(argument, pattern)
        self._parts: list[_Part] = [_part(token, argument, pattern) for token in tokens]
        found = {part[0] for part in self._parts if part[0] is not None}
        self.fields: tuple[DateUnit, ...] = tuple(unit for unit in UNITS if unit in found)
        varies = any(part[1] < 0 for part in self._parts)
        self.width: int | None = None if varies else sum(part[1] for part in self._parts)

    def format(self, at: datetime) -> str:
        """Return the text of a local date and time."""
        return "".join(
            text if read is None else f"{read(at):0{max(width, 0)}}"
            for _, width, text, read in self._parts
        )

    @property
    def finest(self) -> DateUnit | None:
        """The shortest field that the text contains; None if it contains none."""
        return self.fields[-1] if self.fields else None

    def __repr__(self) -> str:
        """Show the pattern."""
        return f"{type(self).__name__}({self.pattern!r})"

    def __eq__(self, other: object) -> bool:
        """Tell whether the other one has the same pattern."""
        return isinstance(other, DatePattern) and other.pattern == self.pattern

    def __hash__(self) -> int:
        """Hash by the pattern."""
        return hash(self.pattern)


_Part: TypeAlias = "tuple[DateUnit | None, int, str, Callable[[datetime], int] | None]"


def _tokens(argument: str, pattern: str) -> list[str]:
    tokens, at = list[str](), 0
    while at < len(pattern):
        found = TOKEN.match(pattern, at)
        if found is None or found[0] == "'":
            raise InvalidArgumentError(argument, pattern, "has a quote that is never closed")
        if found[0] in "{}[]#":
            raise InvalidArgumentError(argument, pattern, f"needs quotes around {found[0]}")
        tokens.append(found[0])
        at = found.end()
    return tokens


def _part(token: str, argument: str, pattern: str) -> _Part:
    if not token[0].isalpha() or not token.isascii():
        text = token[1:-1].replace("''", "'") or "'" if token[0] == "'" else token
        return (None, len(text), text, None)
    token = token.replace("u", "y")
    if token in FIELDS:
        unit, width, read = FIELDS[token]
        return (unit, width, "", read)
    if token in VARYING:
        unit, _, read = FIELDS[VARYING[token]]
        return (unit, -1, "", read)
    raise InvalidArgumentError(argument, pattern, f"cannot have {token!r}: {_advice(token)}")


def _advice(token: str) -> str:
    """Return what to write in place of letters that are not supported."""
    letter = token[0]
    if letter == "Y":
        year = "y" * len(token)
        return f"Y is the year of the week, often next year in late December; write {year!r}"
    if letter in "ML":
        return "the name of a month depends on a language; write 'MM'"
    if letter in "hKk":
        return "12-hour times occur twice a day; write 'HH'"
    known = sorted({*FIELDS, *VARYING, "uuuu"})
    return f"known are {', '.join(known)}; put other text in single quotes"


def _refuse_strftime(argument: str, pattern: str) -> None:
    """Raise if it is a strftime pattern; the error shows the same pattern in Java's letters."""
    java = re.sub(r"%.", lambda found: STRFTIME.get(found[0], "?"), pattern)
    hint = f"Java's {java!r}" if "?" not in java else "Java's letters, as in 'yyyyMMdd'"
    raise InvalidArgumentError(argument, pattern, f"is written for strftime; use {hint}")


def moment_of(ms: int, zone: tzinfo = UTC) -> datetime:
    """Return a unix time in milliseconds as an aware datetime.

    Raises:
        OverflowError: it is outside the years 1 to 9999 in that zone.
    """
    return (UNIX_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)


def resolve_zone(zone: object) -> tzinfo:
    """Return the zone of a name; the first use of a name reads the system's file.

    Offsets may be written as Java reads them: ``+8``, ``+08``, ``+0800``, ``+08:00`` and ``Z``.

    Raises:
        InvalidArgumentError: there is no such zone.
    """
    near = ""
    if isinstance(zone, tzinfo):
        return zone
    if isinstance(zone, str):
        if zone in {"UTC", "Z"}:
            return UTC
        if offset := OFFSET.fullmatch(zone):
            distance = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
            return timezone(-distance if offset[1] == "-" else distance)
        # Imported here, because most programs name no zone.
        import zoneinfo  # noqa: PLC0415

        try:
            return zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            # Unknown, not a name at all, or a folder of names such as "America".
            near = did_you_mean(zone, zoneinfo.available_timezones())
    rule = "must be a tzinfo, 'UTC', an offset such as '+08:00' or a zone that this system knows"
    raise InvalidArgumentError("zone", zone, rule + near)


def iso_text(ms: int) -> str:
    """Return a unix time in milliseconds as ISO 8601 in UTC; years after 9999 have a plus sign."""
    cycles = max(0, ms - LAST_MS + CYCLE_MS - 1) // CYCLE_MS
    moment = moment_of(ms - cycles * CYCLE_MS)
    text = moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    year = f"+{moment.year + cycles * CYCLE_YEARS}" if cycles else text[:4]
    return f"{year}{text[4:].removesuffix('+00:00')}Z"
