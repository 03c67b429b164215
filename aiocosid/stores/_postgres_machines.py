"""The statements about machine ids on PostgreSQL."""

# ruff: noqa: S106, S608 - put together from pieces of this file alone

from __future__ import annotations

from typing import Final

from ._machine_tables import BITS_TABLE, MACHINE_TABLE, NOTE_TABLE, MachineDialect
from ._postgres_markers import (
    IDENTITY,
    MARKERS,
    longest,
    mark,
    marker,
    markers,
    quarantine,
    reassert,
    sound,
)

__all__ = ("POSTGRES_MACHINES", "postgres_machines")

NOW: Final = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"

# Bare CREATE TABLE IF NOT EXISTS fails for one of two that run it at once, and for a user who may
# not create tables even if there is nothing to create.
_TABLES: Final = (
    f"""
DO $$
BEGIN
    IF to_regclass('{MACHINE_TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        CREATE TABLE IF NOT EXISTS {MACHINE_TABLE} (
            name varchar(100) NOT NULL,
            namespace varchar(100) NOT NULL,
            machine_id integer NOT NULL DEFAULT 0,
            last_timestamp bigint NOT NULL DEFAULT 0,
            instance_id varchar(100) NOT NULL DEFAULT '',
            distribute_time bigint NOT NULL DEFAULT 0,
            revert_time bigint NOT NULL DEFAULT 0,
            CONSTRAINT cosid_machine_pk PRIMARY KEY (name)
        );
        CREATE INDEX IF NOT EXISTS idx_namespace ON {MACHINE_TABLE} (namespace);
        CREATE INDEX IF NOT EXISTS idx_instance_id ON {MACHINE_TABLE} (instance_id);
    END IF;
END
$$
""",
    f"""
DO $$
BEGIN
    IF to_regclass('{NOTE_TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        CREATE TABLE IF NOT EXISTS {NOTE_TABLE} (
            name varchar(100) NOT NULL,
            mark bigint NOT NULL DEFAULT -1,
            stable smallint NOT NULL DEFAULT 0,
            instance_id varchar(100) NOT NULL DEFAULT '',
            token varchar(32) NOT NULL DEFAULT '',
            seen bigint NOT NULL DEFAULT 0,
            CONSTRAINT aiocosid_machine_pk PRIMARY KEY (name)
        );
    END IF;
END
$$
""",
    f"""
DO $$
BEGIN
    IF to_regclass('{BITS_TABLE}') IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
        CREATE TABLE IF NOT EXISTS {BITS_TABLE} (
            namespace varchar(100) NOT NULL,
            bits smallint NOT NULL,
            CONSTRAINT aiocosid_machine_bits_pk PRIMARY KEY (namespace)
        );
    END IF;
END
$$
""",
    MARKERS,
)


_MINE: Final = """
SELECT 1 FROM cosid_machine AS m
WHERE m.namespace = $1::varchar AND m.instance_id = $2::varchar AND m.machine_id = $3::bigint
"""
_FIRST: Final = "(SELECT count(*) FROM named) >= 0"  # it is looked at, so it is done by then


# Locked, and written only when the note has said that it was not handed out since, to another life
# of the same name: as long as the row is locked nobody can do that.
def _ours(only: str = "") -> str:
    return f"""
ours AS (
    SELECT m.name, m.instance_id, m.machine_id FROM cosid_machine AS m
    WHERE m.namespace = $1::varchar AND m.instance_id = $2::varchar AND m.machine_id = $3::bigint
    {only}
    FOR NO KEY UPDATE
)
"""


def _under(token: str) -> str:
    return f"WHERE {token}::varchar IN ('', a.token)"


def _same_width(namespace: str, bits: str) -> str:
    """Note the width, or find it noted; no row if it is another one, or the marker is not there.

    It is written even if it is the same: whoever changes it finds by the version that somebody has
    taken an id since, and whoever takes one meanwhile waits here, and then reads the new one.
    """
    return f"""
width AS (
    INSERT INTO aiocosid_machine_bits AS w (namespace, bits)
    SELECT {namespace}::varchar, {bits}::smallint FROM marker
    ON CONFLICT (namespace) DO UPDATE SET bits = w.bits WHERE w.bits = excluded.bits
    RETURNING 1
)
"""


def _name(number: str) -> str:
    digits = f"{number}::text"
    return f"$1::varchar || '.' || lpad({digits}, greatest(8, length({digits})), '0')"


def _new(limit: str) -> str:
    """Find the lowest number that neither a row nor a row's name has; none if all are there."""
    return f"""
next AS (
    SELECT 0::bigint AS machine_id
    UNION SELECT machine_id + 1 FROM known WHERE machine_id < {limit}::bigint
    EXCEPT SELECT machine_id FROM known
), new AS (
    SELECT min(n.machine_id) AS machine_id FROM next AS n
    WHERE NOT EXISTS (
        SELECT 1 FROM cosid_machine AS m WHERE m.name = {_name("n.machine_id")}
    )
)
"""


def _noted(source: str, *, mark: str, stable: str, token: str, now: str, only: str = "") -> str:
    """Write the note on a row that was written, or locked, in the same statement.

    ON CONFLICT reads the newest note, not the one that was there when the statement began: anything
    else would judge by what was true before it had to wait for the row.
    """
    return f"""
INSERT INTO aiocosid_machine AS a (name, instance_id, mark, stable, token, seen)
SELECT name, instance_id, {mark}::bigint, {stable}::smallint, {token}::varchar, {now} FROM {source}
ON CONFLICT (name) DO UPDATE SET instance_id = excluded.instance_id,
    mark = greatest(a.mark, excluded.mark), stable = excluded.stable,
    token = CASE excluded.token WHEN '' THEN a.token ELSE excluded.token END, seen = excluded.seen
{only}
RETURNING a.name, (SELECT machine_id FROM {source}), a.mark
"""


def _let_go(source: str, now: str) -> str:
    """Free rows that are locked; see `MachineDialect.release`.

    ON CONFLICT reads the newest mark, as in `_noted`: a sign of life may have raised it while the
    lock was waited for.
    """
    return f"""
, noted AS (
    INSERT INTO aiocosid_machine AS a (name, instance_id) SELECT name, instance_id FROM {source}
    ON CONFLICT (name) DO UPDATE SET mark = a.mark
    RETURNING a.name, a.mark
)
UPDATE cosid_machine AS m SET instance_id = '', revert_time = {now},
    last_timestamp = greatest(m.last_timestamp, nullif(noted.mark, -1) + 1000)
FROM noted WHERE m.name = noted.name
"""


def postgres_machines(now: str = NOW, identity: str = IDENTITY) -> MachineDialect:
    """Return the statements.

    Args:
        now: the store's clock in milliseconds, as an expression.
        identity: which store it is, as an expression.
    """
    known = "cosid_machine AS m LEFT JOIN aiocosid_machine AS a ON a.name = m.name"
    floor = "greatest(m.last_timestamp, coalesce(a.mark, -1))"

    def is_silent(guard: str) -> str:
        return f"""
(m.last_timestamp <= {now} - {guard}::bigint AND NOT coalesce(
    a.instance_id = m.instance_id AND a.seen > {now} - {guard}::bigint, false))
"""

    return MachineDialect(
        create_tables=_TABLES,
        is_created_on_use=False,
        look=f"""
WITH known AS (
    SELECT m.name, m.machine_id::bigint, m.instance_id, m.last_timestamp::bigint,
        {floor} AS floor,
        {is_silent("$6")}
        AND NOT coalesce(a.instance_id = m.instance_id AND a.stable <> 0, false) AS is_expired
    FROM {known}
    WHERE m.namespace = $1::varchar AND m.machine_id BETWEEN 0 AND $4::bigint
), {_new("$4")}
SELECT name, machine_id, instance_id, last_timestamp,
    CASE WHEN floor > $5::bigint AND NOT ($3::int <> 0 AND kind = 0) THEN 4 ELSE kind END AS rank,
    (SELECT count(*) FROM known WHERE instance_id = $2::varchar) AS own
FROM (
    SELECT name, machine_id, instance_id, last_timestamp, floor,
        CASE instance_id WHEN $2::varchar THEN 0 WHEN '' THEN 1 ELSE 3 END AS kind
    FROM known WHERE instance_id IN ($2::varchar, '') OR is_expired
    UNION ALL
    SELECT {_name("new.machine_id")}, new.machine_id, NULL, -1, coalesce(a.mark, -1), 2
    FROM new LEFT JOIN aiocosid_machine AS a ON a.name = {_name("new.machine_id")}
    WHERE new.machine_id IS NOT NULL
) AS each
ORDER BY rank, floor, machine_id LIMIT 8
""",
        take=f"""
WITH {sound("$8", identity, "$10")}, {_same_width("$8", "$9")}, taken AS (
    UPDATE cosid_machine AS m SET instance_id = $4::varchar,
        last_timestamp = greatest(m.last_timestamp, $5::bigint),
        distribute_time =
            CASE m.instance_id WHEN $4::varchar THEN m.distribute_time ELSE $5::bigint END
    WHERE m.name = $1::varchar AND m.instance_id = $2::varchar AND m.last_timestamp = $3::bigint
    AND EXISTS (SELECT 1 FROM width)
    RETURNING m.name, m.instance_id, m.machine_id::bigint
)
{_noted("taken", mark="-1", stable="$6", token="$7", now=now)}
""",
        insert=f"""
WITH known AS (
    SELECT machine_id::bigint, instance_id FROM cosid_machine
    WHERE namespace = $1::varchar AND machine_id BETWEEN 0 AND $6::bigint
), {_new("$6")}, {sound("$1", identity, "$9")}, {_same_width("$1", "$8")}, made AS (
    INSERT INTO cosid_machine AS m
        (name, namespace, machine_id, last_timestamp, instance_id, distribute_time, revert_time)
    SELECT {_name("new.machine_id")}, $1::varchar, new.machine_id, $3::bigint, $2::varchar,
        $3::bigint, 0
    FROM new WHERE new.machine_id IS NOT NULL
    AND (SELECT count(*) FROM known WHERE instance_id = $2::varchar) <= $7::bigint
    AND EXISTS (SELECT 1 FROM width)
    ON CONFLICT (name) DO NOTHING
    RETURNING m.name, m.instance_id, m.machine_id::bigint
)
{_noted("made", mark="-1", stable="$4", token="$5", now=now)}
""",
        release=f"""
WITH extra AS (
    SELECT m.name, m.instance_id FROM {known}
    WHERE m.namespace = $1::varchar AND m.instance_id = $2::varchar AND m.name <> $3::varchar
    AND m.machine_id BETWEEN 0 AND $5::bigint
    AND ({is_silent("$7")} OR ($4::int = 0 AND {floor} > $6::bigint))
    FOR NO KEY UPDATE OF m
)
{_let_go("extra", now)}
""",
        # The marker is not locked here, unless it is written: this hands nothing out.
        guard=f"""
WITH named AS (
    {longest(identity, "$8", only=f"EXISTS ({_MINE})")}
), {_ours(f"AND {_FIRST} AND EXISTS ({marker('$1', identity, '= 0')})")}, noted AS (
    {_noted("ours", mark="$5", stable="$6", token="$7", now=now, only=_under("$7"))}
)
UPDATE cosid_machine AS m SET last_timestamp = greatest(m.last_timestamp, $4::bigint)
FROM noted WHERE m.name = noted.name
RETURNING 1
""",
        reassert=reassert(now, identity, name=_name("$3::bigint")),
        revert=f"""
WITH {_ours()}, noted AS (
    INSERT INTO aiocosid_machine AS a (name, instance_id) SELECT name, instance_id FROM ours
    ON CONFLICT (name) DO UPDATE
    SET mark = CASE WHEN $4::bigint < 0 THEN a.mark ELSE least(a.mark, $4::bigint) END
    {_under("$6")}
    RETURNING a.name
)
UPDATE cosid_machine AS m SET
    instance_id = CASE $5::int WHEN 0 THEN '' ELSE m.instance_id END,
    last_timestamp = greatest(m.last_timestamp, $4::bigint), revert_time = {now}
FROM noted WHERE m.name = noted.name
""",
        holder="""
SELECT instance_id FROM cosid_machine WHERE namespace = $1::varchar AND machine_id = $2::bigint
""",
        holders="""
SELECT instance_id FROM cosid_machine
WHERE namespace = $1::varchar AND machine_id BETWEEN 0 AND $2::bigint AND instance_id <> ''
ORDER BY machine_id LIMIT 5
""",
        machines=f"""
SELECT m.name, m.namespace, m.machine_id::bigint, m.instance_id, m.last_timestamp::bigint,
    CASE WHEN m.instance_id IN ('', a.instance_id) THEN coalesce(a.mark, -1) ELSE -1 END,
    CASE WHEN a.instance_id = m.instance_id THEN a.stable ELSE 0 END
FROM {known} WHERE $1::int <> 0 OR m.namespace = $2::varchar
""",
        free=f"""
WITH held AS (
    SELECT m.name, m.instance_id FROM cosid_machine AS m
    WHERE m.namespace = $1::varchar AND m.machine_id = $2::bigint AND m.instance_id <> ''
    FOR NO KEY UPDATE
)
{_let_go("held", now)}
RETURNING 1
""",
        bits="""
SELECT bits, xmin::text FROM aiocosid_machine_bits WHERE namespace = $1::varchar
""",
        set_bits="""
INSERT INTO aiocosid_machine_bits AS w (namespace, bits) VALUES ($1::varchar, $2::smallint)
ON CONFLICT (namespace) DO UPDATE SET bits = excluded.bits WHERE w.xmin::text = $3::text
RETURNING w.bits
""",
        markers=markers(now, identity),
        quarantine=quarantine(now, identity),
        mark=mark(identity),
    )


POSTGRES_MACHINES: Final = postgres_machines()
