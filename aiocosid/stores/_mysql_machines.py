"""The statements about machine ids on MySQL and MariaDB.

What several pieces have to know of each other is in variables of the session, which each text sets
before it reads them: ``@aiocosid`` is 1 as long as all conditions are fulfilled, else 0.
"""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

from typing import Final

from ._machine_tables import BITS_TABLE, MACHINE_TABLE, NOTE_TABLE, MachineDialect
from ._mysql import MAX_SIGNED, atomic, created
from ._mysql_markers import (
    IDENTITY,
    MARKERS,
    as_ours,
    locked,
    longest,
    mark,
    markers,
    quarantine,
    reassert,
    same,
    width_noted,
)

__all__ = ("MYSQL_MACHINES", "mysql_machines")

# Of the moment when a statement began, whatever the time zone: never later than the sign of life
# that it notes, and never earlier than whoever sent it meant.
NOW: Final = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"

_TABLES: Final = (
    created(
        MACHINE_TABLE,
        """
name varchar(100) NOT NULL COMMENT '{namespace}.{machine_id}',
namespace varchar(100) NOT NULL,
machine_id integer unsigned NOT NULL DEFAULT 0,
last_timestamp bigint unsigned NOT NULL DEFAULT 0,
instance_id varchar(100) NOT NULL DEFAULT '',
distribute_time bigint unsigned NOT NULL DEFAULT 0,
revert_time bigint unsigned NOT NULL DEFAULT 0,
CONSTRAINT cosid_machine_pk PRIMARY KEY (name),
KEY idx_namespace (namespace),
KEY idx_instance_id (instance_id)
""",
    ),
    created(
        NOTE_TABLE,
        """
name varchar(100) NOT NULL,
mark bigint NOT NULL DEFAULT -1,
stable smallint NOT NULL DEFAULT 0,
instance_id varchar(100) NOT NULL DEFAULT '',
token varchar(32) NOT NULL DEFAULT '',
seen bigint NOT NULL DEFAULT 0,
CONSTRAINT aiocosid_machine_pk PRIMARY KEY (name)
""",
    ),
    created(
        BITS_TABLE,
        """
namespace varchar(100) NOT NULL,
bits smallint NOT NULL,
CONSTRAINT aiocosid_machine_bits_pk PRIMARY KEY (namespace)
""",
    ),
    MARKERS,
)

# CosId's columns are unsigned, and what is subtracted from such a number has to be smaller.
_STAMP: Final = f"CAST(LEAST(m.last_timestamp, {MAX_SIGNED}) AS SIGNED)"
_NUMBER: Final = "CAST(m.machine_id AS SIGNED)"
_FLOOR: Final = f"GREATEST({_STAMP}, COALESCE(a.mark, -1))"
_NOTE_OF: Final = f"aiocosid_machine AS a ON a.name = {as_ours('m.name')}"
_KNOWN: Final = f"cosid_machine AS m LEFT JOIN {_NOTE_OF}"
_IS_NOTED: Final = f"COALESCE(a.instance_id = {as_ours('m.instance_id')}, 0)"
_IS_MINE: Final = same("m.instance_id", "%(instance_id)s")
_OURS: Final = f"""
m.namespace = %(namespace)s AND m.machine_id = %(machine_id)s AND {_IS_MINE}
"""
# Unless it was handed out since, to another life of the same name.
_IS_LATEST: Final = "(%(token)s = '' OR a.token = %(token)s)"
_SAME_WIDTH: Final = """
NOT EXISTS (
    SELECT 1 FROM aiocosid_machine_bits AS w
    WHERE w.namespace = %(namespace)s AND w.bits <> %(bits)s
)
"""
_TAKEN: Final = f"""
SELECT m.name, {_NUMBER}, a.mark FROM cosid_machine AS m JOIN {_NOTE_OF}
"""


def _name(number: str) -> str:
    digits = f"LPAD({number}, GREATEST(8, CHAR_LENGTH({number})), '0')"
    # Bounded, else it is a text that the server keeps on disk while it sorts.
    return f"LEFT(CONCAT(%(namespace)s, '.', {digits}), 110)"


# The lowest number that neither a row nor a row's name has; NULL if all are there.
_NEW: Final = f"""
SELECT MIN(g.machine_id + 1) AS machine_id FROM (
    SELECT k.machine_id, LEAD(k.machine_id) OVER (ORDER BY k.machine_id) AS beyond FROM (
        SELECT -1 AS machine_id UNION ALL
        SELECT {_NUMBER} FROM cosid_machine AS m
        WHERE m.namespace = %(namespace)s AND m.machine_id BETWEEN 0 AND %(limit)s
    ) AS k
) AS g
WHERE g.machine_id < %(limit)s
AND (g.beyond IS NULL OR g.beyond > g.machine_id + 1)
AND NOT EXISTS (SELECT 1 FROM cosid_machine AS m WHERE m.name = {_name("g.machine_id + 1")})
"""


def _noted(name: str, now: str, *, mark: str = "-1") -> str:
    """Write the note on a row that is locked."""
    return f"""
INSERT INTO aiocosid_machine (name, instance_id, mark, stable, token, seen)
SELECT {name}, %(instance_id)s, {mark}, %(stable)s, %(token)s, {now} FROM DUAL
WHERE @aiocosid > 0
ON DUPLICATE KEY UPDATE instance_id = %(instance_id)s, mark = GREATEST(mark, {mark}),
    stable = %(stable)s, token = IF(%(token)s = '', token, %(token)s), seen = {now}
"""


def _let_go(now: str, which: str) -> str:
    """Free rows; see `MachineDialect.release`.

    Both rows are locked when they are read: a sign of life may have raised the mark just now.
    """
    return f"""
UPDATE {_KNOWN} SET m.instance_id = '', m.revert_time = {now}, a.mark = a.mark,
    m.last_timestamp = GREATEST(m.last_timestamp, IF(a.mark >= 0, a.mark + 1000, 0))
WHERE {which}
"""


def _take(now: str, identity: str) -> str:
    return atomic(
        locked(identity, "since = 0 AND lasts >= %(lasts)s"),
        f"""
SELECT COUNT(*) INTO @aiocosid FROM cosid_machine AS m
WHERE m.name = %(name)s AND {same("m.instance_id", "%(holder)s")} AND {_STAMP} = %(stamp)s
AND {_SAME_WIDTH} AND @aiocosid > 0 FOR UPDATE
""",
        # Assigned in this order.
        f"""
UPDATE cosid_machine AS m SET
    m.distribute_time = IF({_IS_MINE}, m.distribute_time, %(now)s),
    m.instance_id = %(instance_id)s, m.last_timestamp = GREATEST(m.last_timestamp, %(now)s)
WHERE m.name = %(name)s AND @aiocosid > 0
""",
        _noted("%(name)s", now),
        width_noted(),
        f"{_TAKEN} WHERE m.name = %(name)s AND @aiocosid > 0",
    )


def _insert(now: str, identity: str) -> str:
    # As it is, the variable has a collation, which may not fit that of somebody else's table.
    number = "(@aiocosid_number + 0)"
    return atomic(
        locked(identity, "since = 0 AND lasts >= %(lasts)s"),
        # SET would lock each row that it reads.
        f"""
SELECT IF(@aiocosid > 0 AND {_SAME_WIDTH} AND (
    SELECT COUNT(*) FROM cosid_machine AS m
    WHERE m.namespace = %(namespace)s AND m.machine_id BETWEEN 0 AND %(limit)s AND {_IS_MINE}
) <= %(own)s, ({_NEW}), NULL) INTO @aiocosid_number
""",
        # A node of CosId's may make it at the same moment; then its row stays.
        f"""
INSERT INTO cosid_machine
    (name, namespace, machine_id, last_timestamp, instance_id, distribute_time, revert_time)
SELECT {_name(number)}, %(namespace)s, {number}, %(now)s, %(instance_id)s, %(now)s,
    LAST_INSERT_ID(1) - 1
FROM DUAL WHERE {number} IS NOT NULL
ON DUPLICATE KEY UPDATE last_timestamp = cosid_machine.last_timestamp + LAST_INSERT_ID(0)
""",
        f"SET @aiocosid = IF({number} IS NOT NULL, LAST_INSERT_ID(), 0)",
        _noted(_name(number), now),
        width_noted(),
        f"{_TAKEN} WHERE m.name = {_name(number)} AND @aiocosid > 0",
    )


def _guard(now: str, identity: str) -> str:
    return atomic(
        f"SELECT MIN(m.name) INTO @aiocosid_name FROM cosid_machine AS m WHERE {_OURS}",
        longest(identity, only="@aiocosid_name IS NOT NULL"),
        # Shared: this hands nothing out.
        locked(identity, "since = 0", "LOCK IN SHARE MODE"),
        f"""
INSERT INTO aiocosid_machine (name, instance_id, token)
SELECT m.name, m.instance_id, %(token)s FROM cosid_machine AS m
WHERE m.name = @aiocosid_name AND {_OURS} AND @aiocosid > 0
ON DUPLICATE KEY UPDATE mark = aiocosid_machine.mark
""",
        f"""
SELECT COUNT(*) INTO @aiocosid FROM {_KNOWN}
WHERE m.name = @aiocosid_name AND {_OURS} AND {_IS_LATEST} AND @aiocosid > 0 FOR UPDATE
""",
        """
UPDATE cosid_machine SET last_timestamp = GREATEST(last_timestamp, %(now)s)
WHERE name = @aiocosid_name AND @aiocosid > 0
""",
        _noted("@aiocosid_name", now, mark="%(mark)s"),
        "SELECT 1 FROM DUAL WHERE @aiocosid > 0",
    )


def mysql_machines(now: str = NOW, identity: str = IDENTITY) -> MachineDialect:
    """Return the statements.

    Args:
        now: the store's clock in milliseconds, as an expression.
        identity: which store it is, as an expression.
    """
    is_silent = f"""
({_STAMP} <= {now} - %(guard)s AND NOT ({_IS_NOTED} AND a.seen > {now} - %(guard)s))
"""
    claimed = f"GREATEST({now}, @aiocosid_since + 1)"
    return MachineDialect(
        create_tables=_TABLES,
        is_created_on_use=False,
        look=f"""
WITH known AS (
    SELECT m.name, {_NUMBER} AS machine_id, m.instance_id, {_STAMP} AS stamp, {_FLOOR} AS lowest,
        {is_silent} AND NOT ({_IS_NOTED} AND a.stable <> 0) AS is_expired, {_IS_MINE} AS is_mine
    FROM {_KNOWN} WHERE m.namespace = %(namespace)s AND m.machine_id BETWEEN 0 AND %(limit)s
), fresh AS ({_NEW})
SELECT name, machine_id, instance_id, stamp,
    CASE WHEN lowest > %(latest)s AND NOT (%(stable)s <> 0 AND kind = 0) THEN 4 ELSE kind END
    AS place, (SELECT COUNT(*) FROM known WHERE is_mine) AS own
FROM (
    SELECT name, machine_id, instance_id, stamp, lowest,
        CASE WHEN is_mine THEN 0 WHEN CHAR_LENGTH(instance_id) = 0 THEN 1 ELSE 3 END AS kind
    FROM known WHERE is_mine OR CHAR_LENGTH(instance_id) = 0 OR is_expired
    UNION ALL
    SELECT {_name("fresh.machine_id")}, fresh.machine_id, NULL, -1, COALESCE(a.mark, -1), 2
    FROM fresh LEFT JOIN aiocosid_machine AS a ON a.name = {_name("fresh.machine_id")}
    WHERE fresh.machine_id IS NOT NULL
) AS found
ORDER BY place, lowest, machine_id LIMIT 8
""",
        take=_take(now, identity),
        insert=_insert(now, identity),
        release=atomic(
            _let_go(
                now,
                f"""
m.namespace = %(namespace)s AND {_IS_MINE} AND m.name <> %(name)s
AND m.machine_id BETWEEN 0 AND %(limit)s
AND ({is_silent} OR (%(stable)s = 0 AND {_FLOOR} > %(latest)s))
""",
            )
        ),
        guard=_guard(now, identity),
        reassert=reassert(
            now,
            identity,
            name=_name("%(machine_id)s"),
            noted=_noted("@aiocosid_name", claimed, mark="%(mark)s"),
        ),
        revert=atomic(
            f"""
UPDATE {_KNOWN} SET m.instance_id = IF(%(stable)s = 0, '', m.instance_id), m.revert_time = {now},
    m.last_timestamp = GREATEST(m.last_timestamp, %(last)s),
    a.mark = IF(%(last)s < 0, a.mark, LEAST(a.mark, %(last)s))
WHERE {_OURS} AND (a.name IS NULL OR {_IS_LATEST})
"""
        ),
        holder="""
SELECT instance_id FROM cosid_machine
WHERE namespace = %(namespace)s AND machine_id = %(machine_id)s
""",
        holders="""
SELECT instance_id FROM cosid_machine
WHERE namespace = %(namespace)s AND machine_id BETWEEN 0 AND %(limit)s
AND CHAR_LENGTH(instance_id) > 0 ORDER BY machine_id LIMIT 5
""",
        machines=f"""
SELECT m.name, m.namespace, {_NUMBER}, m.instance_id, {_STAMP},
    IF(CHAR_LENGTH(m.instance_id) = 0 OR {_IS_NOTED}, COALESCE(a.mark, -1), -1),
    IF({_IS_NOTED}, a.stable, 0)
FROM {_KNOWN} WHERE %(everything)s <> 0 OR m.namespace = %(namespace)s
""",
        free=_free(now),
        bits="SELECT bits, '' FROM aiocosid_machine_bits WHERE namespace = %(namespace)s",
        set_bits=_set_bits(),
        markers=markers(now, identity),
        quarantine=quarantine(now, identity),
        mark=mark(identity),
    )


def _free(now: str) -> str:
    which = """
m.namespace = %(namespace)s AND m.machine_id = %(machine_id)s
AND CHAR_LENGTH(m.instance_id) > 0
"""
    return atomic(
        f"SELECT COUNT(*) INTO @aiocosid FROM cosid_machine AS m WHERE {which} FOR UPDATE",
        _let_go(now, which),
        "SELECT 1 FROM DUAL WHERE @aiocosid > 0",
    )


def _set_bits() -> str:
    """Look for holders, while nobody can hand out an id; so the version is not needed."""
    return atomic(
        "SELECT COUNT(*) INTO @aiocosid FROM aiocosid_machine_marker "
        "WHERE namespace = %(namespace)s FOR UPDATE",
        width_noted("""
NOT EXISTS (
    SELECT 1 FROM cosid_machine AS m
    WHERE m.namespace = %(namespace)s AND CHAR_LENGTH(m.instance_id) > 0
)
"""),
        "SELECT bits FROM aiocosid_machine_bits "
        "WHERE namespace = %(namespace)s AND bits = %(bits)s",
    )


MYSQL_MACHINES: Final = mysql_machines()
