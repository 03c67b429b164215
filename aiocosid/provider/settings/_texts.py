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
    """The date in front of a text.

    Attributes:
        pattern: how the date is written, in Java's letters.
        delimiter: between date and text.
        zone: the time zone of the date; required, since two hosts may differ in theirs.
        before_prefix: whether it comes after ``prefix`` in the text; false puts it in front.
    """

    model_config = STRICT

    pattern: str = "yyMMdd"
    delimiter: str = "-"
    zone: str
    before_prefix: Flag = True


class GroupPrefixSettings(BaseModel):
    """The group in front of a text; for ``kind = "grouped"``.

    Attributes:
        delimiter: between group and text.
        before_prefix: whether it comes after ``prefix`` in the text; false puts it in front.
    """

    model_config = STRICT

    delimiter: str = "-"
    before_prefix: Flag = True


class ConverterSettings(BaseModel):
    """How ids become text.  CosId's order: prefix, date, group, id, suffix.

    Attributes:
        type: what writes the number.
        make: instead of ``type``: a class or function of yours that makes the converter;
            ``converter = "package.module:name"`` is short for it.
        options: the keyword arguments of ``make``.
        char_size: maximum digits; by default 11 for radix62, 13 for radix36 and crockford;
            to-string needs it with ``pad_start``.
        pad_start: zeros in front; by default true for radix62, radix36 and crockford, else false.
        check: whether a check symbol is written; by default true.
        lower_case: whether texts have small letters; by default false.
        key: 32, 48 or 64 hexadecimal digits, random and secret.
        alphabet: 3 or more different characters; by default those of sqids.org.
        min_length: minimum characters of a text; by default 0.
        blocklist: words that no text contains; by default those of sqids.org.
        inner: the type that writes the number; by default radix62.
        prefix: a text in front of everything; for typeid the part before the underscore.
        suffix: a text behind everything.
        group_prefix: a table; ``{}`` for its defaults; for ``kind = "grouped"``.
        date_prefix: a table; for ``kind = "grouped"`` only together with ``group_prefix``: it
            writes the date of the call, which does not distinguish groups.
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
    """How a Snowflake id is put together: a ready-made layout by name, or bits of your own.

    Attributes:
        name: the name of a ready-made layout, alone or with ``epoch``.
        timestamp_bits: width of the time; with it, all others but the last two are required.
        machine_bits: regions included.
        sequence_bits: width of the sequence; all three together at most 63.
        epoch: together with ``name`` it replaces that layout's own.
        region_bits: how many of the machine bits name a region; by default 0.
        sequence_first: whether the sequence stands above the machine id; by default false.
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
