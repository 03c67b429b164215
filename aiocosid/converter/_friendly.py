"""Snowflake ids as people read them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..abc import IdConverter

if TYPE_CHECKING:
    from ..snowflake import FriendlyText

__all__ = ("SnowflakeFriendlyIdConverter",)


@dataclass(frozen=True, slots=True)
class SnowflakeFriendlyIdConverter(IdConverter):
    """Writes ``20211228202301948-0-0``.  CosId's SnowflakeFriendlyIdConverter.

    An id whose local time occurs twice has no text: take UTC or a fixed offset for ids of all the
    year round.

    Attributes:
        text: layout, zone and padding; with padding, texts sort like ids in a zone that keeps one
            offset.
    """

    text: FriendlyText

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id of the layout."""
        return self.text.as_text(new_id)

    def as_int(self, text: str, /) -> int:
        """Return the id of a text, padded or not."""
        return self.text.as_id(text)

    def as_tree(self) -> dict[str, Any]:
        """Return kind and padding."""
        return {"kind": type(self).__name__, "padStart": self.text.pad}
