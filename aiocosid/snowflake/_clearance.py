"""Whether new ids of a layout can equal existing ids.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..abc.checks import check_integer
from ..abc.dates import iso_text
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ._layout import SnowflakeLayout

__all__ = ("Clearance", "clearance")


@dataclass(frozen=True, slots=True)
class Clearance:
    """Whether the new ids are above or below the existing ones, and for how long.

    Attributes:
        side: whether all new ids are above the existing ones, or all below.
        until_ms: the time from which a new id could equal an existing one, unix time in
            milliseconds; None for never.
        until: the same as ISO 8601 in UTC, or "the end of the layout".
    """

    side: Literal["above", "below"]
    until_ms: int | None
    until: str


def clearance(layout: SnowflakeLayout, *, lowest: int, highest: int, now_ms: int) -> Clearance:
    """Check that a layout's new ids cannot equal existing ids of any generator.

    New ids are safe if all of them are above the highest existing id, or below the lowest.  Ids in
    between may be unused, but the bits do not show that.

    Args:
        layout: the layout of the new ids.
        lowest: the lowest existing id, above 0; ``SELECT MIN(id)`` of all tables that have ids.
        highest: the highest existing id.  Old generators must be stopped, or it would rise.
        now_ms: the wall clock, unix time in milliseconds.  New ids have no earlier time.

    Raises:
        InvalidArgumentError: new ids of the layout could equal existing ones.
    """
    check_integer("lowest", lowest, at_least=1)
    check_integer("highest", highest, at_least=lowest)
    layout.check_usable(now_ms)
    next_tick = layout.tick_at(now_ms)
    if layout.compose(next_tick, 0, 0) > highest:
        return Clearance("above", None, "the end of the layout")
    # All ids of a tick are below the first id of the next tick.
    first_unsafe = lowest // layout.compose(1, 0, 0)
    if first_unsafe > layout.last_tick:
        return Clearance("below", None, "the end of the layout")
    if first_unsafe > next_tick:
        until_ms = layout.ms_of(first_unsafe)
        return Clearance("below", until_ms, iso_text(until_ms))
    raise InvalidArgumentError(
        "layout",
        layout,
        "must make only ids above the highest existing id, or below the lowest, which has "
        f"{lowest.bit_length()} bits; take other widths, another epoch or a new table",
    )
