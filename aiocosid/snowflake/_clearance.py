"""Whether ids of a layout can equal ids that exist.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..abc._ids import check_integer
from ..errors import InvalidArgumentError
from ._calendar import iso_text

if TYPE_CHECKING:
    from ._layout import SnowflakeLayout

__all__ = ("Clearance", "clearance")


@dataclass(frozen=True, slots=True)
class Clearance:
    """On which side of the ids that exist the new ones lie, and for how long.

    Attributes:
        side: whether they are all above them, or all below.
        until_ms: from when on an id could equal one that exists, unix time in milliseconds; None if
            that is never so.
        until: the same as ISO 8601 in UTC, or "the end of the layout".
    """

    side: Literal["above", "below"]
    until_ms: int | None
    until: str


def clearance(layout: SnowflakeLayout, *, lowest: int, highest: int, now_ms: int) -> Clearance:
    """Tell whether a layout can follow on ids that exist, whatever made them.

    New ids are safe if all of them are above the highest one that exists, or below the lowest.  Ids
    in between could be free, but nobody can tell from the bits.

    Args:
        layout: makes the new ids, from now on.
        lowest: the lowest id that exists, above 0; ``SELECT MIN(id)`` of all tables that have them.
        highest: the highest one.  Old generators must not run any more, or it would rise.
        now_ms: the wall clock, unix time in milliseconds.  Nobody makes ids of an earlier time.

    Raises:
        InvalidArgumentError: ids of the layout could equal ids that exist.
    """
    check_integer("lowest", lowest, at_least=1)
    check_integer("highest", highest, at_least=lowest)
    layout.check_usable(now_ms)
    next_tick = layout.tick_at(now_ms)
    if layout.compose(next_tick, 0, 0) > highest:
        return Clearance("above", None, "the end of the layout")
    # Ids of a tick are below the first one of the next.
    first_unsafe = lowest // layout.compose(1, 0, 0)
    if first_unsafe > layout.last_tick:
        return Clearance("below", None, "the end of the layout")
    if first_unsafe > next_tick:
        until_ms = layout.ms_of(first_unsafe)
        return Clearance("below", until_ms, iso_text(until_ms))
    raise InvalidArgumentError(
        "layout",
        layout,
        expected="one whose ids of now on are all above the highest id that exists, or below the "
        f"lowest, which has {lowest.bit_length()} bits: other widths, another epoch or a new table",
    )
