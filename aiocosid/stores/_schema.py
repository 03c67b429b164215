"""When a SQL store's tables may be created, and whether they start complete.  Pure.

A database keeps a *witness*: a view of constants, which is created together with the tables and
survives ``DROP TABLE``, migration tools, dumps and templates.  So a store can tell tables that were
never there from tables that were dropped: in the first case no process can hold an id of theirs,
and the store's marker is written; in the second one only a person can say which ids exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import SchemaDroppedError
from ..machine.cells import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = (
    "CELL_TABLE",
    "MACHINE_TABLE",
    "OBJECTS",
    "SERIES_TABLE",
    "TABLE",
    "WITNESS",
    "Creation",
    "Schema",
    "creation_of",
    "note_of",
)

TABLE: Final = "cosid"
MACHINE_TABLE: Final = "cosid_machine"
CELL_TABLE: Final = "aiocosid_cell"
SERIES_TABLE: Final = "aiocosid_series"
WITNESS: Final = "aiocosid_witness"

_TABLES: Final = (TABLE, MACHINE_TABLE, CELL_TABLE, SERIES_TABLE)
"""The tables; the loss of any of them repeats ids or numbers."""

OBJECTS: Final = (*_TABLES, WITNESS)
"""The names of all that a store creates in a database."""

_NOTE: Final = re.compile(r"aiocosid format=(\d+) kind=(\w+)")


@dataclass(frozen=True, slots=True)
class Schema:
    """What a database has.

    Attributes:
        found: the names of those `OBJECTS` that are there.
        is_disposable: whether its witness says that the store may be dropped and made again.
    """

    found: frozenset[str]
    is_disposable: bool = False

    @classmethod
    def read(cls, rows: Iterable[Sequence[object]]) -> Schema:
        """Return the schema from rows of a name and, for the witness, its definition."""
        texts = {str(row[0]): str(row[1]) for row in rows}
        note = _NOTE.search(texts.get(WITNESS, ""))
        return cls(frozenset(texts), bool(note and note[2] == "disposable"))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The tables that are missing although the witness has seen them."""
        missing = (each for each in _TABLES if each not in self.found)
        return tuple(missing) if WITNESS in self.found else ()


@dataclass(frozen=True, slots=True)
class Creation:
    """What is created in one step, if the database still has what was read.

    Attributes:
        found: how many of `OBJECTS` were there.
        tables: the missing tables.
        witness: the text that the witness gets; empty if it is there, or cannot be created.
        vouches: whether the store's marker is written: no process can hold an id of its tables.
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
    """Return what has to be created; None if nothing is missing.

    Args:
        schema: what the database has.
        store: the store in messages.
        disposable: a store that is made now may be dropped and made again; an older one stays what
            it is.
        after_loss: make dropped tables again, without a marker.
        has_witness: whether a view can be created.

    Raises:
        SchemaDroppedError: tables were dropped, and nothing allows to make them again.
    """
    tables = tuple(each for each in _TABLES if each not in schema.found)
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
