"""Cells of machine ids: their texts, and what a snapshot and its changes say."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from aiocosid.machine.cells import (
    ENDLESS_MS,
    MAX_MS,
    Changes,
    Count,
    Damage,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceCount,
    NamespaceRecord,
    Owner,
    ReadRequest,
    Snapshot,
    freed,
)

Cell = MachineRecord | NamespaceRecord | Marker | Count | NamespaceCount
NOTE: Final = MachineRecord("é", stable=True, fence_ms=MAX_MS, token="t", version=-1)  # noqa: S106
CELLS: Final[list[Cell]] = [
    MachineRecord(),
    NOTE,
    NamespaceRecord(),
    NamespaceRecord("i", "e", 31, ENDLESS_MS),
    Marker("i", "e"),
    Count(),
    NamespaceCount(7),
]


@pytest.mark.parametrize("cell", CELLS)
def test_what_is_written_is_read(cell: Cell) -> None:
    assert type(cell).read(cell.text()) == cell


def test_a_text_is_compact_json() -> None:
    text = '{"identity":"é","epoch":"e","format":2}'
    assert Marker("é", "e").text() == text
    assert Count.read('{"epoch":"e","ids":9007199254740991}').ids == MAX_MS == 2**53 - 1
    assert ENDLESS_MS == 2**52


@pytest.mark.parametrize(
    ("text", "found"), [('{"identity":"i","epoch":"e"}', 1), ('{"format":3,"whatever":[]}', 3)]
)
def test_a_marker_of_another_format_tells_its_number_alone(text: str, found: int) -> None:
    """Whatever else it has; and the first format's reader, which knows two facts, refuses ours."""
    assert Marker.read(text) == Marker(format=found)
    assert json.loads(Marker().text()).keys() > {"identity", "epoch"}


def test_what_is_left_out_is_empty() -> None:
    """Stores rely on it."""
    assert MachineRecord() == MachineRecord(
        "", stable=False, fence_ms=-1, token="", version=0, claimed="", requested_ms=0
    )
    assert NamespaceRecord() == NamespaceRecord("", "", 0, 0, "", 0, gaps=False, is_new=False)
    assert (Marker(), Count(), Damage("a", "b")) == (
        Marker("", ""),
        Count("", 0),
        Damage("a", "b", ""),
    )
    assert (ReadRequest(), Changes()) == (
        ReadRequest("", None, is_complete=False, sample=0),
        Changes(guard_ms=0),
    )
    facts: dict[str, Any] = {
        "now_ms": 0,
        "own": None,
        "last_new": None,
        "first_new": 0,
        "is_complete": False,
    }
    facts |= {
        "stamps_tell": True,
        "is_doubtful": False,
        "store": "store",
        "cells": -1,
        "records": -1,
    }
    assert Snapshot("ns", "i") == Snapshot("ns", "i", **facts)
    assert (Changes().instance, Changes().guard_ms) == ("", 0)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Count, ""),
        (Count, "[" * 100_000),
        (Count, '["epoch","ids"]'),
        (Count, '{"epoch":"e"}'),
        (Count, '{"epoch":"e","ids":1,"more":1}'),
        (Count, '{"epoch":1,"ids":1}'),
        (Count, '{"epoch":"e","ids":true}'),
        (Count, '{"epoch":"e","ids":-2}'),
        (Count, '{"epoch":"e","ids":9007199254740992}'),
        (Marker, "{}"),
        (Marker, '{"identity":"i","epoch":"e","format":2,"more":1}'),
        (Marker, '{"identity":"i","epoch":"e","format":"1"}'),
        (NamespaceCount, '{"number":-2}'),
        (NamespaceRecord, NamespaceRecord(bits=32).text()),
        (NamespaceRecord, NamespaceRecord(bits=-1).text()),
    ],
)
def test_another_text_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own, for some
        kind.read(text)


@pytest.mark.parametrize(
    ("slot", "facts"),
    [
        (MachineSlot(), ((), False, False, -1, -1, -1)),
        (MachineSlot((Owner("", 5),)), ((), False, False, 5, -1, 5)),
        (
            MachineSlot((Owner("a", 5), Owner("", 4)), MachineRecord(fence_ms=6)),
            (("a",), True, False, 5, 6, 6),
        ),
        (MachineSlot((Owner("", 5),), NOTE), ((), False, True, 5, MAX_MS, MAX_MS)),
        (MachineSlot(record=NOTE), ((), False, False, -1, MAX_MS, MAX_MS)),
        (MachineSlot(record=NOTE, is_damaged=True), ((), True, True, -1, MAX_MS, MAX_MS)),
    ],
)
def test_a_machine_id(slot: MachineSlot, facts: tuple[object, ...]) -> None:
    told = slot.holders, slot.is_held, slot.is_noted, slot.stamp_ms, slot.fence_ms, slot.floor_ms
    assert told == facts


def test_a_note_is_about_one_instance() -> None:
    slot = MachineSlot(record=NOTE)
    assert (slot.record_about("é"), slot.record_about("b"), MachineSlot().record_about("")) == (
        NOTE,
        None,
        None,
    )


def test_an_id_that_is_given_back() -> None:
    record = MachineRecord(
        "a",
        stable=True,
        fence_ms=3,
        token="t",  # noqa: S106
        version=4,
        claimed="q",
        requested_ms=5,
    )
    due = MachineRecord("", fence_ms=6, token="t", version=5, requested_ms=5)  # noqa: S106
    assert freed(MachineSlot((Owner("a", 1),), record, 7), 8, fence_ms=6) == MachineSlot(
        (Owner("", 8),), due, 7
    )
    assert freed(MachineSlot(), 8) == MachineSlot((Owner("", 8),), MachineRecord(version=1), -1)


def test_what_a_renewal_needs_of_a_snapshot() -> None:
    one, two = MachineSlot((Owner("a", 1),)), MachineSlot((Owner("b", 2),))
    whole = Snapshot("ns", "i", slots={1: one, 2: two}, is_complete=True, cells=2, records=1)
    part = Snapshot("ns", "i", slots={2: two}, records=1)
    assert whole.narrowed(2) == part
    assert whole.narrowed(3).slots == {}
    assert not part.is_sample
    samples = [
        Snapshot("ns", "i", cells=cells, is_complete=is_complete).is_sample
        for cells, is_complete in ((0, False), (0, True), (-1, False))
    ]
    assert samples == [True, False, False]


def test_a_store_that_was_rolled_back_is_not_known() -> None:
    assert Snapshot("ns", "i").knows("i")
    assert not Snapshot("ns", "i").knows("j")
    assert not Snapshot("ns", "i", is_doubtful=True).knows("i")


@pytest.mark.parametrize(
    ("old", "new", "due"),
    [
        (Count("e", 1), Count("e", 2), True),
        (Count("e", 1), Count("e", 3), False),
        (Count("e", 1), Count("f", 2), False),
        (Count("e", 1), None, False),
        (None, Count("e", 1), False),
    ],
)
def test_a_count_of_one_more(old: Count | None, new: Count | None, due: bool) -> None:
    assert Snapshot("ns", "i", count=old).counts_one_more(Changes(count=new)) == due


def test_changes_are_applied() -> None:
    """What they leave out stays."""
    facts: dict[str, Any] = {
        "marker": Marker("i", "e"),
        "space": NamespaceRecord("i"),
        "count": Count("e", 1),
        "slots": {1: MachineSlot()},
        "own": 1,
        "last_new": 1,
    }
    found = Snapshot("ns", "i", **facts)
    found.apply(Changes("a", own={"b": 2}))
    assert found == Snapshot("ns", "i", **facts)
    facts |= {
        "marker": Marker("j"),
        "space": NamespaceRecord("j"),
        "count": Count("f"),
        "last_new": 0,
    }
    facts["slots"] = {2: MachineSlot(record=NOTE)}
    changes = Changes("a", own={"a": None}, **{key: facts[key] for key in facts if key != "own"})
    found.apply(changes)
    facts["slots"] = {1: MachineSlot(), 2: MachineSlot(record=NOTE)}
    facts["own"] = None
    assert found == Snapshot("ns", "i", **facts)


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        (Changes("a", signed=1, guard_ms=1), False),
        (Changes(marker=Marker()), True),
        (Changes(space=NamespaceRecord()), True),
        (Changes(count=Count()), True),
        (Changes(last_new=0), True),
        (Changes(slots={1: MachineSlot()}), True),
        (Changes(own={"a": None}), True),
    ],
)
def test_whether_anything_is_written(changes: Changes, due: bool) -> None:
    assert bool(changes) == due
