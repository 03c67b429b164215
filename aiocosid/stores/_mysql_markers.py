"""The statements about the markers of machine ids on MySQL and MariaDB, and which store it is.

Whoever hands out an id, or changes the width, locks the marker of the namespace first, and each
sign of life shares it: so they come one after another, and see what the one before has done.  What
only lets go of an id locks no marker, but the rows themselves.
"""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

from typing import Final

from ._machine_markers import UNNAMED
from ._machine_tables import MARKER_TABLE
from ._mysql import SERVER, atomic, created

__all__ = (
    "IDENTITY",
    "MARKERS",
    "as_ours",
    "locked",
    "longest",
    "mark",
    "markers",
    "quarantine",
    "reassert",
    "same",
    "width_noted",
)

# The server, the database, and when the table was made: a dump that was read in is another table.
# Everybody may ask; the time is told in the zone of the session, and therefore converted.
IDENTITY: Final = f"""
SHA2(CONCAT_WS('/', {SERVER}, DATABASE(), UNIX_TIMESTAMP((
    SELECT t.CREATE_TIME FROM information_schema.TABLES AS t
    WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = '{MARKER_TABLE}'
))), 256)
"""

MARKERS: Final = created(
    MARKER_TABLE,
    """
namespace varchar(100) NOT NULL,
identity varchar(100) NOT NULL,
since bigint NOT NULL DEFAULT 0,
lasts bigint NOT NULL DEFAULT 0,
CONSTRAINT aiocosid_machine_marker_pk PRIMARY KEY (namespace)
""",
)


def same(one: str, other: str) -> str:
    """Compare names as they are, although a table of somebody else's may not tell ``a`` from ``A``.

    The plain comparison lets an index be used.
    """
    return f"({one} = {other} AND {_exact(one)} = {_exact(other)})"


def _exact(text: str) -> str:
    """Return the bytes of a text, whichever its character set."""
    return f"CAST(CONVERT({text} USING utf8mb4) AS BINARY)"


def as_ours(column: str) -> str:
    """Read a column of somebody else's table as one of ours, to which it may be compared then."""
    return f"CONVERT({column} USING utf8mb4) COLLATE utf8mb4_bin"


def locked(identity: str, condition: str, how: str = "FOR UPDATE") -> str:
    """Lock the marker, and set ``@aiocosid`` to 1 if it is this store's and so, else to 0."""
    return f"""
SELECT COUNT(*) INTO @aiocosid FROM aiocosid_machine_marker
WHERE namespace = %(namespace)s AND identity = {identity} AND {condition} {how}
"""


def longest(identity: str, *, only: str) -> str:
    """Have the marker of a store that is sound remember a longer safe guard.

    It comes before any row of a machine id is locked.
    """
    return f"""
UPDATE aiocosid_machine_marker SET lasts = %(lasts)s
WHERE namespace = %(namespace)s AND since = 0 AND lasts < %(lasts)s
AND {only} AND identity = {identity}
"""


def width_noted(only: str = "@aiocosid > 0") -> str:
    """Note the width."""
    return f"""
INSERT INTO aiocosid_machine_bits (namespace, bits)
SELECT %(namespace)s, %(bits)s FROM DUAL WHERE {only}
ON DUPLICATE KEY UPDATE bits = %(bits)s
"""


# About a row of a machine id, `m`, with its note, `a`.
_IS_MINE: Final = same("m.instance_id", "%(instance_id)s")
_HAS_NOTE: Final = f"COALESCE(a.instance_id = {as_ours('m.instance_id')}, 0)"
_IS_HELD: Final = "CHAR_LENGTH(m.instance_id) > 0"  # to MySQL a space equals nothing
_IS_CLAIMED: Final = f"({_IS_HELD} AND {_HAS_NOTE} AND a.seen > @aiocosid_since)"
_IS_EARLIER: Final = f"""
IF({_IS_MINE},
    a.token <> %(token)s AND m.distribute_time >= %(born)s,
    m.distribute_time < %(born)s OR (m.distribute_time = %(born)s
        AND {_exact("m.instance_id")} < {_exact("%(instance_id)s")}))
"""
_ANOTHER_LIFE: Final = f"""
EXISTS (
    SELECT 1 FROM cosid_machine AS m
    JOIN aiocosid_machine AS a ON a.name = {as_ours("m.name")}
    WHERE m.namespace = %(namespace)s AND {_IS_MINE} AND m.machine_id <> %(machine_id)s
    AND {_HAS_NOTE} AND a.seen > @aiocosid_since
    AND a.token <> %(token)s AND m.distribute_time >= %(born)s
)
"""


def reassert(now: str, identity: str, *, name: str, noted: str) -> str:
    """Take an id in a quarantine.

    Args:
        now: the store's clock.
        identity: which store it is.
        name: the name of its row, as an expression.
        noted: writes the note.
    """
    # CosId's, which would not yield, and alive, as far as we know.
    is_java = f"""
({_IS_HELD} AND NOT {_IS_MINE} AND NOT {_HAS_NOTE}
    AND m.last_timestamp > {now} - @aiocosid_lasts)
"""
    return atomic(
        f"""
SELECT COUNT(*), MAX(since), MAX(lasts) INTO @aiocosid, @aiocosid_since, @aiocosid_lasts
FROM aiocosid_machine_marker
WHERE namespace = %(namespace)s AND identity = {identity} AND since > 0 FOR UPDATE
""",
        f"SELECT IF({_ANOTHER_LIFE}, 0, @aiocosid) INTO @aiocosid",
        f"""
INSERT INTO cosid_machine (name, namespace, machine_id, last_timestamp)
SELECT {name}, %(namespace)s, %(machine_id)s, %(now)s FROM DUAL
WHERE @aiocosid > 0 AND NOT EXISTS (
    SELECT 1 FROM cosid_machine AS m
    WHERE m.namespace = %(namespace)s AND m.machine_id = %(machine_id)s
)
ON DUPLICATE KEY UPDATE last_timestamp = cosid_machine.last_timestamp
""",
        """
SELECT MIN(m.name) INTO @aiocosid_name FROM cosid_machine AS m
WHERE m.namespace = %(namespace)s AND m.machine_id = %(machine_id)s
""",
        f"""
SELECT COUNT(*) INTO @aiocosid FROM cosid_machine AS m
LEFT JOIN aiocosid_machine AS a ON a.name = {as_ours("m.name")}
WHERE m.name = @aiocosid_name AND m.machine_id = %(machine_id)s AND @aiocosid > 0
AND NOT ({_IS_CLAIMED} AND {_IS_EARLIER}) AND NOT {is_java} FOR UPDATE
""",
        """
UPDATE cosid_machine SET instance_id = %(instance_id)s, distribute_time = %(born)s,
    last_timestamp = GREATEST(last_timestamp, %(now)s)
WHERE name = @aiocosid_name AND @aiocosid > 0
""",
        noted,
        width_noted(),
        f"""
SELECT m.name, (
    SELECT COUNT(*) FROM cosid_machine AS m
    WHERE m.namespace = %(namespace)s AND {_IS_MINE} AND m.machine_id <> %(machine_id)s
) FROM cosid_machine AS m WHERE m.name = @aiocosid_name AND @aiocosid > 0
""",
    )


def markers(now: str, identity: str) -> str:
    """List them."""
    return f"""
SELECT namespace, identity = {identity}, since, lasts, {now} FROM aiocosid_machine_marker
WHERE %(everything)s <> 0 OR namespace = %(namespace)s
"""


def quarantine(now: str, identity: str) -> str:
    """Begin, prolong or end one; it begins anew if the clock was ahead by more than it lasts.

    While none runs, note how long the next one lasts, if that is longer.  Assigned in this order.
    """
    length = f"COALESCE(NULLIF(GREATEST(lasts, %(lasts)s), 0), {UNNAMED})"
    return f"""
INSERT INTO aiocosid_machine_marker (namespace, identity, since, lasts)
VALUES (%(namespace)s, {identity}, {now}, %(lasts)s)
ON DUPLICATE KEY UPDATE
    since = CASE WHEN identity <> {identity} THEN {now}
        WHEN since = 0 OR {now} >= since + {length} THEN 0
        WHEN since > {now} + {length} THEN {now} ELSE since END,
    lasts = GREATEST(lasts, %(lasts)s),
    identity = {identity}
"""


def mark(identity: str) -> str:
    """Write one; `run` answers with the number that was noted last, if it is not 0."""
    return f"""
INSERT INTO aiocosid_machine_marker (namespace, identity, since, lasts)
VALUES (%(namespace)s, {identity}, LAST_INSERT_ID(1) - 1, %(lasts)s)
ON DUPLICATE KEY UPDATE
    since = IF(%(is_new)s <> 0, 0, since + LAST_INSERT_ID(0)),
    lasts = IF(%(is_new)s <> 0, %(lasts)s, lasts),
    identity = IF(%(is_new)s <> 0, {identity}, identity)
"""
