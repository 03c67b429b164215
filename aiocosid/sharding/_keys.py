"""Converts keys to local times: CosId's ``LocalDateTimeConvertor``.  No I/O.

A timeline is divided by local time, the date and time of a wall clock, so a key that names a moment
is converted to a zone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, Union

from ..abc import IdConverter
from ..abc.checks import is_integer
from ..abc.dates import STRFTIME, TOKEN, UNITS, VARYING, DatePattern, moment_of, resolve_zone
from ..errors import InvalidArgumentError
from ._range import Ordered
from ._sharding import check_kind

if TYPE_CHECKING:
    from ..snowflake import SnowflakeLayout
    from ._range import ShardRange

__all__ = (
    "DATETIME_PATTERN",
    "DateTextReader",
    "LocalSpan",
    "SnowflakeTimeKey",
    "StandardTimeKey",
    "TimeKey",
    "TimeValue",
)

DIRECTIVES: Final = {java: python for python, java in STRFTIME.items()}

CENTURY: Final = 2000  # Java reads yy as 2000 to 2099


class DateTextReader:
    """Reads the texts that a pattern writes, and no others."""

    __slots__ = ("_format", "pattern")

    def __init__(self, pattern: str, *, argument: str = "pattern") -> None:
        """Parse a pattern; a missing field has its first value: with ``yyyy`` the month is 1.

        Raises:
            InvalidArgumentError: the pattern is not valid, lacks a field above its finest one, or
                has digits right after a field of varying length: with ``yyyyMd``, 2026111 could
                mean two days.
        """
        self.pattern = DatePattern(pattern, argument=argument)
        tokens = [found[0] for found in TOKEN.finditer(pattern)]
        for token, following in pairwise(tokens):
            if token in VARYING and _may_begin_with_digit(following):
                rule = f"needs a sign after {token!r}, which varies in length"
                raise InvalidArgumentError(argument, pattern, rule)
        directives = [_directive(token) for token in tokens]
        twice = [d for d in directives if d in STRFTIME and directives.count(d) > 1]
        if twice:
            rule = f"cannot have {STRFTIME[twice[0]]!r} twice"
            raise InvalidArgumentError(argument, pattern, rule)
        self._format = "".join(directives)
        fields = self.pattern.fields
        needed = UNITS[: UNITS.index(fields[-1]) + 1] if fields else UNITS[:1]
        day_of_year = "%j" in self._format
        if missing := [u for u in needed if u not in fields and not (day_of_year and u == "month")]:
            raise InvalidArgumentError(argument, pattern, f"has no {missing[0]}; add it")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the pattern."""
        return DateTextReader, (self.pattern.pattern,)

    def read(self, argument: str, text: str) -> datetime:
        """Return the local time of a text.

        Raises:
            InvalidArgumentError: the pattern would not write this text.
        """
        try:
            at = datetime.strptime(text, self._format)  # noqa: DTZ007 - a local time
            if "%y" in self._format and at.year < CENTURY:
                at = at.replace(year=at.year + 100)
            # strptime also accepts fields that are too short, and any number of spaces.
            if self.pattern.format(at) == text:
                return at
        except ValueError:
            pass
        rule = f"must be a date and time written as {self.pattern.pattern!r}"
        raise InvalidArgumentError(argument, text, rule)


def _may_begin_with_digit(token: str) -> bool:
    """Return whether the text of a part of a pattern may begin with a digit."""
    return _is_field(token) or token.lstrip("'")[:1].isdigit()


def _is_field(token: str) -> bool:
    """Return whether a part of a pattern is Java's pattern letters; other letters are text."""
    return token.isascii() and token.isalpha()


def _directive(token: str) -> str:
    """Return the `strptime` directive of a part of a pattern."""
    if token[0] == "'":
        return token[1:-1].replace("''", "'") or "'"  # it needs no escape: a pattern has no %
    if not _is_field(token):
        return token
    java = token.replace("u", "y")
    return DIRECTIVES[VARYING.get(java, java)]


DATETIME_PATTERN: Final = "yyyy-MM-dd HH:mm:ss"
"""ShardingSphere's ``DEFAULT_DATE_TIME_PATTERN``."""

EARLIEST, LATEST = datetime.min, datetime.max  # noqa: DTZ901 - all times are local

K = TypeVar("K", bound=Ordered)

TimeValue: TypeAlias = Union[datetime, date, int, str]  # noqa: UP007 - read at run time
"""The types that a `StandardTimeKey` reads."""

LocalSpan: TypeAlias = "tuple[datetime | None, datetime | None]"
"""The first and the last local time of a range, both included; None where the range has no end."""


class TimeKey(ABC, Generic[K]):
    """Converts keys to local times.  Your own class needs only `local_time`."""

    __slots__ = ()

    @abstractmethod
    def local_time(self, value: K, /) -> datetime:
        """Return the local time of a key, without a zone.

        Raises:
            InvalidArgumentError: the value is not a key.
        """

    def local_span(self, values: ShardRange[K], /) -> LocalSpan | None:
        """Return the first and the last local time of a range of keys; None if it is empty.

        An open end counts as closed here, because several keys may have the same time.
        """
        return (
            None if values.lower is None else self.local_time(values.lower),
            None if values.upper is None else self.local_time(values.upper),
        )


@dataclass(frozen=True, slots=True)
class StandardTimeKey(TimeKey[Any]):
    """Keys that are dates, times, timestamps, or text.

    * A naive datetime is the local time itself; a date is its midnight.
    * An aware datetime and a timestamp are converted to `zone`.  The same moment has the same local
      time, whatever its zone; CosId takes the fields as they are written.
    * Text is read with `pattern`; a field that the pattern lacks has its first value.

    Attributes:
        zone: a tzinfo, a name such as "Asia/Shanghai", or an offset such as "+08:00"; without it,
            aware datetimes and timestamps are refused.
        timestamp_unit: the unit of integers: "ms" or "s" since 1970-01-01T00:00Z.
        pattern: the format of text, in Java's pattern letters.
    """

    zone: tzinfo | str | None = None
    timestamp_unit: Literal["ms", "s"] = "ms"
    pattern: str = DATETIME_PATTERN
    _reader: DateTextReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` if an argument is unknown."""
        if self.zone is not None:
            object.__setattr__(self, "zone", resolve_zone(self.zone))
        if self.timestamp_unit not in ("ms", "s"):
            raise InvalidArgumentError("timestamp_unit", self.timestamp_unit, "must be 'ms' or 's'")
        object.__setattr__(self, "_reader", DateTextReader(self.pattern))

    def local_time(self, value: TimeValue, /) -> datetime:
        """Return the local time of a key.

        Raises:
            InvalidArgumentError: the key has another type, needs a zone but there is none, its text
                does not match the pattern, or its time is outside the years 1 to 9999.
        """
        if type(value) is datetime and value.tzinfo is None:
            return value
        moment = self._read(value)
        return (
            moment if moment.tzinfo is None else self._in_zone(value, moment).replace(tzinfo=None)
        )

    def local_span(self, values: ShardRange[Any], /) -> LocalSpan | None:
        """Return the first and the last local time of a range of keys; None if it is empty.

        If an end is outside the years 1 to 9999 of the zone, for example `datetime.max`, the range
        has no end on that side.
        """
        try:
            return (
                self._end(values.lower, timedelta.resolution * values.lower_open, upper=False),
                self._end(values.upper, -timedelta.resolution * values.upper_open, upper=True),
            )
        except OverflowError:
            return None  # after the last possible time, or before the first

    def _end(self, value: TimeValue | None, step: timedelta, *, upper: bool) -> datetime | None:
        if value is None:
            return None
        moment = self._read(value)
        if moment.tzinfo is None:
            return moment + step
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            pass  # without a step, the closed end includes more
        else:
            moment += step
        try:
            local = moment.astimezone(self._resolved(value))
        except OverflowError:
            is_late = moment.year > 1
            if is_late == upper:
                return None  # no local time is outside the range
            return LATEST if is_late else EARLIEST
        return outermost(local, upper=upper)

    def _read(self, value: TimeValue) -> datetime:
        """Return a local time without a zone, or a moment with one."""
        if isinstance(value, datetime):
            return value
        if isinstance(value, date):
            return datetime.combine(value, time.min)
        if isinstance(value, str):
            return self._reader.read("value", value)
        if not is_integer(value):
            rule = "must be a datetime, a date, an integer timestamp or a string"
            raise InvalidArgumentError("value", value, rule)
        try:
            return moment_of(value * (1000 if self.timestamp_unit == "s" else 1))
        except OverflowError:
            rule = f"must be a timestamp in {self.timestamp_unit}, of a year from 1 to 9999"
            raise InvalidArgumentError("value", value, rule) from None

    def _in_zone(self, value: TimeValue, moment: datetime) -> datetime:
        """Return a moment in the zone."""
        zone = self._resolved(value)
        try:
            return moment.astimezone(zone)
        except OverflowError:
            raise InvalidArgumentError("value", value, "must be in a year from 1 to 9999") from None

    def _resolved(self, value: TimeValue) -> tzinfo:
        """Return the zone."""
        if not isinstance(self.zone, tzinfo):
            rule = "must be a local time, as the key has no zone; give StandardTimeKey a zone"
            raise InvalidArgumentError("value", value, rule)
        return self.zone


@dataclass(frozen=True, slots=True)
class SnowflakeTimeKey(TimeKey[Any]):
    """Keys that are Snowflake ids, as integers or as text.

    Attributes:
        layout: the layout of the ids.
        zone: the zone of their local time: a tzinfo, a name, or an offset such as "+08:00".
        converter: reads text; CosId's is a Radix62IdConverter of 11 characters.  Without a
            converter, text is refused.
    """

    layout: SnowflakeLayout
    zone: tzinfo | str
    converter: IdConverter | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` if an argument has the wrong type."""
        _check_layout(self.layout)
        if self.converter is not None:
            check_kind("converter", self.converter, IdConverter, "an IdConverter")
        object.__setattr__(self, "zone", resolve_zone(self.zone))

    def local_time(self, value: int | str, /) -> datetime:
        """Return the local time of an id's tick.

        Raises:
            InvalidIdError: the value is not an id of the layout, or not a text of the converter.
            InvalidArgumentError: the value is text, and there is no converter.
        """
        return self._in_zone(self._id(value)).replace(tzinfo=None)

    def local_span(self, values: ShardRange[Any], /) -> LocalSpan | None:
        """Return the first and the last local time of a range of ids; None if it is empty.

        The ends are compared as ids, not as times: the id below the first id of a tick belongs to
        the previous tick.
        """
        lower = upper = None
        if values.lower is not None:
            lower = max(self._id(values.lower) + values.lower_open, 0)
        if values.upper is not None:
            upper = min(self._id(values.upper) - values.upper_open, self.layout.max_id)
        if (lower or 0) > (self.layout.max_id if upper is None else upper):
            return None
        return (
            None if lower is None else outermost(self._in_zone(lower), upper=False),
            None if upper is None else outermost(self._in_zone(upper), upper=True),
        )

    def _id(self, value: int | str) -> int:
        if isinstance(value, str):
            if self.converter is not None:
                return self.converter.as_int(value)
        elif is_integer(value):
            return value
        or_text = "" if self.converter is None else " or text"
        raise InvalidArgumentError("value", value, f"must be an integer{or_text}")

    def _in_zone(self, snowflake_id: int) -> datetime:
        return self.layout.parse(snowflake_id, self.zone).timestamp  # type: ignore[arg-type]  # resolved


def _check_layout(layout: object) -> None:
    """Raise unless it is a SnowflakeLayout, without importing the Snowflake generators."""
    if isinstance(layout, type) or not hasattr(layout, "max_id"):
        rule = "must be a SnowflakeLayout, such as aiocosid.snowflake.COSID_MS"
        raise InvalidArgumentError("layout", layout, rule)


def outermost(at: datetime, *, upper: bool) -> datetime:
    """Return the local time that ends a range of moments, without its zone.

    When clocks are put back, an hour occurs twice.  A range that ends in the second pass includes
    the whole first pass; a range that begins in the first pass includes the whole second pass.
    """
    if at.fold == upper:
        first, second = at.replace(fold=0).utcoffset(), at.replace(fold=1).utcoffset()
        if first is not None and second is not None and first > second:
            back = first - second
            return at.replace(tzinfo=None) + (back if upper else -back)
    return at.replace(tzinfo=None)
