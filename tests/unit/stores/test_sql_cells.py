"""The cells of machine ids in SQL tables: rows to a snapshot, and changes to rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest

from aiocosid.errors import CorruptMachineStateError
from aiocosid.machine.cells import (
    Changes,
    MachineRecord,
    MachineSlot,
    NamespaceRecord,
    Owner,
    ReadRequest,
    Snapshot,
)
from aiocosid.stores._postgres import POSTGRES
from aiocosid.stores._sql import CellNames, CommitBuilder, Reading

STORE: Final[Any] = ("store", "us", None, 9, 0)
ROW: Final = ("row", "n.00000001", "a", 1, 5)
NOTE: Final = ("cell", "note/n.00000001", MachineRecord("a", fence_ms=7).text(), 8, None)


def read(*rows: Any) -> Snapshot:
    reading = Reading("store", "n", ReadRequest("a", is_complete=True))
    for row in (STORE, *rows):
        assert reading.add(*row)
    return reading.snapshot()


def test_more_than_eight_digits_are_not_cut_off() -> None:
    names = CellNames("n.s")
    for number in (0, 99_999_999, 100_000_000, 2**31 - 1):
        assert names.row(number) == f"n.s.{number:08d}"
        assert names.number(names.row(number)) == number
    for other in ("n.s.7", "n.s.000000007", f"n.s.{2**31}", "n.s.-0000001", "n.t.00000001"):
        assert names.number(other) is None


A: Final = Owner("a", 5)


@pytest.mark.parametrize(
    ("rows", "slots"),
    [
        ([ROW], {1: MachineSlot((A,))}),
        ([ROW, NOTE], {1: MachineSlot((A,), MachineRecord("a", fence_ms=7), 8)}),
        ([("row", "n.00000001", "a", Decimal(1), Decimal(5))], {1: MachineSlot((A,))}),
        # The longest silent one first.
        (
            [ROW, ("row", "n.00000002", "b", 2, 4)],
            {2: MachineSlot((Owner("b", 4),)), 1: MachineSlot((A,))},
        ),
        ([ROW, NOTE, ("row", "n.00000002", "b", 2, 6)], {2: MachineSlot((Owner("b", 6),)), 1: ...}),
        # Under another name: the number is what ids are made of, and its own row is not free.
        ([("row", "n.one", "a", 1, 5)], {1: MachineSlot((A,))}),
        (
            [("row", "n.00000002", "a", 1, 5)],
            {2: MachineSlot(is_damaged=True), 1: MachineSlot((A,))},
        ),
        ([ROW, ("row", "n.one", "b", 1, 4)], {1: MachineSlot((A, Owner("b", 4)))}),
        # What cannot be read counts as held.
        ([("row", "n.00000001", "x", 1, "soon")], {1: MachineSlot(is_damaged=True)}),
        ([("row", "n.00000001", None, 1, 5)], {1: MachineSlot(is_damaged=True)}),
        ([("row", "n.00000001", "x", "1", 5)], {1: MachineSlot(is_damaged=True)}),
        ([("row", "n.one", "x", 2**31, 5)], {}),
    ],
)
def test_rows_as_a_snapshot(rows: list[Any], slots: dict[int, Any]) -> None:
    found = read(*rows)
    assert (found.identity, found.now_ms, found.counted) == ("us", 9, 0)
    assert list(found.slots) == list(slots)
    assert found.slots == {n: found.slots[n] if each is ... else each for n, each in slots.items()}


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (("row", "n.00000001", "a", 1, "soon"), "soon"),
        (("row", "n.one", "x", -1, 5), "-1"),
    ],
)
def test_a_damaged_row_is_named(row: Any, wrong: str) -> None:
    """Of the instance that asks, or of no number."""
    [damage] = read(row).damages
    assert damage.place == f"row {row[1]!r} of table 'cosid_machine'"
    assert wrong in damage.found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        NamespaceRecord(bits=32).text(),
        NamespaceRecord(bits=-1).text(),
        NamespaceRecord().text().encode(),
    ],
)
def test_a_damaged_cell_is_named(text: Any) -> None:
    with pytest.raises(CorruptMachineStateError) as caught:
        read(("cell", "space/n", text, 1, None))
    assert caught.value.place == "row 'space/n' of table 'aiocosid_cell'"


@pytest.mark.parametrize("name", ["n.00000001", "n.one"])
def test_changes_are_written_to_the_row_that_was_read(name: str) -> None:
    """Whatever its name: a second row would be a second owner."""
    found = read(("row", name, "", 1, 5))
    changes = Changes("a", slots={1: MachineSlot((Owner("a", 6),), MachineRecord("a"))}, signed=1)
    commit = CommitBuilder(POSTGRES, found, changes).commit
    [update] = [each for each in commit.writes if "cosid_machine" in each]
    assert update.startswith("UPDATE")
    given = list(commit.values.values())
    assert name in given
    assert {"a", 6} <= set(given)
    assert given.count("n.00000001") == (name == "n.00000001")
