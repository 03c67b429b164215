"""Leaf's registry in MySQL or MariaDB: the fork's mode ``mysql``, table ``leaf_workerid_alloc``.

Requires the ``sqlalchemy`` extra and a driver, for example from the ``mysql`` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...abc.checks import MAX_MS
from ...abc.options import takes
from ...errors import CorruptMachineStateError, InvalidArgumentError, LeafWorkerIdsUsedUpError
from ...stores.backend import as_integer
from ...stores.sql import executor_of, executor_on
from .._worker_ids import Entry, Registry, WorkerIdStore, examine_registry
from ._address import ADDRESS, INTERVAL, OFFLINE, WHY, WORKER_BITS, LeafAddress
from ._options import LeafOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...errors import CosIdError
    from ...stores.sql import SqlExecutor
    from .._table import Examined

__all__ = ("LeafWorkerIdStore",)

_NAMESPACE: Final = "leaf_workerid_alloc"

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS leaf_workerid_alloc (
  id bigint NOT NULL AUTO_INCREMENT,
  ip varchar(127) DEFAULT NULL, port varchar(127) DEFAULT NULL, ip_port varchar(127) NOT NULL,
  max_timestamp bigint DEFAULT NULL, create_time timestamp NULL DEFAULT NULL,
  update_time timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id), UNIQUE KEY idx_ipport (ip_port)
) ENGINE=InnoDB AUTO_INCREMENT=0"""

_READ: Final = "SELECT id, max_timestamp, ip_port FROM leaf_workerid_alloc WHERE "

# The time is 0 and not NULL, because a fork node that starts with this address cannot read NULL.
_INSERT: Final = """
INSERT INTO leaf_workerid_alloc (ip, port, ip_port, max_timestamp, create_time, update_time)
VALUES (:ip, :port, :address, 0, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)
ON DUPLICATE KEY UPDATE ip_port = ip_port"""

_OLDEST: Final = """
SELECT ip_port, (SELECT MAX(id) FROM leaf_workerid_alloc), id
FROM leaf_workerid_alloc ORDER BY max_timestamp, id LIMIT 20"""

_WRITE: Final = """
UPDATE leaf_workerid_alloc SET max_timestamp = :new
WHERE id = :id AND ip_port = :address AND max_timestamp <=> :found"""


class _Rows(Registry["SqlExecutor"]):
    """The rows of ``leaf_workerid_alloc``; ``max_timestamp`` is the stamp."""

    def __init__(self, executor: SqlExecutor, address: LeafAddress) -> None:
        super().__init__(executor, _NAMESPACE, address.instance_id, interval=INTERVAL)
        self._address = address
        if executor.dialect_name != "mysql":
            rule = "must be on MySQL or MariaDB, where Leaf keeps worker ids"
            raise InvalidArgumentError("engine", executor.dialect_name, rule)

    async def find(self, at: SqlExecutor, bits: int, now_ms: int, latest_ms: int) -> Entry | None:  # noqa: ARG002 - there is only one row
        rows = (await at.run(f"{_READ} ip_port = :address", address=str(self._address))).rows
        if not rows:
            await self._insert(at, bits)
            return None  # claimed like any other row, because another process may be faster
        entry = self._entry_of(rows[0])
        if entry.worker_id >> bits:
            raise await self._used_up(at, bits, entry.worker_id)
        return entry

    async def _insert(self, at: SqlExecutor, bits: int) -> None:
        """Insert this address's row, unless the next number would not fit."""
        rows = (await at.run(_OLDEST)).rows
        if rows and int(rows[0][1]) + 1 >> bits:
            raise await self._used_up(at, bits, -1)
        who = self._address
        await at.run(_INSERT, ip=who.ip, port=who.port, address=str(who))

    async def _used_up(self, at: SqlExecutor, bits: int, worker_id: int) -> Exception:
        rows = (await at.run(_OLDEST)).rows
        holders = tuple(str(row[0]) for row in rows if not (as_integer(row[2]) or 0) >> bits)[:3]
        return LeafWorkerIdsUsedUpError(_NAMESPACE, worker_id=worker_id, bits=bits, holders=holders)

    async def read_all(self, at: SqlExecutor) -> list[tuple[str, Entry | CosIdError]]:
        rows = (await at.run(f"{_READ} TRUE ORDER BY id")).rows
        return [(str(row[2]), self._entry_or_error(row)) for row in rows]

    def _entry_or_error(self, row: Sequence[Any]) -> Entry | CosIdError:
        try:
            return self._entry_of(row)
        except CorruptMachineStateError as error:
            return error

    async def read(self, at: SqlExecutor, worker_id: int) -> Entry | None:
        rows = (await at.run(f"{_READ} id = :id", id=worker_id)).rows
        return self._entry_of(rows[0]) if rows else None

    async def write(self, at: SqlExecutor, entry: Entry, new: int) -> bool:
        found = None if entry.stamp < 0 else entry.stamp
        values = {"id": entry.worker_id, "address": str(self._address), "found": found, "new": new}
        return (await at.run(_WRITE, **values)).matched == 1

    def _entry_of(self, row: Sequence[Any]) -> Entry:
        """Read a row; NULL means no time.

        Raises:
            CorruptMachineStateError: the row has no worker id or no valid time.
        """
        worker_id, stamp = as_integer(row[0]), -1 if row[1] is None else as_integer(row[1])
        found, expected = row[1], "a max_timestamp in milliseconds since 1970"
        if worker_id is None or worker_id < 0:
            found, expected = row[0], "a worker id, at least 0"
        elif row[1] is None or (stamp is not None and 0 <= stamp < MAX_MS):
            return Entry(worker_id=worker_id, stamp=stamp or 0, owner=str(row[2]))
        place, found = f"leaf_workerid_alloc of {row[2]}", repr(found)
        raise CorruptMachineStateError(self.store, place=place, found=found, expected=expected)


class LeafWorkerIdStore(WorkerIdStore):
    """The permanent worker id of an address in ``leaf_workerid_alloc``: the ``id`` of its row.

    Every 3 s ``max_timestamp`` is raised to the time up to which ids may be issued, and never
    lowered by that; it is the floor for the next process with this address.  Fork nodes can run at
    the same time, each with its own address.  They store their clock's time there; NULL counts as
    no time.
    """

    scheme = "leaf-workerid"
    options = ADDRESS
    extras = OFFLINE
    why = WHY
    _connect = staticmethod(executor_of)

    @takes(LeafOptions)
    def __init__(self, engine: AsyncEngine, options: LeafOptions, /) -> None:
        """Use your own engine, which the store never closes; nothing is sent yet.

        Args:
            engine: your own engine on MySQL or MariaDB.
            options: the keyword arguments of `LeafOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range; the engine uses another
                database; or ``offline`` is given with your own engine.
        """
        address = LeafAddress.of(options.ip, options.port)
        self._on(_Rows(executor_on(engine), address), options)

    async def examine(self) -> Sequence[Examined]:
        """Read and explain the worker ids of all addresses; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        return await examine_registry(self._registry, WORKER_BITS)

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:  # noqa: ARG002 - it keeps no witness
        """Create ``leaf_workerid_alloc`` as the fork ships it, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._door.run(_CREATE)
