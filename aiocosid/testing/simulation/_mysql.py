"""MySQL in the world: the shipped statements, each at a moment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...stores._mysql import MYSQL
from ...stores._mysql_machines import MYSQL_MACHINES
from ._clock import START_NS
from ._faults import draw_between
from ._mysql_server import Answer, MysqlServer, RefusedError, Session
from ._mysql_statements import READS, WRITES, UnknownStatementError, read, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncmy.pool import Pool

    from ...stores._executor import Row, Value
    from ._faults import Faults
    from ._node import Node
    from ._process import Process
    from ._world import World

__all__ = ("SimulatedMysql",)

HELD_UP: Final = 0.05  # how likely others come between two statements of a text
HELD: Final = (0.001, 0.05)  # seconds
UNDONE: Final = 0.003  # how likely a statement that writes is the victim of a deadlock
LOCKED: Final = 0.0005  # how likely it waits for a lock in vain
POLL: Final = 0.002  # seconds


class SimulatedMysql:
    """A MySQL in virtual time, on which the shipped distributors and statements run.

    One transaction at a time: whoever comes meanwhile waits for it, also to read.  Numbers are
    signed, and names are compared by their bytes.
    """

    def __init__(self, world: World, *, history: int = 0) -> None:
        """Start a server with the tables, marked as by ``aiocosid init``.

        Args:
            world: where it runs; its clock is the server's.
            history: how many commits a replica can be behind; each is kept as a copy.
        """
        self._world = world
        self._is_up = True
        self._server = MysqlServer(lambda: START_NS // 1000 + round(world.time * 1e6), history)
        self._sessions: list[Session] = []
        for statement in (MYSQL.create_table, MYSQL.create_grants, *MYSQL_MACHINES.create_tables):
            self.execute(statement)
        self.execute(MYSQL_MACHINES.mark, namespace="cosid", is_new=0, lasts=0)

    # For nodes.

    def pool(self, node: Node, *, faults: Faults | None = None, autocommit: bool = True) -> Pool:
        """Return a pool for the process that runs on a node, with a link of its own.

        Args:
            node: where it is used.
            faults: what may go wrong on the link; the node's by default.
            autocommit: whether its sessions are in that mode.

        Raises:
            MissingExtraError: asyncmy is not installed.
        """
        from ._mysql_pool import SimulatedPool  # noqa: PLC0415 - needs the driver

        return SimulatedPool(self, node, node.link(faults), autocommit=autocommit)

    def connect(self, process: Process, *, autocommit: bool = True) -> Session:
        """Begin a session.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        if not self._is_up:
            raise ConnectionRefusedError("Can't connect to MySQL server")
        session = Session(self._server.primary, process, autocommit=autocommit)
        self._sessions.append(session)
        return session

    def end(self, session: Session) -> None:
        """End a session; what it has not committed is undone."""
        self._server.roll_back(session)
        if not session.is_over:
            session.is_over = True
            self._sessions.remove(session)

    async def serve(
        self,
        session: Session,
        text: str,
        values: Mapping[str, Value],
        committed: Callable[[Sequence[Row]], object] = bool,
    ) -> list[Answer | RefusedError]:
        """Run the statements of a text that has arrived, up to the first that fails.

        Args:
            session: whose.
            text: the statements.
            values: by name.
            committed: called with the rows that were answered, at the moment of the commit.

        Raises:
            ConnectionResetError: the session is over.
        """
        answers: list[Answer | RefusedError] = []
        rows: Sequence[Row] | None = None
        for statement in split(text):
            if self._happens(HELD_UP):
                await self._world.sleep(draw_between(self._world.rng, HELD))
            try:
                answer = await self._step(session, statement, values)
            except RefusedError as refusal:
                return [*answers, refusal]
            except UnknownStatementError as error:
                self._world.fail(str(error))
                raise
            answers.append(answer)
            rows = answer.rows or rows
            if rows and not answer.in_transaction:
                committed(rows)
                rows = None
        return answers

    # For the scenario.

    def execute(self, text: str, **values: Value) -> Sequence[Row]:
        """Run statements here and now; return rows as the store's own `run` does.

        Raises:
            RefusedError: the server refuses; somebody is in a transaction, for instance.
            UnknownStatementError: it does not know a statement.
        """
        session = Session(self._server.primary)
        answers = [self._server.run(session, each, values) for each in split(text)]
        rows = [each.rows for each in answers if each.rows is not None]
        return rows[-1] if rows else [(each.noted,) for each in answers if each.noted][-1:]

    def crash(self) -> None:
        """Kill the server: every session ends, and what was not committed is undone."""
        self._world.note("mysql", "dies")
        self._is_up = False
        for session in tuple(self._sessions):
            self.end(session)

    def start(self) -> None:
        """Start it again, with all that was committed."""
        self._world.note("mysql", "starts")
        self._is_up = True

    def fail_over(self, *, behind: int = 0) -> None:
        """Promote a replica; the old primary goes on as a replica of it, and refuses to write.

        Args:
            behind: how many commits the replica has not seen, at most ``history``.
        """
        if self._server.holder is not None:
            self.end(self._server.holder)
        self._server.primary += 1
        lost = self._server.lose(behind)
        self._world.note("mysql", "fails over", f"without the last {lost} commits")

    # Statements.

    async def _step(self, session: Session, text: str, values: Mapping[str, Value]) -> Answer:
        _ensure_alive(session)
        kind = read(text).kind
        if kind in READS | WRITES:
            await self._wait(session)
        if kind in WRITES and self._happens(UNDONE):
            self._server.roll_back(session)
            raise RefusedError(1213, "Deadlock found when trying to get lock")
        if kind in WRITES and self._happens(LOCKED):
            await self._world.sleep(session.variables["@@innodb_lock_wait_timeout"])
            raise RefusedError(1205, "Lock wait timeout exceeded")  # the statement alone is undone
        return self._server.run(session, text, values)

    async def _wait(self, session: Session) -> None:
        """Wait for the one that is in a transaction, as long as the session does."""
        end = self._world.time + session.variables["@@innodb_lock_wait_timeout"]
        while (holder := self._server.holder) is not None and holder is not session:
            if self._world.time >= end:
                return  # and be refused
            if holder.process is not None and holder.process.is_dead:
                self.end(holder)  # its system has hung up
            else:
                await self._world.sleep(POLL)
            _ensure_alive(session)

    def _happens(self, chance: float) -> bool:
        return self._world.rng.random() < chance


def _ensure_alive(session: Session) -> None:
    if session.is_over:
        raise ConnectionResetError("Lost connection to MySQL server during query")
