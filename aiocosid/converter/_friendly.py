"""Snowflake ids and sharded ids in a form for people.  No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..abc import IdConverter
from ..errors import InvalidArgumentError, InvalidIdError
from ._checks import check_affix

if TYPE_CHECKING:
    from ..snowflake import FriendlyText, ShardedLayout

__all__ = ("ShardedTextConverter", "SnowflakeFriendlyIdConverter")


@dataclass(frozen=True, slots=True)
class SnowflakeFriendlyIdConverter(IdConverter):
    """Writes ``20211228202301948-0-0``.  CosId's SnowflakeFriendlyIdConverter.

    An id whose local time occurs twice, when clocks are put back, has no text; use UTC or a fixed
    offset to have texts for all ids.

    Attributes:
        text: layout, zone and padding; with padding, texts sort like ids in a zone with a fixed
            offset.
    """

    is_timeless: ClassVar[bool] = True

    text: FriendlyText

    def __post_init__(self) -> None:
        """Check the settings."""
        rule = "must be a FriendlyText, such as FriendlyText(COSID_MS, zone='UTC')"
        _check_has("text", self.text, "as_text", rule)

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


def _check_has(argument: str, value: object, method: str, rule: str) -> None:
    """Raise unless it is an object with a method, without importing the Snowflake generators."""
    if isinstance(value, type) or not hasattr(value, method):
        raise InvalidArgumentError(argument, value, rule)


@dataclass(frozen=True, slots=True)
class ShardedTextConverter(IdConverter):
    """Writes ``202311150613200000420007``: local time, sequence and sharding id of a sharded id.

    The texts are those of `ShardedId.next_str`.  They sort by second, and within a second by
    sequence.

    Attributes:
        layout: the layout of the ids, with the zone of the time.
        prefix: a text before the digits.
    """

    is_timeless: ClassVar[bool] = True

    layout: ShardedLayout
    prefix: str = ""

    def __post_init__(self) -> None:
        """Check the settings."""
        _check_has("layout", self.layout, "compose_text", "must be a ShardedLayout")
        check_affix("prefix", self.prefix)

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id of the layout."""
        parts = self.layout.parse(new_id)
        try:
            return self.layout.compose_text(*parts, prefix=self.prefix)
        except InvalidArgumentError as error:  # a year without four digits
            raise InvalidIdError("id", new_id, f"has a second that {error.rule}") from None

    def as_int(self, text: str, /) -> int:
        """Return the id of a text."""
        return self.layout.compose(*self.layout.parse_text(text, self.prefix))

    def as_tree(self) -> dict[str, object]:
        """Return kind, layout and prefix."""
        return {"kind": type(self).__name__, "layout": repr(self.layout), "prefix": self.prefix}
