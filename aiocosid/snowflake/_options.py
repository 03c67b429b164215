"""The options of a Snowflake generator, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from ..abc.checks import check_integer, check_seconds
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..abc.events import Instrument
    from ._layout import SnowflakeLayout

__all__ = ("COSID_THRESHOLD", "StampOptions")

COSID_THRESHOLD: Final = -1
"""Stands for half of the sequence, CosId's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StampOptions:
    """The options of `SnowflakeId`, and what its ids are; see there.

    Attributes:
        reset_threshold: `sequence_reset_threshold`, once fitted to a layout.
    """

    name: str
    layout: SnowflakeLayout
    broken_threshold: float | None
    max_forward_jump: float | None
    sequence_reset_threshold: int | None
    random_start: int | None = None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None
    reset_threshold: int | None = None

    def __post_init__(self) -> None:
        """Check what does not depend on the layout."""
        for name in ("broken_threshold", "max_forward_jump"):
            if (value := getattr(self, name)) is not None:
                check_seconds(name, value, or_zero=True)
        for name in ("wait_timeout", "close_timeout"):
            check_seconds(name, getattr(self, name))

    def fitted(self) -> Self:
        """Return the options with the defaults that depend on the layout."""
        layout = self.layout
        given = self.sequence_reset_threshold
        if self.random_start is not None:
            highest = layout.ids_per_tick
            check_integer("random_start", self.random_start, at_least=1, at_most=highest)
            if given not in {COSID_THRESHOLD, None}:
                expected = "left out with random_start: the sequence begins anew in each tick"
                raise InvalidArgumentError("sequence_reset_threshold", given, expected=expected)
            return self
        if given is None:
            return self
        if type(given) is not int or not COSID_THRESHOLD <= given <= layout.max_sequence:
            raise InvalidArgumentError(
                "sequence_reset_threshold",
                given,
                expected=f"0 to {layout.max_sequence}, -1 for CosId's default, or None",
            )
        half = layout.max_sequence >> 1
        return replace(self, reset_threshold=half if given == COSID_THRESHOLD else given)
