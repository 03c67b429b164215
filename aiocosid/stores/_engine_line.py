"""An engine with its running calls and open connections; and the sockets of all drivers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from .._life import fork
from ..errors import MissingExtraError
from ._sqlite_door import inherit

try:
    from sqlalchemy import event
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ("Line",)


class Line:
    """An engine, its running calls and, for an engine of ours, its open connections.

    Attributes:
        engine: the user's, or one of ours.
        calls: the tasks of the calls under way; no other code references them.
        lent: the driver's connections on which a call is under way.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.calls: set[asyncio.Future[Any]] = set()
        self.lent: set[Any] = set()
        self._records: WeakSet[Any] = WeakSet()

    def watch(self) -> Self:
        """Record the connections that the engine, one of ours, opens."""
        event.listen(self.engine.sync_engine, "connect", self._connected)
        return self

    def _connected(self, _: object, record: object) -> None:
        self._records.add(record)

    async def close(self) -> None:
        """Wait for the calls under way, and close all connections."""
        try:
            with suppress(Exception):
                if self.calls:
                    await asyncio.wait(self.calls)
                await self.engine.dispose()
        finally:
            self.terminate()

    def terminate(self) -> None:
        """Drop all connections without closing them properly; the event loop may be closed."""
        for connection in self._opened():
            # The transport complains that the loop is closed, but has aborted; or it cannot abort.
            with suppress(RuntimeError, NotImplementedError):
                if hasattr(connection, "terminate"):
                    connection.terminate()
                else:  # psycopg
                    connection.driver_connection.pgconn.finish()
        self.engine.sync_engine.dispose(close=False)

    def _opened(self) -> list[Any]:
        found = (record.dbapi_connection for record in tuple(self._records))
        return [connection for connection in found if connection is not None]

    def silence(self) -> None:
        """Keep the parent's connections from sending anything in a forked child."""
        drivers = {connection.driver_connection for connection in self._opened()}
        fork.silence(map(_socket_of, drivers | self.lent))
        if self.engine.url.get_backend_name() == "sqlite":
            inherit(f"{self.engine.url.database}")


def _socket_of(driver: Any) -> Any:  # noqa: ANN401 - of any driver
    """Return the socket of a driver's connection, or None."""
    transport = getattr(driver, "_transport", None)  # asyncpg
    if transport is None:  # asyncmy, aiomysql
        transport = getattr(getattr(driver, "_writer", None), "transport", None)
    if transport is not None:
        return transport.get_extra_info("socket")
    return driver if hasattr(driver, "pgconn") and not driver.closed else None  # psycopg
