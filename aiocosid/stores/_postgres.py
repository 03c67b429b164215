"""The URL and the statements of the PostgreSQL store."""

# ruff: noqa: S608 - the statements are assembled from constants of this file only

from __future__ import annotations

import re
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from ..machine.cells import FORMAT
from ._dialect import (
    CELL_TABLE,
    COLUMNS,
    HAS_COUNTERS,
    IS_EMPTIED,
    MACHINE_INDEXES,
    MACHINE_TABLE,
    MAY_CREATE,
    MIGRATORS,
    NOTE_COUNTERS,
    OBJECTS,
    READ,
    TABLE,
    TABLES,
    WITNESS,
    Advance,
    Dialect,
)
from ._durability import POSTGRES as RULES
from ._url import POSTGRES as SPEC
from ._url import read_url

if TYPE_CHECKING:
    from ._dialect import Creation, SqlCommit
    from ._url import StoreUrl

__all__ = ("POSTGRES", "dsn_of", "without_durability")


NOW: Final = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"

# The cluster, the timeline, the database and the table identify a store.  A promoted standby is on
# a new timeline, as is a server that was restored to a point in time; a restored dump has another
# table.  pg_control_checkpoint() is not used because it lags behind a promotion.  Reading these
# values needs no privilege.
IDENTITY: Final = f"""
(SELECT concat_ws('/', s.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), d.oid,
    '{CELL_TABLE}'::regclass::oid)
FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database())
"""

_SECONDS: Final = "extract(epoch from now())::bigint"


_NAMES: Final = ", ".join(f"'{each}'" for each in OBJECTS)
# This reads the catalogue itself: to_regclass() may not yet see what others have just created.
_FOUND: Final = f"pg_class AS o WHERE o.relname IN ({_NAMES}) AND pg_table_is_visible(o.oid)"

_SCHEMA: Final = f"""
SELECT o.relname, CASE o.relname WHEN '{WITNESS}' THEN pg_get_viewdef(o.oid) ELSE '' END
FROM {_FOUND}
"""


def _create(creation: Creation) -> str:
    """Create tables, witness and marker under a lock; the witness is in the counters' schema."""
    steps = [f"CREATE TABLE {each} ({COLUMNS[each]});" for each in creation.tables]
    steps = [each.format('varchar(255) COLLATE "C"') for each in steps]
    if MACHINE_TABLE in creation.tables:
        steps.append(f"{MACHINE_INDEXES.strip()};")
    if creation.witness:
        view = f"CREATE VIEW %I.{WITNESS} AS SELECT %L::text AS note"
        steps.append(f"""EXECUTE format('{view}', (
            SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.oid = '{TABLE}'::regclass), '{creation.witness}');""")
    if creation.vouches:
        steps.append(f"""INSERT INTO {CELL_TABLE} AS c (name, value, written_ms)
        SELECT 'marker', json_build_object('identity', {IDENTITY},
            'epoch', md5(random()::text || clock_timestamp()::text),
            'format', {FORMAT}), {NOW}
        ON CONFLICT (name) DO UPDATE SET value = excluded.value, written_ms = excluded.written_ms;
""")
    body = indent("\n".join(steps), "        ")
    return f"""
DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
    IF (SELECT count(*) FROM {_FOUND}) = {creation.found} THEN
{body}
    END IF;
END
$$
"""


# If a commit's wait for a synchronous standby is cancelled, the commit succeeds, and only a warning
# tells it: see `confirmed`.  So a session that hides warnings shows them until this transaction
# ends.  This is not a setting of the session, because PgBouncer may give every transaction another
# session.
_AUDIBLE: Final = "set_config('client_min_messages', 'warning', true)"


def _counter(first: str, change: str, *, allowed: str = "", result: str = "") -> Advance:
    """Return the statement that creates or changes a counter, and the one that only changes it.

    The column may be numeric, for example after a migration from MySQL's unsigned integers.  A
    value that is not an integer is refused, and the limit is still int64.
    """
    change = f"SET {change} WHERE c.last_max_id % 1 = 0"
    result = f"RETURNING c.last_max_id::bigint{result}, {_AUDIBLE}"
    insert = f"""
INSERT INTO cosid AS c (name, last_max_id, last_fetch_time)
SELECT :name::varchar, {first}::bigint, {_SECONDS}{allowed}
ON CONFLICT (name) DO UPDATE {change} {result}"""
    return Advance(insert, f"UPDATE cosid AS c {change} AND c.name = :name::varchar {result}")


# Row security can hide other users' counters, so an empty result does not prove an empty table; an
# empty file does.
_HAS_COUNTERS: Final = (
    f"({HAS_COUNTERS} OR row_security_active('{TABLE}') AND pg_relation_size('{TABLE}') > 0)"
)
_MAY_CREATE: Final = MAY_CREATE.replace(HAS_COUNTERS, _HAS_COUNTERS)
_IS_THERE: Final = "EXISTS (SELECT 1 FROM cosid WHERE name = :name::varchar)"

# If there is a marker but no record of counters, a missing counter may be created.
_NOTED: Final = f"""
counters AS ({NOTE_COUNTERS.format(counters="SELECT 1")})
"""

_ADDED: Final = _counter(
    ":first",
    f"last_max_id = c.last_max_id + :step::bigint, last_fetch_time = {_SECONDS}",
    allowed=f" WHERE {_IS_THERE} OR {_MAY_CREATE}",
)
_RAISED: Final = _counter(
    ":above",
    "last_max_id = greatest(c.last_max_id, :above::bigint)",
    result=", c.last_fetch_time",
)


# The settings as they apply to this session, whether set by role, database or URL, and the tables
# as the session finds them, a temporary table first.
_SETTINGS: Final = f"""
SELECT name::text, current_setting(name::text)
FROM unnest(ARRAY['synchronous_commit', 'fsync', 'full_page_writes']) AS name
UNION ALL SELECT 'table ' || relname, CASE WHEN relkind <> 'r' THEN 'no plain table'
    ELSE CASE relpersistence WHEN 'p' THEN 'logged' WHEN 'u' THEN 'unlogged' ELSE 'temporary' END
    END
FROM pg_class WHERE oid IN ({", ".join(f"to_regclass('{each}')" for each in TABLES)})
"""


def _commit(changes: SqlCommit) -> str:
    """Compare the rows after locking them; lock a row only if all earlier ones are unchanged."""
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
    return f"WITH {', '.join(parts)} SELECT is_open, {_AUDIBLE} FROM gate"


POSTGRES: Final = Dialect(
    schema=_SCHEMA,
    create=_create,
    note_counters=NOTE_COUNTERS.format(counters="SELECT 1 FROM cosid"),
    is_emptied=IS_EMPTIED.replace(HAS_COUNTERS, _HAS_COUNTERS),
    add=Advance(f"WITH {_NOTED} {_ADDED.creating}", _ADDED.known),
    raise_to=_RAISED,
    read=READ.format(identity=IDENTITY, now=NOW),
    now=NOW,
    is_open="EXISTS (SELECT 1 FROM gate)",
    parameter=lambda name, value: f":{name}::{'bigint' if isinstance(value, int) else 'text'}",
    number="bigint",
    shared="FOR SHARE",
    exclusive="FOR NO KEY UPDATE",
    commit=_commit,
    # Two sessions created the same row; a deadlock; or an isolation level other than the default.
    conflicts=frozenset({"23505", "40P01", "40001"}),
    version="SELECT 'PostgreSQL ' || current_setting('server_version')",
    migrators=f"""
SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND lower(relname) IN ({MIGRATORS})
AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{TABLE}'))
""",
    settings=(_SETTINGS,),
    rules=RULES,
)

_DURABILITY: Final = re.compile(r"(?<=[?&])durability=([^&]*)(?:&|$)")


def dsn_of(url: str) -> tuple[str, list[dict[str, Any]], StoreUrl]:
    """Return a URL for asyncpg, the hosts to try, and the parsed URL.

    Each host is a dict of arguments for the driver in addition to the URL; the dict is empty if
    there is only one host.

    Raises:
        InvalidArgumentError: the URL is malformed; the message shows no part that may be secret.
    """
    found = read_url(url, SPEC)
    hosts = [{"host": host.name, "port": host.port} for host in found.hosts]
    plain, _ = without_durability(url)
    plain = plain.replace("@", "%40", plain.count("@") - 1)  # of a password: the last one counts
    return plain, hosts if len(hosts) > 1 else [{}], found


def without_durability(url: str) -> tuple[str, Any]:
    """Remove aiocosid's own option from a URL, and return both."""
    found = _DURABILITY.search(url)
    return _DURABILITY.sub("", url).rstrip("?&"), found[1] if found else "warn"
