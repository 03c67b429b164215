"""What a server and its client exchange: it arrives as it was, and what does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.errors import (
    BusyError,
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
from aiocosid.machine.cells import (
    ENDLESS_MS,
    MAX_MS,
    Changes,
    Count,
    Damage,
    Marker,
    Need,
    Note,
    Owner,
    Seat,
    Snapshot,
    Space,
)
from aiocosid.stores._wire import (
    LABEL,
    RemoteSnapshot,
    as_changes,
    as_fault,
    as_need,
    as_snapshot,
    changes_json,
    error_of,
    is_unchanged,
    need_json,
    need_of,
    recount,
    snapshot_json,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
TIMES = st.integers(0, MAX_MS)
IDS = st.integers(0, 2**31 - 1)
NOTES = st.builds(
    Note,
    instance=TEXTS,
    stable=st.booleans(),
    mark_ms=st.integers(-1, MAX_MS),
    token=TEXTS,
    turn=TIMES,
    claimed=TEXTS,
    born_ms=TIMES,
)
SEATS = st.dictionaries(
    IDS,
    st.builds(
        Seat,
        st.lists(st.builds(Owner, TEXTS, TIMES), max_size=2).map(tuple),
        st.none() | NOTES,
        st.integers(-MAX_MS, MAX_MS),
        st.booleans(),
    ),
    max_size=4,
)
MARKERS = st.none() | st.builds(Marker, TEXTS, TEXTS)
COUNTS = st.none() | st.builds(Count, TEXTS, TIMES)
SPACES = st.none() | st.builds(
    Space,
    identity=TEXTS,
    epoch=TEXTS,
    bits=st.integers(0, 31),
    guard_ms=st.integers(0, ENDLESS_MS),
    quarantine=TEXTS,
    since_ms=TIMES,
    gaps=st.booleans(),
    is_new=st.booleans(),
)
SNAPSHOTS = st.builds(
    Snapshot,
    TEXTS,
    TEXTS,
    now_ms=TIMES,
    marker=MARKERS,
    space=SPACES,
    count=COUNTS,
    seats=SEATS,
    own=st.none() | IDS,
    last_new=st.none() | st.integers(-1, 2**31 - 1),
    first_new=IDS,
    is_complete=st.booleans(),
    stamps_tell=st.booleans(),
    damages=st.lists(st.builds(Damage, TEXTS, TEXTS, TEXTS), max_size=2).map(tuple),
    is_doubtful=st.booleans(),
    cells=st.integers(-1, 100),
    notes=st.integers(-1, 100),
)
CHANGES = st.builds(
    Changes,
    TEXTS,
    marker=MARKERS,
    space=SPACES,
    count=COUNTS,
    seats=SEATS,
    own=st.dictionaries(TEXTS, st.none() | IDS, max_size=2),
    last_new=st.none() | IDS,
    signed=st.none() | IDS,
    guard_ms=st.integers(0, ENDLESS_MS),
)


def sent(tree: object) -> Any:
    """What the other side gets."""
    return json.loads(json.dumps(tree))


@given(SNAPSHOTS)
def test_a_snapshot_arrives_as_it_was(snapshot: Snapshot) -> None:
    """Also which stored identities the store takes for its own."""
    found = as_snapshot(sent(snapshot_json(snapshot)), store="store")
    assert replace(found, raw=None) == RemoteSnapshot(
        **{name: getattr(snapshot, name) for name in Snapshot.__slots__}
    )
    assert list(found.seats) == list(snapshot.seats)
    for cell in (snapshot.marker, snapshot.space):
        if cell is not None:
            assert found.knows(cell.identity) == snapshot.knows(cell.identity)


@given(CHANGES)
def test_changes_arrive_as_they_were(changes: Changes) -> None:
    assert as_changes(sent(changes_json(changes))) == changes


@given(st.builds(Need, TEXTS, st.none() | IDS, is_complete=st.booleans(), sample=IDS))
def test_a_need_arrives_as_it_was(need: Need) -> None:
    assert as_need(sent(need_json(need))) == need


class Later(Snapshot):
    """Takes every identity for its own, as etcd does with an earlier term."""

    __slots__ = ()

    def knows(self, identity: str) -> bool:
        return bool(identity)


def test_a_store_knows_its_earlier_identities() -> None:
    snapshot = Later("ns", "c 6", marker=Marker("c 4", "e"), space=Space("c 5"))
    found = as_snapshot(sent(snapshot_json(snapshot)), store="store")
    assert [found.knows(f"c {term}") for term in range(3, 8)] == [False, True, True, True, False]
    assert found.narrowed(1).knows("c 5")
    found.is_doubtful = True
    assert not found.knows("c 6")


def trees(tree: Any) -> list[Any]:
    """The same with one value that is wrong, in each place."""
    found: list[Any] = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        value = tree[key]
        others: list[Any] = [object, 1.5, {}, [[]], "\ud800", 2**64]
        if isinstance(value, dict | list):
            others += trees(value)
        for other in others:
            copy = tree.copy()
            copy[key] = other if other is not object else [1]
            found.append(copy)
    return found


OWNED: Final = Seat((Owner("a", 1),), Note("a", token="t"), 5)  # noqa: S106 - of a call


def as_any_snapshot(tree: Any) -> object:
    """Whichever store it is of."""
    return as_snapshot(tree, store="")


@pytest.mark.parametrize(
    ("read", "tree"),
    [
        (as_need, need_json(Need("a", 1))),
        (
            as_any_snapshot,
            snapshot_json(Snapshot("ns", "i", seats={1: OWNED}, damages=(Damage("p", "f"),))),
        ),
        (as_changes, changes_json(Changes("a", seats={1: OWNED}, own={"a": 1}, last_new=1))),
    ],
)
def test_whatever_does_not_fit_is_refused(read: Callable[[Any], object], tree: Any) -> None:
    """By one kind of error, whatever it is."""
    tree = sent(tree)
    read(tree)
    for wrong in (None, 1, [], {}, *trees(tree)):
        with pytest.raises(ValueError):  # noqa: PT011 - of any text
            read(wrong)


# The comparison of a commit.

READ: Final = Snapshot(
    *("ns", "i"),
    marker=Marker("i", "e"),
    space=Space("i", "e"),
    count=Count("e", 1),
    seats={1: OWNED, 2: Seat()},
    own=1,
    last_new=1,
)
NEW: Final = Seat((Owner("a", 2),), Note("a", token="t", turn=1))  # noqa: S106 - of a call
WRITTEN: Final = Changes("a", seats={1: NEW}, own={"a": 1}, last_new=2, count=Count("e", 7))


@pytest.mark.parametrize(
    "other",
    [
        {"identity": "j"},
        {"marker": None},
        {"marker": Marker("i", "f")},
        {"space": None},
        {"space": Space("i", "e", bits=3)},
        {"count": None},
        {"count": Count("e", 2)},
        {"count": Count("f", 1)},
        {"own": None},
        {"own": 2},
        {"last_new": 2},
        {"is_doubtful": True},
        {"seats": {}},
        {"seats": {1: replace(OWNED, owners=(Owner("a", 2),))}},
        {"seats": {1: replace(OWNED, owners=())}},
        {"seats": {1: replace(OWNED, note=None)}},
        {"seats": {1: replace(OWNED, note=Note("a", token="t", turn=1))}},  # noqa: S106 - of a call
        {"seats": {1: replace(OWNED, is_damaged=True)}},
    ],
    ids=str,
)
def test_a_cell_that_has_changed_is_noticed(other: dict[str, Any]) -> None:
    """Each that a backend compares; of what is not written only marker, space and identity."""
    assert is_unchanged(READ, READ, WRITTEN)
    fresh = replace(READ, **other)
    assert not is_unchanged(READ, fresh, WRITTEN)
    shared = {"identity", "marker", "space", "is_doubtful"} & other.keys()
    assert is_unchanged(READ, fresh, Changes("a")) == (not shared)


def test_what_is_not_compared() -> None:
    """The time of a write; seats that are not written; a missing seat is an empty one."""
    fresh = replace(READ, now_ms=9, seats={1: replace(OWNED, seen_ms=9), 2: OWNED}, cells=4)
    assert is_unchanged(READ, fresh, WRITTEN)
    assert is_unchanged(READ, replace(READ, seats={}), Changes("a", seats={2: NEW}))
    assert not is_unchanged(READ, fresh, Changes("a", seats={2: NEW}))


def test_one_more_is_counted_whatever_the_count_is() -> None:
    """Under the same epoch; else processes that start at a time would conflict over it."""
    fresh = replace(READ, count=Count("e", 5))
    changes = Changes("a", seats={2: NEW}, count=Count("e", 2))
    assert is_unchanged(READ, fresh, changes)
    assert not is_unchanged(READ, replace(READ, count=Count("f", 1)), changes)
    assert not is_unchanged(READ, replace(READ, count=None), changes)
    recount(READ, fresh, changes)
    assert changes.count == Count("e", 6)
    recount(READ, fresh, changes)  # counted anew: as it is
    assert changes.count == Count("e", 6)


def test_as_much_is_read_as_the_decision_rested_on() -> None:
    one, two = Changes("a", seats={1: NEW}), Changes("a", seats={1: NEW, 2: NEW})
    sample = replace(READ, cells=3)
    whole = replace(READ, is_complete=True)
    assert need_of(READ, Changes("a")) == Need("a")
    assert need_of(READ, one) == Need("a", 1)
    assert need_of(sample, one) == Need("a", 1, is_complete=True, sample=8)
    for read, changes in ((READ, two), (sample, two), (whole, one)):
        assert need_of(read, changes) == Need("a", 1, is_complete=True)


# Errors.


@pytest.mark.parametrize(
    "error",
    [
        NameTooLongError("ns.name", limit=3),
        InvalidArgumentError("step", "0", expected="at least 1"),
        IdOverflowError("ns.name", limit=3),
        CorruptCounterError(LABEL, counter="c", found="x"),
        CounterMissingError(LABEL, counter="c"),
        CorruptMachineStateError(LABEL, place="p", found="f", expected="e"),
        SchemaMissingError(LABEL, table="t", kind="stream"),
        SchemaDroppedError(LABEL, tables=("cosid", "a,b")),
        StoreNotEmptyError(LABEL),
        StoreFormatError(LABEL, found=1, expected=2),
        CounterNotCreatedError(LABEL, counter="c"),
        CounterNotCreatedError(LABEL, counter="c", is_emptied=True),
        StoreRolledBackError(LABEL, namespace="ns", name="n", seen=1, expected=2),
        UnsupportedByStoreError(LABEL, "it cannot"),
        ClockSkewError(LABEL, ahead=3, tolerance=1),
    ],
)
def test_an_error_arrives_with_its_facts(error: CosIdError) -> None:
    found = error_of(sent(as_fault(error)))
    assert (type(found), str(found)) == (type(error), str(error))
    assert (found.remedy, vars(found)) == (error.remedy, vars(error))
    assert found.retryable == error.retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StoreUnavailableError("redis", "db7.intra:6379 refused"), StoreUnavailableError),
        (StoreAuthenticationError("redis", "user ann on db7.intra"), StoreAuthenticationError),
        (StoreError("sqlite /srv/db7.intra", "disk full"), StoreError),
        (BusyError("db7.intra", reason="is used"), StoreError),
        (CorruptCounterError("/srv/db7.intra", counter="c", found="x"), CorruptCounterError),
    ],
)
def test_an_error_names_no_host(error: CosIdError, kind: type[CosIdError]) -> None:
    text = json.dumps(as_fault(error))
    assert "db7.intra" not in text
    assert "ann" not in text
    assert type(error_of(sent(as_fault(error)))) is kind


@pytest.mark.parametrize(
    "fault",
    [
        *(None, [], {}, {"kind": "StoreError"}, {"kind": "KeyError", "facts": {"reason": "r"}}),
        *({"kind": "StoreError", "facts": each} for each in ({}, {"reason": None}, {"x": "y"}, 1)),
        {"kind": "IdOverflowError", "facts": {"reason": "r"}},
        *({"kind": "SchemaDroppedError", "facts": {"tables": each}} for each in ("a", [1], None)),
        {"kind": "StoreError", "facts": {"reason": ["r"]}},
        {"kind": ["StoreError"], "facts": {}},
    ],
)
def test_what_is_no_error_is_refused(fault: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any text
        error_of(fault)
