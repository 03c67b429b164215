"""What a database has to say about counters: its statements, and the names of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ("GRANT_TABLE", "NAME_WIDTH", "TABLE", "Dialect")

TABLE: Final = "cosid"
GRANT_TABLE: Final = "aiocosid_grant"
NAME_WIDTH: Final = 100  # characters; CosId's varchar(100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The statements of one database on CosId's own table ``cosid``, and on ours beside it.

    Ours, ``aiocosid_grant``, holds the note on a counter's last grant, if that may be given back;
    see `_give_back`.  Each is atomic by itself.  Parameters are by name, in the order given here.

    Attributes:
        create_table: creates the table if it is missing, whoever else does so at the same time.
        next_max_id: (name, first, step) adds ``step`` to a counter, or creates it at ``first``,
            and answers ``last_max_id``; no row, or `OutOfRangeError`, if it cannot be advanced.
        set_floor: (name, above) raises or creates a counter and answers ``last_max_id`` and
            ``last_fetch_time``; no row if it holds no integer.
        create_grants: creates the table ``aiocosid_grant``, as ``create_table`` does its own.
        is_created_on_use: whether whoever finds ``aiocosid_grant`` missing creates it.
        grant: (name, first, step, nonce, previous) does what ``next_max_id`` does, and notes it;
            answers also where a run that ``previous`` belongs to began, or NULL if there is none.
        give_back: (name, top, lower, nonce) lowers a counter from ``top``, if that is noted, and
            removes the note; answers a row if so.
        set_floor_noted: (name, above) does what ``set_floor`` does, and removes the note.
        counter: (name) answers ``last_max_id``.
        counters: (prefix) answers the three columns of every counter whose name begins so.
    """

    create_table: str
    next_max_id: str
    set_floor: str
    counter: str
    counters: str
    create_grants: str
    is_created_on_use: bool
    grant: str
    give_back: str
    set_floor_noted: str
