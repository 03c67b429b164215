"""What the Snowflake questions share: a machine id in memory, and a layout that does not end."""

from __future__ import annotations

from typing import Any

from aiocosid.snowflake import SnowflakeId, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore

EPOCH = 1_577_203_200_000
WIDE = SnowflakeLayout(41, 1, 21, "ms", EPOCH, name="wide")
"""Two million ids a millisecond: the layout's ceiling is out of reach."""


def snowflake(**options: Any) -> SnowflakeId:  # noqa: ANN401 - SnowflakeId's
    """Return a generator on a machine id of its own."""
    return SnowflakeId(MemoryStore().machine_id_distributor(namespace="bench"), **options)
