"""Units and epochs of layouts, and moments as ISO 8601.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from .._dates import LAST_MS, UNIX_EPOCH, moment_of
from ..errors import InvalidArgumentError

__all__ = (
    "PLAINLY_SECONDS",
    "TickUnit",
    "epoch_ms_of",
    "iso_text",
    "unit_ms_of",
    "unit_text",
)

TickUnit: TypeAlias = Literal["ms", "10ms", "s"]
"""The usual lengths of a tick, by name."""

UNITS: Final[dict[str, int]] = {"ms": 1, "10ms": 10, "s": 1000}

# The Gregorian calendar repeats after so many years.
CYCLE_YEARS: Final = 400
CYCLE_MS: Final = 146_097 * 86_400_000

# In milliseconds 1973-03-03, in seconds the year 5138: a lower number was meant as seconds.
PLAINLY_SECONDS: Final = 10**11


def iso_text(ms: int) -> str:
    """Return a unix time in milliseconds as ISO 8601 in UTC; past the year 9999 with a plus."""
    cycles = max(0, ms - LAST_MS + CYCLE_MS - 1) // CYCLE_MS
    moment = moment_of(ms - cycles * CYCLE_MS)
    text = moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    year = f"+{moment.year + cycles * CYCLE_YEARS}" if cycles else text[:4]
    return f"{year}{text[4:].removesuffix('+00:00')}Z"


def unit_ms_of(unit: object) -> int:
    """Return the length of a tick in milliseconds.

    Raises:
        InvalidArgumentError: it is no unit.
    """
    if isinstance(unit, timedelta):
        unit_ms, rest = divmod(unit, timedelta(milliseconds=1))
        if unit_ms >= 1 and not rest:
            return unit_ms
    elif isinstance(unit, str) and unit in UNITS:
        return UNITS[unit]
    expected = "'ms', '10ms', 's' or a timedelta of whole milliseconds, at least one"
    raise InvalidArgumentError("unit", unit, expected=expected)


def unit_text(unit_ms: int) -> str:
    """Return the name of a tick's length."""
    return next((name for name, ms in UNITS.items() if ms == unit_ms), f"{unit_ms}ms")


def epoch_ms_of(epoch: object, unit_ms: int) -> int:
    """Return the epoch in milliseconds since 1970; it has to fit the unit.

    Raises:
        InvalidArgumentError: it is naive, a text, or does not fit.
    """
    if isinstance(epoch, datetime) and epoch.utcoffset() is not None:
        offset = epoch - UNIX_EPOCH
    elif type(epoch) is int and 0 <= epoch <= LAST_MS:
        offset = timedelta(milliseconds=epoch)
        if 0 < epoch < PLAINLY_SECONDS:
            expected = f"in milliseconds since 1970; in seconds it would be {epoch * 1000}"
            raise InvalidArgumentError("epoch", epoch, expected=expected)
    else:
        expected = "an aware datetime, or an integer of milliseconds since 1970"
        raise InvalidArgumentError("epoch", epoch, expected=expected)
    if offset < timedelta(0) or offset % timedelta(milliseconds=unit_ms):
        expected = f"a whole number of the layout's ticks ({unit_ms} ms each) since 1970"
        raise InvalidArgumentError("epoch", epoch, expected=expected)
    return offset // timedelta(milliseconds=1)
