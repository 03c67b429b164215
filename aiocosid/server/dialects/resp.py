"""Commands of Redis: any client of Redis takes segments by ``INCRBY``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _store_api
from .._resp import RespError
from .._tokens import Verb

if TYPE_CHECKING:
    from .._resp import Command, Session

__all__ = ("commands",)


def commands(*, namespace: str = "redis") -> dict[bytes, Command]:
    """Return the commands by name.

    Args:
        namespace: the namespace of counters whose key is not CosId's.
    """

    async def incrby(session: Session, words: list[bytes]) -> int:
        key, step = words
        name = key.decode()
        if session.access is None:
            raise RespError("NOAUTH Authentication required.")
        session.service.check(session.access, Verb.SEGMENTS, name)
        return await session.service.next_max_id(name, namespace=namespace, step=int(step))

    async def ping(_session: Session, _words: list[bytes]) -> str:
        return "PONG"

    return {b"INCRBY": incrby, b"PING": ping, b"AIOCOSID": _store_api.command}
