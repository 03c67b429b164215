"""Which group an id belongs to: a year, a month, a day, or any key.  Pure."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from ..abc.checks import check_text
from ..abc.dates import UNITS, DatePattern, moment_of, resolve_zone
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

__all__ = ("GroupBy",)

Period: TypeAlias = Literal["year", "month", "day"]

SAMPLE: Final = tuple(datetime(2027, 1, 1) + timedelta(days) for days in range(365 + 366))  # noqa: DTZ001 - local
"""Every day of two years, one a leap year: enough to find two periods with the same text."""


class GroupBy:
    """Says which group an id belongs to: each group has its own counter.

    Date keys are formatted as CosId formats them, so Java nodes use the same counters.
    """

    __slots__ = ("_function", "_pattern", "_period", "_zone")

    def __init__(
        self,
        period: Period | None,
        pattern: DatePattern | None,
        zone: tzinfo | None,
        function: Callable[[], str] | None,
    ) -> None:
        """Use `year`, `month`, `day` or `key`."""
        if function is not None and not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
            rule = "must be a function that returns a string"  # type: ignore[unreachable]  # a user's mistake
            raise InvalidArgumentError("function", function, rule)
        self._period = period
        self._pattern = pattern
        self._zone = zone
        self._function = function

    @classmethod
    def year(
        cls,
        *,
        zone: tzinfo | str,
        pattern: str = "yyyy",
        within: Callable[[], str] | None = None,
    ) -> Self:
        """Group by year; see `day`."""
        return cls._by_date("year", pattern, zone, within)

    @classmethod
    def month(
        cls,
        *,
        zone: tzinfo | str,
        pattern: str = "yyyyMM",
        within: Callable[[], str] | None = None,
    ) -> Self:
        """Group by month; see `day`."""
        return cls._by_date("month", pattern, zone, within)

    @classmethod
    def day(
        cls,
        *,
        zone: tzinfo | str,
        pattern: str = "yyyyMMdd",
        within: Callable[[], str] | None = None,
    ) -> Self:
        """Group by day.

        Args:
            zone: the time zone of the day: a tzinfo, ``"UTC"``, an offset such as ``"+08:00"``, or
                a name.  All processes on one counter must use the same zone.
            pattern: how the key is written, in Java's letters.  With ``yy`` keys repeat after a
                hundred years, and their counters then continue.
            within: returns a second key, such as a shop's, which is put in front:
                ``shop-7-20260116``; see `key`.

        Raises:
            InvalidArgumentError: there is no such zone; the pattern gives two periods the same
                key, so that the counter would continue instead of restarting; the pattern's text
                changes within a period; or, with ``within``, its texts differ in length.
        """
        return cls._by_date("day", pattern, zone, within)

    @classmethod
    def key(cls, function: Callable[[], str]) -> Self:
        """Group by any key.

        Args:
            function: returns the key for the current call; not empty, without NUL.  It is called
                for each id or batch, in the task of the caller, so you may pass a context
                variable's ``get``.  If the function raises, the call raises the same exception.
        """
        return cls(None, None, None, function)

    @classmethod
    def _by_date(
        cls, period: Period, pattern: str, zone: tzinfo | str, within: Callable[[], str] | None
    ) -> Self:
        checked = DatePattern(pattern)
        _check_pattern(period, checked)
        if within is not None and checked.width is None:
            rule = "must have one width, as with MM and dd: else two keys may have the same text"
            raise InvalidArgumentError("pattern", pattern, rule)
        return cls(period, checked, resolve_zone(zone), within)

    @property
    def is_by_date_alone(self) -> bool:
        """Whether the clock alone decides the group."""
        return self._function is None

    @property
    def has_one_width(self) -> bool:
        """Whether each key ends in a date of the same number of characters."""
        return self._pattern is not None and self._pattern.width is not None

    def key_at(self, now_ms: int) -> str:
        """Return the key of a call made at a unix time in milliseconds.

        Raises:
            InvalidArgumentError: the function returned no text, an empty one, or one with NUL.
        """
        return self.key_in(self.period_at(now_ms))

    def period_at(self, now_ms: int) -> str:
        """Return the text of the period that contains a unix time in milliseconds.

        It changes only at a full second of UTC.  It is empty if the group is not a date.
        """
        if self._pattern is None or self._zone is None:
            return ""
        return self._pattern.format(moment_of(now_ms, self._zone))

    def last_second(self, now_ms: int) -> int | None:
        """Return the last second of the period that contains a time; None if groups have no dates.

        The argument is a unix time in milliseconds, the result one in seconds.  CosId's groups end
        with the same second.
        """
        if self._zone is None:
            return None
        local = moment_of(now_ms, self._zone).replace(hour=23, minute=59, second=59, microsecond=0)
        if self._period == "year":
            local = local.replace(month=12, day=31)
        elif self._period == "month":
            local = local.replace(day=monthrange(local.year, local.month)[1])
        return int(local.replace(fold=0).timestamp())

    def key_in(self, period: str) -> str:
        """Return the key of the current call, in a period that `period_at` returned.

        Raises:
            InvalidArgumentError: as `key_at`.
        """
        if self._function is None:
            return period
        key = self._function()
        check_text("group", key)
        return f"{key}-{period}" if period else key

    def _parts(self) -> tuple[object, ...]:
        pattern = None if self._pattern is None else self._pattern.pattern
        return self._period, pattern, self._zone, self._function

    def __eq__(self, other: object) -> bool:
        """Tell whether both group alike: they have the same period, pattern, zone and function."""
        return self._parts() == other._parts() if isinstance(other, GroupBy) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash of period and pattern."""
        return hash(self._parts()[:2])

    def __repr__(self) -> str:
        """Show what it groups by."""
        parts = [] if self._pattern is None else [f"zone={str(self._zone)!r}"]
        if self._pattern is not None:
            parts.append(f"pattern={self._pattern.pattern!r}")
        if self._function is not None:
            parts.append(getattr(self._function, "__qualname__", repr(self._function)))
        return f"{type(self).__name__}.{self._period or 'key'}({', '.join(parts)})"


def _check_pattern(period: Period, pattern: DatePattern) -> None:
    """Raise unless each period has exactly one text, which no other period shares."""
    finer = UNITS[UNITS.index(period) + 1 :]
    if pattern.finest in finer:
        rule = (
            f"must have no field shorter than a {period}: its text would change within a {period}"
        )
        raise InvalidArgumentError("pattern", pattern.pattern, rule)
    periods: dict[str, date] = {}
    for first in SAMPLE:
        if (period == "year" and first.month > 1) or (period != "day" and first.day > 1):
            continue
        other = periods.setdefault(pattern.format(first), first)
        if other is not first:
            rule = (
                f"must tell all {period}s apart: {other:%Y-%m-%d} and {first:%Y-%m-%d} have the "
                "same text, and the counter would run on instead of restarting"
            )
            raise InvalidArgumentError("pattern", pattern.pattern, rule)
