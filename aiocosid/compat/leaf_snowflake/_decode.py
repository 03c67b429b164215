"""Leaf's server's description of an id.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._dates import resolve_zone

if TYPE_CHECKING:
    from datetime import tzinfo

    from ...snowflake import SnowflakeLayout

__all__ = ("decode",)


def decode(snowflake_id: int, layout: SnowflakeLayout, *, zone: tzinfo | str) -> dict[str, str]:
    """Return the answer of ``/decodeSnowflakeId``: all as text, the time in ms and local.

    Leaf reckons with its default epoch there even if ids were made with another ``twepoch``; here
    it is the layout's.

    Args:
        snowflake_id: an id.
        layout: its layout: `aiocosid.snowflake.LEAF`, or one with another epoch.
        zone: the zone of the time; Leaf uses its server's.

    Raises:
        InvalidIdError: it is no id of the layout.
        InvalidArgumentError: the zone is unknown.
    """
    parts = layout.parse(snowflake_id, resolve_zone(zone))
    local = parts.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    return {
        "timestamp": f"{parts.timestamp_ms}({local}.{parts.timestamp_ms % 1000:03})",
        "workerId": str(parts.machine_id),
        "sequenceId": str(parts.sequence),
    }
