"""Shardings in settings, with ShardingSphere's names, with dashes or underscores."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ...abc import SHARE
from ...errors import InvalidArgumentError
from ...sharding import SHARDING_PROPERTIES, sharding_algorithm
from ._values import STRICT, Whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ...sharding import Sharding
    from ._planned import Planned

__all__ = (
    "IntervalShardingSettings",
    "ModShardingSettings",
    "ShardingSettings",
    "SnowflakeShardingSettings",
    "in_our_words",
    "sharding_of",
)

PREFIX: Final = "COSID_"
"""The prefix of ShardingSphere's type names; the rest, in lower case and with dashes, is aiocosid's
name.
"""


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


Unit: TypeAlias = Annotated[
    Literal["years", "months", "days", "hours", "minutes", "seconds"], BeforeValidator(_lower)
]
LocalTime: TypeAlias = str | datetime


class _Sharding(BaseModel):
    """The keys that all kinds of shardings have.

    Attributes:
        logic_name_prefix: the text before every node's name.
    """

    model_config: ClassVar[ConfigDict] = STRICT | ConfigDict(
        alias_generator=_dashed, populate_by_name=True
    )

    logic_name_prefix: str

    def properties(self) -> dict[str, object]:
        """Return ShardingSphere's properties for this sharding."""
        return dict(
            self.model_dump(by_alias=True, exclude={"type", "generator"}, exclude_none=True)
        )


class ModShardingSettings(_Sharding):
    """ShardingSphere's COSID_MOD: sharding by remainder.

    Attributes:
        mod: the number of nodes.
    """

    type: Literal["mod"]
    mod: Annotated[Whole, Field(ge=1)]


class _Interval(_Sharding):
    """Nodes that each hold a period of time.

    Attributes:
        datetime_lower: the first time, in the format ``yyyy-MM-dd HH:mm:ss``.
        datetime_upper: the last time.
        sharding_suffix_pattern: the format of a node's time, in Java's pattern letters.
        datetime_interval_unit: the unit of a node's period.
        datetime_interval_amount: the number of units in a node's period.
    """

    datetime_lower: LocalTime
    datetime_upper: LocalTime
    sharding_suffix_pattern: str
    datetime_interval_unit: Unit
    datetime_interval_amount: Annotated[Whole, Field(ge=1)] = 1


class IntervalShardingSettings(_Interval):
    """ShardingSphere's COSID_INTERVAL and CosId's older types: by date, time or timestamp.

    Attributes:
        zone_id: the time zone for reading timestamps.
        ts_unit: the unit of timestamps.
        datetime_pattern: the format of keys that are text, in Java's pattern letters.
    """

    type: Literal[
        "interval",
        "interval-date",
        "interval-ldt",
        "interval-string",
        "interval-ts",
        "interval-ts-second",
    ]
    zone_id: str | None = None
    ts_unit: Annotated[Literal["SECOND", "MILLISECOND"], BeforeValidator(_upper)] | None = None
    datetime_pattern: str | None = None


class SnowflakeShardingSettings(_Interval):
    """ShardingSphere's COSID_INTERVAL_SNOWFLAKE: sharding by the time in a Snowflake id.

    Attributes:
        generator: the Snowflake generator whose ids, as numbers or in its text form, are the keys.
        zone_id: the time zone of the ids' times.
    """

    type: Literal["interval-snowflake"]
    generator: str
    zone_id: str


ShardingSettings: TypeAlias = Annotated[
    ModShardingSettings | IntervalShardingSettings | SnowflakeShardingSettings,
    Field(discriminator="type"),
]
"""The settings of one sharding; ``type`` says which."""


def in_our_words(data: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which shardings from ShardingSphere's YAML have aiocosid's form.

    Such a sharding has a type like COSID_MOD, perhaps its properties in ``props``, and the name of
    a generator in ``id-name``, by default the shared one.
    """
    table = data.get("sharding")
    if not isinstance(table, dict):
        return data
    given = cast("dict[str, object]", table)
    return {**data, "sharding": {name: _ours(each) for name, each in given.items()}}


def _ours(section: object) -> object:
    if not isinstance(section, dict):
        return section
    given = cast("dict[str, object]", section)
    own = dict(given)
    kind, properties = own.get("type"), own.pop("props", {})
    known = SHARDING_PROPERTIES.get(kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or known is None or not isinstance(properties, dict):
        return given
    ours = _dashed(kind.removeprefix(PREFIX).lower())
    own |= {**cast("dict[str, object]", properties), "type": ours}
    name = own.pop("id-name", SHARE) if "id-name" in known else None
    return {"generator": name, **own} if ours == "interval-snowflake" else own


def sharding_of(
    section: ShardingSettings, generators: Mapping[str, Planned], broken: Collection[str]
) -> Sharding[Any] | None:
    """Return a sharding; None if its generator could not be built, which is already recorded.

    Raises:
        InvalidArgumentError: a value is not valid, or there is no such Snowflake generator.
    """
    properties = section.properties()
    match section:
        case ModShardingSettings() | IntervalShardingSettings():
            kind = PREFIX + section.type.upper().replace("-", "_")
            return sharding_algorithm(kind, properties)
        case SnowflakeShardingSettings():
            planned = generators.get(section.generator)
            if section.generator in broken:
                return None
            if planned is None or planned.section.kind != "snowflake":
                known = [name for name, each in generators.items() if each.layout is not None]
                rule = f"must be a Snowflake generator ({', '.join(known) or 'there is none'})"
                raise InvalidArgumentError("generator", section.generator, rule)
            if planned.layout is None:
                return None
            return sharding_algorithm(
                "COSID_INTERVAL_SNOWFLAKE",
                properties,
                layout=planned.layout,
                converter=planned.converter,
            )
