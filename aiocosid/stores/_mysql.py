"""The statements of the MySQL and MariaDB stores.

This module imports no driver.  The statements use the notation that asyncmy, aiomysql and PyMySQL
share: ``%(name)s`` for a named value, which may occur several times, ``;`` between statements, and
no other ``%``.  `run` executes one on a cursor of either asyncio driver, whose connection
SQLAlchemy exposes as ``driver_connection``; both drivers accept several statements in one text.

A single statement is atomic by itself.  MySQL has neither ``RETURNING`` nor writes in a ``WITH``,
so some steps need several statements, which are sent as one text that contains a transaction
(`atomic`).  The server receives all of it in one round trip and does not wait for the client in
between, so a client that stops half-way holds no lock.  If a statement fails, the server runs none
after it, and the client drops the connection, which rolls the transaction back.  If the reply is
lost, the transaction was committed as a whole or not at all, as with any statement.  The statements
share values in session variables, which each text sets before it reads them: ``@aiocosid`` is 1
while all conditions hold, else 0.
"""

# ruff: noqa: S608 - the statements are assembled from constants of this file only

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..machine.cells import FORMAT
from ._dialect import (
    CELL_TABLE,
    COLUMNS,
    MACHINE_TABLE,
    MAY_CREATE,
    MIGRATORS,
    OBJECTS,
    TABLE,
    TABLES,
    WITNESS,
    Advance,
    Dialect,
)
from ._durability import MYSQL as RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._dialect import Creation, SqlCommit, Value
    from ._executor import Row

__all__ = ("COMMIT", "MYSQL", "SESSION", "in_foreign_session", "run", "same_text")

LOCK_WAIT: Final = 2  # seconds; no call waits longer

ALL_ROWS: Final = 2**64 - 1  # the server's default

COMMIT: Final = "COMMIT AND NO CHAIN NO RELEASE"
"""A commit that ignores ``completion_type``, which may start a transaction that nothing commits."""

SESSION: Final = f"""
SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
    innodb_lock_wait_timeout = {LOCK_WAIT}, lock_wait_timeout = {LOCK_WAIT},
    completion_type = 0, sql_select_limit = {ALL_ROWS}
"""
"""The settings of aiocosid's own sessions.  A number that does not fit its column is an error and
is not truncated.  An abandoned call does not wait long for a lock.  A commit, including the
driver's, starts no other transaction.  A result has no row limit.
"""

MAX_SIGNED: Final = 2**63 - 1

# MariaDB ignores MySQL's version comment, and MySQL ignores MariaDB's.
SERVER: Final = """
SHA2(CONCAT_WS('/', /*!50700 @@server_uuid, */ /*M! @@hostname, @@server_id, @@datadir, */ ''), 256)
"""
"""The server's identity: MySQL's UUID, or MariaDB's host, id and data directory (it has no UUID).
"""


def atomic(*statements: str) -> str:
    """Put statements into one transaction, which returns the rows of the last one that has any.

    In READ COMMITTED each statement sees what was committed before it began, which it needs if the
    previous one waited for a lock.  There are no gap locks either, the usual cause of deadlocks.
    """
    begin = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"
    return ";\n".join(each.strip() for each in (*begin, *statements, COMMIT))


def in_foreign_session(statement: str) -> str:
    """Wrap a statement so that it runs as in aiocosid's own sessions; restore the user's settings.

    The user's session may be neither strict nor in autocommit mode, may wait long for locks (by
    default a day for table locks, and all others would wait behind it), and may limit its rows.  If
    it is in a transaction, the transaction began implicitly; it is committed, as START TRANSACTION
    would do.
    """
    return f"""
{COMMIT};
SET @aiocosid_mode = @@sql_mode, @aiocosid_wait = @@innodb_lock_wait_timeout,
    @aiocosid_table_wait = @@lock_wait_timeout, lock_wait_timeout = {LOCK_WAIT},
    @aiocosid_limit = @@sql_select_limit, sql_select_limit = {ALL_ROWS},
    sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES'),
    innodb_lock_wait_timeout = {LOCK_WAIT};
{statement.strip()};
{COMMIT};
SET sql_mode = @aiocosid_mode, innodb_lock_wait_timeout = @aiocosid_wait,
    lock_wait_timeout = @aiocosid_table_wait,
    sql_select_limit = @aiocosid_limit
"""


def only_if(condition: str, statement: str) -> str:
    """Run a statement only if a condition holds.

    A bare CREATE TABLE IF NOT EXISTS fails for a user without the right to create tables, even if
    there is nothing to create.
    """
    quoted = " ".join(statement.split()).replace("'", "''")
    return f"""
SET @aiocosid = IF({condition}, '{quoted}', 'DO 0');
PREPARE aiocosid FROM @aiocosid;
EXECUTE aiocosid;
DEALLOCATE PREPARE aiocosid
"""


def create_table(table: str, columns: str) -> str:
    """Create a table.

    Names are compared by their bytes, so case and accents matter.
    """
    return f"""
CREATE TABLE {table} ({columns})
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""


async def run(cursor: Any, statement: str, values: Mapping[str, Value]) -> list[Row]:  # noqa: ANN401 - of either driver
    """Run a statement on a cursor of asyncmy or aiomysql, and return its rows.

    For several statements it returns the rows of the last one that has any; if none has, the value
    of ``LAST_INSERT_ID`` unless that is 0.  Drop the connection after an error: it may be in a
    transaction or have unread replies.
    """
    rows: list[Row] | None = None
    number = 0
    await cursor.execute(statement, values)
    while True:
        if cursor.description is not None:
            rows = list(await cursor.fetchall())
        elif cursor.lastrowid:
            number = cursor.lastrowid
        if not await cursor.nextset():
            break
    if rows is not None:
        return rows
    # The driver reads the number as unsigned.
    return [(number if number <= MAX_SIGNED else number - 2**64,)] if number else []


# The columns may be unsigned, numeric, or signed as in older versions of CosId.  The limit is
# always int64, and a value that is not an integer is refused.
_HAS_ROOM: Final = f"last_max_id <= {MAX_SIGNED} - %(step)s AND MOD(last_max_id, 1) = 0"

# MySQL assigns in this order, and each assignment sees the earlier ones.  LAST_INSERT_ID(n) stores
# a number in the session and in the reply; 0 means that the row was not changed.
_ADVANCED: Final = f"""
    last_fetch_time = IF({_HAS_ROOM}, UNIX_TIMESTAMP(), last_fetch_time),
    last_max_id = IF({_HAS_ROOM},
        CAST(LAST_INSERT_ID(last_max_id + %(step)s) AS SIGNED), last_max_id + LAST_INSERT_ID(0))
"""


def _advance(first: str, change: str, allowed: str = "true") -> Advance:
    creating = f"""
INSERT INTO cosid (name, last_max_id, last_fetch_time)
SELECT %(name)s, {first}, UNIX_TIMESTAMP() FROM DUAL WHERE {allowed}
ON DUPLICATE KEY UPDATE {change}
"""
    return Advance(creating, f"UPDATE cosid SET {change} WHERE name = %(name)s")


_ADD: Final = _advance("LAST_INSERT_ID(%(first)s)", _ADVANCED, "@aiocosid > 0")


def _noting(condition: str) -> str:
    """Write the cell that records the existence of counters under the present marker."""
    return f"""
INSERT INTO {CELL_TABLE} (name, value, written_ms)
SELECT 'counters', m.value, m.written_ms FROM {CELL_TABLE} AS m
WHERE m.name = 'marker' AND {condition} AND NOT EXISTS (
    SELECT 1 FROM {CELL_TABLE} AS n WHERE n.name = 'counters' AND n.value = m.value)
ON DUPLICATE KEY UPDATE value = VALUES(value)
"""


_IS_THERE: Final = "EXISTS (SELECT 1 FROM cosid WHERE name = %(name)s)"
_ALLOWED: Final = (
    f"SELECT COUNT(*) INTO @aiocosid FROM DUAL WHERE {_IS_THERE} OR {MAY_CREATE.strip()}",
    _noting("@aiocosid > 0"),
)
_TAKEN: Final = (
    "SET @aiocosid = CAST(LAST_INSERT_ID() AS SIGNED)",
    "SELECT @aiocosid FROM DUAL WHERE @aiocosid <> 0",
)

_RAISED: Final = """
    last_max_id = IF(MOD(last_max_id, 1) = 0, GREATEST(last_max_id, %(above)s), last_max_id)
"""
_RAISE: Final = _advance("%(above)s", _RAISED)
_FOUND: Final = "SELECT last_max_id, last_fetch_time FROM cosid WHERE name = %(name)s"

# The time when a statement began, independent of the time zone.  It is never later than the renewal
# that the statement writes, and never earlier than the moment when the statement was sent.
NOW: Final = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"

# The server, the database, and the creation time of the table, because a restored dump is another
# table.  Reading them needs no privilege.  The time is in the session's time zone, and therefore
# converted.
IDENTITY: Final = f"""
SHA2(CONCAT_WS('/', {SERVER}, DATABASE(), UNIX_TIMESTAMP((
    SELECT t.CREATE_TIME FROM information_schema.TABLES AS t
    WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = '{CELL_TABLE}'
))), 256)
"""

_MACHINE_KEYS: Final = "    KEY idx_namespace (namespace),\n    KEY idx_instance_id (instance_id)\n"


def _cosids(columns: str, what: str) -> str:
    """Return the columns of CosId's own tables, which are unsigned on MySQL."""
    columns = re.sub(" (bigint|integer) ", r" \1 unsigned ", columns)
    return columns.replace(" NOT NULL,", f" NOT NULL COMMENT '{{namespace}}.{{{what}}}',", 1)


_COLUMNS: Final = {
    **COLUMNS,
    TABLE: _cosids(COLUMNS[TABLE], "name"),
    MACHINE_TABLE: f"{_cosids(COLUMNS[MACHINE_TABLE], 'machine_id').rstrip()},\n{_MACHINE_KEYS}",
    # Names are stored as bytes: a collation would treat some of them as equal.
    CELL_TABLE: COLUMNS[CELL_TABLE].format("varbinary(1020)"),
}

_TABLES: Final = ", ".join(f"'{each}'" for each in TABLES)
_OBJECTS: Final = ", ".join(f"'{each}'" for each in OBJECTS)
_THERE: Final = f"""
information_schema.TABLES AS t
WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME IN ({_OBJECTS})
"""
_LOCK: Final = "CONCAT('aiocosid/', LEFT(SHA2(DATABASE(), 256), 32))"  # global on a server
_LOCK_WAIT: Final = 1  # second

_MARKER: Final = f"""
REPLACE INTO {CELL_TABLE} (name, value, written_ms)
SELECT 'marker', CONCAT('{{"identity":"', {IDENTITY}, '","epoch":"', UUID(),
    '","format":{FORMAT}}}'), {NOW}
"""


def _create(creation: Creation) -> str:
    """Create tables, witness and marker, in this order: a crash half-way leaves no marker."""
    steps = [create_table(each, _COLUMNS[each]) for each in creation.tables]
    if creation.witness:
        view = f"CREATE SQL SECURITY INVOKER VIEW {WITNESS} AS SELECT '{creation.witness}' AS note"
        steps.append(view)
    if creation.vouches:
        steps.append(_MARKER)
    is_alone = f"SELECT GET_LOCK({_LOCK}, {_LOCK_WAIT}) INTO @aiocosid_lock"
    same = f"@aiocosid_lock = 1 AND @aiocosid_found = {creation.found}"
    found = f"SELECT COUNT(*) INTO @aiocosid_found FROM {_THERE.strip()}"
    made = (only_if(same, each).strip() for each in steps)
    return ";\n".join((is_alone, found, *made, f"DO RELEASE_LOCK({_LOCK})"))


def _bytes(text: str) -> str:
    """Return the bytes of a text in any character set."""
    return f"CAST(CONVERT({text} USING utf8mb4) AS BINARY)"


def same_text(one: str, other: str) -> str:
    """Compare names exactly, even where the table's collation treats ``a`` and ``A`` as equal.

    The plain comparison lets MySQL use the index.
    """
    return f"({one} = {other} AND {_bytes(one)} = {_bytes(other)})"


def _text(column: str) -> str:
    """Convert a text in any character set and collation to one that UNION accepts."""
    return f"CONVERT({column} USING utf8mb4) COLLATE utf8mb4_bin"


# CosId's columns are unsigned, and MySQL refuses a negative result for unsigned numbers.
def _stamp(column: str) -> str:
    return f"CAST(LEAST({column}, {MAX_SIGNED}) AS SIGNED)"


def _as_read(column: str, given: str) -> str:
    if column == "instance_id":
        return same_text(column, given)
    return f"{_stamp(column) if column == 'last_timestamp' else column} = {given}"


_IS_OURS: Final = same_text("m.namespace", "%(namespace)s")
_IS_HELD: Final = same_text("m.instance_id", "%(instance)s")
_OF_NAMESPACE: Final = f"SELECT {{}} FROM {MACHINE_TABLE} AS m WHERE m.namespace = %(namespace)s"
_NOTED: Final = _OF_NAMESPACE.format(f"CONCAT('note/', {_text('m.name')})")
_READ_CELLS: Final = ("marker", "namespaces", "count", "space", "mine")
_NAMES: Final = ", ".join(_bytes(f"%({each})s") for each in _READ_CELLS)
# This includes a row of another namespace that the table's collation treats as equal, because that
# row takes up the name.
_MACHINE: Final = f"""
{_text("'machine'")}, {_text("m.name")}, IF({_IS_OURS}, {_text("m.instance_id")}, NULL),
    CAST(m.machine_id AS SIGNED), {_stamp("m.last_timestamp")}
"""
_IS_COUNTED: Final = f"""
%(counts)s = 2 OR %(counts)s = 1
AND NOT EXISTS (SELECT 1 FROM {CELL_TABLE} WHERE name = {_bytes("%(count)s")})
"""
_READ: Final = f"""
SELECT {_text("'store'")}, {_text(IDENTITY)}, {_text("''")}, {NOW},
    IF({_IS_COUNTED}, (
        SELECT COUNT(*) FROM {CELL_TABLE} WHERE name >= 'count/' AND name < 'count0'), -1)
UNION ALL
SELECT {_text("'cell'")}, {_text("c.name")}, {_text("c.value")}, c.written_ms, 0
FROM {CELL_TABLE} AS c
WHERE c.name IN ({_NAMES})
OR (c.name >= {_bytes("%(records)s")} AND c.name < {_bytes("%(records_end)s")}
    AND (%(is_complete)s <> 0 OR c.name = {_bytes("%(record)s")}
        OR c.name IN ({_NOTED} AND {_IS_HELD})))
OR (c.name >= {_bytes("%(owns)s")} AND c.name < {_bytes("%(owns_end)s")}
    AND (%(is_complete)s <> 0 OR c.value = %(own)s))
UNION ALL
{_OF_NAMESPACE.format(_MACHINE)}
AND (%(is_complete)s <> 0 OR m.machine_id = %(machine_id)s OR {_IS_HELD})
"""


_SETTINGS: Final = (
    # It shows nothing for a name that the server does not know.
    """
SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog')
OR Variable_name RLIKE '^rpl_semi_sync_(master|source)_'
""",
    f"""
SELECT CONCAT('table ', TABLE_NAME), ENGINE FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE()
AND TABLE_NAME IN ({_TABLES})
""",
)


def _commit(changes: SqlCommit) -> str:
    counted = "SELECT COUNT(*) INTO @aiocosid FROM"
    locks = (f"{counted} {found} AND @aiocosid > 0 {how}" for found, how in changes.found)
    # Otherwise one of two sessions that create the same row would get an error.
    absences = (
        f"{counted} DUAL WHERE @aiocosid > 0 AND NOT EXISTS (SELECT 1 FROM {each})"
        for each in changes.missing
    )
    return atomic(
        f"SELECT {IDENTITY} = %(identity)s INTO @aiocosid",
        *locks,
        *absences,
        *changes.writes,
        "SELECT 1 FROM DUAL WHERE @aiocosid > 0",
    )


MYSQL: Final = Dialect(
    schema=f"""
SELECT t.TABLE_NAME, COALESCE((
    SELECT v.VIEW_DEFINITION FROM information_schema.VIEWS AS v
    WHERE v.TABLE_SCHEMA = t.TABLE_SCHEMA AND v.TABLE_NAME = t.TABLE_NAME), '')
FROM {_THERE}
""",
    create=_create,
    note_counters=_noting("EXISTS (SELECT 1 FROM cosid)"),
    add=Advance(atomic(*_ALLOWED, "DO LAST_INSERT_ID(0)", _ADD.creating, *_TAKEN), _ADD.known),
    raise_to=Advance(*(atomic(each, _FOUND) for each in _RAISE)),
    counter="SELECT last_max_id FROM cosid WHERE name = %(name)s",
    counters=f"""
SELECT name, last_max_id, last_fetch_time FROM cosid
WHERE {_bytes("LEFT(name, CHAR_LENGTH(%(prefix)s))")} = {_bytes("%(prefix)s")}
""",
    read=_READ,
    now=NOW,
    is_open="@aiocosid > 0",
    parameter=lambda name, _: f"%({name})s",
    key=_bytes,
    same=_as_read,
    number="SIGNED",
    source=" FROM DUAL",
    shared="LOCK IN SHARE MODE",
    exclusive="FOR UPDATE",
    commit=_commit,
    # This includes a row that others created meanwhile, and a lock that was not released in time.
    conflicts=frozenset({1020, 1062, 1205, 1213}),
    # A deadlock, or a row that was changed meanwhile.
    undone=frozenset({1020, 1213}),
    namespaces=f"""
SELECT {_text("namespace")} FROM {MACHINE_TABLE}
UNION SELECT {_text("SUBSTR(name, 7)")} FROM {CELL_TABLE}
WHERE name >= 'space/' AND name < 'space0'
""",
    version="""
SELECT CONCAT(IF(LOCATE('MariaDB', VERSION()) > 0, '', 'MySQL '), VERSION()) FROM DUAL
""",
    migrators=f"""
SELECT TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) IN ({MIGRATORS})
""",
    settings=_SETTINGS,
    rules=RULES,
)
