"""Builds the layout, text or groups of a generator, as settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...abc.dates import iso_text
from ...errors import InvalidArgumentError
from ...errors.base import did_you_mean
from ...segment import GroupBy
from ...snowflake import (
    LAYOUTS,
    CosIdFriendlyText,
    CosIdRadixText,
    ShardedLayout,
    SnowflakeLayout,
)

if TYPE_CHECKING:
    from ...snowflake import CosIdText
    from ._generators import CosIdSettings, GroupedSettings, ShardedSettings
    from ._texts import LayoutSettings

__all__ = (
    "check_layout",
    "group_by_of",
    "layout_of",
    "sharded_layout_of",
    "text_of",
)

OWN: Final = ("timestamp_bits", "machine_bits", "sequence_bits", "unit", "epoch")


def layout_of(section: LayoutSettings) -> SnowflakeLayout:
    """Return a ready-made layout, with its own epoch or another, or a layout of the user's bits.

    Raises:
        InvalidArgumentError: there is none of that name, or the keys do not go together.
    """
    if section.name is None:
        return _made(section)
    if section.name not in LAYOUTS:
        expected = f"one of {', '.join(LAYOUTS)}{did_you_mean(section.name, LAYOUTS)}"
        raise InvalidArgumentError("name", section.name, expected=expected)
    others = section.model_fields_set - {"name", "epoch"}
    if others:
        key = min(others)
        expected = f"left out: {section.name!r} says how ids are put together"
        raise InvalidArgumentError(key, getattr(section, key), expected=expected)
    layout = LAYOUTS[section.name]
    if section.epoch is None:
        return layout
    return layout.with_epoch(section.epoch)


def _made(section: LayoutSettings) -> SnowflakeLayout:
    for key in OWN:
        if getattr(section, key) is None:
            expected = f"given, as {', '.join(OWN)} all are, or else name alone"
            raise InvalidArgumentError(key, None, expected=expected)
    return SnowflakeLayout(
        section.timestamp_bits or 0,
        section.machine_bits or 0,
        section.sequence_bits or 0,
        section.unit or "ms",
        section.epoch,
        region_bits=section.region_bits or 0,
        sequence_first=section.sequence_first or False,
    )


def check_layout(layout: SnowflakeLayout, now_ms: int) -> None:
    """Raise unless ids can be made now."""
    if now_ms < layout.epoch_ms:
        expected = f"at or before the wall clock, which says {iso_text(now_ms)}"
        raise InvalidArgumentError("epoch", iso_text(layout.epoch_ms), expected=expected)
    if now_ms >= layout.ms_of(layout.last_tick + 1):
        raise layout._expired()


def text_of(section: CosIdSettings) -> CosIdText:
    """Return the text format of a CosIdGenerator.

    Raises:
        InvalidArgumentError: the keys do not go together, or a width is out of range.
    """
    bits = {
        "timestamp_bits": section.timestamp_bits,
        "machine_bits": section.machine_bits,
        "sequence_bits": section.sequence_bits,
    }
    if section.text == "friendly":
        if section.zone is None:
            expected = "given for friendly text, as 'UTC' or '+08:00'"
            raise InvalidArgumentError("zone", None, expected=expected)
        pad = True if section.pad_start is None else section.pad_start
        return CosIdFriendlyText(zone=section.zone, pad=pad, **bits)
    for key in ("zone", "pad_start"):
        if getattr(section, key) is not None:
            expected = "left out: it goes with text = 'friendly'"
            raise InvalidArgumentError(key, getattr(section, key), expected=expected)
    return CosIdRadixText(62 if section.text == "radix62" else 36, **bits)


def sharded_layout_of(section: ShardedSettings, now_ms: int) -> ShardedLayout:
    """Return the layout, if ids can be made now.

    Raises:
        InvalidArgumentError: the keys do not go together, or the epoch is yet to come.
        LayoutExpiredError: the layout has ended.
    """
    layout = ShardedLayout(
        section.epoch,
        timestamp_bits=section.timestamp_bits,
        sharding_bits=section.sharding_bits,
        sequence_bits=section.sequence_bits,
        zone=section.zone,
    )
    check_layout(layout.bits, now_ms)
    return layout


def group_by_of(section: GroupedSettings) -> GroupBy:
    """Return the rule that names the group of a call.

    Raises:
        InvalidArgumentError: a key is missing, goes with others, or has a value that does not fit.
    """
    by_key = section.group_by == "key"
    needed = "key" if by_key else "zone"
    if getattr(section, needed) is None:
        expected = f"given with group_by = '{section.group_by}'"
        raise InvalidArgumentError(needed, None, expected=expected)
    if section.key is None or not by_key:
        pattern = {} if section.pattern is None else {"pattern": section.pattern}
        make = getattr(GroupBy, section.group_by)
        made: GroupBy = make(zone=section.zone, within=section.key, **pattern)
        return made
    for name in ("zone", "pattern"):
        if (value := getattr(section, name)) is not None:
            expected = "left out: it goes with group_by = 'year', 'month' or 'day'"
            raise InvalidArgumentError(name, value, expected=expected)
    return GroupBy.key(section.key)
