"""The schema of the SQL stores, the statements that all databases share, and `Dialect`.  No I/O.

A database keeps a *witness*: a view of constants, which is created together with the tables and
survives ``DROP TABLE``, migration tools, dumps and templates.  It lets a store tell tables that
never existed from tables that were dropped.  In the first case no process can hold an id from them,
and the store's marker is written.  In the second case only a person can say which ids exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ..errors import SchemaDroppedError
from ..machine.cells import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ._durability import Rule

__all__ = (
    "CELL_TABLE",
    "MACHINE_TABLE",
    "NAME_WIDTH",
    "OBJECTS",
    "SERIES_TABLE",
    "TABLE",
    "TABLES",
    "WITNESS",
    "Advance",
    "Creation",
    "Dialect",
    "Schema",
    "SqlCommit",
    "creation_of",
    "note_of",
)

Value: TypeAlias = "str | int"
"""The value of a parameter."""

TABLE: Final = "cosid"
MACHINE_TABLE: Final = "cosid_machine"
CELL_TABLE: Final = "aiocosid_cell"
SERIES_TABLE: Final = "aiocosid_series"
WITNESS: Final = "aiocosid_witness"

TABLES: Final = (TABLE, MACHINE_TABLE, CELL_TABLE, SERIES_TABLE)
"""The tables; the loss of any of them repeats ids or numbers."""

OBJECTS: Final = (*TABLES, WITNESS)
"""The names of everything that a store creates in a database."""

_NOTE: Final = re.compile(r"aiocosid format=(\d+) kind=(\w+)")


@dataclass(frozen=True, slots=True)
class Schema:
    """The objects that exist in a database.

    Attributes:
        found: the names of those `OBJECTS` that exist.
        is_disposable: whether the witness says that the store may be dropped and recreated.
    """

    found: frozenset[str]
    is_disposable: bool = False

    @classmethod
    def read(cls, rows: Iterable[Sequence[object]]) -> Schema:
        """Return the schema from rows of a name and, for the witness, its definition."""
        texts = {str(row[0]): str(row[1]) for row in rows}
        record = _NOTE.search(texts.get(WITNESS, ""))
        return cls(frozenset(texts), bool(record and record[2] == "disposable"))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The tables that the witness records, but that are missing now."""
        missing = (each for each in TABLES if each not in self.found)
        return tuple(missing) if WITNESS in self.found else ()


@dataclass(frozen=True, slots=True)
class Creation:
    """The objects to create in one step, if the database has not changed since it was read.

    Attributes:
        found: how many of `OBJECTS` existed.
        tables: the missing tables.
        witness: the text for the witness; empty if the witness exists or cannot be created.
        vouches: whether to write the store's marker, because no process can hold an id from its
            tables.
    """

    found: int
    tables: tuple[str, ...]
    witness: str
    vouches: bool


def note_of(*, disposable: bool) -> str:
    """Return the text of a witness."""
    return f"aiocosid format={FORMAT} kind={'disposable' if disposable else 'lasting'}"


def creation_of(
    schema: Schema, *, store: str, disposable: bool, after_loss: bool, has_witness: bool = True
) -> Creation | None:
    """Return what must be created; None if nothing is missing.

    Args:
        schema: the objects that exist in the database.
        store: the store in messages.
        disposable: whether a store that is created now may be dropped and recreated; an existing
            store keeps its setting.
        after_loss: recreate dropped tables, without a marker.
        has_witness: whether a view can be created.

    Raises:
        SchemaDroppedError: tables were dropped, and neither argument nor witness allows recreating
            them.
    """
    tables = tuple(each for each in TABLES if each not in schema.found)
    is_known = WITNESS in schema.found
    dropped = schema.dropped
    if dropped and not (schema.is_disposable or after_loss):
        raise SchemaDroppedError(store, tables=dropped)
    witness = "" if is_known or not has_witness else note_of(disposable=disposable)
    if not tables and not witness:
        return None
    is_first = not is_known and has_witness and not schema.found
    vouches = is_first or bool(dropped and schema.is_disposable)
    return Creation(len(schema.found), tables, witness, vouches)


NAME_WIDTH: Final = 100  # characters; CosId's varchar(100)


COUNTER_COLUMNS: Final = f"""
    name varchar({NAME_WIDTH}) NOT NULL,
    last_max_id bigint NOT NULL DEFAULT 0,
    last_fetch_time bigint NOT NULL DEFAULT 0,
    CONSTRAINT {TABLE}_pk PRIMARY KEY (name)
"""
MACHINE_COLUMNS: Final = f"""
    name varchar({NAME_WIDTH}) NOT NULL,
    namespace varchar({NAME_WIDTH}) NOT NULL,
    machine_id integer NOT NULL DEFAULT 0,
    last_timestamp bigint NOT NULL DEFAULT 0,
    instance_id varchar(100) NOT NULL DEFAULT '',
    distribute_time bigint NOT NULL DEFAULT 0,
    revert_time bigint NOT NULL DEFAULT 0,
    CONSTRAINT {MACHINE_TABLE}_pk PRIMARY KEY (name)
"""
MACHINE_INDEXES: Final = f"""
CREATE INDEX IF NOT EXISTS idx_namespace ON {MACHINE_TABLE} (namespace);
CREATE INDEX IF NOT EXISTS idx_instance_id ON {MACHINE_TABLE} (instance_id)
"""
CELL_COLUMNS: Final = f"""
    name {{}} NOT NULL,
    value text NOT NULL,
    written_ms bigint NOT NULL,
    CONSTRAINT {CELL_TABLE}_pk PRIMARY KEY (name)
"""
SERIES_COLUMNS: Final = f"""
    name varchar({NAME_WIDTH}) NOT NULL,
    tenant varchar({NAME_WIDTH}) NOT NULL DEFAULT '',
    period varchar(40) NOT NULL DEFAULT '',
    grouped_by varchar(100) NOT NULL DEFAULT '',
    last_number bigint NOT NULL DEFAULT 0,
    range_end bigint NOT NULL DEFAULT 9223372036854775807,
    ranges text NOT NULL,
    is_open integer NOT NULL DEFAULT 1,
    CONSTRAINT {SERIES_TABLE}_pk PRIMARY KEY (name, tenant, period)
"""

_MIGRATORS: Final = (
    *("__diesel_schema_migrations", "__efmigrationshistory", "_prisma_migrations"),
    *("_sqlx_migrations", "_yoyo_migration", "aerich", "alembic_version"),
    *("atlas_schema_revisions", "databasechangelog", "django_migrations"),
    *("doctrine_migration_versions", "flyway_schema_history", "goose_db_version"),
    *("knex_migrations", "migrations", "refinery_schema_history", "schema_migrations"),
    *("schema_version", "sequelizemeta"),
)
MIGRATORS: Final = ", ".join(map("'{}'".format, _MIGRATORS))
"""The tables of migration tools as a list in SQL, in lower case."""

COLUMNS: Final = {
    TABLE: COUNTER_COLUMNS,
    MACHINE_TABLE: MACHINE_COLUMNS,
    CELL_TABLE: CELL_COLUMNS,
    SERIES_TABLE: SERIES_COLUMNS,
}

# Statements that all dialects share, except for parameters.
HAS_COUNTERS: Final = "EXISTS (SELECT 1 FROM cosid)"
MAY_CREATE: Final = """
EXISTS (SELECT 1 FROM aiocosid_cell AS m WHERE m.name = 'marker' AND (
    EXISTS (SELECT 1 FROM cosid)
    OR NOT EXISTS (
        SELECT 1 FROM aiocosid_cell AS n WHERE n.name = 'counters' AND n.value = m.value)))
"""
IS_MARKED: Final = "SELECT 1 FROM aiocosid_cell WHERE name = 'marker'"
IS_EMPTIED: Final = """
SELECT 1 FROM aiocosid_cell AS m JOIN aiocosid_cell AS n ON n.value = m.value
WHERE m.name = 'marker' AND n.name = 'counters' AND NOT EXISTS (SELECT 1 FROM cosid)
"""
DELETE_MARKER: Final = "DELETE FROM aiocosid_cell WHERE name = 'marker'"

# Statements that SQLite and PostgreSQL share.
NOTE_COUNTERS: Final = """
INSERT INTO aiocosid_cell (name, value, written_ms)
SELECT 'counters', m.value, m.written_ms FROM aiocosid_cell AS m
WHERE m.name = 'marker' AND EXISTS ({counters}) AND NOT EXISTS (
    SELECT 1 FROM aiocosid_cell AS n WHERE n.name = 'counters' AND n.value = m.value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
COUNTER: Final = "SELECT last_max_id FROM cosid WHERE name = :name"
COUNTERS: Final = """
SELECT name, last_max_id, last_fetch_time FROM cosid
WHERE substr(name, 1, length(CAST(:prefix AS text))) = CAST(:prefix AS text)
"""
NAMESPACES: Final = """
SELECT namespace FROM cosid_machine
UNION SELECT substr(name, 7) FROM aiocosid_cell WHERE name >= 'space/' AND name < 'space0'
"""
READ: Final = """
WITH found AS (
    SELECT name, instance_id, machine_id, last_timestamp FROM cosid_machine
    WHERE namespace = :namespace AND (
        :is_complete <> 0 OR instance_id = :instance
        OR machine_id = CAST(:machine_id AS bigint))
)
SELECT 'store', {identity}, '', {now}, CASE
    WHEN :counts = 2
    OR :counts = 1 AND NOT EXISTS (SELECT 1 FROM aiocosid_cell WHERE name = :count)
    THEN (SELECT count(*) FROM aiocosid_cell WHERE name >= 'count/' AND name < 'count0')
    ELSE -1 END
UNION ALL SELECT 'machine', name, instance_id, machine_id, last_timestamp FROM found
UNION ALL SELECT 'cell', name, value, written_ms, 0 FROM aiocosid_cell
WHERE name IN (:marker, :namespaces, :count, :space, :mine)
UNION ALL SELECT 'cell', name, value, written_ms, 0 FROM aiocosid_cell
WHERE name >= :records AND name < :records_end AND (
    :is_complete <> 0 OR name = :record OR substr(name, 6) IN (SELECT name FROM found))
UNION ALL SELECT 'cell', name, value, written_ms, 0 FROM aiocosid_cell
WHERE name >= :owns AND name < :owns_end AND (:is_complete <> 0 OR value = :own)
"""


class Advance(NamedTuple):
    """The statements of one way to advance a counter.

    Attributes:
        creating: the statement that creates a missing counter.
        known: the statement that does not.
    """

    creating: str
    known: str

    def statement(self, *, create: bool) -> str:
        """Return one of the two."""
        return self.creating if create else self.known


@dataclass(frozen=True, slots=True)
class SqlCommit:
    """The parts of one statement that compares and writes; a dialect assembles them.

    Attributes:
        found: rows that must exist, as ``table WHERE condition``, each with its lock clause.  Rows
            that are only compared come first, then the others, in the same order in every process.
        missing: rows that must not exist; they cannot be locked.
        writes: the writes; if two sessions create the same row, one of them fails.
        values: the parameters, and ``identity``.
    """

    values: dict[str, Value]
    found: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missing: list[str] = field(default_factory=list[str])
    writes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The statements of one database.

    Each statement is atomic by itself.  Parameters are named: ``:name``, or ``%(name)s`` on MySQL.
    A statement that adds to or raises a counter returns no row, or fails with `OutOfRangeError`, if
    the counter is missing or holds no integer.

    Attributes:
        schema: () returns the name of each of `OBJECTS` that exists, and the witness's text.
        create: builds the statement of a `Creation`, which changes nothing if another session was
            faster.
        note_counters: () writes the cell ``counters`` if there are counters and a marker.
        is_emptied: () returns a row if the cell exists under the marker, but no counter does.
        is_created_on_use: whether the first statement that needs a missing table creates it.
        add: (name, step, and first if it creates) adds ``step`` to a counter, or creates it at
            ``first`` if that is allowed, and returns ``last_max_id``.  A creating statement also
            does what ``note_counters`` does.
        raise_to: (name, above) raises or creates a counter, and returns ``last_max_id`` and
            ``last_fetch_time``.
        counter: (name) returns ``last_max_id``.
        counters: (prefix) returns the three columns of every counter whose name begins with it.
        read: (namespace, is_complete, instance, machine_id, marker, namespaces, counts, count,
            space, mine, record, records, records_end, owns, owns_end, own) returns five columns.
            ``'store'``, its identity, an empty text, its clock in milliseconds, and the number of
            counts, if ``counts`` is 2, or is 1 and there is no ``count``, else -1; ``'cell'``,
            name, value and ``written_ms`` of the cells ``marker``, ``namespaces``, ``count``,
            ``space`` and ``mine``, and of each whose name is
            between ``records`` and ``records_end`` or ``owns`` and ``owns_end``; ``'machine'``,
            name, instance, machine id and stamp of each row of the namespace, all at one moment.
            Unless ``is_complete``, of the records only ``record`` and those about the instance's
            rows, of the own cells those of the value ``own``, and of the rows only the instance's,
            and the machine id's.
        now: the store's clock in milliseconds.
        is_open: the condition that all compared rows are unchanged; every write depends on it.
        parameter: formats a parameter from its name and value.
        key: formats a text as the name of a cell.
        same: compares a column with a parameter.
        number: the type to which a text with a number is cast; empty where no other process can
            write meanwhile.
        source: the FROM clause of a SELECT without a table.
        shared: locks a row that is only compared.
        exclusive: locks a row that is written.
        commit: builds the statement of an `SqlCommit`.  It writes everything and returns a row if
            the identity and all rows that were read are unchanged.
        conflicts: codes of the errors that mean a conflict; see `code_of`.
        undone: the conflict codes for which the server rolled the whole statement back, so that it
            can be sent again at once.
        namespaces: () returns the namespaces that have a machine id or a cell.
        version: () returns the server's name and version, as one text.
        migrators: () returns the tables in which a migration tool keeps its state, in the schema of
            the store's own tables.
        settings: () each returns the names and values of settings that may lose grants; a table
            appears as ``table NAME``, with its storage engine or persistence.
        rules: the safe values of these settings.
    """

    schema: str
    create: Callable[[Creation], str]
    note_counters: str
    is_emptied: str = IS_EMPTIED
    is_created_on_use: bool = False
    add: Advance
    raise_to: Advance
    counter: str = COUNTER
    counters: str = COUNTERS
    read: str
    now: str
    is_open: str
    parameter: Callable[[str, Value], str]
    key: Callable[[str], str] = str
    same: Callable[[str, str], str] = "{} = {}".format
    number: str = ""
    source: str = ""
    shared: str = ""
    exclusive: str = ""
    commit: Callable[[SqlCommit], str]
    conflicts: frozenset[str | int] = frozenset()
    undone: frozenset[str | int] = frozenset()
    namespaces: str = NAMESPACES
    version: str
    migrators: str
    settings: tuple[str, ...]
    rules: Sequence[Rule]
