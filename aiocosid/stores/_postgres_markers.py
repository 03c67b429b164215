"""The statements about the markers of machine ids on PostgreSQL, and which server it is."""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

from typing import Final

from ._machine_markers import UNNAMED
from ._machine_tables import MARKER_TABLE

__all__ = (
    "IDENTITY",
    "MARKERS",
    "longest",
    "mark",
    "marker",
    "markers",
    "quarantine",
    "reassert",
    "sound",
)

# The cluster, the timeline, the database and the table.  A promoted standby is on a timeline of its
# own, as is a server that was restored to a point in time; a dump that was read in is another
# table.  Not pg_control_checkpoint(): after a promotion that is late.  Everybody may call these.
IDENTITY: Final = f"""
(SELECT concat_ws('/', s.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), d.oid,
    '{MARKER_TABLE}'::regclass::oid)
FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database())
"""

MARKERS: Final = f"""
DO $$
BEGIN
    IF to_regclass('{MARKER_TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        CREATE TABLE IF NOT EXISTS {MARKER_TABLE} (
            namespace varchar(100) NOT NULL,
            identity varchar(100) NOT NULL,
            since bigint NOT NULL DEFAULT 0,
            lasts bigint NOT NULL DEFAULT 0,
            CONSTRAINT aiocosid_machine_marker_pk PRIMARY KEY (namespace)
        );
    END IF;
END
$$
"""


def marker(namespace: str, identity: str, since: str) -> str:
    """Find the marker of a store that is sound, or under quarantine; no row if it is not.

    Where it is locked it stays so until the statement has taken effect; and it is read as it is by
    then, if the statement had to wait: a quarantine that began meanwhile is seen.
    """
    return f"""
SELECT q.since, q.lasts FROM aiocosid_machine_marker AS q
WHERE q.namespace = {namespace}::varchar AND q.identity = {identity} AND q.since {since}
"""


# About a row that is held, while it is locked: its note is that of the last who wrote it.
_CLAIMED: Final = """
(held.instance_id <> '' AND a.instance_id = held.instance_id AND a.seen > marker.since)
"""
_EARLIER: Final = """
CASE held.instance_id WHEN $2::varchar
    THEN a.token <> $7::varchar AND held.distribute_time >= $9::bigint
    ELSE held.distribute_time < $9::bigint OR (held.distribute_time = $9::bigint
        AND held.instance_id COLLATE "C" < $2::varchar COLLATE "C")
END
"""


def sound(namespace: str, identity: str, lasts: str) -> str:
    """Find and lock the marker of a store that is sound, and remembers a safe guard as long."""
    found = marker(namespace, identity, "= 0")
    return f"marker AS ({found} AND q.lasts >= {lasts}::bigint FOR SHARE)"


def longest(identity: str, lasts: str, *, only: str) -> str:
    """Have the marker of a store that is sound remember a longer safe guard.

    It comes before any row of a machine id is locked, as in all statements that lock both; and it
    locks nothing, and does not ask who the store is, if there is nothing to write.
    """
    return f"""
UPDATE aiocosid_machine_marker AS q SET lasts = {lasts}::bigint
WHERE q.namespace = $1::varchar AND q.since = 0 AND q.lasts < {lasts}::bigint
AND q.identity = {identity} AND {only}
RETURNING 1
"""


def reassert(now: str, identity: str, *, name: str) -> str:
    """Take an id in a quarantine; ``name`` is the name of its row, as an expression.

    The row is locked, or made, and written only when the newest note has said that nobody asserts
    it who asked earlier.  A row that somebody else makes meanwhile is not seen: no row is answered
    then, and the caller comes again.
    """
    # CosId's, which would not yield, and alive, as far as we know.
    is_java = f"""
(held.instance_id NOT IN ('', $2::varchar)
    AND held.last_timestamp > {now} - (SELECT lasts FROM marker))
"""
    another_life = """
EXISTS (
    SELECT 1 FROM cosid_machine AS o JOIN aiocosid_machine AS b ON b.name = o.name
    WHERE o.namespace = $1::varchar AND o.instance_id = $2::varchar AND o.machine_id <> $3::bigint
    AND b.instance_id = $2::varchar AND b.seen > (SELECT since FROM marker)
    AND b.token <> $7::varchar AND o.distribute_time >= $9::bigint
)
"""
    return f"""
WITH marker AS (
    {marker("$1", identity, "> 0")} FOR SHARE
), found AS (
    SELECT m.name, m.instance_id, m.distribute_time, m.last_timestamp, m.machine_id
    FROM cosid_machine AS m WHERE m.namespace = $1::varchar AND m.machine_id = $3::bigint
    AND EXISTS (SELECT 1 FROM marker) ORDER BY m.name LIMIT 1
    FOR NO KEY UPDATE
), made AS (
    INSERT INTO cosid_machine AS m
        (name, namespace, machine_id, last_timestamp, instance_id, distribute_time, revert_time)
    SELECT {name}, $1::varchar, $3::bigint, $4::bigint, $2::varchar, $9::bigint, 0
    FROM marker WHERE NOT EXISTS (SELECT 1 FROM found) AND NOT {another_life}
    ON CONFLICT (name) DO NOTHING
    RETURNING m.name, '' AS instance_id, 0 AS distribute_time, -1 AS last_timestamp, m.machine_id
), held AS (
    SELECT * FROM found UNION ALL SELECT * FROM made
), noted AS (
    INSERT INTO aiocosid_machine AS a (name, instance_id, mark, stable, token, seen)
    SELECT held.name, $2::varchar, $5::bigint, $6::smallint, $7::varchar,
        greatest({now}, (SELECT since + 1 FROM marker)) FROM held
    WHERE NOT {another_life} AND NOT (
        {is_java} AND NOT EXISTS (
            SELECT 1 FROM aiocosid_machine AS a
            WHERE a.name = held.name AND a.instance_id = held.instance_id
        )
    )
    ON CONFLICT (name) DO UPDATE SET instance_id = excluded.instance_id,
        mark = greatest(a.mark, excluded.mark), stable = excluded.stable, token = excluded.token,
        seen = excluded.seen
    WHERE (SELECT NOT ({_CLAIMED} AND {_EARLIER}) FROM held, marker)
    RETURNING a.name
), seized AS (
    UPDATE cosid_machine AS m SET instance_id = $2::varchar,
        last_timestamp = greatest(m.last_timestamp, $4::bigint), distribute_time = $9::bigint
    FROM noted WHERE m.name = noted.name
), width AS (
    INSERT INTO aiocosid_machine_bits AS w (namespace, bits)
    SELECT $1::varchar, $8::smallint FROM noted
    ON CONFLICT (namespace) DO UPDATE SET bits = excluded.bits
)
SELECT name, (
    SELECT count(*) FROM cosid_machine
    WHERE namespace = $1::varchar AND instance_id = $2::varchar AND machine_id <> $3::bigint
) FROM noted
"""


def markers(now: str, identity: str) -> str:
    """List them."""
    return f"""
SELECT namespace, (identity = {identity})::int, since, lasts, {now} FROM aiocosid_machine_marker
WHERE $1::int <> 0 OR namespace = $2::varchar
"""


def quarantine(now: str, identity: str) -> str:
    """Begin, prolong or end one; it begins anew if the clock was ahead by more than it lasts.

    While none runs, note how long the next one lasts, if that is longer.
    """
    length = f"coalesce(nullif(greatest(q.lasts, excluded.lasts), 0), {UNNAMED})"
    is_over = f"{now} >= q.since + {length}"
    was_ahead = f"q.since > {now} + {length}"
    return f"""
INSERT INTO aiocosid_machine_marker AS q (namespace, identity, since, lasts)
VALUES ($1::varchar, {identity}, {now}, $2::bigint)
ON CONFLICT (namespace) DO UPDATE SET identity = excluded.identity,
    since = CASE WHEN q.identity <> excluded.identity THEN {now}
        WHEN q.since = 0 OR {is_over} THEN 0 WHEN {was_ahead} THEN {now} ELSE q.since END,
    lasts = greatest(q.lasts, excluded.lasts)
WHERE q.identity <> excluded.identity OR q.lasts < excluded.lasts
OR (q.since > 0 AND ({is_over} OR {was_ahead}))
RETURNING 1
"""


def mark(identity: str) -> str:
    """Write one."""
    return f"""
INSERT INTO aiocosid_machine_marker AS q (namespace, identity, lasts)
VALUES ($1::varchar, {identity}, $3::bigint)
ON CONFLICT (namespace) DO UPDATE
SET identity = excluded.identity, since = 0, lasts = excluded.lasts
WHERE $2::int <> 0
RETURNING 1
"""
