"""Shardings as settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError
from ..sharding import sharding_algorithm
from ._sharding import IntervalShardingSettings, ModShardingSettings, SnowflakeShardingSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ..sharding import Sharding
    from ._planned import Planned
    from ._sharding import ShardingSettings

__all__ = ("sharding_of",)


def sharding_of(
    section: ShardingSettings, generators: Mapping[str, Planned], broken: Collection[str]
) -> Sharding[Any] | None:
    """Return a sharding; None if its generator could not be built, which is noted already.

    Raises:
        InvalidArgumentError: a value does not fit, or there is no such Snowflake generator.
    """
    told = section.properties()
    match section:
        case ModShardingSettings():
            return sharding_algorithm("COSID_MOD", told)
        case IntervalShardingSettings():
            return sharding_algorithm("COSID_INTERVAL", told)
        case SnowflakeShardingSettings():
            planned = generators.get(section.generator)
            if section.generator in broken:
                return None
            if planned is None or planned.section.kind != "snowflake":
                known = [name for name, each in generators.items() if each.layout is not None]
                expected = f"a Snowflake generator: {', '.join(known) or 'there is none'}"
                raise InvalidArgumentError("generator", section.generator, expected=expected)
            if planned.layout is None:
                return None
            return sharding_algorithm(
                "COSID_INTERVAL_SNOWFLAKE",
                told,
                layout=planned.layout,
                converter=planned.converter,
            )
