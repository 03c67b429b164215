"""The fields of an id, and the layout that the options of a command describe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidArgumentError, InvalidIdError
from ..errors.base import one_of
from ..snowflake import (
    COSID_MS,
    LAYOUTS,
    RADIX36,
    RADIX62,
    CosIdFriendlyText,
    FriendlyText,
    SnowflakeLayout,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..snowflake import CosIdState, SnowflakeParts

__all__ = (
    "AS_NAMED",
    "UNIX_EPOCH",
    "OwnLayout",
    "Parsed",
    "last_ms_of",
    "layout_of",
    "parsed",
    "time_ms",
)

BITS: Final = re.compile(r"([0-9]{1,2})/(?:([0-9]{1,2})/)?([0-9]{1,2})/([0-9]{1,2})")
UNIT: Final = re.compile(r"([1-9][0-9]{0,8})?(ms|s)")
INTEGER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLayout:
    """The options of a layout other than its name, as the user typed them.

    Attributes:
        bits: the widths, for a custom layout.
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
    """Return a predefined layout, optionally with another epoch, or a custom layout.

    Args:
        name: the name of a predefined layout; None for the default, or if ``own`` has bits.
        own: the user's other options.
        also: other names that the command accepts, for the error message.

    Raises:
        InvalidArgumentError: there is no layout of that name, the options exclude each other, or
            one of them is malformed.
    """
    if own.bits is not None:
        return _make_layout(own.bits, name, own)
    if own.unit is not None:
        rule = "requires --bits: a predefined layout has its own unit"
        raise InvalidArgumentError("--unit", own.unit, rule)
    if name is not None and name not in LAYOUTS:
        raise InvalidArgumentError("layout", name, one_of((*LAYOUTS, *also), name))
    layout = COSID_MS if name is None else LAYOUTS[name]
    return layout if own.epoch is None else layout.with_epoch(_epoch_of(own.epoch))


def _make_layout(bits: str, name: str | None, own: OwnLayout) -> SnowflakeLayout:
    if name is not None:
        rule = "cannot be combined with --layout: both define the layout"
        raise InvalidArgumentError("--bits", bits, rule)
    if own.unit is None or own.epoch is None:
        rule = "requires --unit and --epoch: bits alone do not define the time"
        raise InvalidArgumentError("--bits", bits, rule)
    found = BITS.fullmatch(bits)
    if found is None:
        rule = (
            "must be the bits of time, machine id and sequence, such as 41/10/12, or of time, "
            "region, worker and sequence, such as 41/5/5/12"
        )
        raise InvalidArgumentError("--bits", bits, rule)
    time, region, worker, sequence = (int(each or 0) for each in found.groups())
    unit, epoch = _unit_of(own.unit), _epoch_of(own.epoch)
    return SnowflakeLayout(time, region + worker, sequence, unit, epoch, region_bits=region)


def _unit_of(text: str) -> timedelta:
    found = UNIT.fullmatch(text)
    if found is None:
        rule = "must be ms, s, or a number of them such as 10ms"
        raise InvalidArgumentError("--unit", text, rule)
    count = int(found[1] or 1)
    return timedelta(milliseconds=count) if found[2] == "ms" else timedelta(seconds=count)


def _epoch_of(text: str, option: str = "--epoch") -> datetime | int:
    if INTEGER.fullmatch(text):
        return int(text)
    try:
        epoch = datetime.fromisoformat(text)
    except ValueError:
        rule = "must be a time such as 2020-01-01T00:00:00Z, or milliseconds since 1970"
        raise InvalidArgumentError(option, text, rule) from None
    if epoch.tzinfo is None:
        time = epoch.isoformat()
        rule = f"has no UTC offset; write {time}Z if it is in UTC, or as {time}+08:00"
        raise InvalidArgumentError(option, text, rule)
    return epoch


def time_ms(text: str, option: str) -> int:
    """Return the unix time in milliseconds of a text: ISO 8601 with an offset, or milliseconds.

    Raises:
        InvalidArgumentError: the text is not a time, or has no offset.
    """
    moment = _epoch_of(text, option)
    if isinstance(moment, datetime):
        return (moment - UNIX_EPOCH) // timedelta(milliseconds=1)
    return moment


def last_ms_of(text: str, layout: SnowflakeLayout) -> int:
    """Return the last millisecond of the tick in which an id was made.

    Raises:
        InvalidIdError: the text is not an id of the layout.
    """
    return layout.parse(_id_of(text, layout)).timestamp_ms + layout.unit_ms - 1


TEXTS: Final = {"cosid-radix62": RADIX62, "cosid-radix36": RADIX36}
"""CosIdGenerator's texts, whose ids do not fit a number."""

NUMBER: Final = re.compile(r"[0-9]{1,19}")
FRIENDLY_ZONE: Final = "UTC"
"""The default zone of friendly text: the same on every host."""

UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The fields of an id.

    Attributes:
        layout: the layout with which the id was read: its name, or its description.
        id: the number; None for CosIdGenerator's ids, which do not fit an int64.
        text: CosIdGenerator's text; None for a number.
        timestamp_ms: when its tick began, unix time in milliseconds.
        utc: the same time in UTC, ISO 8601.
        local: the same time in the requested zone, or in the system's zone.
        machine_id: the machine that made it.
        region: the upper part of the machine id, in a layout with regions.
        worker: the lower part of it.
        sequence: its number within tick and machine.
        friendly: the friendly text in the requested zone, or in UTC; None if its local time occurs
            twice.
        zone: the zone of the friendly text.
    """

    layout: str
    id: int | None = None
    text: str | None = None
    timestamp_ms: int
    utc: str
    local: str
    machine_id: int
    region: int | None = None
    worker: int | None = None
    sequence: int
    friendly: str | None
    zone: str

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of a table, without the fields that the layout does not have."""
        yield "layout", self.layout
        for name, value in (("id", self.id), ("text", self.text)):
            if value is not None:
                yield name, str(value)
        yield "UTC", self.utc
        yield "local", self.local
        yield "timestamp in ms", str(self.timestamp_ms)
        yield "machine id", str(self.machine_id)
        for name, part in (("region", self.region), ("worker", self.worker)):
            if part is not None:
                yield name, str(part)
        yield "sequence", str(self.sequence)
        yield f"friendly text ({self.zone})", self.friendly or "- (that local time occurs twice)"


def parsed(text: str, layout: str | None, zone: str | None, own: OwnLayout = AS_NAMED) -> Parsed:
    """Parse an id: a number, a friendly text, or a text of CosIdGenerator.

    Args:
        text: the id.
        layout: the name of a predefined layout, or of one of CosIdGenerator's texts; None for the
            default, or for the user's own layout.
        zone: the zone of local time and friendly text; None for the system's zone and UTC.
        own: the user's other options for the layout.

    Raises:
        InvalidIdError: the text is not an id of the layout.
        InvalidArgumentError: the layout or the zone is unknown, or ``own`` is not allowed with it.
    """
    if layout in TEXTS:
        if own != AS_NAMED:
            rule = "cannot be combined with --bits, --unit or --epoch: its text counts from 1970"
            raise InvalidArgumentError("--layout", layout, rule)
        return _text(text, layout, zone)
    return _number(text, layout_of(layout, own, also=TEXTS), zone)


def _id_of(text: str, layout: SnowflakeLayout, zone: str | None = None) -> int:
    if "-" in text:
        return FriendlyText(layout, zone=zone or FRIENDLY_ZONE).as_id(text)
    if NUMBER.fullmatch(text):
        return int(text)
    rule = f"must be digits or friendly text, or a text with --layout {' or '.join(TEXTS)}"
    raise InvalidIdError("id", text, rule)


def _number(text: str, layout: SnowflakeLayout, zone: str | None) -> Parsed:
    friendly = FriendlyText(layout, zone=zone or FRIENDLY_ZONE)
    number = _id_of(text, layout, zone)
    parts = layout.parse(number)
    own: dict[str, Any] = {"layout": _described(layout), "id": number}
    own |= {"region": parts.region, "worker": parts.worker}
    return _parsed(parts, friendly, number, zone, **own)


def _text(text: str, layout: str, zone: str | None) -> Parsed:
    radix = TEXTS[layout]
    friendly = CosIdFriendlyText(zone=zone or FRIENDLY_ZONE)
    state = friendly.as_state(text) if "-" in text else radix.as_state(text)
    return _parsed(state, friendly, state, zone, layout=layout, text=radix.as_text(state))


def _parsed(
    parts: SnowflakeParts | CosIdState,
    friendly: FriendlyText | CosIdFriendlyText,
    what: Any,  # noqa: ANN401 - that of the friendly text
    zone: str | None,
    **own: Any,  # noqa: ANN401 - the other fields
) -> Parsed:
    moment = UNIX_EPOCH + timedelta(milliseconds=parts.timestamp_ms)
    try:
        shown = friendly.as_text(what)
    except InvalidIdError:  # its local time occurs twice
        shown = None
    return Parsed(
        timestamp_ms=parts.timestamp_ms,
        utc=_iso(moment),
        local=_iso(moment.astimezone(friendly.zone if zone else None)),
        machine_id=parts.machine_id,
        sequence=parts.sequence,
        friendly=shown,
        zone=zone or FRIENDLY_ZONE,
        **own,
    )


def _described(layout: SnowflakeLayout) -> str:
    """Return the name of a predefined layout, or the full description of another one."""
    if LAYOUTS.get(layout.name) == layout:
        return layout.name
    return repr(layout)[1:-1].removeprefix("SnowflakeLayout ")


def _iso(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="milliseconds")
