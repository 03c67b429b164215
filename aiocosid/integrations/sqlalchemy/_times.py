"""Query conditions on the time in Snowflake ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement

    from ...snowflake import SnowflakeLayout

__all__ = ("made_between",)


def made_between(
    column: ColumnElement[Any] | Any,  # noqa: ANN401 - a mapped attribute has its own type
    layout: SnowflakeLayout,
    start: datetime,
    end: datetime,
) -> ColumnElement[bool]:
    """Return the condition that an id was created at or after one time, and before another.

    It compares the column with two numbers, so it can use the primary key's index.

    Args:
        column: the column of Snowflakes.
        layout: the Snowflakes' layout.
        start: an aware datetime; its whole tick is included.
        end: an aware datetime; its tick is excluded.

    Raises:
        InvalidArgumentError: a time is naive, or after the layout's last tick.
    """
    return and_(column >= layout.lowest(start), column < layout.lowest(end))
