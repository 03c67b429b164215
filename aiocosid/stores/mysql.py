"""Counters in a MySQL or MariaDB database.  Requires the ``mysql`` extra."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

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
    StoreUnavailableError,
    WrongLoopError,
)
from ._durability import DurabilityCheck
from ._executor import CLOSE_TIMEOUT, Executor, OwnExecutor, running_asyncio_loop
from ._mysql import (
    IS_UNDONE,
    MYSQL,
    SESSION,
    SETTINGS,
    in_foreign_session,
    refusal,
    run,
    weaknesses_of,
)
from ._mysql_machines import MYSQL_MACHINES
from ._mysql_url import read_url
from ._sql import SqlIdSegmentDistributor, SqlStore
from ._sql_machines import SqlMachineIdDistributor

try:
    from asyncmy.cursors import Cursor
    from asyncmy.errors import MySQLError
    from asyncmy.pool import Pool
except ModuleNotFoundError as _exc:
    raise MissingExtraError("asyncmy", extra="mysql") from _exc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..abc import InstanceId
    from ._durability import Durability
    from ._executor import Row, Value

__all__ = ("MysqlIdSegmentDistributor", "MysqlMachineIdDistributor", "MysqlStore")

_CALL_TIMEOUT: Final = 30.0  # seconds; the last resort of callers that set no deadline themselves
_CONNECT_TIMEOUT: Final = 1.5  # seconds: below the 2 s of a generator's call
_MAX_CONNECTIONS: Final = 4  # of a pool of ours; what comes above waits its turn
_ATTEMPTS: Final = 20  # at a statement that the server undoes, because of what others do

_Pool = Any  # asyncmy's own annotations stop half-way
_Connection = Any


class MysqlIdSegmentDistributor(SqlIdSegmentDistributor):
    """A counter in MySQL 8 or MariaDB, in CosId's table ``cosid``.

    Runs on asyncio.  The table is created by `MysqlStore.create_schema`; one that CosId has made
    will do.  Where its collation takes two names for one, as MySQL's default does with ``a`` and
    ``A``, and nearly all with spaces at the end, both count in one row: no id comes twice, but they
    have not one sequence each.
    """

    __slots__ = ()

    dialect = MYSQL

    def __init__(
        self,
        pool: Pool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        durability: Durability = "warn",
    ) -> None:
        """Describe a counter on your own pool; nothing is sent yet.

        Args:
            pool: stays yours to close.  A connection on which a call failed or was cancelled is
                closed, and the pool replaces it.  It need not be in autocommit mode, nor strict.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            durability: what to do about a server whose settings may lose grants: ``"warn"`` in the
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


class MysqlMachineIdDistributor(SqlMachineIdDistributor):
    """The machine ids of one namespace in MySQL 8 or MariaDB, in CosId's table ``cosid_machine``.

    Runs on asyncio.  Both tables, CosId's and ``aiocosid_machine`` beside it, are created by
    `MysqlStore.create_schema`.
    """

    __slots__ = ()

    machine_dialect = MYSQL_MACHINES

    def __init__(
        self,
        pool: Pool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        durability: Durability = "warn",
    ) -> None:
        """Describe who asks on your own pool; nothing is sent yet.

        Args:
            pool: as for `MysqlIdSegmentDistributor`.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            durability: what to do about settings that may lose who holds which id; as for
                `MysqlIdSegmentDistributor`.

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


class MysqlStore(SqlStore):
    """The counters in one MySQL or MariaDB database."""

    __slots__ = ()

    distributor = MysqlIdSegmentDistributor
    machine_distributor = MysqlMachineIdDistributor

    def __init__(self, pool: Pool, *, durability: Durability = "warn") -> None:
        """Work on your own pool, which stays yours to close; nothing is sent yet.

        Args:
            pool: as for `MysqlIdSegmentDistributor`.
            durability: what to do about a server whose settings may lose grants; see there.

        Raises:
            InvalidArgumentError: it is no pool of asyncmy's, or ``durability`` none of the words.
        """
        super().__init__(_Borrowed(pool, durability))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on up to four connections of its own, opened on first use and anew after `aclose`.

        Args:
            url: ``mysql://user:password@host:port/database``, or ``mariadb://``, which is the same.
                After a ``?`` may follow ``unix_socket=/path``; ``ssl-mode`` (``DISABLED``, the
                default, ``REQUIRED``, ``VERIFY_CA`` or ``VERIFY_IDENTITY``), ``ssl-ca``,
                ``ssl-cert`` and ``ssl-key``, as for mysql's own client; and ``durability=refuse``,
                as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        return cls._on(cls.distributor._own(url))


async def _fetch(label: str, pool: _Pool, statement: str, values: Mapping[str, Value]) -> list[Row]:
    try:
        with anyio.fail_after(_CALL_TIMEOUT):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return await _attempt(label, pool, statement, values)
                except MySQLError as error:
                    if _number(error) not in IS_UNDONE:
                        raise
            return await _attempt(label, pool, statement, values)
    except ForkedError:
        raise
    except Exception as exc:
        raise _translated(label, exc) from exc


async def _attempt(
    label: str, pool: _Pool, statement: str, values: Mapping[str, Value]
) -> list[Row]:
    generation = _fork.generation
    connection = await _acquired(label, pool)
    try:
        # Of this kind, whichever the user has chosen for his own.
        rows = await run(connection.cursor(Cursor), statement, values)
    except BaseException:
        # It may be in a transaction, have a reply to come, or lead to a replica by now.
        if generation == _fork.generation:
            _hang_up(connection)
            pool.release(connection)
        else:
            _fork.abandoned.append(connection)
        raise
    pool.release(connection)
    return rows


async def _acquired(label: str, pool: _Pool) -> _Connection:
    generation = _fork.generation
    # A connection is opened by whoever needs it, and the driver would wait for a silent server.
    opens = not pool.freesize and pool.size < pool.maxsize
    with anyio.fail_after(_CONNECT_TIMEOUT if opens else _CALL_TIMEOUT):
        connection = await pool.acquire()
    if generation != _fork.generation:  # while it waited
        _fork.abandoned.append(connection)
        raise ForkedError(f"the connection to {label}")
    return connection


def _number(error: MySQLError) -> int:
    """Return the number of the server's error, or of the driver's own; 0 if it has none."""
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def _translated(label: str, exc: Exception) -> StoreError:
    """Turn what asyncmy raises into our errors."""
    if isinstance(exc.__cause__, ssl.SSLCertVerificationError):
        return StoreError(label, f"the server's certificate is not trusted: {exc.__cause__}")
    if isinstance(exc, MySQLError):
        reason = str(exc.args[-1]) if exc.args else type(exc).__name__
        return refusal(label, _number(exc), reason)
    if isinstance(exc, OSError):  # among others a deadline
        return StoreUnavailableError(label, str(exc) or "no answer")
    return StoreError(label, str(exc) or type(exc).__name__)


class _Borrowed(Executor):
    """On the user's pool."""

    __slots__ = ("_durability", "_pool")

    def __init__(self, pool: object, durability: Durability = "warn") -> None:
        if not isinstance(pool, Pool):
            expected = "an asyncmy.Pool; from_url() takes a URL"
            raise InvalidArgumentError("pool", type(pool), expected=expected)
        super().__init__("mysql")
        self._pool: _Pool = pool
        self._durability = DurabilityCheck(durability, pool)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        self._check_process("make a new pool in this process")
        if self._pool._loop is not running_asyncio_loop(self.label):
            raise WrongLoopError("the pool")
        if self._pool._closing:
            raise StoreError(self.label, "the pool is closed")
        if self._durability.is_due:
            (row,) = await self._do(SETTINGS, {})
            self._durability.judge(self.label, weaknesses_of(*row))
        return await self._do(statement, values)

    async def _do(self, statement: str, values: Mapping[str, Value]) -> list[Row]:
        return await _fetch(self.label, self._pool, in_foreign_session(statement), values)


class _Own(OwnExecutor[_Pool]):
    """On a pool of its own."""

    __slots__ = ("_durability", "_options", "_pool")

    def __init__(self, url: str) -> None:
        super().__init__("mysql")
        self._options, durability = read_url(url)
        self._durability = DurabilityCheck(durability)
        self._pool: _Pool = None

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        pool = await self._ready()
        if self._durability.is_due:
            (row,) = await _fetch(self.label, pool, SETTINGS, {})
            self._durability.judge(self.label, weaknesses_of(*row))
        return await _fetch(self.label, pool, statement, values)

    async def _connect(self) -> _Pool:
        self._pool = Pool(
            0, _MAX_CONNECTIONS, autocommit=True, init_command=SESSION, **self._options
        )
        return self._pool

    async def _disconnect(self, client: _Pool) -> None:
        client.close()
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(Exception):
            await client.wait_closed()
        for connection in _connections(client):
            connection.close()

    def _salvage(self, client: _Pool) -> None:
        for connection in _connections(client):
            _hang_up(connection)

    def _silence(self) -> None:
        transports = (each._transport for each in _connections(self._pool))
        _fork.silence(each.get_extra_info("socket") for each in transports if each is not None)


def _hang_up(connection: _Connection) -> None:
    """End a session, and have the server know it now: it may hold locks.

    By itself the transport tells it when the loop comes round, if that is not dead.
    """
    transport = connection._transport
    with suppress(RuntimeError):  # the loop is closed, says the transport
        connection.close()
    found = None if transport is None else transport.get_extra_info("socket")
    if found is not None and found.fileno() >= 0:
        # A duplicate, because uvloop's own object cannot do it.
        with socket.socket(fileno=os.dup(found.fileno())) as twin, suppress(OSError):
            twin.shutdown(socket.SHUT_RDWR)


def _connections(pool: _Pool) -> tuple[_Connection, ...]:
    return (*pool._free, *pool._used)
