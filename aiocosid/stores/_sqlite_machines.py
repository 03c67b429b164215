"""The statements about machine ids on SQLite."""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

from typing import Final

from ._machine_markers import UNNAMED
from ._machine_tables import (
    BITS_TABLE,
    MACHINE_TABLE,
    MARKER_TABLE,
    NOTE_TABLE,
    MachineDialect,
)
from ._sqlite_identity import IDENTITY

__all__ = ("SQLITE_MACHINES", "sqlite_machines")

NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

# Together, so that a file in which there was no machine id yet is marked by whoever makes its
# tables: under no namespace, for all that are not there yet.
_TABLES: Final = f"""
SELECT 1;
CREATE TABLE IF NOT EXISTS {MARKER_TABLE} (
    namespace varchar(100) NOT NULL,
    identity varchar(100) NOT NULL,
    since bigint NOT NULL DEFAULT 0,
    lasts bigint NOT NULL DEFAULT 0,
    CONSTRAINT aiocosid_machine_marker_pk PRIMARY KEY (namespace)
);
INSERT INTO {MARKER_TABLE} (namespace, identity) SELECT '', IDENTITY
WHERE NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = '{MACHINE_TABLE}')
ON CONFLICT (namespace) DO NOTHING;
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
CREATE TABLE IF NOT EXISTS {NOTE_TABLE} (
    name varchar(100) NOT NULL,
    mark bigint NOT NULL DEFAULT -1,
    stable smallint NOT NULL DEFAULT 0,
    instance_id varchar(100) NOT NULL DEFAULT '',
    token varchar(32) NOT NULL DEFAULT '',
    seen bigint NOT NULL DEFAULT 0,
    CONSTRAINT aiocosid_machine_pk PRIMARY KEY (name)
);
CREATE TABLE IF NOT EXISTS {BITS_TABLE} (
    namespace varchar(100) NOT NULL,
    bits smallint NOT NULL,
    CONSTRAINT aiocosid_machine_bits_pk PRIMARY KEY (namespace)
)
"""

_OURS: Final = """
namespace = :namespace AND instance_id = :instance_id AND machine_id = :machine_id
"""

# Unless it was handed out since, to another life of the same name.
_OWN: Final = f"""
{_OURS} AND NOT EXISTS (
    SELECT 1 FROM aiocosid_machine AS a
    WHERE a.name = cosid_machine.name AND :token <> '' AND a.token <> :token
)
"""

_TAKEN: Final = """
name, machine_id,
    coalesce((SELECT mark FROM aiocosid_machine AS a WHERE a.name = cosid_machine.name), -1)
"""

_SAME_WIDTH: Final = """
NOT EXISTS (SELECT 1 FROM aiocosid_machine_bits WHERE namespace = :namespace AND bits <> :bits)
"""

_WIDTH_NOTED: Final = """
INSERT INTO aiocosid_machine_bits (namespace, bits) VALUES (:namespace, :bits)
ON CONFLICT (namespace) DO NOTHING
"""

# The lowest number that neither a row nor a row's name has; none if all are there.
_NEW: Final = """
next AS (
    SELECT 0 AS machine_id
    UNION SELECT machine_id + 1 FROM known WHERE machine_id < :limit
    EXCEPT SELECT machine_id FROM known
), new AS (
    SELECT printf('%s.%08d', :namespace, n.machine_id) AS name, min(n.machine_id) AS machine_id
    FROM next AS n
    WHERE NOT EXISTS (
        SELECT 1 FROM cosid_machine AS m
        WHERE m.name = printf('%s.%08d', :namespace, n.machine_id)
    )
)
"""

# The marker and the note of a row that is asserted by somebody else, who had it earlier.
_OF_HOLDER: Final = "a.instance_id = cosid_machine.instance_id"
_EARLIER: Final = """
CASE cosid_machine.instance_id WHEN :instance_id
    THEN a.token <> :token AND cosid_machine.distribute_time >= :born
    ELSE cosid_machine.distribute_time < :born OR (
        cosid_machine.distribute_time = :born AND cosid_machine.instance_id < :instance_id)
END
"""
_SINCE: Final = "(SELECT since FROM aiocosid_machine_marker WHERE namespace = :namespace)"
_CLAIMED_EARLIER: Final = f"""
EXISTS (
    SELECT 1 FROM aiocosid_machine AS a
    WHERE a.name = cosid_machine.name AND {_OF_HOLDER} AND a.instance_id <> ''
    AND a.seen > {_SINCE} AND ({_EARLIER})
)
"""
_ANOTHER_LIFE: Final = f"""
EXISTS (
    SELECT 1 FROM cosid_machine AS o JOIN aiocosid_machine AS a ON a.name = o.name
    WHERE o.namespace = :namespace AND o.instance_id = :instance_id AND o.machine_id <> :machine_id
    AND a.instance_id = :instance_id AND a.seen > {_SINCE}
    AND a.token <> :token AND o.distribute_time >= :born
)
"""


# See `MachineDialect.release`.
_LET_GO: Final = """
instance_id = '', last_timestamp = max(last_timestamp, coalesce((
    SELECT a.mark + 1000 FROM aiocosid_machine AS a
    WHERE a.name = cosid_machine.name AND a.mark >= 0
), -1))
"""


def sqlite_machines(now: str = NOW, identity: str = IDENTITY) -> MachineDialect:
    """Return the statements.

    Args:
        now: the store's clock in milliseconds, as an expression.
        identity: which file it is, as an expression.
    """
    # Within a statement SQLite's clock stands still, and nobody else writes.
    is_silent = f"""
(m.last_timestamp <= {now} - :guard AND NOT coalesce(
    a.instance_id = m.instance_id AND a.seen > {now} - :guard, 0))
"""
    known = """
cosid_machine AS m LEFT JOIN aiocosid_machine AS a ON a.name = m.name
"""
    floor = "max(m.last_timestamp, coalesce(a.mark, -1))"

    marker = f"""
SELECT 1 FROM aiocosid_machine_marker
WHERE namespace = :namespace AND identity = {identity} AND since
"""
    sound = f"EXISTS ({marker} = 0 AND lasts >= :lasts)"
    length = f"""
coalesce(nullif(max(aiocosid_machine_marker.lasts, excluded.lasts), 0), {UNNAMED})
"""
    is_over = f"""
({now} >= aiocosid_machine_marker.since + {length})
"""
    was_ahead = f"""
(aiocosid_machine_marker.since > {now} + {length})
"""
    # CosId's, which would not yield, and alive, as far as we know.
    is_java = f"""
(cosid_machine.instance_id NOT IN ('', :instance_id) AND cosid_machine.last_timestamp > {now} - (
    SELECT lasts FROM aiocosid_machine_marker WHERE namespace = :namespace
) AND NOT EXISTS (
    SELECT 1 FROM aiocosid_machine AS a WHERE a.name = cosid_machine.name AND {_OF_HOLDER}
))
"""

    def note(which: str, *, mark: str, seen: str = now) -> str:
        return f"""
INSERT INTO aiocosid_machine (name, instance_id, mark, stable, token, seen)
SELECT name, instance_id, {mark}, :stable, :token, {seen} FROM cosid_machine WHERE {which}
ON CONFLICT (name) DO UPDATE SET instance_id = excluded.instance_id,
    mark = max(mark, excluded.mark), stable = excluded.stable,
    token = CASE excluded.token WHEN '' THEN token ELSE excluded.token END, seen = excluded.seen
"""

    return MachineDialect(
        create_tables=(_TABLES.replace("IDENTITY", identity),),
        is_created_on_use=True,
        look=f"""
WITH known AS (
    SELECT m.name, m.machine_id, m.instance_id, m.last_timestamp, {floor} AS floor,
        {is_silent} AND NOT coalesce(a.instance_id = m.instance_id AND a.stable, 0) AS is_expired
    FROM {known}
    WHERE m.namespace = :namespace AND m.machine_id BETWEEN 0 AND :limit
), {_NEW}
SELECT name, machine_id, instance_id, last_timestamp,
    CASE WHEN floor > :latest AND NOT (:stable AND kind = 0) THEN 4 ELSE kind END AS rank,
    (SELECT count(*) FROM known WHERE instance_id = :instance_id) AS own
FROM (
    SELECT name, machine_id, instance_id, last_timestamp, floor,
        CASE instance_id WHEN :instance_id THEN 0 WHEN '' THEN 1 ELSE 3 END AS kind
    FROM known WHERE instance_id IN (:instance_id, '') OR is_expired
    UNION ALL
    SELECT new.name, new.machine_id, NULL, -1, coalesce(a.mark, -1), 2
    FROM new LEFT JOIN aiocosid_machine AS a ON a.name = new.name
    WHERE new.machine_id IS NOT NULL
)
ORDER BY rank, floor, machine_id LIMIT 8
""",
        take=f"""
UPDATE cosid_machine SET instance_id = :instance_id,
    last_timestamp = max(last_timestamp, :now),
    distribute_time = CASE instance_id WHEN :instance_id THEN distribute_time ELSE :now END
WHERE name = :name AND instance_id = :holder AND last_timestamp = :stamp AND {_SAME_WIDTH}
AND {sound}
RETURNING {_TAKEN};
{note("name = :name", mark="-1")};
{_WIDTH_NOTED}
""",
        insert=f"""
WITH known AS (
    SELECT machine_id, instance_id FROM cosid_machine
    WHERE namespace = :namespace AND machine_id BETWEEN 0 AND :limit
), {_NEW}
INSERT INTO cosid_machine
    (name, namespace, machine_id, last_timestamp, instance_id, distribute_time, revert_time)
SELECT name, :namespace, machine_id, :now, :instance_id, :now, 0 FROM new
WHERE machine_id IS NOT NULL
AND (SELECT count(*) FROM known WHERE instance_id = :instance_id) <= :own AND {_SAME_WIDTH}
AND {sound}
RETURNING {_TAKEN};
{note("rowid = last_insert_rowid()", mark="-1")};
{_WIDTH_NOTED}
""",
        release=f"""
UPDATE cosid_machine SET {_LET_GO}, revert_time = {now}
WHERE name IN (
    SELECT m.name FROM {known}
    WHERE m.namespace = :namespace AND m.instance_id = :instance_id AND m.name <> :name
    AND m.machine_id BETWEEN 0 AND :limit
    AND ({is_silent} OR (NOT :stable AND {floor} > :latest))
)
""",
        guard=f"""
UPDATE cosid_machine SET last_timestamp = max(last_timestamp, :now)
WHERE {_OWN} AND EXISTS ({marker} = 0)
RETURNING 1;
{note(_OWN, mark=":mark")};
UPDATE aiocosid_machine_marker SET lasts = :lasts
WHERE namespace = :namespace AND lasts < :lasts
""",
        reassert=f"""
INSERT INTO cosid_machine
    (name, namespace, machine_id, last_timestamp, instance_id, distribute_time, revert_time)
SELECT coalesce((
    SELECT min(name) FROM cosid_machine WHERE namespace = :namespace AND machine_id = :machine_id
), printf('%s.%08d', :namespace, :machine_id)),
    :namespace, :machine_id, :now, :instance_id, :born, 0
WHERE EXISTS ({marker} > 0) AND NOT {_ANOTHER_LIFE}
ON CONFLICT (name) DO UPDATE SET instance_id = excluded.instance_id,
    last_timestamp = max(last_timestamp, excluded.last_timestamp),
    distribute_time = excluded.distribute_time
WHERE cosid_machine.machine_id = excluded.machine_id
AND NOT {_CLAIMED_EARLIER} AND NOT {is_java}
RETURNING name, (
    SELECT count(*) FROM cosid_machine AS o
    WHERE o.namespace = :namespace AND o.instance_id = :instance_id AND o.machine_id <> :machine_id
);
{note(_OURS, mark=":mark", seen=f"max({now}, {_SINCE} + 1)")};
INSERT INTO aiocosid_machine_bits (namespace, bits) VALUES (:namespace, :bits)
ON CONFLICT (namespace) DO UPDATE SET bits = excluded.bits
""",
        revert=f"""
UPDATE cosid_machine SET instance_id = CASE WHEN :stable THEN instance_id ELSE '' END,
    last_timestamp = max(last_timestamp, :last), revert_time = {now}
WHERE {_OWN}
RETURNING 1;
UPDATE aiocosid_machine SET mark = :last
WHERE :last >= 0 AND mark > :last AND name IN (
    SELECT name FROM cosid_machine WHERE namespace = :namespace AND machine_id = :machine_id
)
""",
        holder="""
SELECT instance_id FROM cosid_machine WHERE namespace = :namespace AND machine_id = :machine_id
""",
        holders="""
SELECT instance_id FROM cosid_machine
WHERE namespace = :namespace AND machine_id BETWEEN 0 AND :limit AND instance_id <> ''
ORDER BY machine_id LIMIT 5
""",
        machines=f"""
SELECT m.name, m.namespace, m.machine_id, m.instance_id, m.last_timestamp,
    CASE WHEN m.instance_id IN ('', a.instance_id) THEN coalesce(a.mark, -1) ELSE -1 END,
    coalesce(a.stable AND a.instance_id = m.instance_id, 0)
FROM {known} WHERE :everything OR m.namespace = :namespace
""",
        free=f"""
UPDATE cosid_machine SET {_LET_GO}, revert_time = {now}
WHERE namespace = :namespace AND machine_id = :machine_id AND instance_id <> ''
RETURNING 1
""",
        bits="""
SELECT bits, '' FROM aiocosid_machine_bits WHERE namespace = :namespace
""",
        # No version: nobody else writes in between, and the statement itself looks for holders.
        set_bits="""
INSERT INTO aiocosid_machine_bits (namespace, bits) SELECT :namespace, :bits
WHERE NOT EXISTS (
    SELECT 1 FROM cosid_machine WHERE namespace = :namespace AND instance_id <> ''
)
ON CONFLICT (namespace) DO UPDATE SET bits = excluded.bits
RETURNING bits
""",
        markers=f"""
SELECT namespace, identity = {identity}, since, lasts, {now} FROM aiocosid_machine_marker
WHERE namespace <> '' AND (:everything OR namespace = :namespace)
""",
        quarantine=f"""
INSERT INTO aiocosid_machine_marker (namespace, identity, since, lasts)
SELECT :namespace, {identity}, CASE WHEN EXISTS (
    SELECT 1 FROM aiocosid_machine_marker WHERE namespace = '' AND identity = {identity}
) THEN 0 ELSE {now} END, :lasts WHERE true
ON CONFLICT (namespace) DO UPDATE SET identity = excluded.identity,
    since = CASE WHEN aiocosid_machine_marker.identity <> excluded.identity THEN {now}
        WHEN since = 0 OR {is_over} THEN 0 WHEN {was_ahead} THEN {now} ELSE since END,
    lasts = max(lasts, excluded.lasts)
WHERE aiocosid_machine_marker.identity <> excluded.identity
OR aiocosid_machine_marker.lasts < excluded.lasts
OR (aiocosid_machine_marker.since > 0 AND ({is_over} OR {was_ahead}))
RETURNING 1
""",
        mark=f"""
INSERT INTO aiocosid_machine_marker (namespace, identity, lasts)
SELECT :namespace, {identity}, :lasts
WHERE :is_new OR NOT EXISTS (
    SELECT 1 FROM aiocosid_machine_marker WHERE namespace = '' AND identity <> {identity}
)
ON CONFLICT (namespace) DO UPDATE
SET identity = excluded.identity, since = 0, lasts = excluded.lasts
WHERE :is_new
RETURNING 1
""",
    )


SQLITE_MACHINES: Final = sqlite_machines()
