"""Converters as settings describe them, combined in CosId's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...abc import IdConverter
from ...converter import (
    CrockfordIdConverter,
    DatePrefix,
    DatePrefixIdConverter,
    GroupPrefix,
    OpaqueIdConverter,
    Radix36IdConverter,
    Radix62IdConverter,
    ShardedTextConverter,
    SnowflakeFriendlyIdConverter,
    SqidsConverter,
    ToStringIdConverter,
    TypeIdConverter,
    UlidConverter,
    UuidConverter,
    compose,
)
from ...errors import InvalidArgumentError
from ...snowflake import FriendlyText
from ._own import make_own
from ._values import misplaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._planned import Planned
    from ._texts import ConverterSettings, DatePrefixSettings

__all__ = ("converter_of", "date_of")

NUMBERS: Final[dict[str, type[Any]]] = {
    "to-string": ToStringIdConverter,
    "radix62": Radix62IdConverter,
    "radix36": Radix36IdConverter,
    "crockford": CrockfordIdConverter,
}
TAKES: Final[dict[str, set[str]]] = {
    "to-string": {"pad_start", "char_size"},
    "radix62": {"pad_start", "char_size"},
    "radix36": {"pad_start", "char_size"},
    "crockford": {"pad_start", "char_size", "check", "lower_case"},
    "friendly": {"zone", "pad_start"},
    "sharded": set(),
    "opaque": {"key", "inner"},
    "sqids": {"alphabet", "min_length", "blocklist"},
    "ulid": set(),
    "uuid": set(),
    "typeid": set(),
}
"""The keys of each type; prefixes and suffixes can be used with all types."""

ONLY_SOME: Final = set[str]().union(*TAKES.values())


def converter_of(
    section: ConverterSettings,
    planned: Planned,
    note: Callable[[str, str], None],
    *,
    date: DatePrefix | None,
) -> IdConverter:
    """Return a converter.

    Args:
        section: the converter's settings.
        planned: the generator whose ids it formats.
        note: called with each key that cannot be combined with the others, and the reason.
        date: the date prefix from `date_of`.

    Raises:
        InvalidArgumentError: a value is not valid.
        MissingExtraError: a library that the converter needs is not installed.
    """
    _check_keys(section, note)
    group = section.group_prefix
    if group is not None and planned.section.kind != "grouped":
        note("group_prefix", f"requires kind = 'grouped'; ids of {planned.name!r} have no group")
        group = None
    if date is not None and group is None and planned.section.kind == "grouped":
        why = "a call's date may differ from its number's period, and numbers start again in each"
        note("date_prefix", f"requires group_prefix = {{}}: {why}")
    if section.type == "to-string" and section.pad_start and not section.char_size:
        note("char_size", "is required by pad_start: it is the number of digits")
    return compose(
        _base(section, planned),
        prefix="" if section.type == "typeid" else section.prefix,
        suffix=section.suffix,
        group_prefix=None if group is None else GroupPrefix(**group.model_dump()),
        date_prefix=date,
    )


def _check_keys(section: ConverterSettings, note: Callable[[str, str], None]) -> None:
    given = section.model_fields_set
    if section.make is not None:
        for key in sorted(given & (ONLY_SOME | {"type"})):
            note(key, "has no place here: make says what writes the number")
        return
    if section.options:
        note("options", "requires make")
    for key, reason in misplaced(given, section.type, TAKES, "type"):
        note(key, reason)


def date_of(section: DatePrefixSettings) -> DatePrefix:
    """Return a date prefix that can be written.

    Raises:
        InvalidArgumentError: a value is not valid.
    """
    date = DatePrefix(**section.model_dump())
    DatePrefixIdConverter(date.pattern, ToStringIdConverter(), date.delimiter, zone=date.zone)
    return date


def _base(section: ConverterSettings, planned: Planned) -> IdConverter:
    if section.make is not None:
        own: IdConverter = make_own(section, IdConverter, "a converter")
        return own
    if section.type in SPECIAL:
        return SPECIAL[section.type](section, planned)
    options = {key: getattr(section, key) for key in TAKES[section.type]}
    converter: IdConverter = NUMBERS[section.type](
        **{key: value for key, value in options.items() if value is not None}
    )
    return converter


def _friendly(section: ConverterSettings, planned: Planned) -> IdConverter:
    if planned.layout is None:
        rule = "shows the time of a Snowflake, and this generator makes none; take another type"
        raise InvalidArgumentError("type", section.type, rule)
    if section.zone is None:
        rule = "is required for friendly text, for example 'UTC' or '+08:00'"
        raise InvalidArgumentError("zone", None, rule)
    pad = bool(section.pad_start)
    return SnowflakeFriendlyIdConverter(FriendlyText(planned.layout, zone=section.zone, pad=pad))


def _sharded(section: ConverterSettings, planned: Planned) -> IdConverter:
    if planned.sharded is None:
        rule = "shows second, sequence and shard of kind = 'sharded'; take another type"
        raise InvalidArgumentError("type", section.type, rule)
    return ShardedTextConverter(planned.sharded)


def _opaque(section: ConverterSettings, _planned: Planned) -> IdConverter:
    if section.key is None:
        rule = "is required for opaque ids: 32, 48 or 64 hexadecimal digits, random and secret"
        raise InvalidArgumentError("key", None, rule)
    inner: IdConverter = NUMBERS[section.inner or "radix62"]()
    try:
        return OpaqueIdConverter.from_text(section.key.get_secret_value(), inner)
    except InvalidArgumentError as error:
        if error.argument != "key":
            raise
    # This is raised outside the handler, so that no traceback shows the key as context.
    rule = "must be 32, 48 or 64 hexadecimal digits, or base64 of 16, 24 or 32 bytes"
    raise InvalidArgumentError("key", "...", rule)


SPECIAL: Final[dict[str, Callable[[ConverterSettings, Planned], IdConverter]]] = {
    "friendly": _friendly,
    "sharded": _sharded,
    "opaque": _opaque,
    "sqids": lambda section, _: SqidsConverter(
        section.alphabet or "",
        section.min_length or 0,
        None if section.blocklist is None else tuple(section.blocklist),
    ),
    # A Snowflake's time is shown; other ids have no time.
    "ulid": lambda _, planned: UlidConverter(planned.layout),
    "uuid": lambda _, planned: UuidConverter(planned.layout),
    "typeid": lambda section, planned: TypeIdConverter(section.prefix, planned.layout),
}
"""The types that need more than their own keys."""
