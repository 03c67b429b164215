"""Read-only access to other systems' keys on Redis or Valkey, for `aiocosid.compat`.

Requires the ``redis`` extra.  The names come from SCAN, in steps of a bounded size, on a cluster
from all masters; only the beginning of each value is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..base import backend_of
from ._backend import BATCH
from ._link import UNDECODED, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from . import RedisStore

__all__ = ("Key", "read_keys")

_LONGEST: Final = 32  # bytes of a value that are read; a number is shorter
_GONE: Final = -2  # PTTL of a key that does not exist
_FOREVER: Final = -1


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it was read.

    Attributes:
        name: the key's name; bytes that are not UTF-8 are escaped.
        value: the first 32 bytes of a string; None for a key of another type.
        ttl_ms: milliseconds until the key expires; None if it never does.
    """

    name: str
    value: bytes | None
    ttl_ms: int | None


async def read_keys(
    store: RedisStore,
    *,
    names: Iterable[str],
    patterns: Iterable[str],
    accept: Callable[[str], bool],
) -> Sequence[Key]:
    """Read keys, ordered by name; a key that expires meanwhile may be missing.

    The time grows with the number of keys on the server: each pattern is compared with all of them,
    500 in each call.

    Args:
        store: the store on that server.
        names: keys to read without a search.
        patterns: SCAN patterns for further keys.
        accept: returns whether to read a key that a pattern found.

    Raises:
        StoreError: the server refuses or cannot be reached.
    """

    async def read(client: Any) -> list[Key]:  # noqa: ANN401 - the driver's
        wanted = {name.encode() for name in names}
        for pattern in patterns:
            async for key in client.scan_iter(match=pattern, count=BATCH, **UNDECODED):
                if accept(text_of(key)):
                    wanted.add(key)
        ordered, found = sorted(wanted), list[Key]()
        for start in range(0, len(ordered), BATCH):
            found += await _read(client, ordered[start : start + BATCH])
        return found

    return await backend_of(store).link.call(read, may_last=True)


async def _read(client: Any, keys: Sequence[bytes]) -> list[Key]:  # noqa: ANN401 - the driver's
    # On a cluster the keys are spread over many slots.
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.execute_command("GETRANGE", key, 0, _LONGEST - 1, **UNDECODED)
        pipeline.execute_command("PTTL", key)
    replies = await pipeline.execute(raise_on_error=False)
    found: list[Key] = []
    for key, value, ttl_ms in zip(keys, replies[::2], replies[1::2], strict=True):
        is_string = not (isinstance(value, Exception) and str(value).startswith("WRONGTYPE"))
        for reply in (value, ttl_ms) if is_string else (ttl_ms,):
            if isinstance(reply, Exception):
                raise reply
        if ttl_ms != _GONE:
            begins = value if isinstance(value, bytes) else None
            found.append(Key(text_of(key), begins, None if ttl_ms == _FOREVER else ttl_ms))
    return found
