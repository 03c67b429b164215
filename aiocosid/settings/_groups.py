"""Groups as settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InvalidArgumentError
from ..segment import GroupBy

if TYPE_CHECKING:
    from ._generators import GroupedSettings

__all__ = ("group_by_of",)


def group_by_of(section: GroupedSettings) -> GroupBy:
    """Return what says which group a call belongs to.

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
