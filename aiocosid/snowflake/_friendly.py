"""CosId's friendly text, ``20211228202301948-0-0``: writing and reading.  Pure.

A local time occurs twice when the clocks go back, and then its text is ambiguous.  CosId writes
such a text anyway and reads it as the earlier id; here it is neither written nor read.  To write
ids at all times, use UTC or a fixed offset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ..abc.dates import UNIX_EPOCH, resolve_zone
from ..errors import InvalidArgumentError, InvalidIdError

if TYPE_CHECKING:
    from datetime import tzinfo

    from ._layout import SnowflakeLayout

__all__ = (
    "FriendlyText",
    "read_friendly",
    "write_friendly",
)

SECOND_MS: Final = 1000

FRIENDLY: Final = re.compile(r"([0-9]{14}(?:[0-9]{3})?)-([0-9]+)-([0-9]+)")


@dataclass(frozen=True, slots=True, init=False)
class FriendlyText:
    """Writes and reads the ids of one layout as ``yyyyMMddHHmmssSSS-machine-sequence``.

    Where a tick is a whole number of seconds, the milliseconds are left out, as in CosId.

    Attributes:
        layout: the layout of the ids.
        zone: the zone of the local time.
        pad: whether machine id and sequence have as many digits as their highest value, so that
            texts of one zone offset sort like ids.
    """

    layout: SnowflakeLayout
    zone: tzinfo
    pad: bool

    def __init__(self, layout: SnowflakeLayout, *, zone: tzinfo | str, pad: bool = False) -> None:
        """Set the layout, the zone and the form.

        Args:
            layout: the layout of the ids.
            zone: a tzinfo, or a name such as "Asia/Shanghai", "UTC" or "+08:00"; CosId uses the
                host's zone, so two hosts may write different texts.
            pad: see the attribute; both forms are read.

        Raises:
            InvalidArgumentError: the zone is unknown.
        """
        for name, value in (("layout", layout), ("zone", resolve_zone(zone)), ("pad", pad)):
            object.__setattr__(self, name, value)

    def as_text(self, snowflake_id: int) -> str:
        """Return the text of an id.

        Raises:
            InvalidIdError: it is not an id of the layout, or its local time occurs twice.
        """
        parts = self.layout.parse(snowflake_id, self.zone)
        fields = (parts.machine_id, parts.sequence)
        return write_friendly(parts.timestamp, *fields, self.layout, pad=self.pad, of=snowflake_id)

    def as_id(self, text: str, *, fold: int | None = None) -> int:
        """Return the id of a text.

        Args:
            text: as `as_text` writes it, padded or not.
            fold: which one of a local time that occurs twice: 0 for the earlier one, which CosId
                takes, or 1 for the later one; None refuses such a time.

        Raises:
            InvalidIdError: it is not the text of an id of the layout, or its local time does not
                exist in the zone, or occurs twice.
            InvalidArgumentError: ``fold`` is something else.
        """
        layout = self.layout
        timestamp_ms, machine_id, sequence = read_friendly(text, layout, self.zone, fold)
        tick = layout.tick_at(timestamp_ms)
        if not 0 <= tick <= layout.last_tick or layout.ms_of(tick) != timestamp_ms:
            raise InvalidIdError("id", text, f"must be a string whose time is a tick of {layout!r}")
        return layout.compose(tick, machine_id, sequence)


def write_friendly(
    local: datetime,
    machine_id: int,
    sequence: int,
    layout: SnowflakeLayout,
    *,
    pad: bool,
    of: object,
) -> str:
    """Return the text of three fields; ``of`` is the id or state, for the error.

    Raises:
        InvalidIdError: the local time occurs twice.
    """
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        rule = (
            f"has no clear text: its local time in {local.tzinfo}, {local:%Y-%m-%d %H:%M:%S}, "
            "occurs twice; write it in UTC or at a fixed offset"
        )
        raise InvalidIdError("id", of, rule)
    # Not strftime, which on Linux writes the year 1 as "1".
    timespec = "milliseconds" if layout.unit_ms % SECOND_MS else "seconds"
    time = local.replace(tzinfo=None).isoformat(timespec=timespec).translate(NO_MARKS)
    if pad:
        highest = (layout.machine_count - 1, layout.max_sequence)
        return f"{time}-{machine_id:0{_digits(highest[0])}}-{sequence:0{_digits(highest[1])}}"
    return f"{time}-{machine_id}-{sequence}"


NO_MARKS: Final = str.maketrans("", "", "-:T.")


def read_friendly(
    text: object, layout: SnowflakeLayout, zone: tzinfo, fold: int | None
) -> tuple[int, int, int]:
    """Return unix time in milliseconds, machine id and sequence of a text.

    Unlike CosId it refuses spaces, signs, doubled hyphens and full-width digits.

    Raises:
        InvalidIdError: it has another form, a field is not within its bits, or its local time does
            not exist, or occurs twice and no ``fold`` says which one is meant.
        InvalidArgumentError: ``fold`` is neither 0 nor 1 nor None.
    """
    if fold not in {None, 0, 1}:
        raise InvalidArgumentError("fold", fold, "must be 0, 1 or None")
    width = 17 if layout.unit_ms % SECOND_MS else 14
    found = FRIENDLY.fullmatch(text) if isinstance(text, str) else None
    if found is None or len(found[1]) != width:
        form = "yyyyMMddHHmmssSSS"[:width]
        raise InvalidIdError("id", text, f"must be {form}-machine-sequence in digits")
    numbers: list[int] = []
    for digits, highest in ((found[2], layout.machine_count - 1), (found[3], layout.max_sequence)):
        if len(digits) > _digits(highest) or int(digits) > highest:
            rule = f"must have at most {highest} in place of {digits[:20]}"
            raise InvalidIdError("id", text, rule)
        numbers.append(int(digits))
    return _read_time(text, found[1], zone, fold), numbers[0], numbers[1]


def _read_time(text: object, time: str, zone: tzinfo, fold: int | None) -> int:
    """Return the unix time in milliseconds of 14 or 17 digits of local time."""
    year, month, day = int(time[:4]), int(time[4:6]), int(time[6:8])
    hour, minute, second, micros = int(time[8:10]), int(time[10:12]), int(time[12:14]), time[14:]
    try:
        naive = datetime(year, month, day, hour, minute, second, int(micros or 0) * 1000)  # noqa: DTZ001 - the zone follows
        moments = [naive.replace(tzinfo=zone, fold=each).astimezone(UTC) for each in (0, 1)]
        exists = any(moment.astimezone(zone).replace(tzinfo=None) == naive for moment in moments)
    except (ValueError, OverflowError):
        raise InvalidIdError("id", text, "must have a date and a time that exist") from None
    if not exists:
        rule = f"must have a local time that exists: the clocks of {zone} skip this one"
        raise InvalidIdError("id", text, rule)
    if moments[0] != moments[1] and fold is None:
        rule = f"has a local time that occurs twice in {zone}; read it with fold=0 or fold=1"
        raise InvalidIdError("id", text, rule)
    return (moments[fold or 0] - UNIX_EPOCH) // timedelta(milliseconds=1)


def _digits(highest: int) -> int:
    return len(str(highest))
