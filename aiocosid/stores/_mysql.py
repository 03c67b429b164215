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
committed as a whole, or not at all, as with any statement.
"""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from ._executor import OutOfRangeError
from ._sql_dialect import GRANT_TABLE, NAME_WIDTH, TABLE, Dialect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._executor import Row, Value

__all__ = (
    "COMMIT",
    "IS_UNDONE",
    "MYSQL",
    "SERVER",
    "SESSION",
    "SETTINGS",
    "atomic",
    "created",
    "in_foreign_session",
    "refusal",
    "run",
    "weaknesses_of",
)

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

SETTINGS: Final = "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog"

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


def created(table: str, columns: str) -> str:
    """Create a table if it is missing, whoever else does so at the same time.

    Bare CREATE TABLE IF NOT EXISTS fails for a user who may not create tables, even if there is
    nothing to create.  The order of names is that of their bytes: they differ by case and accents.
    """
    text = " ".join(columns.split()).replace("'", "''")
    return f"""
SET @aiocosid = IF(EXISTS (
    SELECT 1 FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'
), 'DO 0', 'CREATE TABLE IF NOT EXISTS {table} ({text})
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin');
PREPARE aiocosid FROM @aiocosid;
EXECUTE aiocosid;
DEALLOCATE PREPARE aiocosid
"""


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
_ADVANCE: Final = f"""
INSERT INTO cosid (name, last_max_id, last_fetch_time)
VALUES (%(name)s, LAST_INSERT_ID(%(first)s), UNIX_TIMESTAMP())
ON DUPLICATE KEY UPDATE
    last_fetch_time = IF({_HAS_ROOM}, UNIX_TIMESTAMP(), last_fetch_time),
    last_max_id = IF({_HAS_ROOM},
        CAST(LAST_INSERT_ID(last_max_id + %(step)s) AS SIGNED), last_max_id + LAST_INSERT_ID(0))
"""

_RAISE: Final = """
INSERT INTO cosid (name, last_max_id, last_fetch_time)
VALUES (%(name)s, %(above)s, UNIX_TIMESTAMP())
ON DUPLICATE KEY UPDATE
    last_max_id = IF(MOD(last_max_id, 1) = 0, GREATEST(last_max_id, %(above)s), last_max_id)
"""

_RAISED: Final = "SELECT last_max_id, last_fetch_time FROM cosid WHERE name = %(name)s"

# A promoted replica takes nothing back of what its primary has granted.
_NONCE: Final = f"CONCAT(%(nonce)s, '@', LEFT({SERVER}, 40))"
_PREVIOUS: Final = f"CONCAT(%(previous)s, '@', LEFT({SERVER}, 40))"

MYSQL: Final = Dialect(
    create_table=created(
        TABLE,
        f"""
name varchar({NAME_WIDTH}) NOT NULL COMMENT '{{namespace}}.{{name}}',
last_max_id bigint unsigned NOT NULL DEFAULT 0,
last_fetch_time bigint unsigned NOT NULL DEFAULT 0,
CONSTRAINT cosid_pk PRIMARY KEY (name)
""",
    ),
    next_max_id=_ADVANCE,
    set_floor=atomic(_RAISE, _RAISED),
    counter="SELECT last_max_id FROM cosid WHERE name = %(name)s",
    counters="""
SELECT name, last_max_id, last_fetch_time FROM cosid
WHERE CAST(CONVERT(LEFT(name, CHAR_LENGTH(%(prefix)s)) USING utf8mb4) AS BINARY)
    = CAST(CONVERT(%(prefix)s USING utf8mb4) AS BINARY)
""",
    create_grants=created(
        GRANT_TABLE,
        f"""
name varchar({NAME_WIDTH}) NOT NULL,
nonce varchar(64) NOT NULL DEFAULT '',
top bigint NOT NULL DEFAULT 0,
base bigint NOT NULL DEFAULT 0,
CONSTRAINT aiocosid_grant_pk PRIMARY KEY (name)
""",
    ),
    is_created_on_use=False,
    # The counter's row is locked first by each of these.
    grant=atomic(
        _ADVANCE,
        "SET @aiocosid = CAST(LAST_INSERT_ID() AS SIGNED)",
        f"""
INSERT INTO aiocosid_grant (name, nonce, top, base)
SELECT %(name)s, {_NONCE}, @aiocosid, @aiocosid - %(step)s FROM DUAL WHERE @aiocosid > 0
ON DUPLICATE KEY UPDATE
    base = IF(nonce = {_PREVIOUS} AND top = @aiocosid - %(step)s, base, @aiocosid - %(step)s),
    top = @aiocosid, nonce = {_NONCE}
""",
        "SELECT @aiocosid, base FROM aiocosid_grant WHERE name = %(name)s AND @aiocosid > 0",
    ),
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
        "UPDATE aiocosid_grant SET nonce = '' WHERE name = %(name)s AND @aiocosid > 0",
        "UPDATE cosid SET last_max_id = %(lower)s WHERE name = %(name)s AND @aiocosid > 0",
        "SELECT %(lower)s FROM DUAL WHERE @aiocosid > 0",
    ),
    set_floor_noted=atomic(
        _RAISE,
        """
INSERT INTO aiocosid_grant (name) VALUES (%(name)s) ON DUPLICATE KEY UPDATE nonce = ''
""",
        _RAISED,
    ),
)

IS_UNDONE: Final = frozenset({1020, 1213})
"""A deadlock, or a row that was changed meanwhile: the server has undone the whole transaction, and
it may be sent again at once."""

_MEANINGS: Final[dict[type[StoreError], frozenset[int]]] = {
    StoreAuthenticationError: frozenset(
        {
            *(1044, 1045, 1130, 1142, 1143, 1227, 1370, 1524, 1698),  # no such right, user or host
            *(1820, 1862, 3118),  # the password has expired, the account is locked
        }
    ),
    OutOfRangeError: frozenset({167, 1264, 1690}),  # 167: of an AUTO_INCREMENT
    StoreUnavailableError: frozenset(
        {
            *(1020, 1205, 1213),  # nothing was written: a deadlock, or a lock that was not free
            *(1021, 1037, 1038, 1041, 1114),  # out of disk or memory
            *(1040, 1129, 1203, 1226),  # too many connections, or errors
            *(1053, 1077, 1079, 1080, 1317, 1927, 1969, 3024, 4031),  # ended by the server
            *(1158, 1159, 1160, 1161, 1184),  # the network
            *(1047, 1180, 1412, 1615, 3101),  # a cluster without quorum, a changed table
            *(1290, 1792, 1836),  # a replica, since the primary moved: it is read-only
        }
    ),
}
_BY_NUMBER: Final = {number: kind for kind, numbers in _MEANINGS.items() for number in numbers}
_NO_TABLE: Final = 1146
_CLIENTS: Final = range(2000, 3000)  # the driver's own numbers: not connected, or not any more
_MISSING: Final = re.compile(rf"\b(?:aio)?{TABLE}(?:_grant|_machine(?:_bits|_marker)?)?\b(?='|$)")


def refusal(label: str, number: int, reason: str) -> StoreError:
    """Turn the number of an error, of the server or of a driver, into our error."""
    if number == _NO_TABLE:
        missing = _MISSING.search(reason)
        return SchemaMissingError(label, table=missing[0] if missing else TABLE)
    if number in _CLIENTS or number == 0:
        return StoreUnavailableError(label, reason)
    return _BY_NUMBER.get(number, StoreError)(label, reason)


def weaknesses_of(at_commit: int, has_log: int, sync_log: int) -> list[str]:
    """Say by which settings of the server grants may be lost."""
    found: list[str] = []
    if at_commit != 1:
        found.append(
            f"innodb_flush_log_at_trx_commit is {at_commit}: a crash takes back the grants of the "
            "last second, and their ids come again; set it to 1"
        )
    if has_log and sync_log != 1:
        found.append(
            f"sync_binlog is {sync_log}: a power cut takes back grants that are not in the binary "
            "log, and their ids come again; set it to 1"
        )
    return found
