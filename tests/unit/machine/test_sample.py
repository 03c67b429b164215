"""A sample of a namespace's machine ids is enough to take one, or all are asked for."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from aiocosid.machine import rules
from aiocosid.machine.cells import (
    Count,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceRecord,
    Owner,
    Snapshot,
)
from aiocosid.machine.rules import Caller, Decision

NOW = 1_700_000_000_000
SAMPLE = 2
ASKER = Caller("me", guard_ms=300_000, nonce="n")


def drawn(chance: random.Random) -> Snapshot:
    """A namespace as CosId's peers and ours may leave it."""
    slots: dict[int, MachineSlot] = {}
    last_new = chance.randrange(-1, 8)
    for number in range(last_new + 1):
        stamp = NOW + chance.choice((-5, 0, 5)) * 1000
        noted = MachineRecord(f"i{number}", fence_ms=stamp, token="t", version=1)  # noqa: S106 - no secret
        kinds = [
            MachineSlot(),  # a peer died between its two steps
            MachineSlot((Owner(f"i{number}", stamp),), noted),
            MachineSlot((Owner(f"java{number}", stamp),)),
            MachineSlot((Owner("", stamp),)),
            MachineSlot((Owner("", stamp),), replace(noted, instance="")),
            MachineSlot((Owner("", stamp),), noted),
            MachineSlot((Owner("", stamp),), is_damaged=False, record=MachineRecord(version=1)),
        ]
        slots[number] = chance.choice(kinds)
    if slots and chance.random() < 0.5:
        number = chance.choice(list(slots))
        slots[number] = MachineSlot(
            (Owner("me", NOW),),
            MachineRecord("me", fence_ms=NOW, token="t"),  # noqa: S106
        )
    ids = sum(slot.is_noted for slot in slots.values())
    return Snapshot(
        "ns",
        "here",
        now_ms=NOW,
        marker=Marker("here", "e"),
        space=NamespaceRecord("here", "e", bits=3, guard_ms=300_000),
        count=Count("e", ids),
        slots={number: slot for number, slot in slots.items() if slot != MachineSlot()},
        last_new=last_new,
        is_complete=True,
    )


def sampled(snapshot: Snapshot) -> Snapshot:
    """What a backend reads of it."""
    slots, last_new = snapshot.slots, snapshot.last_new
    assert last_new is not None
    pool = sorted(number for number, slot in slots.items() if slot.owners and not slot.is_held)
    chosen = pool[:SAMPLE] or list(range(last_new + 1, last_new + 1 + SAMPLE))
    chosen += [number for number, slot in slots.items() if "me" in slot.holders]
    return replace(
        snapshot,
        slots={number: slots.get(number, MachineSlot()) for number in chosen},
        is_complete=False,
        cells=sum(bool(slot.owners) for slot in slots.values()),
        records=sum(slot.record is not None for slot in slots.values()),
    )


def decide(snapshot: Snapshot, latest_ms: int, caller: Caller = ASKER, spread: int = 0) -> Decision:
    return rules.hand_out(
        snapshot,
        caller,
        bits=3,
        now_ms=NOW,
        latest_ms=latest_ms,
        token="new",  # noqa: S106 - no secret
        spread=spread,
    )


def without_adder(snapshot: Snapshot) -> Snapshot:
    """As on a store where all cells are ours: no peer's, and no number without a cell."""
    slots = {
        number: replace(slot, record=slot.record or MachineRecord("".join(slot.holders), token="t"))  # noqa: S106
        for number, slot in snapshot.slots.items()
        if slot.owners
    }
    ids = sum(slot.is_noted for slot in slots.values())
    return replace(snapshot, slots=slots, last_new=None, count=Count("e", ids))


def test_a_sample_of_cells_that_are_all_ours() -> None:
    """New numbers are above the highest; one that was passed over is found when all is read."""
    chance, taken, passed_over = random.Random(5), 0, 0  # noqa: S311 - the same every time
    for _ in range(3000):
        snapshot, spread = drawn(chance), chance.choice((0, 0, 1, 5))
        whole = without_adder(snapshot)
        first = max(whole.slots, default=-1) + 1
        sample = sampled(replace(whole, last_new=first - 1))
        found = decide(replace(sample, last_new=None, first_new=first), NOW + 10_000, spread=spread)
        if found.need is not None:
            assert (found.need.is_complete, found.need.sample) == (True, 0)
            continue
        taken += 1
        machine_id = found.answer.machine_id
        before = whole.slots.get(machine_id, MachineSlot())
        assert not before.is_held or before.holders == ("me",)
        assert found.changes.last_new is None
        mine = {number for number, slot in whole.slots.items() if "me" in slot.holders}
        assert found.changes.slots.keys() == {machine_id} | mine
        passed_over += machine_id > first
    assert taken > 1000, "most need no more"
    assert passed_over > 100


@pytest.mark.parametrize("stable", [False, True])
def test_a_sample_is_as_good_as_all(stable: bool) -> None:
    """What is taken of it is what would be taken of all, and as much is written and counted."""
    chance, taken = random.Random(3), 0  # noqa: S311 - the same every time
    for _ in range(3000):
        snapshot, latest = drawn(chance), NOW + chance.choice((-1, 1)) * 2000
        caller = replace(ASKER, stable=stable)
        found = decide(sampled(snapshot), latest, caller)
        if found.need is not None:
            assert (found.need.is_complete, found.need.sample) == (True, 0)
            continue
        taken += 1
        due = decide(snapshot, latest, caller)
        assert (found.answer, found.changes) == (due.answer, due.changes)
    assert taken > 1000, "most need no more"


def test_what_was_lost_is_not_handed_out() -> None:
    """Cells or records that are gone are noticed, or another id is taken."""
    chance, noticed = random.Random(4), 0  # noqa: S311 - the same every time
    for _ in range(3000):
        snapshot = drawn(chance)
        noted = [number for number, slot in snapshot.slots.items() if slot.is_noted]
        if not noted:
            continue
        lost = chance.sample(noted, chance.randrange(1, len(noted) + 1))
        left = dict(snapshot.slots)
        for number in lost:
            slot = left.pop(number)
            kept = chance.choice(
                [None, MachineSlot(record=slot.record), replace(slot, record=None)]
            )
            left |= {} if kept is None else {number: kept}
        is_reset = chance.random() < 0.5
        damaged = replace(snapshot, slots=left, last_new=-1 if is_reset else snapshot.last_new)
        found = decide(sampled(damaged), NOW + 10_000)
        if found.need is not None or found.is_alarm:
            noticed += 1
            continue
        machine_id = found.answer.machine_id
        before = snapshot.slots.get(machine_id, MachineSlot())
        # Given back, its own, or one that nobody ever had.
        assert not before.is_held or before.holders == ("me",)
    assert noticed > 1000


NOTED = MachineRecord("i", token="t", version=1)  # noqa: S106 - no secret
FREED = MachineSlot(record=replace(NOTED, instance=""))
JAVA = MachineSlot((Owner("", NOW),))


@pytest.mark.parametrize(
    ("slots", "about"),
    [
        # CosId's adder was lost, and a peer holds 0.
        ({0: MachineSlot()}, {"last_new": -1, "cells": 1}),
        # It was put back, and so was the cell of 2, but not the record.
        ({2: FREED}, {"last_new": 1, "cells": 2, "records": 1, "count": Count("e", 1)}),
        # Somebody holds what a peer has given back late.
        ({0: replace(JAVA, record=NOTED)}, {"last_new": 0, "cells": 1}),
        # All have to be counted.
        ({0: JAVA}, {"last_new": 0, "cells": 1, "count": None}),
        ({0: JAVA}, {"last_new": 0, "cells": 1, "count": Count("former", 0)}),
        # Nothing in it need not be waited for, or is free.
        ({0: MachineSlot((Owner("", NOW + 5000),))}, {"last_new": 0, "cells": 1}),
        ({}, {"last_new": 7, "cells": 8}),
    ],
)
def test_when_all_is_asked_for(slots: dict[int, MachineSlot], about: dict[str, Any]) -> None:
    """A sample that does not suffice is no reason to take an id, or to refuse one."""
    facts = {"slots": slots, "records": 0, "count": Count("e", 0), "is_complete": False, **about}
    found = decide(replace(drawn(random.Random(1)), **facts), NOW + 1)  # noqa: S311 - not drawn
    assert found.need is not None
    assert found.need.is_complete
    assert not found.changes
