"""The keys and texts of the cells of machine ids, on stores that CosId does not support."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from aiocosid.errors import CorruptMachineStateError
from aiocosid.machine.cells import (
    MAX_MS,
    Changes,
    Count,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceRecord,
    Owner,
    ReadRequest,
    Snapshot,
)
from aiocosid.stores._own_cells import Places, ShardedPlaces, is_enough, leave_out_compared, quoted

START: Final = "us/"
PLACES: Final = Places("store", START, "n.s/é")
ROOT: Final = "us/ns/n%2Es%2F%C3%A9/"
COUNT: Final = "us/store/count/n%2Es%2F%C3%A9"


def slot(holder: str, *, seen: int = 9, version: int = 0) -> MachineSlot:
    return MachineSlot((Owner(holder, 5),), MachineRecord(holder, token="t", version=version), seen)  # noqa: S106


def test_keys() -> None:
    """Each word is quoted; CosId's own separator is the last character of what they begin with."""
    assert quoted("a.b c-_~") == "a%2Eb%20c-_~"
    assert PLACES.namespace_of(PLACES.space, START) == PLACES.namespace == "n.s/é"
    keys = PLACES.root, PLACES.marker, PLACES.count, PLACES.space, PLACES.slots
    assert keys == (ROOT, "us/store/marker", COUNT, f"{ROOT}space", f"{ROOT}id/")
    assert (PLACES.slot(7), PLACES.own("a.b")) == (f"{ROOT}id/00000007", f"{ROOT}own/a%2Eb")


@pytest.mark.parametrize(
    ("need", "further"),
    [
        (ReadRequest("a", 0, is_complete=True), None),
        (ReadRequest(), []),
        (ReadRequest("a"), ["own/a"]),
        (ReadRequest("a", 0), ["own/a", "id/00000000"]),
    ],
)
def test_what_is_read(need: ReadRequest, further: list[str] | None) -> None:
    rest = [] if further is None else [f"{ROOT}{each}" for each in ("space", *further)]
    assert PLACES.needed(need) == ["us/store/marker", COUNT, *rest]
    sharded = ShardedPlaces("store", START, "n.s/é")
    assert sharded.needed(need) == ["us/store/marker", *rest]


@pytest.mark.parametrize("is_timed", [False, True])
def test_what_is_written_is_read(is_timed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewed id was seen when its key was written, where the store knows that."""
    if not is_timed:
        monkeypatch.setattr(Places, "is_timed", False)
    changes = Changes(
        marker=Marker("i", "e"),
        space=NamespaceRecord("i", "e", bits=2),
        count=Count("e", 3),
        slots={1: slot("a"), 2: slot("b", seen=-1), 3: MachineSlot()},
        own={"a": 1, "b": None},
        signed=1,
    )
    texts = PLACES.texts(changes)
    assert texts[PLACES.own("b")] == b""
    texts |= {f"{ROOT}id/x": b"?", PLACES.slot(4): b""}
    del texts[PLACES.slot(3)]  # which has no owner
    written = dict.fromkeys(texts, 77)
    found = PLACES.snapshot("i", texts, written, ReadRequest("a", is_complete=True), now_ms=8)
    assert (found.marker, found.space, found.count) == (
        *(changes.marker, changes.space, changes.count),
    )
    # Without a time of the store's: the key has none, or the decision's.
    seen = {1: 77, 2: -1} if is_timed else {1: 77, 2: 77}
    assert found.slots == {
        number: replace(changes.slots[number], seen_ms=seen_ms) for number, seen_ms in seen.items()
    }
    facts = found.own, found.now_ms, found.is_complete, found.stamps_tell, found.store
    assert facts == (1, 8, True, False, "store")
    assert (found.namespace, found.identity) == ("n.s/é", "i")
    part = PLACES.snapshot("i", {PLACES.own("b"): b"x"}, {}, ReadRequest("b"))
    assert (part.own, part.is_complete, part.marker, part.slots) == (None, False, None, {})


NOTE: Final = MachineRecord("a").text().encode()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (PLACES.slot(1), NOTE),
        (PLACES.slot(1), b"{}\n5"),
        (PLACES.slot(1), b"\n5"),
        (PLACES.slot(1), NOTE + b"\n%d" % (MAX_MS + 1)),
        (PLACES.slot(1), NOTE + b"\n-2"),
        (PLACES.slot(1), b"\xff\n5"),
        (PLACES.marker, b"\xff"),
        (PLACES.space, b"{}"),
        (PLACES.count, b"5"),
    ],
)
def test_a_damaged_cell_is_named(key: str, text: bytes) -> None:
    with pytest.raises(CorruptMachineStateError) as caught:
        PLACES.snapshot("i", {key: text}, {key: 1}, ReadRequest(is_complete=True))
    assert caught.value.place == key


def test_the_latest_stamp_is_read() -> None:
    key = PLACES.slot(1)
    texts = {key: NOTE + b"\n%d" % MAX_MS}
    assert PLACES.snapshot("i", texts, {key: 1}, ReadRequest()).slots[1].stamp_ms == MAX_MS


@pytest.mark.parametrize(
    ("own", "holder", "need", "due"),
    [
        (None, "a", ReadRequest("a", 1), True),
        (1, "a", ReadRequest("a", 1), True),
        (2, "a", ReadRequest("a", 1), False),
        (None, "b", ReadRequest("a", 1), False),
        (2, "b", ReadRequest("a", 1, is_complete=True), True),
        (None, "", ReadRequest("a", 1), True),
    ],
)
def test_when_one_machine_id_is_enough(
    own: int | None, holder: str, need: ReadRequest, due: bool
) -> None:
    found = Snapshot("ns", "i", own=own, slots={1: slot(holder)})
    assert is_enough(found, need) == due


def test_what_is_written_only_to_be_compared_is_left_out() -> None:
    changes = Changes(slots={1: slot("a", version=1), 2: slot("b"), 3: slot(""), 4: MachineSlot()})
    leave_out_compared(Snapshot("ns", "i", slots={1: slot("a"), 2: slot("a")}), changes)
    assert changes.slots.keys() == {2, 3}


def test_counts_are_spread_over_sixty_four_cells() -> None:
    """Those that have changed are written, and 0 for one that was above it."""
    places = ShardedPlaces("store", START, "n.s/é")
    before = Snapshot("ns", "i", slots={0: slot("a"), 64: slot("b"), 3: slot("c"), 5: slot("d")})
    changes = Changes(
        count=Count("e", 4),
        slots={1: slot("a"), 5: MachineSlot(record=MachineRecord(token="t"))},  # noqa: S106
    )
    known = {f"{COUNT}/{n}": Count("e", 1).text().encode() for n in (3, 5)}
    texts = places.spread_texts(before, changes, known)
    counted = {key: text for key, text in texts.items() if key.startswith(COUNT)}
    due = {0: 2, 1: 1, 5: 0}
    assert counted == {f"{COUNT}/{n}": Count("e", ids).text().encode() for n, ids in due.items()}
    assert places.spread_texts(before, Changes(), known) == {}
    marked = known | counted | {places.marker: Marker("i", "e").text().encode()}
    assert places.total(marked) == Count("e", 4).text().encode()
    former = {f"{COUNT}/63": Count("former", 1).text().encode()}
    assert places.total(marked | former) == Count("e", 4).text().encode()
    assert places.total(known) == b""
    unmarked = {f"{COUNT}/63": Count("", 2).text().encode()}
    assert places.total(unmarked) == Count("", 2).text().encode()
