"""What a simulated MySQL does with a statement; its tables lie in SQLite's memory."""

from __future__ import annotations

import sqlite3
from collections import deque
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ._mysql_statements import READS, WRITES, Statement, UnknownStatementError, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...stores._executor import Row, Value
    from ._process import Process

__all__ = ("Answer", "MysqlServer", "RefusedError", "Session")

SETTINGS: Final[dict[str, Any]] = {
    "@@innodb_flush_log_at_trx_commit": 1,
    "@@innodb_lock_wait_timeout": 50,
    "@@log_bin": 1,
    "@@sql_mode": "STRICT_TRANS_TABLES",
    "@@sql_select_limit": 2**63 - 1,
    "@@sync_binlog": 1,
}


class RefusedError(Exception):
    """The server refuses; its arguments are the number and the text."""


class Answer(NamedTuple):
    """The answer to one statement.

    Attributes:
        rows: None if it gives none.
        noted: what it gave to ``LAST_INSERT_ID``, or 0.
        in_transaction: whether the session is in one now.
    """

    rows: Sequence[Row] | None
    noted: int
    in_transaction: bool


class Session:
    """A connection, as the server has it.

    Attributes:
        server: the number of the server.
        process: whose it is.
        variables: the user's begin with ``@``, the server's with ``@@``.
        has_begun: whether a transaction was begun explicitly.
        is_over: whether it has ended.
    """

    def __init__(
        self, server: int, process: Process | None = None, *, autocommit: bool = True
    ) -> None:
        """Begin a session, of a process or of the scenario."""
        self.server = server
        self.process = process
        facts = {"@@server_uuid": f"server-{server}", "@@autocommit": autocommit}
        self.variables: dict[str, Any] = SETTINGS | facts
        self.prepared = ""
        self.noted = self.last_noted = 0
        self.has_begun = self.is_over = False

    def __repr__(self) -> str:
        """Name its server."""
        return f"<Session at server {self.server}>"


class MysqlServer:
    """The tables, and at most one transaction on them.

    Attributes:
        primary: the number of the server that may write.
        holder: who is in a transaction that has seen a table.
    """

    def __init__(self, now: Callable[[], int], history: int) -> None:
        """Begin without any table.

        Args:
            now: tells the microseconds since 1970.
            history: how many commits can be lost.
        """
        self.primary = 1
        self.holder: Session | None = None
        self._now = now
        self._session = Session(self.primary)  # whose statement runs
        self._past: deque[bytes] = deque(maxlen=history + 1)
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        for name, function in self._functions().items():
            self._database.create_function(name, -1, function)
        self._database.execute("ATTACH ':memory:' AS information_schema")
        columns = "TABLE_SCHEMA, TABLE_NAME, CREATE_TIME"
        self._database.execute(f"CREATE TABLE information_schema.TABLES ({columns})")

    def run(self, session: Session, text: str, values: Mapping[str, Value]) -> Answer:
        """Run one statement.

        Raises:
            RefusedError: the server refuses; the statement alone is undone.
            UnknownStatementError: the simulation does not know it.
        """
        statement, rows = read(text), None
        session.noted = 0
        match statement.kind:
            case "begin" | "commit":
                self.commit(session)
                session.has_begun = statement.kind == "begin"
            case "prepare":
                session.prepared = session.variables[statement.names[0]]
            case "execute":
                return self.run(session, session.prepared, values)
            case "nothing":
                pass
            case _:
                rows = self._run(session, statement, values)
        return Answer(rows, session.noted, session.has_begun or self.holder is session)

    def commit(self, session: Session) -> None:
        """Commit, if it is in a transaction."""
        if self.holder is session:
            self._database.execute("COMMIT")
            self.holder = None
            self._keep()

    def roll_back(self, session: Session) -> None:
        """Undo what it has not committed."""
        session.has_begun = False
        if self.holder is session:
            self._database.execute("ROLLBACK")
            self.holder = None

    def lose(self, commits: int) -> int:
        """Take back the last commits while nobody is in a transaction; return how many."""
        lost = min(commits, len(self._past) - 1)
        if lost > 0:
            self._past = deque([*self._past][:-lost], self._past.maxlen)
            self._database.deserialize(self._past[-1])
        return max(lost, 0)

    def _run(
        self, session: Session, statement: Statement, values: Mapping[str, Value]
    ) -> Sequence[Row] | None:
        self._session, before = session, self._database.total_changes
        self._enter(session, statement)
        try:
            found = self._database.execute(statement.sql, values).fetchall()
            if statement.kind == "update":
                self._update(statement, found)
        except sqlite3.Error as error:
            raise _refusal(error, statement) from error
        if self.holder is None and self._database.total_changes != before:
            self._keep()
        if statement.kind in WRITES:
            return None
        if not statement.names:
            return found
        for name in statement.names:
            if name.startswith("@@") and name not in session.variables:
                raise UnknownStatementError(f"the simulated MySQL does not know {name}")
        for row in found:  # one, or none
            session.variables.update(zip(statement.names, row, strict=True))
        return None

    def _enter(self, session: Session, statement: Statement) -> None:
        """Have a transaction begin, unless the statement is one by itself."""
        if statement.kind not in READS | WRITES:
            return
        if self.holder not in {None, session}:
            raise RefusedError(1205, "Lock wait timeout exceeded; try restarting transaction")
        if statement.kind in WRITES and session.server != self.primary:
            raise RefusedError(1290, "The server is running with the --super-read-only option")
        by_itself = session.variables["@@autocommit"] and not session.has_begun
        if self.holder is None and not by_itself:
            self._database.execute("BEGIN")
            self.holder = session

    def _update(self, statement: Statement, found: Sequence[Row]) -> None:
        width = len(statement.tables)
        for row in found:
            for name, value in zip(statement.names, row[width:], strict=True):
                place, column = name.split()
                table, rowid = statement.tables[int(place)], row[int(place)]
                sql = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608 - of ours
                self._database.execute(sql, (value, rowid))

    def _keep(self) -> None:
        if self._past.maxlen != 1:
            self._past.append(self._database.serialize())

    def _functions(self) -> dict[str, Callable[..., Any]]:
        strict = (_concat, _left_of, _lpad, _mod, _sha2)
        return {
            "CONCAT_WS": _concat_ws,
            "DATABASE": lambda: "simulated",
            "LAST_INSERT_ID": self._last_insert_id,
            "TIMESTAMPDIFF": _microseconds_between,
            "UNIX_TIMESTAMP": self._unix_timestamp,
            "UTC_TIMESTAMP": self._utc_timestamp,
            "variable": self._variable,
            **{each.__name__[1:].upper(): _strict(each) for each in strict},
        }

    def _utc_timestamp(self, _: int) -> int:
        return self._now()

    def _unix_timestamp(self, *then: object) -> object:
        return then[0] if then else self._now() // 10**6

    def _variable(self, name: str) -> object:
        variables = self._session.variables
        return variables[name] if name.startswith("@@") else variables.get(name)

    def _last_insert_id(self, *number: int) -> int:
        session = self._session
        if number:
            session.noted = session.last_noted = number[0]
        return session.last_noted


# A moment is the number of microseconds since 1970.


def _microseconds_between(_: str, __: str, moment: int) -> int:
    return moment


def _concat(*texts: object) -> str:
    return "".join(map(str, texts))


def _concat_ws(mark: str, *texts: object) -> str:
    return mark.join(str(each) for each in texts if each is not None)


def _left_of(text: str, width: int) -> str:
    return text[:width]


def _lpad(text: object, width: int, filler: str) -> str:
    return str(text).rjust(width, filler)[:width]


def _mod(number: int, by: int) -> int:
    return number % by


def _sha2(text: str, _: int) -> str:
    return sha256(text.encode()).hexdigest()


def _strict(function: Callable[..., object]) -> Callable[..., object]:
    """Answer NULL to NULL."""
    return lambda *values: None if None in values else function(*values)


def _refusal(error: sqlite3.Error, statement: Statement) -> Exception:
    text = str(error)
    if isinstance(error, sqlite3.IntegrityError):
        return RefusedError(1062, text)
    if text.startswith("no such table: "):
        return RefusedError(1146, f"Table 'simulated.{text.rpartition(' ')[2]}' doesn't exist")
    return UnknownStatementError(f"the simulated MySQL: {text}: {statement.sql}")
