"""The settings of texts and layouts: a class for each table, an attribute for each key."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, SecretStr

from ._values import STRICT, Flag, Function, Moment, Whole, declared

__all__ = (
    "Bits",
    "ConverterSettings",
    "DatePrefixSettings",
    "GroupPrefixSettings",
    "LayoutSettings",
)

Bits: TypeAlias = Annotated[Whole, Field(ge=1, le=63)]


class DatePrefixSettings(BaseModel):
    """The date before a text.

    Attributes:
        pattern: the format of the date, in Java's pattern letters.
        delimiter: the text between date and id.
        zone: the time zone of the date; required, because hosts may have different time zones.
        before_prefix: whether the date comes after ``prefix`` in the text; false puts it before.
    """

    model_config = STRICT

    pattern: str = "yyMMdd"
    delimiter: str = "-"
    zone: str
    before_prefix: Flag = True


class GroupPrefixSettings(BaseModel):
    """The group before a text; for ``kind = "grouped"``.

    Attributes:
        delimiter: the text between group and id.
        before_prefix: whether the group comes after ``prefix`` in the text; false puts it before.
    """

    model_config = STRICT

    delimiter: str = "-"
    before_prefix: Flag = True


class ConverterSettings(BaseModel):
    """How ids become text.  CosId's order: prefix, date, group, id, suffix.

    Attributes:
        type: the type of converter that formats the number.
        make: instead of ``type``: your own class or function that creates the converter;
            ``converter = "package.module:name"`` is short for it.
        options: the keyword arguments of ``make``.
        char_size: maximum digits; by default 11 for radix62, 13 for radix36 and crockford;
            to-string needs it with ``pad_start``.
        pad_start: whether zeros are added in front; by default true for radix62, radix36 and
            crockford, otherwise false.
        check: whether a check symbol is written; by default true.
        lower_case: whether texts have lower-case letters; by default false.
        key: 32, 48 or 64 hexadecimal digits, random and secret.
        alphabet: 3 or more different characters; by default those of sqids.org.
        min_length: minimum characters of a text; by default 0.
        blocklist: words that no text contains; by default those of sqids.org.
        inner: the type of the inner converter, which formats the number; by default radix62.
        prefix: a text before everything else; for typeid the part before the underscore.
        suffix: a text after everything else.
        group_prefix: a table; ``{}`` for its defaults; for ``kind = "grouped"``.
        date_prefix: a table; for ``kind = "grouped"`` only together with ``group_prefix``: it shows
            the date of the call, which does not distinguish groups.
    """

    model_config = STRICT

    type: Literal[
        "to-string",
        "radix62",
        "radix36",
        "friendly",
        "sharded",
        "crockford",
        "opaque",
        "sqids",
        "ulid",
        "uuid",
        "typeid",
    ] = "radix62"
    make: Function | None = None
    options: dict[str, object] = Field(default_factory=dict, repr=False)  # perhaps with a key
    char_size: Annotated[Whole, Field(ge=-1, le=64)] | None = None
    pad_start: Flag | None = None
    check: Flag | None = None
    lower_case: Flag | None = None
    zone: Annotated[str | None, declared("zone")] = None
    key: SecretStr | None = None
    alphabet: str | None = None
    min_length: Annotated[Whole, Field(ge=0, le=255)] | None = None
    blocklist: list[str] | None = None
    inner: Literal["to-string", "radix62", "radix36", "crockford"] | None = None
    prefix: str = ""
    suffix: str = ""
    group_prefix: GroupPrefixSettings | None = None
    date_prefix: DatePrefixSettings | None = None


class LayoutSettings(BaseModel):
    """The layout of Snowflake ids: a ready-made layout by name, or your own bits.

    Attributes:
        name: the name of a ready-made layout, alone or with ``epoch``.
        timestamp_bits: width of the time; with it, all other keys except ``name`` and the last two
            are required.
        machine_bits: regions included.
        sequence_bits: width of the sequence; all three together at most 63.
        epoch: together with ``name`` it replaces that layout's own.
        region_bits: how many of the machine bits hold a region; by default 0.
        sequence_first: whether the sequence is above the machine id in the number; by default
            false.
    """

    model_config = STRICT

    name: str | None = None
    timestamp_bits: Bits | None = None
    machine_bits: Annotated[Whole, declared("machine_bits")] | None = None
    sequence_bits: Bits | None = None
    unit: Annotated[Literal["ms", "10ms", "s"] | None, declared("unit")] = None
    epoch: Annotated[Moment, declared("epoch")] = None
    region_bits: Annotated[Whole, Field(ge=0, le=30)] | None = None
    sequence_first: Flag | None = None
