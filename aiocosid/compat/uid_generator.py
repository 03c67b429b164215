"""uid-generator: worker ids from its table ``WORKER_NODE``, its epochs and its parsed ids.

Its layouts are in `aiocosid.snowflake`: ``UID_GENERATOR`` and similar ones.  Its
DefaultUidGenerator corresponds to a `SnowflakeId` with one of them and
``sequence_reset_threshold=None``, and its CachedUidGenerator to a `CachedSnowflakeId`.  Requires
the ``sqlalchemy`` extra.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..abc import DEFAULT_NAMESPACE
from ..abc.checks import check_text
from ..abc.dates import resolve_zone
from ..errors import InvalidArgumentError, StoreError, WorkerIdsUsedUpError
from ..machine.instance_ids import as_instance_id, this_host
from ..stores.backend import as_integer
from ..stores.sql import executor_of, executor_on
from ._table import Examined, create_table
from ._worker_ids import Entry, Registry, WorkerIdDistributor, WorkerIdStore, refuse_region

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import tzinfo

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..abc import InstanceId, MachineIdDistributor
    from ..snowflake import SnowflakeLayout
    from ..stores.sql import SqlExecutor

__all__ = ("WORKER_NODE", "UidGeneratorStore", "epoch_of", "parse")

_EPOCH: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


def epoch_of(epoch_str: str, *, zone: tzinfo | str) -> datetime:
    """Return the epoch of an ``epochStr``, for a `SnowflakeLayout`.

    uid-generator interprets it in its JVM's time zone: with the same setting, ids on hosts in China
    and on hosts in UTC are eight hours apart.

    Args:
        epoch_str: ``yyyy-MM-dd``, for example ``2016-05-20``.
        zone: the time zone of the JVM that made the ids: a tzinfo, or a name such as
            "Asia/Shanghai" or "+08:00".

    Raises:
        InvalidArgumentError: ``epoch_str`` is not a date, or the zone is unknown.
    """
    found = _EPOCH.fullmatch(epoch_str)
    where = resolve_zone(zone)
    try:
        year, month, day = map(int, found.groups() if found else ())
        return datetime(year, month, day, tzinfo=where).astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: before year 1 in UTC
        rule = "must be a date such as 2016-05-20"
        raise InvalidArgumentError("epoch_str", epoch_str, rule) from None


def parse(uid: int, layout: SnowflakeLayout, *, zone: tzinfo | str) -> dict[str, str]:
    """Return the fields of uid-generator's ``parseUID``: all as text, with the local time.

    Args:
        uid: an id.
        layout: the id's layout.
        zone: the time zone of the local time; uid-generator uses its JVM's.

    Raises:
        InvalidIdError: the number is not an id of the layout.  A negative number comes from
            uid-generator's cached generator after its layout had ended.
        InvalidArgumentError: the zone is unknown.
    """
    parts = layout.parse(uid, resolve_zone(zone))
    return {
        "UID": str(uid),
        "timestamp": parts.timestamp.strftime("%Y-%m-%d %H:%M:%S"),
        "workerId": str(parts.machine_id),
        "sequence": str(parts.sequence),
    }


_Endpoint: TypeAlias = "tuple[str, str | None, int]"  # HOST_NAME, PORT and TYPE

_WIDTH: Final = 64  # characters of HOST_NAME and PORT
_CONTAINER, _MACHINE = 1, 2  # TYPE; uid-generator's WorkerNodeType _CONTAINER and ACTUAL
_DEFAULT_BITS: Final = 22  # for the worker id in uid-generator's default layout
_EXAMINE: Final = "SELECT COUNT(*), MIN(ID), MAX(ID) FROM WORKER_NODE"
_INTERVAL: Final = 60.0  # seconds; nothing is sent, so the value does not matter

_HOST_VARIABLE: Final = "JPAAS_HOST"
_PORT_VARIABLES: Final = ("JPAAS_HTTP_PORT", "JPAAS_HOST_PORT_8080")

_COLUMNS: Final = """
  ID {number},
  HOST_NAME VARCHAR(64) NOT NULL, PORT VARCHAR(64) NOT NULL,
  TYPE INT NOT NULL, LAUNCH_DATE DATE NOT NULL,
  MODIFIED TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  CREATED TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
"""

WORKER_NODE: Final = create_table("WORKER_NODE", _COLUMNS)
"""Creates the table with uid-generator's columns if it is missing; by dialect."""

_INSERT: Final = """INSERT INTO WORKER_NODE (HOST_NAME, PORT, TYPE, LAUNCH_DATE, MODIFIED, CREATED)
VALUES (:host, :port, :type, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"""


class _Starts(Registry["SqlExecutor"]):
    """The rows of ``WORKER_NODE``: each start inserts one, which is never read again.

    A number belongs to the object as long as the process runs, even if a generator that uses it is
    closed and reopened; the object also remembers the time up to which ids may be issued.  A forked
    child gets its own row.
    """

    by_address = False

    def __init__(self, on: SqlExecutor, where: str, who: InstanceId, endpoint: _Endpoint) -> None:
        super().__init__(on, where, who, interval=_INTERVAL)
        self._endpoint = endpoint
        self.adopt()

    def adopt(self) -> None:
        self._own: Entry | None = None

    async def find(self, at: SqlExecutor, bits: int, now_ms: int, latest_ms: int) -> Entry | None:  # noqa: ARG002 - each start takes a new row
        """Insert a row and take its number, or return the number that this object already has."""
        own = self._own = self._own or Entry(worker_id=await self._insert(at, now_ms))
        if own.worker_id >> bits:
            self.adopt()  # with a wider layout, the next call may use this number or the next
            raise WorkerIdsUsedUpError(self.namespace, worker_id=own.worker_id, bits=bits)
        return own

    async def _insert(self, at: SqlExecutor, now_ms: int) -> int:
        host, port, kind = self._endpoint
        if port is None:
            port = f"{now_ms}-{random.randrange(100_000)}"  # noqa: S311 - for people, as in Java
        returning = " RETURNING ID" if at.dialect_name == "postgresql" else ""
        done = await at.run(_INSERT + returning, host=host, port=port, type=kind)
        inserted_id = as_integer(done.rows[0][0]) if done.rows else done.inserted_id
        if inserted_id is None or inserted_id < 1:
            # Without generated keys, every process would get id 0.
            remedy = "let the database generate its ID, above 0"
            raise StoreError(self.store, f"WORKER_NODE gave {inserted_id!r}", remedy=remedy)
        return inserted_id

    async def read(self, at: SqlExecutor, worker_id: int) -> Entry | None:  # noqa: ARG002 - nothing is sent
        own = self._own
        return own if own is not None and own.worker_id == worker_id else None

    async def write(self, at: SqlExecutor, entry: Entry, new: int) -> bool:  # noqa: ARG002 - nothing is sent
        self._own = replace(entry, stamp=new)
        return True

    def why_lost(self, entry: Entry | None, stamps: set[int], now_ms: int | None) -> str | None:  # noqa: ARG002 - no other process takes it
        return "another object, or the parent process, has it" if entry is None else None


class UidGeneratorStore(WorkerIdStore):
    """uid-generator's database: worker ids, on any SQLAlchemy engine.  It has no counters.

    Each start gets the number of a new row in ``WORKER_NODE`` as its worker id.  Java nodes can run
    at the same time.  There are no renewals and no number is reused, so an id is never lost, and
    each start uses up one number; 22 bits are enough for 4,194,303 starts.

    The database must never generate a number twice.  It may do so after ``TRUNCATE``, a restored
    backup, or a fail-over to a lagging replica.  If the newest rows were deleted, it may also do so
    after a restart of MySQL before 8.0, or on SQLite without AUTOINCREMENT.
    """

    scheme = "uid-generator"
    why = "uid-generator has no counters"
    _connect = staticmethod(executor_of)

    def __init__(self, engine: AsyncEngine) -> None:
        """Use your own engine, which the store never closes; nothing is sent yet.

        Raises:
            InvalidArgumentError: ``engine`` is not an ``AsyncEngine``, or its database is not
                supported.
        """
        self._door = executor_on(engine)

    def __repr__(self) -> str:
        """Name the database, without credentials."""
        return f"<{type(self).__name__} {self._door.label}>"

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        host: str | None = None,
        port: str | int | None = None,
        container: bool | None = None,
        **unused: Any,  # noqa: ANN401 - ids are permanent
    ) -> MachineIdDistributor:
        """Return the distributor of one start on this store's connections; nothing is sent yet.

        The number belongs to the distributor as long as the process runs, even if a generator that
        uses it is closed and reopened; a forked child gets its own row.

        Args:
            namespace: the machine ids' namespace, used only in messages and statistics.
            instance_id: the instance, used only in messages and statistics.
            host: HOST_NAME, informative only, at most 64 characters; by default this host's name.
            port: PORT, informative only; by default the time and a random number.  Omit it if nodes
                with uid-generator's Spring Boot starter run, because they reuse the row of their
                host and port.
            container: TYPE, 1 for a container and 2 for a machine.  The default is 2.  But if
                neither host nor port is given, and the environment has ``JPAAS_HOST`` and
                ``JPAAS_HTTP_PORT`` or ``JPAAS_HOST_PORT_8080``, host and port come from there and
                TYPE is 1, as in uid-generator.  With False the environment is not read.
            **unused: ``safe_guard`` and ``interval``, which are ignored because ids never expire.

        Raises:
            InvalidArgumentError: an argument is outside its range; the environment is read and has
                a host without a port, or a port without a host; or ``region`` is given, which
                ``WORKER_NODE`` does not support.
        """
        refuse_region(unused)
        endpoint = _endpoint_of(host, port, container=container)
        who = as_instance_id(instance_id)
        return WorkerIdDistributor(_Starts(self._door, namespace, who, endpoint))

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:  # noqa: ARG002 - it keeps no witness
        """Create ``WORKER_NODE`` as uid-generator ships it, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._door.create_file()
        await self._door.run(WORKER_NODE[self._door.dialect_name])

    async def examine(self) -> Sequence[Examined]:
        """Return the number of starts, and the next worker id; nothing is written.

        The next id is estimated as one above the highest row, because the database has its own
        counter.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        (row,) = (await self._door.run(_EXAMINE)).rows
        count, lowest, highest = map(as_integer, row)
        most, problems = (1 << _DEFAULT_BITS) - 1, list[str]()
        if lowest is not None and lowest < 1:
            problems.append(f"a row has ID {lowest}; worker ids are above 0")
        if (highest or 0) > most:
            default = f"uid-generator's default of {_DEFAULT_BITS} bits"
            problems.append(f"worker ids above {most} do not fit {default}")
        last = f"the worker id of the last of {count} starts, which is never reused"
        meaning = "no start yet" if highest is None else last
        facts: dict[str, Any] = {"name": "WORKER_NODE", "stored": highest, "meaning": meaning}
        return [Examined(**facts, next_id=(highest or 0) + 1, problems=tuple(problems))]


def _endpoint_of(host: str | None, port: str | int | None, *, container: bool | None) -> _Endpoint:
    """Return HOST_NAME, PORT (None to generate one) and TYPE."""
    if port is not None and type(port) not in {int, str}:
        raise InvalidArgumentError("port", port, "must be a number or a string")
    text = None if port is None else str(port)
    if host is None and port is None and container is not False:
        host, text = _container(os.environ)
        container = container or host is not None
    host = this_host() if host is None else host
    check_text("host", host, at_most=_WIDTH)
    if text is not None:
        check_text("port", text, at_most=_WIDTH)
    return host, text, _CONTAINER if container else _MACHINE


def _container(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return a JPAAS container's host and port, as uid-generator's DockerUtils does."""
    host = environ.get(_HOST_VARIABLE) or None
    port = next((environ[name] for name in _PORT_VARIABLES if environ.get(name)), None)
    if (host is None) != (port is None):
        ports = " or ".join(_PORT_VARIABLES)
        rule = f"is required by {ports}; set both or neither"
        if host is not None:
            rule = f"requires {ports}; set both or neither"
        raise InvalidArgumentError(_HOST_VARIABLE, host, rule)
    return host, port
