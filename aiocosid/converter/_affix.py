"""Prefixes, suffixes and dates around another converter's text, combined in CosId's order.

No I/O, except for the clock of a date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from .._life.clock import SYSTEM_CLOCK
from ..abc import Clock, GroupedId, IdConverter
from ..abc.dates import TOKEN, DatePattern, moment_of, resolve_zone
from ..errors import InvalidArgumentError, InvalidIdError
from ._checks import check_affix, check_converter, check_flag, text_of
from ._radix import RadixIdConverter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import tzinfo


__all__ = (
    "DatePrefix",
    "DatePrefixIdConverter",
    "GroupPrefix",
    "GroupedPrefixIdConverter",
    "PrefixIdConverter",
    "SuffixIdConverter",
    "compose",
)

MOST_READ: Final = 255  # maximum characters of a text to split, as each place may be tried


@dataclass(frozen=True, slots=True)
class PrefixIdConverter(IdConverter):
    """Writes a text before each id.  CosId's PrefixIdConverter.

    Attributes:
        prefix: the text; it may be empty.
        inner: formats and reads what follows.
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
            raise InvalidIdError("id", text, f"must be a string that starts with {self.prefix!r}")
        return self.inner.as_int(text[len(self.prefix) :])

    def as_tree(self) -> dict[str, object]:
        """Return kind, prefix and the inner converter."""
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
        inner: formats and reads what precedes the suffix.
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
            raise InvalidIdError("id", text, f"must be a string that ends with {self.suffix!r}")
        return self.inner.as_int(text[: len(text) - len(self.suffix)])

    def as_tree(self) -> dict[str, object]:
        """Return kind, suffix and the inner converter."""
        return {
            "kind": type(self).__name__,
            "suffix": self.suffix,
            "actual": self.inner.as_tree(),
        }


@dataclass(frozen=True, slots=True)
class GroupedPrefixIdConverter(IdConverter):
    """Writes the group of each id before it: ``20260116-42``.  CosId's GroupedPrefixIdConverter.

    The group is part of the id, a `GroupedId`, so both always belong to one period.  CosId takes
    the group from the thread, and cannot read such a text.

    Attributes:
        inner: formats and reads the number.
        delimiter: the text between group and number; if it is empty, texts cannot be read back.
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
            rule = "must be a GroupedId, from `with_group` of a grouped generator"
            raise InvalidIdError("id", new_id, rule)
        return f"{new_id.group}{self.delimiter}{self.inner.as_str(int(new_id))}"

    def as_int(self, text: str, /) -> GroupedId:
        """Return number and group of a text of up to 255 characters with only one split."""
        if not self.delimiter:
            rule = "cannot be split into group and id; give the converter a delimiter"
            raise InvalidIdError("id", text, rule)
        found = list(self._splits(text)) if len(text_of(text)) <= MOST_READ else []
        if len(found) != 1:
            how = "in several ways" if found else "in no way"
            rule = f"must be a group, {self.delimiter!r} and an id: it can be split {how}"
            raise InvalidIdError("id", text, rule)
        return found[0]

    def as_tree(self) -> dict[str, object]:
        """Return kind, delimiter and the inner converter."""
        return {
            "kind": type(self).__name__,
            "delimiter": self.delimiter,
            "actual": self.inner.as_tree(),
        }

    def _check_split(self) -> None:
        """Raise unless groups of any length and their ids have distinct texts.

        A text is split at its last delimiter, provided that numbers do not contain the end of a
        delimiter.

        Raises:
            InvalidArgumentError: two groups may have the same text.
        """
        is_fixed = isinstance(self.inner, RadixIdConverter) and self.inner.pad_start
        if not is_fixed and (not self.delimiter or self.delimiter[-1].isalnum()):
            rule = (
                "must be a string that ends in neither letter nor digit, such as '-': the groups' "
                "texts differ in length, so ids of two groups may have the same text"
            )
            raise InvalidArgumentError("delimiter", self.delimiter, rule)

    def _splits(self, text: str) -> Iterator[GroupedId]:
        """Yield the possible splits of a text into group and id."""
        at = text.find(self.delimiter)
        while at >= 0:
            try:
                number = self.inner.as_int(text[at + len(self.delimiter) :])
            except InvalidIdError:
                pass
            else:
                yield GroupedId(number, text[:at])
            at = text.find(self.delimiter, at + 1)


FIELDS: Final = {
    "yyyy": "[0-9]{4}",
    "yy": "[0-9]{2}",
    "MM": "(?:0[1-9]|1[0-2])",
    "M": "(?:1[0-2]|[1-9])",
    "dd": "(?:0[1-9]|[12][0-9]|3[01])",
    "d": "(?:[12][0-9]|3[01]|[1-9])",
    "DDD": "(?:00[1-9]|0[1-9][0-9]|[12][0-9]{2}|3[0-5][0-9]|36[0-6])",
    "D": "(?:[12][0-9]{2}|3[0-5][0-9]|36[0-6]|[1-9][0-9]?)",
    "HH": "(?:[01][0-9]|2[0-3])",
    "H": "(?:1[0-9]|2[0-3]|[0-9])",
    "mm": "[0-5][0-9]",
    "m": "[1-5]?[0-9]",
    "ss": "[0-5][0-9]",
    "s": "[1-5]?[0-9]",
    "SSS": "[0-9]{3}",
}
"""The allowed forms of a pattern's fields; `DatePattern` supports more."""


@dataclass(frozen=True, slots=True, init=False)
class DatePrefixIdConverter(IdConverter):
    """Writes the date before each id: ``260116-42``.  CosId's DatePrefixIdConverter.

    It is the date of the conversion, as in CosId, and one call of `convert_many` uses one date.  So
    the date may be later than the id, an id that is converted twice may have two texts, and a batch
    of a `StringIdGenerator`, which converts in several calls, may have two dates.  The date does
    not make ids unique: numbers that restart each day need a `GroupedPrefixIdConverter`.

    Attributes:
        pattern: a Java date pattern, for example ``yyMMdd``.
        inner: formats and reads what follows.
        delimiter: the text between date and id; it may be empty.
        zone: the time zone of the date; CosId uses the host's.
    """

    is_timeless: ClassVar[bool] = False

    pattern: str
    inner: IdConverter
    delimiter: str
    zone: tzinfo
    _clock: Clock = field(repr=False, compare=False)
    _dates: DatePattern = field(repr=False, compare=False)
    _form: re.Pattern[str] = field(repr=False, compare=False)

    def __init__(
        self,
        pattern: str,
        inner: IdConverter,
        delimiter: str = "-",
        *,
        zone: tzinfo | str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Choose the date's format and place.

        Args:
            pattern: consists of the letters ``y u M d D H m s S``, text in single quotes, and
                punctuation.
            inner: formats and reads what follows.
            delimiter: the text between date and id; it must not be empty, nor begin with a digit,
                if the pattern has fields of varying length.
            zone: a tzinfo, or a name such as "Asia/Shanghai", "UTC" or "+08:00".
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: the pattern or zone is unknown, or the end of the date could not
                be found in a text.
        """
        dates = DatePattern(pattern)
        check_converter(inner)
        check_affix("delimiter", delimiter)
        if dates.width is None and (not delimiter or delimiter[0].isdigit()):
            rule = f"must begin with a non-digit: dates like {pattern!r} vary in length"
            raise InvalidArgumentError("delimiter", delimiter, rule)
        form = re.compile(_form_of(pattern) + re.escape(delimiter))
        values = {"pattern": pattern, "inner": inner, "delimiter": delimiter}
        values |= {"zone": resolve_zone(zone), "_clock": clock, "_dates": dates, "_form": form}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Leave objects derived from the pattern out of a pickle."""
        converter = partial(type(self), zone=self.zone, clock=self._clock)
        return converter, (self.pattern, self.inner, self.delimiter)

    def as_str(self, new_id: int, /) -> str:
        """Return today's date and the text of an id."""
        return self._today() + self.inner.as_str(new_id)

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids, all with one date."""
        today = self._today()
        return [today + text for text in self.inner.convert_many(ids)]

    def as_int(self, text: str, /) -> int:
        """Return the id of a text that starts with any date of the pattern.

        Each field is checked alone, so 30 February counts as a date.

        CosId drops as many characters as pattern and delimiter have, without checking them.
        """
        found = self._form.match(text_of(text))
        if found is None:
            rule = f"must be a date like {self.pattern!r}, {self.delimiter!r} and an id"
            raise InvalidIdError("id", text, rule)
        return self.inner.as_int(text[found.end() :])

    def as_tree(self) -> dict[str, object]:
        """Return kind, pattern and the inner converter; CosId has no delimiter here."""
        return {
            "kind": type(self).__name__,
            "pattern": self.pattern,
            "actual": self.inner.as_tree(),
        }

    def _today(self) -> str:
        return self._dates.format(moment_of(self._clock.now_ms(), self.zone)) + self.delimiter


def _form_of(pattern: str) -> str:
    """Return the regular expression of a pattern's texts."""
    parts: list[str] = []
    for token in (found[0] for found in TOKEN.finditer(pattern)):
        if token[0] == "'":
            parts.append(re.escape(token[1:-1].replace("''", "'") or "'"))
        elif token[0].isascii() and token[0].isalpha():
            parts.append(FIELDS[token.replace("u", "y")])
        else:
            parts.append(re.escape(token))
    return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPrefix:
    """Where `compose` puts the group.  CosId's ``converter.group-prefix``.

    Attributes:
        delimiter: the text between group and id.
        before_prefix: whether it is wrapped before the fixed prefix, and therefore comes after it
            in the text.
    """

    delimiter: str = "-"
    before_prefix: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        check_affix("delimiter", self.delimiter)
        check_flag("before_prefix", self.before_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePrefix:
    """Where `compose` puts the date.  CosId's ``converter.date-prefix``.

    Attributes:
        zone: the time zone of the date: a tzinfo or a name.
        pattern: a Java date pattern.
        delimiter: the text between date and id.
        before_prefix: whether it is wrapped before the fixed prefix, and therefore comes after it
            in the text.
    """

    zone: tzinfo | str
    pattern: str = "yyMMdd"
    delimiter: str = "-"
    before_prefix: bool = True

    def __post_init__(self) -> None:
        """Check the settings; `compose` reads pattern and zone."""
        check_affix("delimiter", self.delimiter)
        check_flag("before_prefix", self.before_prefix)


def compose(
    base: IdConverter,
    *,
    prefix: str = "",
    suffix: str = "",
    group_prefix: GroupPrefix | None = None,
    date_prefix: DatePrefix | None = None,
) -> IdConverter:
    """Wrap a converter as CosId's settings do, like CosId's IdConverterDecorator.

    By default the order is prefix, date, group, id, suffix; a group or date that is not
    ``before_prefix`` comes before the prefix, with the date first.

    Args:
        base: formats the number.
        prefix: a fixed text at the beginning; may be empty.
        suffix: a fixed text at the end; may be empty.
        group_prefix: the group of a `GroupedId`; None to leave it out.
        date_prefix: the date of the conversion; None to leave it out.

    Raises:
        InvalidArgumentError: an argument has the wrong type, or the pattern or zone is unknown.
    """
    check_converter(base, "base")
    check_affix("prefix", prefix)
    check_affix("suffix", suffix)

    def with_dynamic(inner: IdConverter, *, before_prefix: bool) -> IdConverter:
        if group_prefix is not None and group_prefix.before_prefix is before_prefix:
            inner = GroupedPrefixIdConverter(inner, group_prefix.delimiter)
        if date_prefix is not None and date_prefix.before_prefix is before_prefix:
            date = date_prefix
            inner = DatePrefixIdConverter(date.pattern, inner, date.delimiter, zone=date.zone)
        return inner

    converter = with_dynamic(base, before_prefix=True)
    if prefix:
        converter = PrefixIdConverter(prefix, converter)
    converter = with_dynamic(converter, before_prefix=False)
    return SuffixIdConverter(suffix, converter) if suffix else converter
