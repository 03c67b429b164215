"""Counters in a PostgreSQL database.  Requires the ``postgres`` extra."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

import anyio

from .. import _fork
from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
)
from ..errors import (
    ForkedError,
    InvalidArgumentError,
    MissingExtraError,
    StoreError,
    WrongLoopError,
)
from ._durability import DurabilityCheck
from ._executor import CLOSE_TIMEOUT, Executor, OwnExecutor, running_asyncio_loop
from ._postgres import (
    POSTGRES,
    SETTINGS,
    STANDBY,
    checked_url,
    durability_of,
    each_host,
    refused_url,
    translated,
    weaknesses_of,
)
from ._postgres_machines import POSTGRES_MACHINES
from ._sql import SqlIdSegmentDistributor, SqlStore
from ._sql_machines import SqlMachineIdDistributor

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
    from collections.abc import Sequence

    from ..abc import InstanceId
    from ._durability import Durability
    from ._executor import Row, Value

__all__ = ("PostgresIdSegmentDistributor", "PostgresMachineIdDistributor", "PostgresStore")

_CALL_TIMEOUT: Final = 30.0  # seconds; the last resort of callers that set no deadline themselves
_CONNECT_TIMEOUT: Final = 1.5  # seconds, for all hosts: below the 2 s of a generator's call
_TEAR_TIMEOUT: Final = 0.5  # seconds; how long a server may take to stop a torn call
_RELEASE_TIMEOUT: Final = 1.0  # seconds; how long a pool may take to clean a connection
_MAX_CONNECTIONS: Final = 4  # of a pool of ours; what comes above waits its turn

_Pool = Any  # asyncpg's own annotations stop half-way
_driver: Any = asyncpg


class PostgresIdSegmentDistributor(SqlIdSegmentDistributor):
    """A counter in PostgreSQL, in CosId's table ``cosid``.

    Runs on asyncio; also behind PgBouncer in transaction mode.  The table is created by
    `PostgresStore.create_schema`; one that CosId has made will do.
    """

    __slots__ = ()

    dialect = POSTGRES

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        durability: Durability = "warn",
    ) -> None:
        """Describe a counter on your own pool; nothing is sent yet.

        Args:
            pool: stays yours to close.  A connection on which a call was cancelled or timed out
                is terminated, and the pool replaces it.  Behind PgBouncer make the pool with
                ``statement_cache_size=0``.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            durability: what to do about sessions whose settings may lose grants: ``"warn"`` in the
                log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: an argument is outside its range; a single connection is refused,
                since it runs one query at a time, and its transactions could take grants back.
            NameTooLongError: ``{namespace}.{name}`` is longer than 100 characters.
        """
        executor = _Borrowed(pool, durability)
        super().__init__(executor, namespace=namespace, name=name, offset=offset, step=step)

    @classmethod
    def _own(cls, url: str) -> Executor:
        return _Own(url)


class PostgresMachineIdDistributor(SqlMachineIdDistributor):
    """The machine ids of one namespace in PostgreSQL, in CosId's table ``cosid_machine``.

    Runs on asyncio; also behind PgBouncer in transaction mode.  Both tables, CosId's and
    ``aiocosid_machine`` beside it, are created by `PostgresStore.create_schema`.
    """

    __slots__ = ()

    machine_dialect = POSTGRES_MACHINES

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        durability: Durability = "warn",
    ) -> None:
        """Describe who asks on your own pool; nothing is sent yet.

        Args:
            pool: as for `PostgresIdSegmentDistributor`.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            durability: what to do about settings that may lose who holds which id; as for
                `PostgresIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(
            _Borrowed(pool, durability),
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    @classmethod
    def _own(cls, url: str) -> Executor:
        return _Own(url)


class PostgresStore(SqlStore):
    """The counters in one PostgreSQL database."""

    __slots__ = ()

    distributor = PostgresIdSegmentDistributor
    machine_distributor = PostgresMachineIdDistributor

    def __init__(self, pool: asyncpg.Pool, *, durability: Durability = "warn") -> None:
        """Work on your own pool, which stays yours to close; nothing is sent yet.

        Args:
            pool: as for `PostgresIdSegmentDistributor`.
            durability: what to do about sessions whose settings may lose grants; see there.

        Raises:
            InvalidArgumentError: it is no pool of asyncpg's, or ``durability`` none of the words.
        """
        super().__init__(_Borrowed(pool, durability))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on up to four connections of its own, opened on first use and anew after `aclose`.

        Args:
            url: ``postgresql://user:password@host:port/database``, with ``sslmode`` and whatever
                else asyncpg understands after a ``?``; several hosts are separated by commas.
                ``durability=refuse`` after the ``?`` is as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        return cls._on(cls.distributor._own(url))


# Refused, silent, unknown, cut off; starting; a standby where that is not wanted.
_NEXT_HOST: Final = (
    *(OSError, PostgresConnectionError),
    *(CannotConnectNowError, InternalClientError),
)


async def _connected(url: str, **options: Any) -> Any:  # noqa: ANN401 - as the driver says it
    """Connect to the first host that will do; the driver would stay with one that is silent."""
    *others, last = each_host(url)
    share = _CONNECT_TIMEOUT / (len(others) + 1)
    for host in others:
        with suppress(*_NEXT_HOST):
            return await _driver.connect(host, timeout=share, **options)
    return await _driver.connect(last, timeout=share, **options)


async def _fetch(label: str, pool: _Pool, statement: str, *values: Value) -> list[Row]:
    generation = _fork.generation
    try:
        with anyio.fail_after(_CALL_TIMEOUT):
            connection = await _acquired(label, pool)
            try:
                rows: list[Row] = await connection.fetch(statement, *values)
            except PostgresError as error:
                # An answer: the connection is in step with its server.  Which may be a standby by
                # now: the next connection may find the primary.
                if getattr(error, "sqlstate", None) in STANDBY:
                    connection.terminate()
                await _release(pool, connection)
                raise
            except BaseException:
                # The answer may still come, and whoever got the connection next would wait for it.
                if generation == _fork.generation:
                    await _tear(connection)
                else:
                    _fork.abandoned.append(connection)
                raise
            await _release(pool, connection)
            return rows
    except ForkedError:
        raise
    except Exception as exc:
        raise translated(label, exc) from exc


async def _check(label: str, pool: _Pool, durability: DurabilityCheck) -> None:
    (row,) = await _fetch(label, pool, SETTINGS)
    durability.judge(label, weaknesses_of(*row))


async def _acquired(label: str, pool: _Pool) -> Any:  # noqa: ANN401 - a pool's own kind
    generation = _fork.generation
    connection = await pool.acquire()
    if generation != _fork.generation:  # while it waited
        _fork.abandoned.append(connection)
        raise ForkedError(f"the connection to {label}")
    return connection


async def _tear(connection: Any) -> None:  # noqa: ANN401 - a pool's own kind
    """Drop a connection under a call, and have the server stop it: it may wait for a lock."""
    try:
        with anyio.move_on_after(_TEAR_TIMEOUT, shield=True), suppress(Exception):
            await connection.close()  # sends a request to cancel, and waits until it has worked
    finally:
        with suppress(InterfaceError):  # the pool has taken it back
            connection.terminate()


async def _release(pool: _Pool, connection: Any) -> None:  # noqa: ANN401 - a pool's own kind
    # Not awaited itself: cancelled, the pool would lose sight of its own task and of its error.
    releasing = asyncio.ensure_future(pool.release(connection, timeout=_RELEASE_TIMEOUT))
    releasing.add_done_callback(_released)
    try:
        await asyncio.wait((releasing,))
    except BaseException:
        # Else it would be cleaned in the background, by a task that nobody waits for.
        with suppress(InterfaceError):  # it was done already
            connection.terminate()
        raise


def _released(releasing: asyncio.Future[None]) -> None:
    """Hear of an error and let it be: the answer is in hand, and the pool drops the connection."""
    if not releasing.cancelled():
        releasing.exception()


class _Borrowed(Executor):
    """On the user's pool."""

    __slots__ = ("_durability", "_loop", "_pool")

    def __init__(self, pool: object, durability: Durability = "warn") -> None:
        if not isinstance(pool, asyncpg.Pool):
            expected = "an asyncpg.Pool; from_url() takes a URL"
            raise InvalidArgumentError("pool", type(pool), expected=expected)
        super().__init__("postgres")
        self._pool: _Pool = pool
        # Stands for the pool, which takes no weak reference; None until that is opened.
        self._durability = DurabilityCheck(durability, getattr(pool, "_queue", None))
        self._loop: object = None

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        self._check_process("make a new pool in this process")
        loop = running_asyncio_loop(self.label)
        if self._loop not in {None, loop}:
            raise WrongLoopError("the pool")
        self._loop = loop
        if self._pool.is_closing():
            raise StoreError(self.label, "the pool is closed")
        if self._durability.is_due:
            await _check(self.label, self._pool, self._durability)
        return await _fetch(self.label, self._pool, statement, *values.values())


class _Own(OwnExecutor[_Pool]):
    """On a pool of its own."""

    __slots__ = ("_connections", "_durability", "_url")

    def __init__(self, url: str) -> None:
        super().__init__("postgres")
        self._url, durability = durability_of(checked_url(url))
        self._durability = DurabilityCheck(durability)
        self._connections: WeakSet[Any] = WeakSet()

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        pool = await self._ready()
        try:
            if self._durability.is_due:
                await _check(self.label, pool, self._durability)
            return await _fetch(self.label, pool, statement, *values.values())
        except StoreError as error:
            cause = error.__cause__
            if not isinstance(cause, ValueError) or isinstance(cause, OSError):
                raise
        # The driver could not read the URL; its own sentence may hold a piece of the password.
        raise refused_url()

    async def _connect(self) -> _Pool:
        return await _driver.create_pool(
            self._url,
            connect=_connected,
            min_size=0,
            max_size=_MAX_CONNECTIONS,
            # A connection of PgBouncer's is another server session in every transaction.
            statement_cache_size=0,
            init=self._made,
            reset=_leave,
        )

    async def _made(self, connection: asyncpg.Connection) -> None:
        self._connections.add(connection)

    async def _disconnect(self, client: _Pool) -> None:
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(Exception):
            await client.close()
        client.terminate()

    def _salvage(self, client: _Pool) -> None:
        with suppress(RuntimeError):  # the loop is closed, says the transport, once it is done
            client.terminate()

    def _silence(self) -> None:
        connections = tuple(self._connections)
        _fork.silence(each._transport.get_extra_info("socket") for each in connections)
        self._connections.clear()


async def _leave(_: asyncpg.Connection) -> None:
    """Change nothing: a statement of ours leaves nothing to reset."""
