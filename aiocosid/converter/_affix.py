"""Prefixes and suffixes of another converter's text.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..abc import GroupedId, IdConverter
from ..errors import InvalidIdError
from ._checks import check_affix, check_converter, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("GroupedPrefixIdConverter", "PrefixIdConverter", "SuffixIdConverter")

MOST_READ: Final = 255  # characters, of a text that is split: each place may be tried


@dataclass(frozen=True, slots=True)
class PrefixIdConverter(IdConverter):
    """Writes a text before each id.  CosId's PrefixIdConverter.

    Attributes:
        prefix: the text; it may be empty.
        inner: writes and reads what follows.
    """

    is_timeless: ClassVar[bool] = True

    prefix: str
    inner: IdConverter

    def __post_init__(self) -> None:
        """Check the settings."""
        check_affix("prefix", self.prefix)
        check_converter(self.inner)

    def as_str(self, new_id: int, /) -> str:
        """Return prefix and text of an id."""
        return self.prefix + self.inner.as_str(new_id)

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids."""
        prefix = self.prefix
        return [prefix + text for text in self.inner.convert_many(ids)]

    def as_int(self, text: str, /) -> int:
        """Return the id of a text with the prefix."""
        if not text_of(text).startswith(self.prefix):
            raise InvalidIdError("id", text, expected=f"a text that starts with {self.prefix!r}")
        return self.inner.as_int(text[len(self.prefix) :])

    def as_tree(self) -> dict[str, Any]:
        """Return kind, prefix and the converter inside."""
        return {
            "kind": type(self).__name__,
            "prefix": self.prefix,
            "actual": self.inner.as_tree(),
        }


@dataclass(frozen=True, slots=True)
class SuffixIdConverter(IdConverter):
    """Writes a text after each id.  CosId's SuffixIdConverter.

    Attributes:
        suffix: the text; it may be empty.
        inner: writes and reads what stands before it.
    """

    is_timeless: ClassVar[bool] = True

    suffix: str
    inner: IdConverter

    def __post_init__(self) -> None:
        """Check the settings."""
        check_affix("suffix", self.suffix)
        check_converter(self.inner)

    def as_str(self, new_id: int, /) -> str:
        """Return text and suffix of an id."""
        return self.inner.as_str(new_id) + self.suffix

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids."""
        suffix = self.suffix
        return [text + suffix for text in self.inner.convert_many(ids)]

    def as_int(self, text: str, /) -> int:
        """Return the id of a text with the suffix."""
        if not text_of(text).endswith(self.suffix):
            raise InvalidIdError("id", text, expected=f"a text that ends with {self.suffix!r}")
        return self.inner.as_int(text[: len(text) - len(self.suffix)])

    def as_tree(self) -> dict[str, Any]:
        """Return kind, suffix and the converter inside."""
        return {
            "kind": type(self).__name__,
            "suffix": self.suffix,
            "actual": self.inner.as_tree(),
        }


@dataclass(frozen=True, slots=True)
class GroupedPrefixIdConverter(IdConverter):
    """Writes the group of each id before it: ``20260116-42``.  CosId's GroupedPrefixIdConverter.

    The group comes with the id, a `GroupedId`, so that both are of one period.  CosId takes it from
    the thread, and reads no such text.

    Attributes:
        inner: writes and reads the number.
        delimiter: the text between group and number; it may be empty, but then no text is read.
    """

    is_timeless: ClassVar[bool] = True

    inner: IdConverter
    delimiter: str = "-"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_converter(self.inner)
        check_affix("delimiter", self.delimiter)

    def as_str(self, new_id: int, /) -> str:
        """Return group, delimiter and text of a `GroupedId`."""
        if not isinstance(new_id, GroupedId):
            expected = "a GroupedId, as a grouped generator hands them out: a plain id has no group"
            raise InvalidIdError("id", new_id, expected=expected)
        return f"{new_id.group}{self.delimiter}{self.inner.as_str(int(new_id))}"

    def as_int(self, text: str, /) -> GroupedId:
        """Return number and group of a text of up to 255 characters with one way to split it."""
        if not self.delimiter:
            expected = "written with a delimiter: without one, group and id cannot be separated"
            raise InvalidIdError("id", text, expected=expected)
        found = list(self._splits(text)) if len(text_of(text)) <= MOST_READ else []
        if len(found) != 1:
            how = "in several ways" if found else "in no way"
            expected = f"a group, {self.delimiter!r} and an id; it can be split {how}"
            raise InvalidIdError("id", text, expected=expected)
        return found[0]

    def as_tree(self) -> dict[str, Any]:
        """Return kind, delimiter and the converter inside."""
        return {
            "kind": type(self).__name__,
            "delimiter": self.delimiter,
            "actual": self.inner.as_tree(),
        }

    def _splits(self, text: str) -> Iterator[GroupedId]:
        """Find the places after which an id stands."""
        at = text.find(self.delimiter)
        while at >= 0:
            try:
                number = self.inner.as_int(text[at + len(self.delimiter) :])
            except InvalidIdError:
                pass
            else:
                yield GroupedId(number, text[:at])
            at = text.find(self.delimiter, at + 1)
