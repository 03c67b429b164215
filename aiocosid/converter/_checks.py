"""Checks of arguments and ids that all converters share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc import MAX_ID, IdConverter
from ..errors import InvalidArgumentError, InvalidIdError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("are_plain", "check_affix", "check_converter", "check_flag", "check_id", "text_of")


def check_id(new_id: object, *, at_most: int = MAX_ID, remedy: str = "") -> None:
    """Raise unless it is an id from 0 to a limit; ``remedy`` names a converter for higher ids."""
    # isinstance accepts a bool as an int, but a bool is not an id.
    if isinstance(new_id, int) and not isinstance(new_id, bool) and 0 <= new_id <= at_most:
        return
    rule = f"must be an integer from 0 to {at_most}"
    if remedy and isinstance(new_id, int) and at_most < new_id <= MAX_ID:
        rule += f": {remedy}"
    raise InvalidIdError("id", new_id, rule)


def are_plain(ids: Sequence[int], *, at_most: int = MAX_ID) -> bool:
    """Return whether all are an `int` from 0 to a limit, fast; False if there are none."""
    return set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= at_most


def text_of(text: object) -> str:
    """Return the argument; raise unless it is a string."""
    if not isinstance(text, str):
        raise InvalidIdError("id", text, "must be a string")
    return text


def check_converter(inner: object, argument: str = "inner") -> None:
    """Raise unless it is a converter."""
    if not isinstance(inner, IdConverter):
        raise InvalidArgumentError(argument, inner, "must be an IdConverter")


def check_affix(argument: str, value: object) -> None:
    """Raise unless it is a string; it may be empty."""
    if not isinstance(value, str):
        raise InvalidArgumentError(argument, value, "must be a string")


def check_flag(argument: str, value: object) -> None:
    """Raise unless it is True or False."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(argument, value, "must be True or False")
