"""What an aiocosid server and its client exchange, as values of JSON.  Pure.

A commit sends what its decision rested on: the values that were read.  The server reads them again
and compares the values, so it keeps nothing between a read and a commit.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..abc import MAX_ID
from ..errors import (
    ClockSkewError,
    CorruptCounterError,
    CorruptMachineStateError,
    CosIdError,
    CounterMissingError,
    CounterNotCreatedError,
    IdOverflowError,
    InvalidArgumentError,
    NameTooLongError,
    SchemaDroppedError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreFormatError,
    StoreNotEmptyError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from ..machine.cells import (
    MAX_MS,
    Changes,
    Count,
    Damage,
    Marker,
    NamespaceCount,
    Need,
    Owner,
    Seat,
    Snapshot,
    Space,
    read_note,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = (
    "RemoteSnapshot",
    "as_changes",
    "as_fault",
    "as_need",
    "as_ranges",
    "as_snapshot",
    "changes_json",
    "error_of",
    "is_unchanged",
    "need_json",
    "need_of",
    "ranges_json",
    "recount",
    "snapshot_json",
)

MAX_MACHINE_ID: Final = 2**31 - 1
SAMPLE: Final = 8
"""Ids that can be taken, in the read before a commit whose decision rested on a sample."""

T = TypeVar("T")

_TEXT: Final = (str,)
_FLAG: Final = (bool,)
_WHOLE: Final = (int,)
_WHOLE_OR_NONE: Final = (int, NoneType)

_OF_SNAPSHOT: Final[dict[str, tuple[type, ...]]] = {
    "namespace": _TEXT,
    "identity": _TEXT,
    "now_ms": _WHOLE,
    "own": _WHOLE_OR_NONE,
    "last_new": _WHOLE_OR_NONE,
    "first_new": _WHOLE,
    "is_complete": _FLAG,
    "stamps_tell": _FLAG,
    "is_doubtful": _FLAG,
    "cells": _WHOLE,
    "notes": _WHOLE,
    "counted": _WHOLE_OR_NONE,
}
_OF_CHANGES: Final[dict[str, tuple[type, ...]]] = {
    "instance": _TEXT,
    "last_new": _WHOLE_OR_NONE,
    "signed": _WHOLE_OR_NONE,
    "guard_ms": _WHOLE,
}
_OF_NEED: Final[dict[str, tuple[type, ...]]] = {
    "instance": _TEXT,
    "machine_id": _WHOLE_OR_NONE,
    "is_complete": _FLAG,
    "sample": _WHOLE,
    "namespaces": _FLAG,
}
_CELLS: Final[dict[str, Callable[[str], Any]]] = {
    "marker": Marker.read,
    "space": Space.read,
    "count": Count.read,
    "namespaces": NamespaceCount.read,
}


class RemoteSnapshot(Snapshot):
    """What a server has read; `raw` has the identities that its store takes for its own."""

    __slots__ = ()

    def knows(self, identity: str) -> bool:
        """Return whether the store takes a stored identity for its own."""
        is_known = identity == self.identity or identity in (self.raw or ())
        return is_known and not self.is_doubtful


# To JSON.


def need_json(need: Need) -> dict[str, Any]:
    """Return what has to be read."""
    return {name: getattr(need, name) for name in _OF_NEED}


def snapshot_json(snapshot: Snapshot, *, written: Changes | None = None) -> dict[str, Any]:
    """Return what was read; only the seats that are written, if changes are given."""
    seats = snapshot.seats
    if written is not None:
        seats = {number: seats[number] for number in written.seats if number in seats}
    noted = {each.identity for each in (snapshot.marker, snapshot.space) if each is not None}
    return {
        **{name: getattr(snapshot, name) for name in _OF_SNAPSHOT},
        **_cells_json(snapshot),
        "seats": _seats_json(seats),
        "damages": [[each.place, each.found, each.instance] for each in snapshot.damages],
        "known": sorted(filter(snapshot.knows, noted)),
    }


def changes_json(changes: Changes) -> dict[str, Any]:
    """Return what is to be written."""
    return {
        **{name: getattr(changes, name) for name in _OF_CHANGES},
        **_cells_json(changes),
        "seats": _seats_json(changes.seats),
        "held": list(changes.own.items()),
    }


def _cells_json(found: Snapshot | Changes) -> dict[str, str | None]:
    cells = {name: getattr(found, name) for name in _CELLS}
    return {name: None if cell is None else cell.text() for name, cell in cells.items()}


def _seats_json(seats: Mapping[int, Seat]) -> list[list[object]]:
    return [
        [
            number,
            [[each.instance, each.stamp_ms] for each in seat.owners],
            None if seat.note is None else seat.note.text(),
            seat.seen_ms,
            seat.is_damaged,
        ]
        for number, seat in seats.items()
    ]


def ranges_json(ranges: Sequence[range]) -> list[list[int]]:
    """Return rising ids: of each range the first, how many, and from one to the next."""
    return [[each.start, len(each), each.step] for each in ranges]


# From JSON.  Whatever does not fit is a ValueError: it may come from anybody.


def as_need(tree: object) -> Need:
    """Return what has to be read.

    Raises:
        ValueError: it is something else.
    """
    facts = _facts(tree, _OF_NEED)
    if facts["machine_id"] is not None:
        _range(facts["machine_id"], 0, MAX_MACHINE_ID)
    _range(facts["sample"], 0, MAX_MACHINE_ID)
    return Need(**facts)


def as_snapshot(tree: object, *, store: str) -> RemoteSnapshot:
    """Return what was read.

    Args:
        tree: what `snapshot_json` returned.
        store: names the store in messages.

    Raises:
        ValueError: it is something else.
    """
    found = _object(tree)
    damages = [_texts(each, 3) for each in _list(found.get("damages"))]
    known = frozenset(_text(each) for each in _list(found.get("known")))
    return RemoteSnapshot(
        **_facts(tree, _OF_SNAPSHOT),
        **_cells(found),
        seats=_seats(found, least_ms=-MAX_MS),
        damages=tuple(Damage(*each) for each in damages),
        raw=known,
        store=store,
    )


def as_changes(tree: object) -> Changes:
    """Return what is to be written.

    Raises:
        ValueError: it is something else.
    """
    found = _object(tree)
    facts = _facts(tree, _OF_CHANGES)
    numbers = [each for each in (facts["last_new"], facts["signed"]) if each is not None]
    own: dict[str, int | None] = {}
    for each in _list(found.get("held")):
        who, number = _list(each, 2)
        own[_text(who)] = number
        numbers += [] if number is None else [number]
    for number in numbers:
        _range(number, -1, MAX_MACHINE_ID)
    _range(facts["guard_ms"], 0, MAX_MS)
    return Changes(**facts, **_cells(found), seats=_seats(found), own=own)


def as_ranges(tree: object, count: int) -> list[range]:
    """Return rising ids.

    Args:
        tree: what `ranges_json` returned.
        count: how many there have to be.

    Raises:
        ValueError: it is something else.
    """
    found: list[range] = []
    last = 0
    for each in _list(tree):
        first, size, step = _list(each, 3)
        _range(first, last + 1, MAX_ID)
        _range(size, 1, count)
        last = _range(first + (size - 1) * _range(step, 1, MAX_ID), first, MAX_ID)
        found.append(range(first, last + 1, step))
    _range(sum(map(len, found)), count, count)
    return found


def _facts(tree: object, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    found = _object(tree)
    facts = {name: found.get(name) for name in kinds}
    for name, value in facts.items():
        if type(value) not in kinds[name]:
            raise ValueError(name)
        if isinstance(value, str):
            _text(value)
        elif type(value) is int:
            _range(value, -MAX_ID, MAX_ID)
    return facts


def _cells(tree: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: tree.get(name) for name in _CELLS}
    return {
        name: None if text is None else _CELLS[name](_text(text)) for name, text in texts.items()
    }


def _seats(tree: Mapping[str, Any], *, least_ms: int = -1) -> dict[int, Seat]:
    seats: dict[int, Seat] = {}
    for each in _list(tree.get("seats")):
        number, owners, note, seen_ms, is_damaged = _list(each, 5)
        if type(is_damaged) is not bool:
            raise ValueError(is_damaged)
        seats[_range(number, 0, MAX_MACHINE_ID)] = Seat(
            tuple(_owner(owner) for owner in _list(owners)),
            None if note is None else read_note(_text(note)),
            _range(seen_ms, -MAX_MS, MAX_MS),
            is_damaged,
        )
    if least_ms == -1 and any(owner.stamp_ms < 0 for s in seats.values() for owner in s.owners):
        raise ValueError(seats)
    return seats


def _owner(tree: object) -> Owner:
    instance, stamp_ms = _list(tree, 2)
    return Owner(_text(instance), _range(stamp_ms, -MAX_MS, MAX_MS))


def _object(tree: object) -> dict[str, Any]:
    if type(tree) is not dict:
        raise ValueError(tree)
    return cast("dict[str, Any]", tree)


def _list(tree: Any, size: int = -1) -> list[Any]:  # noqa: ANN401 - whatever came
    if type(tree) is not list:
        raise ValueError(tree)
    found: list[Any] = tree  # pyright: ignore[reportUnknownVariableType]
    if size not in {-1, len(found)}:
        raise ValueError(found)
    return found


def _texts(tree: object, size: int = -1) -> list[str]:
    return [_text(each) for each in _list(tree, size)]


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(value)
    value.encode()  # no half of a surrogate pair: UnicodeEncodeError is a ValueError
    return value


def _range(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(value)
    return value


# The comparison of a commit.


def need_of(read: Snapshot, changes: Changes) -> Need:
    """Return what has to be read before a commit: as much as its decision rested on."""
    number = next(iter(changes.seats), None)
    is_whole = read.is_complete or len(changes.seats) > 1
    is_sample = read.is_sample and not is_whole
    return Need(
        changes.instance,
        number,
        is_complete=is_whole or is_sample,
        sample=SAMPLE * is_sample,
        namespaces=changes.namespaces is not None,
    )


def is_unchanged(read: Snapshot, fresh: Snapshot, changes: Changes) -> bool:
    """Return whether the cells that a decision rested on have the values that were read.

    The same cells that each backend compares: the store's identity, its marker, the namespace's
    cell, and each written one.  Marker and space are compared also if they were absent, which is
    stricter.  What the backend reads anew it compares at its own commit.
    """
    is_one_more = read.counts_one_more(changes)
    return (
        (read.identity, read.marker, read.space) == (fresh.identity, fresh.marker, fresh.space)
        and read.is_doubtful >= fresh.is_doubtful
        and (changes.count is None or _counted(read, is_one_more) == _counted(fresh, is_one_more))
        and (changes.namespaces is None or read.namespaces == fresh.namespaces)
        and (changes.last_new is None or read.last_new == fresh.last_new)
        and (changes.instance not in changes.own or read.own == fresh.own)
        and all(_value(read, number) == _value(fresh, number) for number in changes.seats)
    )


def _counted(snapshot: Snapshot, is_one_more: bool) -> object:  # noqa: FBT001 - of this module
    # One more is added to whatever there is under the same epoch.
    return snapshot.count.epoch if is_one_more and snapshot.count is not None else snapshot.count


def _value(snapshot: Snapshot, number: int) -> object:
    seat = snapshot.seats.get(number, Seat())
    return seat.owners, seat.note, seat.is_damaged


def recount(read: Snapshot, fresh: Snapshot, changes: Changes) -> None:
    """Count one more than there are now, if the decision counted one more."""
    if read.counts_one_more(changes) and fresh.count is not None:
        changes.count = Count(fresh.count.epoch, fresh.count.ids + 1)


# Errors.  A message may name the hosts and users of the server's store, so facts are sent instead.

LABEL: Final = "aiocosid server"

_FACTS: Final[dict[type[CosIdError], tuple[str, ...]]] = {
    NameTooLongError: ("value", "limit"),
    InvalidArgumentError: ("argument", "value", "expected"),
    IdOverflowError: ("counter", "limit"),
    CorruptCounterError: ("counter", "found"),
    CounterMissingError: ("counter",),
    CounterNotCreatedError: ("counter", "is_emptied"),
    CorruptMachineStateError: ("place", "found", "expected"),
    SchemaMissingError: ("table", "kind"),
    SchemaDroppedError: ("tables",),
    StoreNotEmptyError: (),
    StoreFormatError: ("found", "expected"),
    StoreRolledBackError: ("namespace", "name", "seen", "expected"),
    UnsupportedByStoreError: ("reason",),
    ClockSkewError: ("ahead", "tolerance"),
}
_REASONS: Final[dict[type[CosIdError], str]] = {
    StoreAuthenticationError: "its store rejects the login or the rights of the server",
    StoreUnavailableError: "its store does not answer",
    StoreError: "its store refuses",
}


def as_fault(error: CosIdError) -> dict[str, Any]:
    """Return an error's class and facts, none of which names a host."""
    for kind, names in _FACTS.items():
        if type(error) is kind:
            shown = {name: _fact(getattr(error, name)) for name in names}
            return {"kind": kind.__name__, "facts": shown}
    kind = StoreUnavailableError if error.retryable else StoreError
    if isinstance(error, StoreAuthenticationError):
        kind = StoreAuthenticationError
    reason = f"{_REASONS[kind]} ({type(error).__name__})"
    return {"kind": kind.__name__, "facts": {"reason": reason}}


def _fact(value: object) -> object:
    if isinstance(value, tuple):
        return [str(each) for each in cast("tuple[object, ...]", value)]
    return value if isinstance(value, int) else str(value)


def error_of(fault: object) -> CosIdError:
    """Return the error that a server reports.

    Raises:
        ValueError: it is none.
    """
    found = _object(fault)
    facts, kind = dict(_object(found.get("facts"))), found.get("kind")
    for name, each in facts.items():
        if name == "tables":
            facts[name] = tuple(_texts(each))
        elif type(each) not in {bool, int, str}:
            raise ValueError(each)
    try:
        if kind == NameTooLongError.__name__:
            return NameTooLongError(str(facts["value"]), limit=facts["limit"])
        if kind == IdOverflowError.__name__:
            return IdOverflowError(facts["counter"], limit=facts["limit"])
        if kind == InvalidArgumentError.__name__:
            return InvalidArgumentError(**facts)
        for known in (*_FACTS, *_REASONS):
            if kind == known.__name__:
                return cast("Callable[..., CosIdError]", known)(LABEL, **facts)
    except (KeyError, TypeError):
        raise ValueError(found) from None
    raise ValueError(found)
