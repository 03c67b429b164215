"""Snowflakes by their time, as conditions of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement

    from ...snowflake import SnowflakeLayout

__all__ = ("made_between",)


def made_between(
    column: ColumnElement[Any] | Any,  # noqa: ANN401 - a mapped attribute has a type of its own
    layout: SnowflakeLayout,
    start: datetime,
    end: datetime,
) -> ColumnElement[bool]:
    """Return the condition that an id was made at or after a time, and before another.

    It compares the column with two numbers, so the primary key's index answers it.

    Args:
        column: the column of Snowflakes.
        layout: their layout.
        start: an aware datetime; its whole tick counts.
        end: an aware datetime; its tick does not count.

    Raises:
        InvalidArgumentError: a time is naive, or after the layout's last tick.
    """
    return and_(column >= layout.lowest(start), column < layout.lowest(end))
