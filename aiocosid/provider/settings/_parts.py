"""Builds a generator's layout, text or groups, as settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...abc.dates import iso_text
from ...errors import InvalidArgumentError
from ...errors.base import one_of
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
    """Return a ready-made layout, with its own or another epoch, or a layout of the user's bits.

    Raises:
        InvalidArgumentError: there is no layout with that name, or the keys cannot be combined.
    """
    if section.name is None:
        return _made(section)
    if section.name not in LAYOUTS:
        raise InvalidArgumentError("name", section.name, one_of(LAYOUTS, section.name))
    others = section.model_fields_set - {"name", "epoch"}
    if others:
        key = min(others)
        rule = f"cannot be combined with name = {section.name!r}, which defines the whole layout"
        raise InvalidArgumentError(key, getattr(section, key), rule)
    layout = LAYOUTS[section.name]
    if section.epoch is None:
        return layout
    return layout.with_epoch(section.epoch)


def _made(section: LayoutSettings) -> SnowflakeLayout:
    for key in OWN:
        if getattr(section, key) is None:
            rule = f"is required; give all of {', '.join(OWN)}, or name alone"
            raise InvalidArgumentError(key, None, rule)
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
    """Raise unless the layout can represent the present time."""
    if now_ms < layout.epoch_ms:
        rule = f"must be at or before the wall clock, which shows {iso_text(now_ms)}"
        raise InvalidArgumentError("epoch", iso_text(layout.epoch_ms), rule)
    if now_ms >= layout.ms_of(layout.last_tick + 1):
        raise layout._expired()


def text_of(section: CosIdSettings) -> CosIdText:
    """Return the text format of a CosIdGenerator.

    Raises:
        InvalidArgumentError: the keys cannot be combined, or a width is outside its range.
    """
    bits = {
        "timestamp_bits": section.timestamp_bits,
        "machine_bits": section.machine_bits,
        "sequence_bits": section.sequence_bits,
    }
    if section.text == "friendly":
        if section.zone is None:
            rule = "is required for friendly text, for example 'UTC' or '+08:00'"
            raise InvalidArgumentError("zone", None, rule)
        pad = True if section.pad_start is None else section.pad_start
        return CosIdFriendlyText(zone=section.zone, pad=pad, **bits)
    for key in ("zone", "pad_start"):
        if getattr(section, key) is not None:
            raise InvalidArgumentError(key, getattr(section, key), "requires text = 'friendly'")
    return CosIdRadixText(62 if section.text == "radix62" else 36, **bits)


def sharded_layout_of(section: ShardedSettings, now_ms: int) -> ShardedLayout:
    """Return the layout, if it can represent the present time.

    Raises:
        InvalidArgumentError: the keys cannot be combined, or the epoch is in the future.
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
    """Return the rule that determines the group of a call.

    Raises:
        InvalidArgumentError: a key is missing, cannot be combined with the others, or has a value
            that is not valid.
    """
    by_key = section.group_by == "key"
    needed = "key" if by_key else "zone"
    if getattr(section, needed) is None:
        rule = f"is required with group_by = '{section.group_by}'"
        raise InvalidArgumentError(needed, None, rule)
    if section.key is None or not by_key:
        pattern = {} if section.pattern is None else {"pattern": section.pattern}
        make = getattr(GroupBy, section.group_by)
        made: GroupBy = make(zone=section.zone, within=section.key, **pattern)
        return made
    for name in ("zone", "pattern"):
        if (value := getattr(section, name)) is not None:
            raise InvalidArgumentError(name, value, "requires group_by = 'year', 'month' or 'day'")
    return GroupBy.key(section.key)
