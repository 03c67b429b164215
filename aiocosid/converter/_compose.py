"""Converters put together in CosId's order.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._affix import GroupedPrefixIdConverter, PrefixIdConverter, SuffixIdConverter
from ._checks import check_affix, check_converter, check_flag
from ._dated import DatePrefixIdConverter

if TYPE_CHECKING:
    from datetime import tzinfo

    from ..abc import IdConverter

__all__ = ("DatePrefix", "GroupPrefix", "compose")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPrefix:
    """Where `compose` writes the group.  CosId's ``converter.group-prefix``.

    Attributes:
        delimiter: the text between group and id.
        before_prefix: whether it is wrapped before the fixed prefix is, and so stands behind it.
    """

    delimiter: str = "-"
    before_prefix: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        check_affix("delimiter", self.delimiter)
        check_flag("before_prefix", self.before_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePrefix:
    """Where `compose` writes the date.  CosId's ``converter.date-prefix``.

    Attributes:
        zone: whose date is written: a tzinfo or a name.
        pattern: a date pattern of Java.
        delimiter: the text between date and id.
        before_prefix: whether it is wrapped before the fixed prefix is, and so stands behind it.
    """

    zone: tzinfo | str
    pattern: str = "yyMMdd"
    delimiter: str = "-"
    before_prefix: bool = True

    def __post_init__(self) -> None:
        """Check the settings; pattern and zone are read by `compose`."""
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
    """Wrap a converter as CosId's settings do: its IdConverterDecorator.

    By default the text reads prefix, date, group, id, suffix; a group or date that is not
    ``before_prefix`` stands before the prefix, the date first.

    Args:
        base: writes the number.
        prefix: a fixed text in front; none if empty.
        suffix: a fixed text at the end; none if empty.
        group_prefix: the group of a `GroupedId`, if asked for.
        date_prefix: the date of the conversion, if asked for.

    Raises:
        InvalidArgumentError: a converter, text, flag, pattern or zone is no such thing.
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
