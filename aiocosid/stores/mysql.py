"""Counters and machine ids in a MySQL or MariaDB database.  Requires the ``mysql`` extra."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from ..errors import InvalidArgumentError, MissingExtraError
from ._connection import silence, socket_of
from ._durability import DurabilityCheck
from ._executor import CONNECT_TIMEOUT, MAX_CONNECTIONS, PoolDriver, PoolExecutor
from ._mysql import MYSQL, SESSION, in_foreign_session, run
from ._sql import SqlBackend
from ._url import MYSQL as SPEC
from ._url import client_context, read_url
from .base import BackendStore

try:
    from asyncmy.cursors import Cursor
    from asyncmy.pool import Pool
except ModuleNotFoundError as _exc:
    raise MissingExtraError("asyncmy", extra="mysql") from _exc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._dialect import Value
    from ._durability import Durability
    from ._executor import Row
    from ._url import StoreUrl

__all__ = ("MysqlStore",)

_POOL: Final = "must be an asyncmy.Pool; use from_url() for a URL"

_Pool = Any  # asyncmy's own annotations are incomplete
_Session = Any


class MysqlStore(BackendStore[SqlBackend]):
    """Counters and machine ids in MariaDB or MySQL, in CosId's tables and one of aiocosid's.

    Runs on asyncio.  `create_schema` creates the tables; tables that CosId created work as well.
    The collation of CosId's tables may treat two names as equal: MySQL's default does so with ``a``
    and ``A``, and nearly all collations ignore trailing spaces.  Both names then count in one row
    and share one sequence: no id is issued twice, and no machine id is granted to both.
    """

    __slots__ = ()

    def __init__(self, pool: Pool, *, durability: Durability = "warn") -> None:
        """Use your own pool; nothing is sent yet.

        Args:
            pool: an ``asyncmy.Pool``, which the store never closes.  A connection on which a call
                failed or was cancelled is closed, and the pool replaces it.  Connections need not
                be in autocommit or strict mode.
            durability: what to do about a server whose settings may lose grants: ``"warn"`` logs
                one warning, ``"refuse"`` issues no ids, and ``"ignore"`` does nothing.

        Raises:
            InvalidArgumentError: ``pool`` is not an asyncmy pool, or ``durability`` is not one of
                the three words.  A single connection is refused because it runs one query at a
                time, and rolling back its transactions could undo grants.
        """
        if not isinstance(pool, Pool):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("pool", type(pool), _POOL)
        check = DurabilityCheck(durability, pool)
        self._backend = SqlBackend(PoolExecutor(_DRIVER, pool), MYSQL, check)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use up to four connections of its own, opened on first use and again after `aclose`.

        Args:
            url: ``mysql://user:password@host:port/database``, or the same with ``mariadb://``.
                Options after a ``?``: ``unix_socket=/path``; ``ssl-mode`` (``DISABLED``, the
                default, ``REQUIRED``, ``VERIFY_CA`` or ``VERIFY_IDENTITY``), ``ssl-ca``,
                ``ssl-cert`` and ``ssl-key``, as for the ``mysql`` client; and
                ``durability=refuse``, as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        options, found = _options_of(url)

        async def connect() -> _Pool:
            return Pool(0, MAX_CONNECTIONS, autocommit=True, init_command=SESSION, **options)

        executor = PoolExecutor(_DRIVER, connect=connect, place=f"{found}")
        check = DurabilityCheck(found.options["durability"])
        return cls._on(SqlBackend(executor, MYSQL, check), url)


def _options_of(url: str) -> tuple[dict[str, Any], StoreUrl]:
    """Return the options of a connection, and the parsed URL.

    Raises:
        InvalidArgumentError: the URL is malformed, or an option is unknown; the message shows no
            part that may be secret.
    """
    found = read_url(url, SPEC)
    (host,), query = found.hosts, found.options
    user, password = found.login or ("", "")
    options = {
        "host": host.name,
        "port": host.port,
        "database": query["database"],
        "user": user,
        "password": password.encode(),  # the driver would send a str as Latin-1
        "unix_socket": query["unix_socket"],
        "ssl": _tls(found),
    }
    return {name: value for name, value in options.items() if value}, found


def _tls(url: StoreUrl) -> ssl.SSLContext | None:
    """Return the TLS context; None by default unless ``ssl-ca`` is given.

    It works like the ``mysql`` client, except that TLS is used only if it is requested.
    """
    names = ("ssl-ca", "ssl-cert", "ssl-key")
    mode = url.options["ssl-mode"] or ("VERIFY_CA" if url.options["ssl-ca"] else "DISABLED")
    if mode == "DISABLED":
        if any(url.options[name] for name in names):
            rule = "must have another ssl-mode than DISABLED with ssl-ca, ssl-cert or ssl-key"
            raise SPEC.refused(url.scheme, rule)
        return None
    context = client_context(SPEC, url, names)
    context.check_hostname = mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_NONE if mode == "REQUIRED" else ssl.CERT_REQUIRED
    return context


async def _acquire(pool: _Pool) -> _Session:
    # The call that needs a connection opens it, because the driver would wait for a silent server.
    opens = not pool.freesize and pool.size < pool.maxsize
    with anyio.fail_after(CONNECT_TIMEOUT if opens else None):
        return await pool.acquire()


async def _run(connection: _Session, statement: str, values: Mapping[str, Value]) -> list[Row]:
    # A plain cursor is used, whatever cursor class the user's pool has chosen.
    return await run(connection.cursor(Cursor), statement, values)


async def _release(pool: _Pool, connection: _Session, error: BaseException | None) -> None:
    if error is not None:
        # The connection may be in a transaction, have a pending reply, or lead to a replica by now.
        _hang_up(connection)
    pool.release(connection)


async def _disconnect(pool: _Pool) -> None:
    pool.close()
    try:
        with suppress(Exception):
            await pool.wait_closed()
    finally:
        for connection in _connections(pool):
            connection.close()


def _salvage(pool: _Pool) -> None:
    for connection in _connections(pool):
        _hang_up(connection)


def _silence(pool: _Pool) -> None:
    silence(_connections(pool))


def _hang_up(connection: _Session) -> None:
    """End a session, and tell the server at once, because the session may hold locks.

    The transport alone would close it only in a later loop turn, and not at all if the loop is
    closed.
    """
    found = socket_of(connection)
    with suppress(RuntimeError):  # the loop is closed
        connection.close()
    if found is not None and found.fileno() >= 0:
        # It is a duplicate, because uvloop's own object has no shutdown().
        with socket.socket(fileno=os.dup(found.fileno())) as twin, suppress(OSError):
            twin.shutdown(socket.SHUT_RDWR)


def _connections(pool: _Pool) -> tuple[_Session, ...]:
    return (*pool._free, *pool._used)


_DRIVER: Final = PoolDriver(
    *("mysql", _run, _release, _disconnect, _salvage, _silence),
    acquire=_acquire,
    foreign=in_foreign_session,
)
