"""The settings of texts and layouts: a class for each table, an attribute for each key."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, SecretStr

from ._values import STRICT, Flag, Function, Moment, Whole

__all__ = (
    "ConverterSettings",
    "DatePrefixSettings",
    "GroupPrefixSettings",
    "LayoutSettings",
)

Bits: TypeAlias = Annotated[Whole, Field(ge=1, le=63)]


class DatePrefixSettings(BaseModel):
    """The date in front of a text.

    Attributes:
        pattern: Java's letters.
        delimiter: between date and text.
        zone: the time zone of the date; required, since two hosts may differ in theirs.
        before_prefix: whether it stands between the fixed prefix and the id.
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
        before_prefix: whether it stands between the fixed prefix and the id.
    """

    model_config = STRICT

    delimiter: str = "-"
    before_prefix: Flag = True


class ConverterSettings(BaseModel):
    """How ids become text.  CosId's order: prefix, date, group, id, suffix.

    Attributes:
        type: what writes the number.
        make: a class or function of yours that makes the converter, as "package.module:name".
        options: the keyword arguments of that call.
        char_size: the most characters; radix62 11, radix36 13 and crockford 13 if it is not given.
        pad_start: whether short texts are padded with zeros; true for the radixes.
        check: crockford: whether a check symbol is written.
        zone: friendly: the time zone of the text.
        key: opaque: the secret.
        inner: opaque: the type that writes the encrypted number, radix62 if it is not given;
            javascript-safe: the type that writes the number, to-string if it is not given.
        prefix: a text in front of everything.
        suffix: a text behind everything.
        group_prefix: a table, which may be empty.
        date_prefix: a table.
    """

    model_config = STRICT

    type: Literal[
        "to-string", "radix62", "radix36", "friendly", "crockford", "opaque", "javascript-safe"
    ] = "radix62"
    make: Function | None = None
    options: dict[str, object] = Field(default_factory=dict, repr=False)  # perhaps with a key
    char_size: Annotated[Whole, Field(ge=-1, le=64)] | None = None
    pad_start: Flag | None = None
    check: Flag | None = None
    zone: str | None = None
    key: SecretStr | None = None
    inner: Literal["to-string", "radix62", "radix36", "crockford"] | None = None
    prefix: str = ""
    suffix: str = ""
    group_prefix: GroupPrefixSettings | None = None
    date_prefix: DatePrefixSettings | None = None


class LayoutSettings(BaseModel):
    """How a Snowflake id is put together: a ready-made layout by name, or bits of your own.

    Attributes:
        name: one of `aiocosid.snowflake.LAYOUTS`.
        timestamp_bits: width of the time; with it, all others but the last two are required.
        machine_bits: width of the machine id, regions included.
        sequence_bits: width of the sequence.
        unit: length of a tick.
        epoch: a time with its offset, or an integer of milliseconds since 1970 whatever the unit;
            beside a name it replaces that layout's own.
        region_bits: how many of the machine bits name a region.
        sequence_first: whether the sequence lies above the machine id.
    """

    model_config = STRICT

    name: str | None = None
    timestamp_bits: Bits | None = None
    machine_bits: Bits | None = None
    sequence_bits: Bits | None = None
    unit: Literal["ms", "10ms", "s"] | None = None
    epoch: Moment = None
    region_bits: Annotated[Whole, Field(ge=0, le=30)] | None = None
    sequence_first: Flag | None = None
