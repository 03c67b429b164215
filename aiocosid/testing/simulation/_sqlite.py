"""SQLite in the world: the shipped statements, run at one moment of virtual time."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final

from ...stores._executor import Executor
from ...stores._sqlite import SQLITE, run, translated
from ...stores._sqlite_identity import FUNCTION
from ...stores.sqlite import SqliteIdSegmentDistributor, SqliteMachineIdDistributor
from ._clock import START_NS
from ._grants import granted_by_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import InstanceId
    from ...stores._executor import Row, Value
    from ._faults import Faults
    from ._link import Link
    from ._node import Node
    from ._world import World

__all__ = ("SimulatedSqlite",)

JULIAN_1970: Final = 2440587.5  # days
DAY: Final = 86400.0  # seconds


class SimulatedSqlite:
    """A SQLite file in virtual time, on which the shipped distributors and statements run.

    Attributes:
        label: names it in errors.
    """

    label: Final = "sqlite simulated"

    def __init__(self, world: World, *, history: int = 0, inode: int = 1) -> None:
        """Make an empty file, marked as new.

        Args:
            world: where it lies; its clock is the database's.
            history: how many commits can be lost; each is kept as a copy of the file.
            inode: which file it is.
        """
        self._world = world
        self._history = history
        self._past: list[bytes] = []
        self._inode = inode
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        # In the place of SQLite's own.
        self._database.create_function("julianday", -1, lambda *_: JULIAN_1970 + self._now() / DAY)
        self._database.create_function("strftime", -1, lambda *_: str(int(self._now())))
        self._database.create_function(FUNCTION, 0, lambda: f"{self._inode}")
        self._prepare()

    def _prepare(self) -> None:
        self._database.execute(SQLITE.create_table)
        for statement in SqliteMachineIdDistributor.machine_dialect.create_tables:
            run(self._database, self.label, statement, {})

    # For nodes.

    def executor(self, node: Node, *, faults: Faults | None = None) -> Executor:
        """Return what runs statements for the process that runs on a node.

        Args:
            node: where it is used.
            faults: what may go wrong on the way; the node's by default.
        """
        return _Linked(self, node, node.link(faults))

    def segments(
        self, node: Node, *, faults: Faults | None = None, **described: Any  # noqa: ANN401 - of an init
    ) -> SqliteIdSegmentDistributor:  # fmt: skip
        """Return a distributor of segments for the process that runs on a node.

        Args:
            node: where it is used.
            faults: what may go wrong on the way; the node's by default.
            **described: as for `SqliteIdSegmentDistributor`.
        """
        described = {"namespace": "cosid", "offset": 0, "step": 100, **described}
        return SqliteIdSegmentDistributor._on(self.executor(node, faults=faults), **described)

    def machines(
        self,
        node: Node,
        *,
        instance_id: InstanceId | str,
        safe_guard: float,
        interval: float,
        namespace: str = "cosid",
        faults: Faults | None = None,
    ) -> SqliteMachineIdDistributor:
        """Return a distributor of machine ids for the process that runs on a node.

        Args:
            node: where it is used.
            instance_id: who asks.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            namespace: the namespace of the machine ids.
            faults: what may go wrong on the way; the node's by default.
        """
        return SqliteMachineIdDistributor._on(
            self.executor(node, faults=faults),
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    def execute(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run a statement here and now, for the scenario.

        Raises:
            StoreError: SQLite refuses.
        """
        before = self._database.total_changes
        if self._history:
            self._past = [*self._past[1 - self._history :], self._database.serialize()]
        try:
            return run(self._database, self.label, statement, values)
        except sqlite3.Error as exc:
            raise translated(self.label, exc) from exc
        finally:
            if self._history and self._database.total_changes == before:
                self._past.pop()

    # For the scenario.

    def save(self) -> bytes:
        """Return the file as it is now."""
        return self._database.serialize()

    def restore(self, saved: bytes) -> None:
        """Put another file in its place: one that `save` gave, however long ago."""
        self._world.note("sqlite", "is restored")
        self._inode += 1
        self._database.deserialize(saved)

    def lose(self, commits: int) -> None:
        """Take back the last commits, as a disk does that lied about its sync.

        Args:
            commits: how many, at most ``history``.
        """
        if commits and self._past:
            kept = max(0, len(self._past) - commits)
            self._world.note("sqlite", "loses", f"{len(self._past) - kept} commits")
            self._database.deserialize(self._past[kept])
            del self._past[kept:]

    def wipe(self) -> None:
        """Put an empty file in its place."""
        self._world.note("sqlite", "is emptied")
        self._database.close()
        SimulatedSqlite.__init__(self, self._world, history=self._history, inode=self._inode + 1)

    def _now(self) -> float:
        return START_NS / 1e9 + self._world.time


class _Linked(Executor):
    """Runs statements at the far end of a link."""

    __slots__ = ("_link", "_node", "_sqlite")

    def __init__(self, sqlite: SimulatedSqlite, node: Node, link: Link) -> None:
        super().__init__(sqlite.label)
        self._sqlite = sqlite
        self._node = node
        self._link = link

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        self._check_process("make it on a new client")
        process = self._node._current()

        async def operation() -> Sequence[Row]:
            rows = self._sqlite.execute(statement, **values)
            dialect = SqliteMachineIdDistributor.machine_dialect
            found = granted_by_statement(dialect, statement, values, rows)
            if found is not None:
                namespace, machine_id, floor_ms, has_marks = found
                ledger = self._sqlite._world.ledger
                ledger.granted(
                    namespace, machine_id, process, floor_ms=floor_ms, has_marks=has_marks
                )
            return rows

        return await self._link.call("sqlite", " ".join(statement.split(None, 4)[:4]), operation)
