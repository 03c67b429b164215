"""What the MySQL and MariaDB stores say to their server: statements, and what its errors mean.

No driver is imported here.  The statements are in the notation that asyncmy, aiomysql and PyMySQL
share: ``%(name)s`` for a value given by name, as often as it is needed, ``;`` between statements,
and no other ``%``.  `run` runs one on a cursor of any of the two asyncio drivers, which SQLAlchemy
hands out as ``driver_connection``; both let several statements go in one text.

A statement that is a single one is atomic as it is.  What takes several, because MySQL has neither
``RETURNING`` nor writes in a ``WITH``, is one text with a transaction in it (`atomic`): the server
gets all of it in one trip, and waits for nobody between its pieces.  So a client that stops in the
middle holds no lock.  If a piece fails the server runs none after it, and whoever sent the text
drops the connection: with it goes the transaction.  If the reply is lost the transaction has been
committed as a whole, or not at all, as with any statement.  What several pieces have to know of
each other is in variables of the session, which each text sets before it reads them: ``@aiocosid``
is 1 as long as all conditions are fulfilled, else 0.
"""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ._sql import CELL_COLUMNS, COUNTER_COLUMNS, GRANT_COLUMNS, MACHINE_COLUMNS, Advance, Dialect
from ._sql_cells import CELL_TABLE, GRANT_TABLE, MACHINE_TABLE, TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._executor import Row, Value
    from ._sql_cells import SqlCommit

__all__ = ("COMMIT", "MYSQL", "SESSION", "in_foreign_session", "run")

LOCK_WAIT: Final = 2  # seconds; nobody waits longer for a call

ALL_ROWS: Final = 2**64 - 1  # the server's default

COMMIT: Final = "COMMIT AND NO CHAIN NO RELEASE"
"""Whatever ``completion_type`` says: a transaction that begins by itself is never committed."""

SESSION: Final = f"""
SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
    innodb_lock_wait_timeout = {LOCK_WAIT}, lock_wait_timeout = {LOCK_WAIT},
    completion_type = 0, sql_select_limit = {ALL_ROWS}
"""
"""What our own sessions are set to: a number that does not fit its column is an error, and not cut;
a call that nobody waits for any more does not wait for a lock; a commit, the driver's too, begins
no other transaction; and what is listed is listed whole."""

MAX_SIGNED: Final = 2**63 - 1

# MariaDB passes over the comment of MySQL's versions, and MySQL over that of MariaDB.
SERVER: Final = """
SHA2(CONCAT_WS('/', /*!50700 @@server_uuid, */ /*M! @@hostname, @@server_id, @@datadir, */ ''), 256)
"""
"""Which server it is: MySQL's own identity; of MariaDB, which has none, where it lies."""


def atomic(*statements: str) -> str:
    """Put statements into one transaction; the rows are those of the last one that has some.

    In READ COMMITTED each of them sees what was committed before it began, as it must, if the one
    before had to wait for a lock; and no gaps are locked, which are the usual cause of deadlocks.
    """
    begin = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"
    return ";\n".join(each.strip() for each in (*begin, *statements, COMMIT))


def in_foreign_session(statement: str) -> str:
    """Have a statement run as in one of our own sessions, and leave the user's as it was.

    That may not be strict, may not commit by itself, may wait long, and may cut what it selects.  A
    transaction that it is in already has begun by itself, and is committed as START TRANSACTION
    would.
    """
    return f"""
{COMMIT};
SET @aiocosid_mode = @@sql_mode, @aiocosid_wait = @@innodb_lock_wait_timeout,
    @aiocosid_limit = @@sql_select_limit, sql_select_limit = {ALL_ROWS},
    sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES'),
    innodb_lock_wait_timeout = {LOCK_WAIT};
{statement.strip()};
{COMMIT};
SET sql_mode = @aiocosid_mode, innodb_lock_wait_timeout = @aiocosid_wait,
    sql_select_limit = @aiocosid_limit
"""


def only_if(condition: str, statement: str) -> str:
    """Run a statement only if a condition is fulfilled.

    Bare CREATE TABLE IF NOT EXISTS fails for a user who may not create tables, even if there is
    nothing to create.
    """
    quoted = " ".join(statement.split()).replace("'", "''")
    return f"""
SET @aiocosid = IF({condition}, '{quoted}', 'DO 0');
PREPARE aiocosid FROM @aiocosid;
EXECUTE aiocosid;
DEALLOCATE PREPARE aiocosid
"""


def create_table(table: str, columns: str) -> str:
    """Create a table if it is missing, whoever else does so at the same time.

    The order of names is that of their bytes: they differ by case and accents.
    """
    condition = f"""
NOT EXISTS (
    SELECT 1 FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'
)"""
    statement = f"""
CREATE TABLE IF NOT EXISTS {table} ({columns})
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
    return only_if(condition, statement)


async def run(cursor: Any, statement: str, values: Mapping[str, Value]) -> list[Row]:  # noqa: ANN401 - of either driver
    """Run a statement on a cursor of asyncmy's or aiomysql's, and return its rows.

    Of several the rows are those of the last one that has some; if none has, the number that was
    given to ``LAST_INSERT_ID``, but for 0.  After an error the connection may be in a transaction,
    or have replies to come: drop it.
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
    # The driver takes it for unsigned.
    return [(number if number <= MAX_SIGNED else number - 2**64,)] if number else []


# The columns are unsigned, or numeric, or signed as in older versions of CosId: int64 is the end
# all the same, and what is no integer is refused.
_HAS_ROOM: Final = f"last_max_id <= {MAX_SIGNED} - %(step)s AND MOD(last_max_id, 1) = 0"

# MySQL assigns in this order, and each sees what was assigned before it.  LAST_INSERT_ID notes a
# number for the session, which the reply carries; 0 tells that the row was left as it is.
_ADVANCED: Final = f"""
    last_fetch_time = IF({_HAS_ROOM}, UNIX_TIMESTAMP(), last_fetch_time),
    last_max_id = IF({_HAS_ROOM},
        CAST(LAST_INSERT_ID(last_max_id + %(step)s) AS SIGNED), last_max_id + LAST_INSERT_ID(0))
"""


def _advance(first: str, change: str) -> Advance:
    creating = f"""
INSERT INTO cosid (name, last_max_id, last_fetch_time)
VALUES (%(name)s, {first}, UNIX_TIMESTAMP())
ON DUPLICATE KEY UPDATE {change}
"""
    return Advance(creating, f"UPDATE cosid SET {change} WHERE name = %(name)s")


_ADD: Final = _advance("LAST_INSERT_ID(%(first)s)", _ADVANCED)

_RAISED: Final = """
    last_max_id = IF(MOD(last_max_id, 1) = 0, GREATEST(last_max_id, %(above)s), last_max_id)
"""
_RAISE: Final = _advance("%(above)s", _RAISED)
_UNNOTE: Final = "UPDATE aiocosid_grant SET nonce = '' WHERE name = %(name)s"
_FOUND: Final = "SELECT last_max_id, last_fetch_time FROM cosid WHERE name = %(name)s"

# A promoted replica takes nothing back of what its primary has granted.
_NONCE: Final = f"CONCAT(%(nonce)s, '@', LEFT({SERVER}, 40))"
_PREVIOUS: Final = f"CONCAT(%(previous)s, '@', LEFT({SERVER}, 40))"


def _grant(advance: str) -> str:
    return atomic(
        "DO LAST_INSERT_ID(0)",
        advance,
        "SET @aiocosid = CAST(LAST_INSERT_ID() AS SIGNED)",
        f"""
INSERT INTO aiocosid_grant (name, nonce, top, base)
SELECT %(name)s, {_NONCE}, @aiocosid, @aiocosid - %(step)s FROM DUAL WHERE @aiocosid > 0
ON DUPLICATE KEY UPDATE
    base = IF(nonce = {_PREVIOUS} AND top = @aiocosid - %(step)s, base, @aiocosid - %(step)s),
    top = @aiocosid, nonce = {_NONCE}
""",
        "SELECT @aiocosid, base FROM aiocosid_grant WHERE name = %(name)s AND @aiocosid > 0",
    )


# Of the moment when a statement began, whatever the time zone: never later than the sign of life
# that it notes, and never earlier than whoever sent it meant.
NOW: Final = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"

# The server, the database, and when the table was made: a dump that was read in is another table.
# Everybody may ask; the time is told in the zone of the session, and therefore converted.
IDENTITY: Final = f"""
SHA2(CONCAT_WS('/', {SERVER}, DATABASE(), UNIX_TIMESTAMP((
    SELECT t.CREATE_TIME FROM information_schema.TABLES AS t
    WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = '{CELL_TABLE}'
))), 256)
"""

# The names' bytes: a collation would take some for the same.
_CELLS: Final = create_table(CELL_TABLE, CELL_COLUMNS.format("varbinary(1020)"))
_MACHINE_KEYS: Final = "    KEY idx_namespace (namespace),\n    KEY idx_instance_id (instance_id)\n"


def _cosids(columns: str, what: str) -> str:
    """Return the columns of CosId's own tables, which are unsigned here."""
    columns = re.sub(" (bigint|integer) ", r" \1 unsigned ", columns)
    return columns.replace(" NOT NULL,", f" NOT NULL COMMENT '{{namespace}}.{{{what}}}',", 1)


_MACHINES: Final = create_table(
    MACHINE_TABLE, f"{_cosids(MACHINE_COLUMNS, 'machine_id').rstrip()},\n{_MACHINE_KEYS}"
)

_COUNTED: Final = f"""
SELECT COUNT(*) = 0 INTO @aiocosid_new FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('{MACHINE_TABLE}', '{CELL_TABLE}')
"""
_MARKER: Final = f"""
INSERT IGNORE INTO {CELL_TABLE} (name, value, written_ms)
SELECT 'marker', CONCAT('{{"identity":"', {IDENTITY}, '","epoch":"', UUID(), '"}}'), {NOW}
"""


def _bytes(text: str) -> str:
    """Return the bytes of a text, whichever its character set."""
    return f"CAST(CONVERT({text} USING utf8mb4) AS BINARY)"


def _same(one: str, other: str) -> str:
    """Compare names as they are, although a table of somebody else's may not tell ``a`` from ``A``.

    The plain comparison lets an index be used.
    """
    return f"({one} = {other} AND {_bytes(one)} = {_bytes(other)})"


def _text(column: str) -> str:
    """Read a text of any character set and collation as one that others can be put beside."""
    return f"CONVERT({column} USING utf8mb4) COLLATE utf8mb4_bin"


# CosId's columns are unsigned, and what is subtracted from such a number has to be smaller.
def _stamp(column: str) -> str:
    return f"CAST(LEAST({column}, {MAX_SIGNED}) AS SIGNED)"


def _as_read(column: str, given: str) -> str:
    if column == "instance_id":
        return _same(column, given)
    return f"{_stamp(column) if column == 'last_timestamp' else column} = {given}"


_IS_OURS: Final = _same("m.namespace", "%(namespace)s")
_IS_HELD: Final = _same("m.instance_id", "%(instance)s")
_OF_NAMESPACE: Final = f"SELECT {{}} FROM {MACHINE_TABLE} AS m WHERE m.namespace = %(namespace)s"
_NOTED: Final = _OF_NAMESPACE.format(f"CONCAT('note/', {_text('m.name')})")
_NAMES: Final = ", ".join(_bytes(f"%({each})s") for each in ("marker", "count", "space", "mine"))
# A row whose namespace the table's collation takes for ours: nobody else can have its name.
_MACHINE: Final = f"""
{_text("'machine'")}, {_text("m.name")}, IF({_IS_OURS}, {_text("m.instance_id")}, NULL),
    CAST(m.machine_id AS SIGNED), {_stamp("m.last_timestamp")}
"""
_READ: Final = f"""
SELECT {_text("'store'")}, {_text(IDENTITY)}, {_text("''")}, {NOW}, 0
UNION ALL
SELECT {_text("'cell'")}, {_text("c.name")}, {_text("c.value")}, c.written_ms, 0
FROM {CELL_TABLE} AS c
WHERE c.name IN ({_NAMES})
OR (c.name >= {_bytes("%(notes)s")} AND c.name < {_bytes("%(notes_end)s")}
    AND (%(is_complete)s <> 0 OR c.name = {_bytes("%(note)s")}
        OR c.name IN ({_NOTED} AND {_IS_HELD})))
OR (c.name >= {_bytes("%(owns)s")} AND c.name < {_bytes("%(owns_end)s")}
    AND (%(is_complete)s <> 0 OR c.value = %(own)s))
UNION ALL
{_OF_NAMESPACE.format(_MACHINE)}
AND (%(is_complete)s <> 0 OR m.machine_id = %(machine_id)s OR {_IS_HELD})
"""


_SETTINGS: Final = """
SELECT 'innodb_flush_log_at_trx_commit', @@innodb_flush_log_at_trx_commit FROM DUAL
WHERE @@innodb_flush_log_at_trx_commit <> 1
UNION ALL SELECT 'sync_binlog', @@sync_binlog FROM DUAL WHERE @@log_bin AND @@sync_binlog <> 1
"""
_WEAKNESSES: Final = {
    "innodb_flush_log_at_trx_commit": "a crash takes back the grants of the last second, and their "
    "ids come again; set it to 1",
    "sync_binlog": "a power cut takes back grants that are not in the binary log, and their ids "
    "come again; set it to 1",
}


def _commit(changes: SqlCommit) -> str:
    counted = "SELECT COUNT(*) INTO @aiocosid FROM"
    locks = (f"{counted} {found} AND @aiocosid > 0 {how}" for found, how in changes.found)
    # Else one of two who make the same would be told so by an error.
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
    create_counters=create_table(TABLE, _cosids(COUNTER_COLUMNS, "name")),
    create_grants=create_table(GRANT_TABLE, GRANT_COLUMNS),
    create_cells=";\n".join((_COUNTED, _MACHINES, _CELLS, only_if("@aiocosid_new", _MARKER))),
    add=_ADD,
    # The counter's row is locked first by each of these.
    grant=Advance(*map(_grant, _ADD)),
    give_back=atomic(
        """
SELECT COUNT(*) INTO @aiocosid FROM cosid
WHERE name = %(name)s AND last_max_id = %(top)s FOR UPDATE
""",
        f"""
SELECT COUNT(*) INTO @aiocosid FROM aiocosid_grant
WHERE @aiocosid > 0 AND name = %(name)s AND nonce = {_NONCE}
AND top = %(top)s AND base <= %(lower)s FOR UPDATE
""",
        f"{_UNNOTE} AND @aiocosid > 0",
        "UPDATE cosid SET last_max_id = %(lower)s WHERE name = %(name)s AND @aiocosid > 0",
        "SELECT %(lower)s FROM DUAL WHERE @aiocosid > 0",
    ),
    raise_to=Advance(*(atomic(each, _UNNOTE, _FOUND) for each in _RAISE)),
    raise_unnoted=Advance(*(atomic(each, _FOUND) for each in _RAISE)),
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
    # Also a row that others have made meanwhile, and a lock that they did not let go in time.
    conflicts=frozenset({1020, 1062, 1205, 1213}),
    # A deadlock, or a row that was changed meanwhile.
    undone=frozenset({1020, 1213}),
    namespaces=f"""
SELECT {_text("namespace")} FROM {MACHINE_TABLE}
UNION SELECT {_text("SUBSTR(name, 7)")} FROM {CELL_TABLE}
WHERE name >= 'space/' AND name < 'space0'
""",
    settings=_SETTINGS,
    weaknesses=_WEAKNESSES,
)
