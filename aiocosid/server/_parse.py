"""The fields of an id, read by a generator of such ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ..abc import MAX_ID, GroupedId
from ..errors import InvalidIdError
from ..generators import UncertaintyIdGenerator, Uuid4Id, Uuid7Id
from ..generators.text import StringIdGenerator
from ..generators.wrapped import WrappedGenerator
from ..snowflake import CosIdGenerator, ShardedId, SnowflakeId

if TYPE_CHECKING:
    from ..abc import AnyGenerator

__all__ = ("parse",)

NUMBER: Final = re.compile(r"[0-9]{1,19}")
UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
VERSION_7: Final = 7
UUID7_TIME_SHIFT: Final = 80  # bits below the milliseconds of a UUID version 7


def parse(generator: AnyGenerator, text: str) -> dict[str, str | int]:
    """Return the fields of an id, as far as its kind has them, ready for JSON.

    Any number within a layout's bits can be parsed, so another generator's id is not detected.

    Args:
        generator: a generator of such ids; it need not be open.
        text: the id in the form in which the generator issues it: decimal digits or text.

    Returns:
        ``id``, which is the number in decimal digits, or the text of an id that is not a number;
        then, if the id has them, ``text``, ``group``, ``counted`` (the number below random bits),
        ``timestamp_ms``, ``time`` (ISO 8601 in UTC), ``machine_id``, ``region``, ``worker``,
        ``sharding_id``, ``sequence`` and ``version``.

    Raises:
        InvalidIdError: ``text`` is not an id of this generator.
    """
    if isinstance(generator, StringIdGenerator):
        number = generator.converter.as_int(text)
        group = {"group": number.group} if isinstance(number, GroupedId) else {}
        found = _of_number(generator.inner, int(number))
        return {"id": found.pop("id"), "text": text, **group, **found}
    if isinstance(generator, CosIdGenerator):
        state = generator.text.as_state(text)
        time = _time(state.timestamp_ms)
        return {"id": text, **time, "machine_id": state.machine_id, "sequence": state.sequence}
    if isinstance(generator, Uuid4Id | Uuid7Id):
        return _of_uuid(text)
    if not NUMBER.fullmatch(text) or int(text) > MAX_ID:
        raise InvalidIdError("id", text, f"must be decimal digits, at most {MAX_ID}")
    return _of_number(generator, int(text))


def _of_number(generator: AnyGenerator, number: int) -> dict[str, str | int]:
    if isinstance(generator, UncertaintyIdGenerator):
        counted = number >> generator.bits
        inner = _of_number(generator.inner, counted)
        return {**inner, "id": str(number), "counted": str(counted)}
    if isinstance(generator, WrappedGenerator):
        return _of_number(generator.inner, number)
    found: dict[str, str | int] = {"id": str(number)}
    if isinstance(generator, SnowflakeId):
        parts = generator.layout.parse(number)
        found |= {**_time(parts.timestamp_ms), "machine_id": parts.machine_id}
        if parts.region is not None and parts.worker is not None:
            found |= {"region": parts.region, "worker": parts.worker}
        found["sequence"] = parts.sequence
    elif isinstance(generator, ShardedId):
        second, sharding_id, sequence = generator.layout.parse(number)
        found |= {**_time(second * 1000), "sharding_id": sharding_id, "sequence": sequence}
    return found


def _of_uuid(text: str) -> dict[str, str | int]:
    try:
        found = UUID(text)
    except ValueError:
        raise InvalidIdError("id", text, "must be a UUID") from None
    tree: dict[str, str | int] = {"id": str(found), "version": found.version or 0}
    if found.version == VERSION_7:
        tree |= _time(found.int >> UUID7_TIME_SHIFT)
    return tree


def _time(ms: int) -> dict[str, str | int]:
    tree: dict[str, str | int] = {"timestamp_ms": ms}
    try:
        moment = UNIX_EPOCH + timedelta(milliseconds=ms)
    except OverflowError:  # after the year 9999
        return tree
    return {**tree, "time": moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"}
