"""The ranges of arguments that every store checks, in one wording."""

from __future__ import annotations

from typing import Final

from ..abc import MAX_ID
from ..errors import InvalidArgumentError

__all__ = ("MAX_MS", "check_above", "check_step")

MAX_MS: Final = 2**53 - 1
"""What a number of Lua holds exactly: the latest time that is kept of a machine id, in milliseconds
since 1970."""


def check_step(step: object) -> None:
    """Raise `InvalidArgumentError` unless it is an integer of at least 1.

    One above 2^63-1 is an integer too, and an overflow of whatever counter.
    """
    # bool is an int to isinstance; a step of True is a mistake all the same.
    if type(step) is not int or step < 1:
        raise InvalidArgumentError("step", step, expected="an integer, at least 1")


def check_above(above: object) -> None:
    """Raise `InvalidArgumentError` unless it is an integer that a counter may hold."""
    if type(above) is not int or not 0 <= above <= MAX_ID:
        raise InvalidArgumentError("above", above, expected=f"an integer from 0 to {MAX_ID}")
