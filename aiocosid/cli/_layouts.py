"""The layout for a command's options.  A missing option is an error, never a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgumentError
from ..snowflake import LAYOUTS, SnowflakeLayout

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("AS_NAMED", "DEFAULT_LAYOUT", "OwnLayout", "layout_of")

DEFAULT_LAYOUT: Final = "cosid-ms"

BITS: Final = re.compile(r"([0-9]{1,2})/(?:([0-9]{1,2})/)?([0-9]{1,2})/([0-9]{1,2})")
UNIT: Final = re.compile(r"([1-9][0-9]{0,8})?(ms|s)")
INTEGER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLayout:
    """The user's options for a layout, except its name, as they were typed.

    Attributes:
        bits: the widths, for a layout without a name.
        unit: the length of its tick.
        epoch: the start of its time.
    """

    bits: str | None = None
    unit: str | None = None
    epoch: str | None = None


AS_NAMED: Final = OwnLayout()


def layout_of(
    name: str | None, own: OwnLayout = AS_NAMED, *, also: Iterable[str] = ()
) -> SnowflakeLayout:
    """Return a predefined layout, with its own epoch or the user's, or the user's own layout.

    Args:
        name: the name of a predefined layout; None for the default, or if ``own`` has bits.
        own: the user's other options.
        also: further names that the command accepts, for the error.

    Raises:
        InvalidArgumentError: there is no layout of that name, the options exclude each other, or
            one of them is malformed.
    """
    if own.bits is not None:
        return _make_layout(own.bits, name, own)
    if own.unit is not None:
        expected = "given with --bits: a predefined layout has its own unit"
        raise InvalidArgumentError("--unit", own.unit, expected=expected)
    name = DEFAULT_LAYOUT if name is None else name
    if name not in LAYOUTS:
        expected = f"one of {', '.join((*LAYOUTS, *also))}"
        raise InvalidArgumentError("layout", name, expected=expected)
    return LAYOUTS[name] if own.epoch is None else _moved(LAYOUTS[name], _epoch_of(own.epoch))


def _make_layout(bits: str, name: str | None, own: OwnLayout) -> SnowflakeLayout:
    if name is not None:
        expected = "given without --layout: both define the layout"
        raise InvalidArgumentError("--bits", bits, expected=expected)
    if own.unit is None or own.epoch is None:
        expected = "given with --unit and --epoch: bits alone do not define the time"
        raise InvalidArgumentError("--bits", bits, expected=expected)
    found = BITS.fullmatch(bits)
    if found is None:
        expected = (
            "the bits of time, machine id and sequence as 41/10/12, or of time, region, worker and "
            "sequence as 41/5/5/12"
        )
        raise InvalidArgumentError("--bits", bits, expected=expected)
    time, region, worker, sequence = (int(each or 0) for each in found.groups())
    unit, epoch = _unit_of(own.unit), _epoch_of(own.epoch)
    return SnowflakeLayout(time, region + worker, sequence, unit, epoch, region_bits=region)


def _moved(layout: SnowflakeLayout, epoch: datetime | int) -> SnowflakeLayout:
    """Return the layout with another epoch, and without its remedy, which may not apply."""
    return SnowflakeLayout(
        layout.timestamp_bits,
        layout.machine_bits,
        layout.sequence_bits,
        timedelta(milliseconds=layout.unit_ms),
        epoch,
        region_bits=layout.region_bits,
        sequence_first=layout.sequence_first,
        name=layout.name,
    )


def _unit_of(text: str) -> timedelta:
    found = UNIT.fullmatch(text)
    if found is None:
        expected = "ms, 10ms, s, or another number of ms or s, as 500ms"
        raise InvalidArgumentError("--unit", text, expected=expected)
    count = int(found[1] or 1)
    return timedelta(milliseconds=count) if found[2] == "ms" else timedelta(seconds=count)


def _epoch_of(text: str) -> datetime | int:
    if INTEGER.fullmatch(text):
        return int(text)
    try:
        epoch = datetime.fromisoformat(text)
    except ValueError:
        expected = "a time as 2020-01-01T00:00:00Z, or an integer of milliseconds since 1970"
        raise InvalidArgumentError("--epoch", text, expected=expected) from None
    if epoch.tzinfo is None:
        time = epoch.isoformat()
        expected = f"given with its offset: {time}Z if it is in UTC, or as {time}+08:00"
        raise InvalidArgumentError("--epoch", text, expected=expected)
    return epoch
