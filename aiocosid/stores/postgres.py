"""Counters and machine ids in a PostgreSQL database.  Requires the ``postgres`` extra."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from ..errors import InvalidArgumentError, MissingExtraError
from ._connection import drop_outcome, silence
from ._durability import DurabilityCheck
from ._executor import (
    CONNECT_TIMEOUT,
    MAX_CONNECTIONS,
    PARAMETER,
    TEAR_TIMEOUT,
    PoolDriver,
    PoolExecutor,
    confirmed,
    is_stale,
)
from ._postgres import POSTGRES, dsn_of
from ._sql import SqlBackend
from ._url import POSTGRES as SPEC
from .base import BackendStore

try:
    import asyncpg
    from asyncpg.exceptions import (
        CannotConnectNowError,
        InterfaceError,
        InternalClientError,
        PostgresConnectionError,
        PostgresError,
    )
except ModuleNotFoundError as _exc:
    raise MissingExtraError("asyncpg", extra="postgres") from _exc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._dialect import Value
    from ._durability import Durability
    from ._executor import Row

__all__ = ("PostgresStore",)

_RELEASE_TIMEOUT: Final = 1.0  # seconds within which a pool must reset a connection

_LABEL: Final = "postgres"
_POOL: Final = "must be an asyncpg.Pool; use from_url() for a URL"

_Pool = Any  # asyncpg's own annotations are incomplete
_Session = Any
_driver: Any = asyncpg


class PostgresStore(BackendStore[SqlBackend]):
    """The counters and machine ids in one PostgreSQL database, in CosId's tables.

    Runs on asyncio, and also works behind PgBouncer in transaction mode.  `create_schema` creates
    the tables; tables that CosId created work as well, with aiocosid's tables next to them.
    """

    __slots__ = ()

    def __init__(self, pool: asyncpg.Pool, *, durability: Durability = "warn") -> None:
        """Use your own pool; nothing is sent yet.

        Args:
            pool: your own pool, which the store never closes.  A connection on which a call was
                cancelled or timed out is terminated, and the pool replaces it.  Behind PgBouncer,
                create the pool with ``statement_cache_size=0``.
            durability: what to do about sessions whose settings may lose grants: ``"warn"`` logs
                one warning, ``"refuse"`` issues no ids, and ``"ignore"`` does nothing.

        Raises:
            InvalidArgumentError: ``pool`` is not an asyncpg pool, or ``durability`` is not one of
                the three words.  A single connection is refused because it runs one query at a
                time, and rolling back its transactions could undo grants.
        """
        if not isinstance(pool, asyncpg.Pool):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("pool", type(pool), _POOL)
        # The queue represents the pool, which allows no weak references; it is None until the pool
        # is opened.
        check = DurabilityCheck(durability, getattr(pool, "_queue", None))
        self._backend = SqlBackend(PoolExecutor(_DRIVER, pool), POSTGRES, check)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use up to four connections of its own, opened on first use and again after `aclose`.

        Args:
            url: ``postgresql://user:password@host:port/database``, with ``sslmode`` and all other
                options of asyncpg after a ``?``; several hosts are separated by commas.
                ``durability=refuse`` after the ``?`` is as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        dsn, hosts, found = dsn_of(url)

        async def connect() -> _Pool:
            return await _driver.create_pool(
                dsn,
                connect=partial(_connected, hosts),
                min_size=0,
                max_size=MAX_CONNECTIONS,
                # Through PgBouncer every transaction may have another server session.
                statement_cache_size=0,
                reset=_leave,
            )

        executor = PoolExecutor(_DRIVER, connect=connect, place=f"{found}")
        check = DurabilityCheck(found.options["durability"])
        return cls._on(SqlBackend(executor, POSTGRES, check), url)


# Refused, no answer, unknown host, or reset; starting up; a standby although a primary is wanted.
_NEXT_HOST: Final = (OSError, PostgresConnectionError, CannotConnectNowError, InternalClientError)


async def _connected(hosts: Sequence[Mapping[str, Any]], dsn: str, **options: Any) -> Any:  # noqa: ANN401 - as the driver says it
    """Connect to the first suitable host; the driver would wait for one that does not answer."""
    options["timeout"] = CONNECT_TIMEOUT / len(hosts)
    *others, last = hosts
    try:
        for host in others:
            with suppress(*_NEXT_HOST):
                return await _driver.connect(dsn, **host, **options)
        return await _driver.connect(dsn, **last, **options)
    except ValueError as exc:
        # A certificate's error, which is an OSError, and one about options and files are passed on:
        # they do not contain the login.
        if isinstance(exc, OSError) or type(exc).__name__ == "ClientConfigurationError":
            raise
    # The driver could not parse the URL; its message may contain a part of the password.
    raise SPEC.refused("postgresql")


async def _run(connection: _Session, statement: str, values: Mapping[str, Value]) -> list[Row]:
    text, names = _numbered(statement)
    with confirmed(_LABEL, connection):
        rows: list[Row] = await connection.fetch(text, *(values[name] for name in names))
    return rows


async def _release(pool: _Pool, connection: _Session, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, PostgresError):
        # The reply may still arrive, and the next user of the connection would wait for it.
        await _abort(connection)
        return
    # A reply arrived, so the connection is in a known state.  But its server may have become a
    # standby; a new connection may find the primary.
    if is_stale(error):
        connection.terminate()
    # This is not awaited directly, because a cancellation would make the pool lose its own task and
    # its error.
    releasing = asyncio.ensure_future(pool.release(connection, timeout=_RELEASE_TIMEOUT))
    # An error does not matter here: the reply has arrived, and the pool drops the connection.
    releasing.add_done_callback(drop_outcome)
    try:
        await asyncio.wait((releasing,))
    except BaseException:
        # Otherwise a background task, which is never awaited, would reset the connection.
        with suppress(InterfaceError):  # it has finished already
            connection.terminate()
        raise


@lru_cache(maxsize=256)
def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """Number the parameters as the driver requires, and return their names in that order."""
    names = tuple(dict.fromkeys(PARAMETER.findall(statement)))
    return PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement), names


async def _abort(connection: _Session) -> None:
    """Drop a connection during a call, and cancel the call on the server: it may hold locks."""
    try:
        with anyio.move_on_after(TEAR_TIMEOUT, shield=True), suppress(Exception):
            await connection.close()  # sends a cancel request, and waits until it has taken effect
    finally:
        with suppress(InterfaceError):  # the connection is back in the pool
            connection.terminate()


async def _disconnect(pool: _Pool) -> None:
    try:
        with suppress(Exception):
            await pool.close()
    finally:
        pool.terminate()


def _salvage(pool: _Pool) -> None:
    with suppress(RuntimeError):  # the loop is closed; the transport has aborted
        pool.terminate()


def _silence(pool: _Pool) -> None:
    silence(holder._con for holder in pool._holders)


async def _leave(_: _Session) -> None:
    """Do nothing: this store's statements leave nothing to reset."""


_DRIVER: Final = PoolDriver(_LABEL, _run, _release, _disconnect, _salvage, _silence)
