"""A client of redis-py's whose connections lead to a simulated server."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aiocosid.errors import MissingExtraError

from ._redis_commands import RefusedError, Reply

try:
    from redis import exceptions
    from redis.asyncio import Redis
except ModuleNotFoundError as _exc:
    raise MissingExtraError("redis", extra="redis") from _exc

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection

    from ._link import Link
    from ._node import Node
    from ._redis import SimulatedRedis

__all__ = ("SimulatedRedisClient",)

ERRORS: Final[dict[str, type[exceptions.RedisError]]] = {
    "LOADING": exceptions.BusyLoadingError,
    "NOPERM": exceptions.NoPermissionError,
    "NOSCRIPT": exceptions.NoScriptError,
    "READONLY": exceptions.ReadOnlyError,
}
"""Those of the driver's errors that it tells by the reply's first word."""

SHOWN: Final = 60  # characters of a command in the trace


class SimulatedRedisClient(Redis):
    """redis-py's client: its commands, its replies and its errors, without a socket.

    A call has a connection of its own until its reply is there; one that is cancelled, or that
    waits for too long, gives its connection up.
    """

    def __init__(
        self, redis: SimulatedRedis, node: Node, link: Link, *, denied: Collection[str] = ()
    ) -> None:
        """See `SimulatedRedis.client`."""
        # As the driver makes it, which takes longer than what is done with it here.
        vars(self).update(vars(_model()))
        self.connection_pool = _NoPool()  # type: ignore[assignment]  # what is asked of one
        self._redis = redis
        self._node = node
        self._link = link
        self._denied = frozenset(denied)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply, as redis-py does.

        Raises:
            redis.exceptions.RedisError: the server refuses, or there is no reply.
        """
        words = [_encoded(each) for each in args]
        try:
            reply = await self._exchange(words)
        except RefusedError as refusal:
            raise _error(str(refusal)) from None
        options.pop("NEVER_DECODE", None)
        callback = self.response_callbacks.get(args[0])
        return callback(reply, **options) if callback else reply

    async def _exchange(self, words: list[bytes]) -> Reply:
        """Await the reply to a command, on a connection that is given up if it does not come."""
        reply: Reply = await self._send(words)
        return reply

    def _send(self, words: list[bytes]) -> asyncio.Future[Any]:
        """Send a command on a connection, and return what its reply will come to."""

        async def operation() -> Reply:
            try:
                return self._redis.serve(self._node, words, denied=self._denied)
            except ConnectionRefusedError as error:
                raise exceptions.ConnectionError(str(error)) from error

        # Of a script its first key.
        what = b" ".join((words[0], *words[3:4]) if words[0].startswith(b"EVAL") else words)
        return self._link.post(
            what[:SHOWN].decode(errors="replace"),
            operation,
            late=exceptions.TimeoutError,
            broken=exceptions.ConnectionError,
        )

    async def aclose(self, *_: Any, **__: Any) -> None:
        """There is nothing to close."""


class _NoPool:
    """Connections, of which there are none that could be silenced."""

    max_connections = None
    _available_connections = _in_use_connections = ()


@cache
def _model() -> Redis:
    return Redis(host="simulated")


def _encoded(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise exceptions.DataError(f"Invalid input of type: {type(value).__name__!r}")
    return repr(value).encode()


def _error(text: str) -> exceptions.RedisError:
    code, _, rest = text.partition(" ")
    if code in ERRORS:
        return ERRORS[code](rest)
    return exceptions.ResponseError(rest if code == "ERR" else text)
