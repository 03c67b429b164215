"""The URL and the statements of the PostgreSQL store."""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

import re
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from ._sql import (
    CELL_COLUMNS,
    COUNTER_COLUMNS,
    GRANT_COLUMNS,
    MACHINE_COLUMNS,
    MACHINE_INDEXES,
    MIGRATORS,
    READ,
    Advance,
    Dialect,
)
from ._sql_cells import CELL_TABLE, GRANT_TABLE, MACHINE_TABLE, TABLE
from ._url import read_url
from ._url_specs import POSTGRES as SPEC

if TYPE_CHECKING:
    from ._durability import Durability
    from ._sql_cells import SqlCommit

__all__ = ("POSTGRES", "dsn_of", "without_durability")

NOW: Final = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"

# The cluster, the timeline, the database and the table.  A promoted standby is on a new timeline,
# as is a server that was restored to a point in time; a restored dump is another table.  Not
# pg_control_checkpoint(): it lags behind a promotion.  No privilege is needed.
IDENTITY: Final = f"""
(SELECT concat_ws('/', s.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), d.oid,
    '{CELL_TABLE}'::regclass::oid)
FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database())
"""

# The server's start time: a server that was restored from a copy, or promoted, has another one.
_SERVER: Final = "'@' || extract(epoch from pg_postmaster_start_time())::text"

_SECONDS: Final = "extract(epoch from now())::bigint"


def _table(name: str, columns: str, depth: int) -> str:
    return indent(f"CREATE TABLE IF NOT EXISTS {name} ({columns});", "    " * depth).lstrip()


def _created(table: str, columns: str) -> str:
    """Create a table if it is missing.

    Plain CREATE TABLE IF NOT EXISTS fails in one of two concurrent sessions, and for a user who may
    not create tables even if the table exists.
    """
    return f"""
DO $$
BEGIN
    IF to_regclass('{table}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        {_table(table, columns, 2)}
    END IF;
END
$$
"""


def _counter(first: str, change: str, result: str) -> Advance:
    """Return the statement that creates or changes a counter, and the one that only changes it.

    The column may be numeric, as after a migration from MySQL's unsigned integers: a value that is
    no integer is refused, and the limit is int64 all the same.
    """
    change = f"SET {change} WHERE c.last_max_id % 1 = 0"
    result = f"RETURNING c.last_max_id::bigint{result}"
    insert = f"""
INSERT INTO cosid AS c (name, last_max_id, last_fetch_time)
VALUES (:name::varchar, {first}::bigint, {_SECONDS})
ON CONFLICT (name) DO UPDATE {change} {result}"""
    return Advance(insert, f"UPDATE cosid AS c {change} AND c.name = :name::varchar {result}")


_ADDED: Final = _counter(
    ":first",
    f"last_max_id = c.last_max_id + :step::bigint, last_fetch_time = {_SECONDS}",
    " AS max_id",
)
_RAISED: Final = _counter(
    ":above", "last_max_id = greatest(c.last_max_id, :above::bigint)", ", c.last_fetch_time"
)


# Each of these locks the counter's row first.  ON CONFLICT then reads the newest note, not the one
# at the beginning of a statement that had to wait for the row; so does UPDATE, if the note existed
# then.
def _noted(advance: str) -> str:
    return f"""
WITH granted AS ({advance}), noted AS (
    INSERT INTO aiocosid_grant AS g (name, nonce, top, base)
    SELECT :name::varchar, :nonce::varchar || {_SERVER}, max_id, max_id - :step::bigint FROM granted
    ON CONFLICT (name) DO UPDATE SET nonce = excluded.nonce, top = excluded.top, base =
        CASE WHEN g.nonce = :previous::varchar || {_SERVER} AND g.top = excluded.base
        THEN g.base ELSE excluded.base END
    RETURNING g.base
)
SELECT granted.max_id, noted.base FROM granted, noted
"""


def _unnoted(raised: str) -> str:
    return f"""
WITH raised AS ({raised}), forgotten AS (
    INSERT INTO aiocosid_grant AS g (name) SELECT :name::varchar FROM raised
    ON CONFLICT (name) DO UPDATE SET nonce = ''
)
SELECT * FROM raised
"""


_SETTINGS: Final = """
SELECT name, setting FROM pg_settings
WHERE name IN ('synchronous_commit', 'fsync', 'full_page_writes') AND setting = 'off'
ORDER BY name DESC
"""
_POWER_CUT: Final = (
    "a power cut may damage the database, and ids are issued again; set it to on in postgresql.conf"
)
_WEAKNESSES: Final = {
    "synchronous_commit": "a crash loses the grants of the last moments, and their ids are issued "
    "again; ALTER ROLE ... SET synchronous_commit = on",
    "fsync": _POWER_CUT,
    "full_page_writes": _POWER_CUT,
}


def _commit(changes: SqlCommit) -> str:
    """Compare the rows after locking them; each is locked only if all before it are unchanged."""
    parts = ["c0 AS MATERIALIZED (SELECT 1)"]
    for number, (found, how) in enumerate(changes.found, 1):
        before = f"EXISTS (SELECT 1 FROM c{number - 1})"
        parts.append(f"c{number} AS MATERIALIZED (SELECT 1 FROM {found} AND {before} {how})")
    missing = "".join(f" AND NOT EXISTS (SELECT 1 FROM {each})" for each in changes.missing)
    is_same = f"{IDENTITY} = :identity::text{missing}"
    parts.append(
        f"gate AS MATERIALIZED (SELECT 1 AS is_open FROM c{len(changes.found)} WHERE {is_same})"
    )
    parts += [f"w{number} AS ({each})" for number, each in enumerate(changes.writes)]
    return f"WITH {', '.join(parts)} SELECT is_open FROM gate"


_SCHEMA: Final = (
    _created(TABLE, COUNTER_COLUMNS),
    _created(GRANT_TABLE, GRANT_COLUMNS),
    f"""
DO $$
DECLARE
    is_known boolean;
BEGIN
    IF to_regclass('{MACHINE_TABLE}') IS NULL OR to_regclass('{CELL_TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        is_known := coalesce(to_regclass('{MACHINE_TABLE}'), to_regclass('{CELL_TABLE}'))
            IS NOT NULL;
        IF to_regclass('{MACHINE_TABLE}') IS NULL THEN
            {_table(MACHINE_TABLE, MACHINE_COLUMNS, 3)}
            {indent(MACHINE_INDEXES.strip(), "            ").lstrip()};
        END IF;
        {_table(CELL_TABLE, CELL_COLUMNS.format('varchar(255) COLLATE "C"'), 2)}
        IF NOT is_known THEN
            INSERT INTO {CELL_TABLE} (name, value, written_ms)
            SELECT 'marker', json_build_object('identity', {IDENTITY},
                'epoch', md5(random()::text || clock_timestamp()::text)), {NOW};
        END IF;
    END IF;
END
$$
""",
)

POSTGRES: Final = Dialect(
    create_counters=_SCHEMA[0],
    create_grants=_SCHEMA[1],
    create_cells=_SCHEMA[2],
    script=_SCHEMA,
    add=_ADDED,
    grant=Advance(*map(_noted, _ADDED)),
    give_back=f"""
WITH counter AS (
    SELECT name FROM cosid WHERE name = :name::varchar AND last_max_id = :top::bigint FOR UPDATE
), taken AS (
    UPDATE aiocosid_grant AS g SET nonce = '' FROM counter
    WHERE g.name = counter.name AND g.nonce = :nonce::varchar || {_SERVER}
    AND g.top = :top::bigint AND g.base <= :lower::bigint
    RETURNING g.name
)
UPDATE cosid AS c SET last_max_id = :lower::bigint FROM taken
WHERE c.name = taken.name AND c.last_max_id = :top::bigint
RETURNING c.last_max_id
""",
    raise_to=Advance(*map(_unnoted, _RAISED)),
    raise_unnoted=_RAISED,
    read=READ.format(identity=IDENTITY, now=NOW),
    now=NOW,
    is_open="EXISTS (SELECT 1 FROM gate)",
    parameter=lambda name, value: f":{name}::{'bigint' if isinstance(value, int) else 'text'}",
    number="bigint",
    shared="FOR SHARE",
    exclusive="FOR NO KEY UPDATE",
    commit=_commit,
    # Two sessions that created the same row; a deadlock; another isolation level than the default.
    conflicts=frozenset({"23505", "40P01", "40001"}),
    version="SELECT 'PostgreSQL ' || current_setting('server_version')",
    migrators=f"""
SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND lower(relname) IN ({MIGRATORS})
AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{TABLE}'))
""",
    settings=_SETTINGS,
    weaknesses=_WEAKNESSES,
)

_DURABILITY: Final = re.compile(r"(?<=[?&])durability=([^&]*)(?:&|$)")


def dsn_of(url: str) -> tuple[str, list[dict[str, Any]], Durability]:
    """Return a URL for asyncpg, the hosts to try, and the ``durability`` option.

    A host is the driver's arguments in addition to the URL; empty if there is only one host.

    Raises:
        InvalidArgumentError: it is malformed; the message holds no part that may be secret.
    """
    found = read_url(url, SPEC)
    hosts = [{"host": host.name, "port": host.port} for host in found.hosts]
    plain, _ = without_durability(url)
    return plain, hosts if len(hosts) > 1 else [{}], found.options["durability"]


def without_durability(url: str) -> tuple[str, Any]:
    """Remove our own option from a URL, and return both."""
    found = _DURABILITY.search(url)
    return _DURABILITY.sub("", url).rstrip("?&"), found[1] if found else "warn"
