"""A pool of asyncmy's whose connections lead to a simulated server."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asyncmy.errors import OperationalError
from asyncmy.pool import Pool

from ...stores.mysql import MysqlMachineIdDistributor
from ._faults import draw_between
from ._grants import granted_by_statement
from ._mysql_server import Answer, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...stores._executor import Row, Value
    from ._link import Link
    from ._mysql import SimulatedMysql
    from ._mysql_server import Session
    from ._node import Node
    from ._process import Process

__all__ = ("SimulatedPool",)

CONNECTIONS: Final = 4
SHOWN: Final = re.compile(r"\b(?:INSERT|UPDATE|SELECT)\b.{,50}")  # in the trace


class SimulatedPool(Pool):
    """asyncmy's pool, which opens connections of another kind."""

    def __init__(self, mysql: SimulatedMysql, node: Node, link: Link, *, autocommit: bool) -> None:
        """See `SimulatedMysql.pool`."""
        pool: Any = super()
        pool.__init__(0, CONNECTIONS, pool_recycle=-1)
        self._autocommit = autocommit
        self._far_end = mysql, node, link

    async def fill_free_pool(self, override_min: bool = False) -> None:  # noqa: FBT001, FBT002 - the driver's
        """Drop what is broken; open a connection if one is needed and there may be one more."""
        pool: Any = self
        for broken in [each for each in pool._free if each._stream_broken]:
            pool._free.remove(broken)
        if not override_min or pool._free or pool.size >= pool.maxsize:
            return
        pool._acquiring += 1
        try:
            pool._free.append(await self._connected())
        finally:
            pool._acquiring -= 1
            pool._cond.notify()

    async def _connected(self) -> Connection:
        mysql, node, link = self._far_end
        process = node._current()

        async def operation() -> Session:
            try:
                return mysql.connect(process, autocommit=self._autocommit)
            except ConnectionRefusedError as error:
                raise OperationalError(2003, str(error)) from error

        session = await link.post("connect", operation, late=_lost, broken=_lost)
        return Connection(mysql, node, link, session)


class Connection:
    """What is used of asyncmy's connection, without a socket; closed after a call that failed."""

    _transport = None

    def __init__(self, mysql: SimulatedMysql, node: Node, link: Link, session: Session) -> None:
        """Connect a node with a session of the server's."""
        self.connected = True
        self.in_transaction = False
        self._mysql = mysql
        self._node = node
        self._link = link
        self._session = session

    @property
    def _stream_broken(self) -> bool:
        return not self.connected

    def get_transaction_status(self) -> bool:
        """Return what the last answer told."""
        return self.in_transaction

    def close(self) -> None:
        """Hang up; the server hears of it in a moment."""
        if self.connected:
            self.connected = False
            world = self._node.world
            latency = draw_between(world.rng, self._link.faults.latency)
            world.loop.call_later(latency, self._mysql.end, self._session, context=world.context)

    def cursor(self, _: object = None) -> Cursor:
        """Return a cursor, of the only kind there is."""
        return Cursor(self)

    async def query(self, text: str, values: Mapping[str, Value]) -> Answers:
        """Send a text, and return the answers to its statements."""
        told = partial(_note_grant, self._node._current(), self._node, text, values)

        async def operation() -> Answers:
            try:
                return Answers(await self._mysql.serve(self._session, text, values, told))
            except ConnectionResetError as error:
                raise OperationalError(2013, str(error)) from error

        shown = SHOWN.search(" ".join(text.split()))
        what = shown[0] if shown else "SET"
        try:
            answers: Answers = await self._link.post(what, operation, late=_lost, broken=_lost)
        except (OperationalError, asyncio.CancelledError):
            self.close()  # as the driver does: what is still to come would be somebody else's
            raise
        return answers


class Cursor:
    """What is used of asyncmy's cursor."""

    def __init__(self, connection: Connection) -> None:
        """Run texts on a connection."""
        self.description: object = None
        self.lastrowid = 0
        self._connection = connection
        self._answers: Iterator[Answer | RefusedError] = iter(())
        self._rows: Sequence[Row] = ()

    async def execute(self, text: str, values: Mapping[str, Value]) -> None:
        """Run a text, up to its first answer."""
        self._answers = iter(await self._connection.query(text, values))
        await self.nextset()

    async def nextset(self) -> bool:
        """Go on to the next answer, if there is one."""
        answer = next(self._answers, None)
        if answer is None:
            return False
        if isinstance(answer, RefusedError):
            raise OperationalError(*answer.args)
        rows, self.lastrowid, self._connection.in_transaction = answer
        self.description = None if rows is None else ()
        self._rows = rows or ()
        return True

    async def fetchall(self) -> Sequence[Row]:
        """Return the rows of this answer."""
        return self._rows


class Answers(list["Answer | RefusedError"]):
    """Those to one text."""

    def __repr__(self) -> str:
        """Tell the last one that says something."""
        for answer in reversed(self):
            if isinstance(answer, RefusedError):
                return f"error {answer}"
            if answer.rows is not None or answer.noted:
                return str(answer.noted if answer.rows is None else answer.rows)
        return "done"


def _note_grant(
    process: Process, node: Node, text: str, values: Mapping[str, Value], rows: Sequence[Row]
) -> None:
    dialect = MysqlMachineIdDistributor.machine_dialect
    granting = (each for each in (dialect.take, dialect.insert) if each.strip() in text)
    found = granted_by_statement(dialect, next(granting, ""), values, rows)
    if found is not None:
        namespace, machine_id, floor_ms, has_marks = found
        node.world.ledger.granted(
            namespace, machine_id, process, floor_ms=floor_ms, has_marks=has_marks
        )


def _lost(reason: str) -> OperationalError:
    return OperationalError(2013, f"Lost connection to MySQL server during query ({reason})")
