"""An engine with its calls and what it has open; and the sockets of all drivers."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from .. import _fork
from ..errors import MissingExtraError

try:
    from sqlalchemy import event
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ("Line", "lent")


class Line:
    """An engine, its calls, and what one of our own has open."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._calls = 0
        self._records: WeakSet[Any] = WeakSet()

    def watch(self) -> Self:
        """Note what the engine opens, which is our own."""
        event.listen(self.engine.sync_engine, "connect", self._connected)
        return self

    def _connected(self, _: object, record: object) -> None:
        self._records.add(record)

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Count a call."""
        self._calls += 1
        self.is_idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self.is_idle.set()

    async def close(self) -> None:
        """Wait for the calls that are under way, and close what is open."""
        try:
            with suppress(Exception):
                await self.is_idle.wait()
                await self.engine.dispose()
        finally:
            self.terminate()

    def terminate(self) -> None:
        """Drop what is open without a farewell; its event loop may be dead."""
        for record in tuple(self._records):
            if (connection := record.dbapi_connection) is not None:
                # The loop is closed, says the transport, once it is done; or there is no such way.
                with suppress(RuntimeError, NotImplementedError):
                    if hasattr(connection, "terminate"):
                        connection.terminate()
                    else:  # psycopg's
                        connection.driver_connection.pgconn.finish()
        self.engine.sync_engine.dispose(close=False)

    def sockets(self) -> Generator[Any]:
        """Return those of all connections, as `_fork.silence` takes them."""
        for record in tuple(self._records):
            if record.dbapi_connection is not None:
                yield _socket_of(record.dbapi_connection.driver_connection)


class _Lent:
    """Connections on which a call is under way; a child that was forked meanwhile tells nobody."""

    def __init__(self) -> None:
        self.drivers: set[Any] = set()
        _fork.watch(self)

    def _forget(self) -> None:
        _fork.silence(map(_socket_of, self.drivers))


_lent: Final = _Lent()


@contextmanager
def lent(connection: Connection) -> Generator[None]:
    """Have a connection silenced in a child that is forked in the meantime."""
    driver = connection.connection.driver_connection
    _lent.drivers.add(driver)
    try:
        yield
    finally:
        _lent.drivers.discard(driver)


def _socket_of(driver: Any) -> Any:  # noqa: ANN401 - of any driver
    """Return the socket of a driver's connection, or None."""
    transport = getattr(driver, "_transport", None)  # asyncpg
    if transport is None:  # asyncmy, aiomysql
        transport = getattr(getattr(driver, "_writer", None), "transport", None)
    if transport is not None:
        return transport.get_extra_info("socket")
    return getattr(driver, "pgconn", None) and _Descriptor(driver)  # psycopg


class _Descriptor:
    """The socket of libpq, as a number."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - psycopg's
        self._driver = driver

    def fileno(self) -> int:
        """Return it, or -1 if it is closed."""
        return self._driver.pgconn.socket if not self._driver.closed else -1
