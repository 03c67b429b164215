"""uid-generator's epochs and output.  Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ..._dates import resolve_zone
from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    from datetime import tzinfo

    from ...snowflake import SnowflakeLayout

__all__ = ("epoch_of", "parse")

EPOCH: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


def epoch_of(epoch_str: str, *, zone: tzinfo | str) -> datetime:
    """Return the epoch of an ``epochStr``, for a `SnowflakeLayout`.

    uid-generator reads it in the zone of its JVM: the same setting gives ids that are eight hours
    apart on hosts in China and on hosts in UTC.

    Args:
        epoch_str: ``yyyy-MM-dd``, such as ``2016-05-20``.
        zone: the zone of the JVM that made the ids: a tzinfo, or a name as "Asia/Shanghai" or
            "+08:00".

    Raises:
        InvalidArgumentError: it is no date, or the zone is unknown.
    """
    found = EPOCH.fullmatch(epoch_str)
    where = resolve_zone(zone)
    try:
        year, month, day = map(int, found.groups() if found else ())
        return datetime(year, month, day, tzinfo=where).astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: before year 1 in UTC
        expected = "a date as 2016-05-20"
        raise InvalidArgumentError("epoch_str", epoch_str, expected=expected) from None


def parse(uid: int, layout: SnowflakeLayout, *, zone: tzinfo | str) -> dict[str, str]:
    """Return the fields of uid-generator's ``parseUID``: all as text, with the local time.

    Args:
        uid: an id.
        layout: its layout.
        zone: the zone of the time; uid-generator uses its JVM's.

    Raises:
        InvalidIdError: it is no id of the layout.  A negative one is from uid-generator's cached
            generator, after its layout had ended.
        InvalidArgumentError: the zone is unknown.
    """
    parts = layout.parse(uid, resolve_zone(zone))
    return {
        "UID": str(uid),
        "timestamp": parts.timestamp.strftime("%Y-%m-%d %H:%M:%S"),
        "workerId": str(parts.machine_id),
        "sequence": str(parts.sequence),
    }
