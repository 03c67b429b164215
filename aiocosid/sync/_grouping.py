"""Checks that threads use groups by date only."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgumentError
from ..segment import GroupedSegmentId

__all__ = ("check_groups",)


def check_groups(generator: Any) -> None:  # noqa: ANN401 - or a wrapped one
    """Raise for groups by a function, which would not run in the caller's thread or context."""
    if isinstance(generator, GroupedSegmentId):
        if not generator.group_by.is_by_date_alone:
            rule = (
                "must group by date alone: a key function would be called on the background loop, "
                "outside the caller's context; take a generator with a name of its own for each "
                "key"
            )
            raise InvalidArgumentError("group_by", generator.group_by, rule)
    elif (inner := getattr(generator, "_inner", None)) is not None:
        check_groups(inner)
