"""Snowflake ids as people read them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..abc import IdConverter
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..snowflake import FriendlyText

__all__ = ("SnowflakeFriendlyIdConverter",)


@dataclass(frozen=True, slots=True)
class SnowflakeFriendlyIdConverter(IdConverter):
    """Writes ``20211228202301948-0-0``.  CosId's SnowflakeFriendlyIdConverter.

    An id whose local time occurs twice, when clocks are put back, has no text: use UTC or a fixed
    offset to have texts for all ids.

    Attributes:
        text: layout, zone and padding; with padding, texts sort like ids in a zone that keeps one
            offset.
    """

    is_timeless: ClassVar[bool] = True

    text: FriendlyText

    def __post_init__(self) -> None:
        """Check the settings."""
        _check_text(self.text)

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id of the layout."""
        return self.text.as_text(new_id)

    def as_int(self, text: str, /) -> int:
        """Return the id of a text, padded or not."""
        return self.text.as_id(text)

    def as_tree(self) -> dict[str, object]:
        """Return kind, padding, and the digits of the highest machine id and sequence."""
        layout = self.text.layout
        return {
            "kind": type(self).__name__,
            "padStart": self.text.pad,
            "machineCharSize": len(str(layout.machine_count - 1)),
            "sequenceCharSize": len(str(layout.max_sequence)),
        }


def _check_text(text: object) -> None:
    """Raise unless it is a FriendlyText, without importing the Snowflake generators."""
    if isinstance(text, type) or not hasattr(text, "as_text"):
        expected = "a FriendlyText, as FriendlyText(COSID_MS, zone='UTC')"
        raise InvalidArgumentError("text", text, expected=expected)
