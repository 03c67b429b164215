"""What the rules of machine ids decide on one snapshot, in full."""

# ruff: noqa: S106, S107 - no secrets

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, Final

import pytest

from aiocosid.abc import MachineGrant, MachineMarker
from aiocosid.errors import (
    ClockSkewError,
    CorruptMachineStateError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    StoreFormatError,
    StoreNotInitializedError,
)
from aiocosid.machine import administration, rules
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
)
from aiocosid.machine.losses import doubt
from aiocosid.machine.rules import Caller, Decision, GrantReceipt

NOW: Final = 1_000_000_000
ME: Final = Caller("me", guard_ms=300_000, nonce="n")
GUEST: Final = replace(ME, is_guest=True)
SPACE: Final = NamespaceRecord("here", "e", bits=2, guard_ms=300_000)
RUNNING: Final = replace(SPACE, quarantine="q", since_ms=NOW - 1000)
BEGUN: Final = replace(SPACE, quarantine="n", since_ms=NOW)
WHOLE: Final = ReadRequest("me", is_complete=True, namespaces=True)
HELD: Final = MachineSlot((Owner("other", NOW),), MachineRecord("other", token="t"), NOW)


def snapshot(**facts: Any) -> Snapshot:
    """A sound namespace in which nothing is held, but for these facts."""
    usual: dict[str, Any] = {
        "now_ms": NOW,
        "marker": Marker("here", "e"),
        "space": SPACE,
        "count": Count("e", 0),
        "is_complete": True,
    }
    return Snapshot("ns", "here", **(usual | facts))


def hand_out(found: Snapshot, caller: Caller = ME, **options: Any) -> Decision:
    usual: dict[str, Any] = {"bits": 2, "now_ms": NOW, "latest_ms": NOW, "token": "new"}
    return rules.hand_out(found, caller, **(usual | options))


# Whether the store has lost anything: what is written about it, the machine id or the seconds that
# are left of a quarantine, and whether it is an alarm.


@pytest.mark.parametrize(
    ("facts", "space", "count", "answer", "is_alarm"),
    [
        ({}, None, 1, 0, False),
        # A quarantine runs, or is over.
        ({"space": RUNNING}, None, None, 304.0, False),
        ({"space": replace(RUNNING, guard_ms=200_000)}, *(RUNNING, None, 304.0, False)),
        ({"space": replace(RUNNING, guard_ms=ENDLESS_MS)}, *(None, None, inf, False)),
        ({"space": replace(RUNNING, since_ms=NOW - 304_999)}, None, None, 0.001, False),
        (
            {"space": replace(RUNNING, since_ms=NOW - 305_000, is_new=True), "count": None},
            *(SPACE, 1, 0, False),
        ),
        # The store's clock was ahead when it began.
        ({"space": replace(RUNNING, since_ms=NOW + 305_000)}, None, None, 610.0, False),
        (
            {"space": replace(RUNNING, since_ms=NOW + 305_001)},
            *(replace(RUNNING, since_ms=NOW), None, 305.0, False),
        ),
        # The namespace's cell is missing, or was written for another store.
        (
            {"space": None, "marker": None, "count": None},
            replace(BEGUN, marker_id="", bits=0, is_new=True),
            *(None, StoreNotInitializedError, False),
        ),
        (
            {"space": None, "marker": Marker("elsewhere", "e")},
            *(replace(BEGUN, bits=0), None, 305.0, False),
        ),
        (
            {"space": replace(SPACE, identity="elsewhere"), "marker": None},
            *(replace(BEGUN, marker_id=""), None, 305.0, False),
        ),
        ({"is_doubtful": True}, BEGUN, None, 305.0, False),
        # The store was initialised since.
        ({"space": None}, SPACE, 1, 0, False),
        (
            {"space": replace(RUNNING, marker_id="former", is_new=True), "count": None},
            *(SPACE, 1, 0, False),
        ),
        # Fewer machine ids are there than were counted.
        ({"count": Count("e", 1)}, BEGUN, None, 305.0, True),
        ({"count": Count("former", 1)}, None, 1, 0, False),
        ({"count": None}, None, 1, 0, False),
        ({"count": Count("e", 1), "damages": (Damage("a", "b"),)}, None, 1, 0, False),
        (
            {"count": Count("e", 2), "damages": (Damage("a", "b"),), "slots": {0: HELD}},
            *(None, 2, 1, False),
        ),
        (
            {"count": Count("e", 3), "damages": (Damage("a", "b"),), "slots": {0: HELD}},
            *(BEGUN, None, 305.0, True),
        ),
        (
            {"count": Count("e", 1), "is_complete": False, "cells": 1, "records": 0},
            *(BEGUN, None, 305.0, True),
        ),
        (
            {"count": Count("e", 1), "is_complete": False, "cells": 0, "records": 1},
            *(BEGUN, None, 305.0, True),
        ),
    ],
)
def test_what_was_lost(
    facts: dict[str, Any],
    space: NamespaceRecord | None,
    count: int | None,
    answer: Any,
    is_alarm: bool,
) -> None:
    found = hand_out(snapshot(**facts))
    changes, error = found.changes, found.error
    assert (changes.space, changes.count and changes.count.ids) == (space, count)
    assert found.is_alarm == is_alarm
    if isinstance(answer, int):
        assert found.answer.machine_id == answer
        return
    assert isinstance(error, MachineIdQuarantineError)
    assert isinstance(error, StoreNotInitializedError) == (answer is StoreNotInitializedError)
    assert error.seconds_left == (305.0 if answer is StoreNotInitializedError else answer)
    assert not changes.slots


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({}, 0.0),
        ({"space": None, "marker": None}, 0.0),
        ({"space": None, "marker": Marker("elsewhere", "e")}, 305.0),  # no safe guard is known
        ({"space": replace(SPACE, identity="elsewhere"), "marker": None}, 305.0),
        ({"space": replace(RUNNING, guard_ms=1000)}, 5.0),
    ],
)
def test_the_seconds_left(facts: dict[str, Any], seconds: float) -> None:
    assert rules.seconds_left(snapshot(**facts)) == seconds


# Which machine id is handed out, and what is written besides its own cells.

LATE: Final = NOW + 1
SILENT: Final = NOW - 300_000


def slot(
    *owners: str, at: int = NOW, seen: int = NOW, mark: int = -1, token: str = "t", version: int = 0
) -> MachineSlot:
    """A machine id whose record describes its only owner, if there is a token."""
    record = (
        MachineRecord("".join(owners), fence_ms=mark, token=token, version=version)
        if token
        else None
    )
    return MachineSlot(tuple(Owner(each, at) for each in owners), record, seen)


def left(at: int, mark: int = -1) -> MachineSlot:
    """A machine id that was given back by a decision."""
    return slot("", at=at, mark=mark, version=1)


FULL: Final = {number: slot(f"i{number}") for number in range(4)}
MINE: Final = slot("me", at=5)
MINE_LATE: Final = slot("me", at=5, mark=LATE)
SHARED: Final = MachineSlot((Owner("me", 5), Owner("x", 6), Owner("", 7)))
PEERS: Final = {number: slot(f"i{number}", at=SILENT, seen=-1, token="") for number in range(4)}


@pytest.mark.parametrize(
    ("slots", "facts", "machine_id", "others"),
    [
        # Those given back come first, then new ones; what is late comes last, the earliest first.
        ({0: slot("i0")}, {}, 1, {}),
        ({1: slot("")}, {}, 1, {}),
        ({1: slot("", at=LATE)}, {}, 0, {}),
        ({1: slot("", mark=LATE)}, {}, 0, {}),
        (FULL | {2: slot("", at=LATE + 1), 3: slot("", at=LATE)}, {}, 3, {}),
        ({4: slot("")}, {}, 0, {}),
        (
            {0: MachineSlot(is_damaged=True), 1: MachineSlot(record=MachineRecord(token="t"))},
            {},
            1,
            {},
        ),
        # One's own; if it is late another one, which is there.
        ({0: slot(""), 2: MINE}, {}, 2, {}),
        ({2: MINE_LATE}, {}, 0, {2: left(LATE + 1000, LATE)}),
        ({2: MINE_LATE}, {"stable": True}, 2, {}),
        (FULL | {2: MINE_LATE}, {}, 2, {}),
        ({4: MINE}, {}, 0, {4: left(5)}),
        ({4: slot("me", at=5, mark=0)}, {}, 0, {4: left(1000, 0)}),
        ({1: MINE, 2: MINE}, {}, 1, {2: left(5)}),
        ({1: MINE, 2: SHARED}, {}, 1, {2: MachineSlot((Owner("x", 6),))}),
        # An expired one.
        (FULL, {}, None, {}),
        (FULL | {2: slot("x", at=SILENT, seen=SILENT)}, {}, 2, {}),
        (FULL | {2: slot("x", at=SILENT, seen=SILENT + 1)}, {}, None, {}),
        (FULL | {2: slot("x", at=SILENT + 1, seen=SILENT)}, {}, None, {}),
        (FULL | {2: slot("x", at=SILENT + 1, seen=SILENT)}, {"stamps_tell": False}, 2, {}),
        (FULL | {2: slot("x", at=SILENT, seen=SILENT)}, {"guard_ms": ENDLESS_MS}, None, {}),
        (FULL | {2: replace(PEERS[2], is_damaged=True)}, {}, None, {}),
        (PEERS, {}, 0, {}),
        (PEERS | {0: replace(PEERS[0], seen_ms=NOW)}, {}, 1, {}),
        (
            FULL | {2: MachineSlot((Owner("x", SILENT),), MachineRecord("x", stable=True), SILENT)},
            *({}, None, {}),
        ),
        (
            FULL
            | {2: MachineSlot((Owner("java", SILENT),), MachineRecord("x", stable=True), SILENT)},
            {},
            2,
            {},
        ),
        (FULL | {2: MachineSlot((Owner("", NOW), Owner("x", SILENT)))}, {}, 2, {}),
        (FULL | {2: MachineSlot((Owner("", SILENT), Owner("x", NOW)))}, {}, None, {}),
        (PEERS, {"stamps_tell": False, "guard_ms": ENDLESS_MS}, None, {}),
        # On a store with CosId's adder.
        ({}, {"first_new": 2}, 2, {}),
        ({0: HELD}, {"last_new": 0}, 1, {}),
        (
            {0: HELD, 1: MachineSlot(is_damaged=True)},
            *({"last_new": 0, "spread": 1}, 3, {2: MachineSlot((Owner("", NOW),))}),
        ),
        ({0: HELD}, {"last_new": 0, "spread": 1}, 2, {1: MachineSlot((Owner("", NOW),))}),
        ({0: HELD}, {"last_new": 3}, None, {}),
        ({0: HELD, 1: HELD}, {"last_new": 3, "space": replace(SPACE, gaps=True)}, 2, {}),
        ({0: HELD}, {"last_new": 1, "space": replace(SPACE, gaps=True)}, 2, {}),
        ({1: HELD}, {"last_new": 3, "space": replace(SPACE, gaps=True)}, 0, {}),
        # After conflicts.
        ({}, {"spread": 5}, 1, {}),
        ({1: slot(""), 2: slot("")}, {"spread": 1}, 2, {}),
        ({}, {"spread": 3000, "bits": 12, "space": replace(SPACE, bits=12)}, 952, {}),
        # For a clock before all times.
        ({1: slot("", at=0)}, {"latest_ms": -1}, 0, {}),
    ],
)
def test_which_is_handed_out(
    slots: dict[int, MachineSlot],
    facts: dict[str, Any],
    machine_id: int | None,
    others: dict[int, MachineSlot],
) -> None:
    facts, options = dict(facts), {}
    for name in facts.keys() & {"bits", "spread", "latest_ms"}:
        options[name] = facts.pop(name)
    caller = replace(
        ME, stable=facts.pop("stable", False), guard_ms=facts.pop("guard_ms", ME.guard_ms)
    )
    noted = sum(each.is_noted for each in slots.values())
    found = snapshot(slots=slots, count=Count("e", noted), **facts)
    decision = hand_out(found, caller, **options)
    changes = decision.changes
    if machine_id is None:
        assert isinstance(decision.error, MachineIdOverflowError)
        assert not changes
        return
    before = slots.get(machine_id, MachineSlot())
    is_marked = before.record is not None or not before.owners
    assert decision.answer == MachineGrant(machine_id, before.floor_ms, is_fenced=is_marked)
    version = before.record.version + 1 if before.record else 1
    record = MachineRecord("me", caller.stable, before.fence_ms, token="new", version=version)
    taken = MachineSlot((Owner("me", max(before.stamp_ms, NOW)),), record, NOW)
    assert changes.slots == {machine_id: taken} | others
    assert changes.own == dict.fromkeys(before.holders) | {"me": machine_id}
    last_new = facts.get("last_new")
    is_further = last_new is not None and machine_id > last_new
    assert changes.last_new == (machine_id if is_further else None)
    assert (changes.signed, changes.guard_ms) == (machine_id, caller.guard_ms)
    noted_now = sum(each.is_noted for each in (slots | changes.slots).values())
    assert changes.count == (Count("e", noted_now) if noted_now > noted else None)


@pytest.mark.parametrize("stable", [False, True])
def test_ones_own_late_id_is_enough_of_a_sample_for_a_stable_instance(stable: bool) -> None:
    """Another one may take an earlier id, which the sample does not show."""
    part = {"slots": {2: MINE_LATE}, "is_complete": False, "cells": 1, "records": 1}
    found = hand_out(snapshot(count=Count("e", 1), **part), replace(ME, stable=stable))
    assert (found.need is None) == stable


def test_the_error_of_a_full_pool_names_five_holders() -> None:
    slots = {number: slot(f"i{number}") for number in range(8)}
    space = replace(SPACE, bits=3)
    error = hand_out(snapshot(slots=slots, space=space), bits=3).error
    assert isinstance(error, MachineIdOverflowError)
    assert (error.size, error.holders) == (8, ("i0", "i1", "i2", "i3", "i4"))


def test_another_width_is_refused() -> None:
    with pytest.raises(MachineBitsMismatchError):
        hand_out(snapshot(), bits=3)


def test_ones_own_damaged_cell_is_refused() -> None:
    damages = Damage("a", "b", "x"), Damage("c", "d", "me")
    error = hand_out(snapshot(damages=damages)).error
    assert isinstance(error, CorruptMachineStateError)
    assert (error.place, error.found) == ("c", "d")


# Renewing.


def noted(slot: MachineSlot, **facts: Any) -> MachineSlot:
    """The same, with another record."""
    return replace(slot, record=replace(slot.record or MachineRecord(), **facts))


def renew(found: Snapshot, caller: Caller = ME, **options: Any) -> Decision:
    usual: dict[str, Any] = {"machine_id": 1, "now_ms": NOW, "fence_ms": NOW + 60, "token": "t"}
    return rules.renew(found, caller, **(usual | options))


RENEWED: Final = slot("me", mark=NOW + 60, version=1)


@pytest.mark.parametrize(
    ("before", "caller", "token", "after", "space"),
    [
        (slot("me", at=5, seen=6), ME, "t", RENEWED, None),
        (slot("me", at=NOW + 5, mark=NOW + 70), ME, "t", None, None),  # nothing is lowered
        (slot("me", version=3), ME, "t", noted(RENEWED, version=4), None),
        (noted(MINE, token=""), ME, "new", noted(RENEWED, token="new"), None),
        (slot("me", token=""), ME, "t", RENEWED, None),
        (MINE, replace(ME, stable=True), "t", noted(RENEWED, stable=True), None),
        (MINE, replace(ME, guard_ms=1), "t", RENEWED, None),
        (MINE, replace(ME, guard_ms=400_000), "t", RENEWED, replace(SPACE, guard_ms=400_000)),
        (SHARED, ME, "t", replace(RENEWED, owners=(Owner("me", NOW), *SHARED.owners[1:])), None),
    ],
)
def test_a_renewal(
    before: MachineSlot,
    caller: Caller,
    token: str,
    after: MachineSlot | None,
    space: NamespaceRecord | None,
) -> None:
    found = snapshot(slots={1: before}, is_complete=False)
    after = noted(before, version=1) if after is None else after
    due = Changes("me", space=space, slots={1: after}, signed=1, guard_ms=caller.guard_ms)
    assert renew(found, caller, token=token) == Decision(due)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"slots": {1: slot("x")}},
        {"slots": {1: noted(MINE, token="another")}},
        {"slots": {1: MINE}, "space": RUNNING},
        {"slots": {1: MINE}, "space": None},
        {"slots": {1: MINE}, "is_doubtful": True},
    ],
)
def test_where_something_is_wrong_all_is_read(facts: dict[str, Any]) -> None:
    due = Decision(need=replace(WHOLE, machine_id=1))
    assert renew(snapshot(is_complete=False, **facts)) == due


def test_a_hand_out_needs_all_or_a_sample() -> None:
    assert hand_out(snapshot(is_complete=False)) == Decision(need=WHOLE)


@pytest.mark.parametrize(
    ("before", "caller", "token", "reason"),
    [
        (MachineSlot(), ME, "t", "no instance holds it"),
        (slot("x"), ME, "t", "x holds it"),
        (noted(MINE, token="another"), ME, "t", "me, which is running twice"),
        (MINE, ME, "", "me, which is running twice"),
        # A guest has to know the token, also where there is none.
        (noted(MINE, token=""), GUEST, "t", "me, which is running twice"),
        (noted(MINE, token=""), GUEST, "", "me, which is running twice"),
        (replace(MINE, record=None), GUEST, "", "me, which is running twice"),
    ],
)
def test_an_id_that_is_lost(before: MachineSlot, caller: Caller, token: str, reason: str) -> None:
    """It is not released either."""
    found = renew(snapshot(slots={1: before}, count=None), caller, token=token)
    assert isinstance(found.error, MachineIdLostError)
    assert reason in str(found.error)
    assert not found.changes
    where = snapshot(slots={1: before})
    assert rules.give_back(where, caller, 1, last_ms=NOW, token=token) == Decision()


# Guests of a server.


OWNED: Final = slot("me", token="t@app")


@pytest.mark.parametrize(
    ("before", "facts", "is_taken"),
    [
        (OWNED, {"owner": "app"}, True),
        (OWNED, {}, True),  # nobody needs a token there
        (OWNED, {"owner": "other"}, False),
        (MINE, {"owner": "app"}, False),
        (replace(slot("me", at=NOW), record=None), {"owner": "app"}, False),
        (OWNED, {"owner": "other", "guard_ms": 1}, False),
        # It was silent for the safe guard: of the caller, the server and the namespace.
        (slot("me", at=1, seen=1, token="t@app"), {"owner": "other", "guard_ms": 1}, True),
        (noted(slot("me", at=1, seen=1), stable=True), {"owner": "other"}, True),
        (
            slot("me", at=1, seen=1, token="t@app"),
            {"owner": "other", "guard_ms": 1, "least_guard_ms": NOW},
            False,
        ),
    ],
)
def test_whose_id_a_guest_takes(before: MachineSlot, facts: dict[str, Any], is_taken: bool) -> None:
    found = hand_out(snapshot(slots={1: before}), replace(GUEST, **facts))
    assert (found.error is None) == is_taken
    if not is_taken:
        assert isinstance(found.error, MachineIdInUseError)
        assert not found.changes


@pytest.mark.parametrize(
    ("guards", "is_taken"),
    [
        ({"guard_ms": 1}, False),
        ({"guard_ms": 1, "least_guard_ms": 300_000}, False),
        ({"guard_ms": 301_000}, False),
        ({"guard_ms": 300_000}, True),
    ],
)
def test_a_guests_safe_guard_is_the_longest(guards: dict[str, Any], is_taken: bool) -> None:
    """Its own, the server's, and the namespace's; whoever is on the store names its own."""
    silent_ms = NOW - 300_000 if is_taken else NOW - 299_000
    held = {number: slot("x", at=silent_ms, seen=silent_ms) for number in range(4)}
    found = snapshot(slots=held, space=replace(SPACE, guard_ms=300_000))
    guest = replace(GUEST, **guards)
    assert (hand_out(found, guest).error is None) == is_taken
    if guards == {"guard_ms": 1}:
        assert hand_out(found, replace(guest, is_guest=False)).error is None


@pytest.mark.parametrize("clock_ms", [-1, NOW + 1000])
def test_a_guests_time_that_is_far_ahead_is_refused(clock_ms: int) -> None:
    """Of the store's clock, or the server's, whichever is later."""
    at_most = max(NOW, clock_ms) + 60_000
    guest, found = replace(GUEST, clock_ms=clock_ms), snapshot(slots={1: MINE})
    day = 24 * 3600 * 1000
    for ahead, is_right in ((0, True), (1, False)):
        last = at_most + day + ahead
        decisions = [
            hand_out(found, guest, now_ms=at_most + ahead),
            renew(found, guest, now_ms=at_most + ahead),
            renew(found, guest, fence_ms=last),
            rules.give_back(found, guest, 1, last_ms=last, token="t"),
        ]
        for each in decisions:
            assert (each.error is None) == is_right
            assert is_right or isinstance(each.error, ClockSkewError)
            assert bool(each.changes) == is_right
    assert renew(found, ME, fence_ms=NOW + 9 * day).error is None


def test_a_renewal_ends_a_quarantine_that_is_over() -> None:
    """And counts all again."""
    space = replace(RUNNING, since_ms=NOW - 305_000)
    found = renew(snapshot(slots={1: MINE, 2: HELD}, space=space, count=Count("e", 5)))
    assert (found.changes.space, found.changes.count) == (SPACE, Count("e", 2))


def test_a_renewal_in_a_quarantine_is_refused_unless_the_lease_is_valid() -> None:
    found = renew(snapshot(slots={1: MINE}, space=RUNNING))
    assert isinstance(found.error, MachineIdQuarantineError)


# Asserting an id in a quarantine.

TAKEN: Final = GrantReceipt(1, requested_ms=100, bits=2, token="t")
CLAIM: Final = MachineRecord("x", token="y", claimed="q", requested_ms=100)


def claimed(by: str, **facts: Any) -> MachineSlot:
    return MachineSlot((Owner(by, 5),), replace(CLAIM, instance=by, **facts), 5)


@pytest.mark.parametrize(
    ("slots", "facts", "keeper"),
    [
        ({}, {}, None),
        # The earlier one keeps it, then the one with the lower text.
        ({0: HELD, 1: claimed("a")}, {}, "a"),
        ({1: claimed("x")}, {}, None),
        ({1: claimed("x", requested_ms=99)}, {}, "x"),
        ({1: claimed("a", requested_ms=101)}, {}, None),
        ({1: claimed("a", claimed="former")}, {}, None),
        ({1: claimed("", requested_ms=1)}, {}, None),
        ({2: claimed("a")}, {}, None),
        # Of two processes of one instance the later one.
        ({2: claimed("me")}, {}, "me"),
        ({2: claimed("me", requested_ms=99)}, {}, None),
        ({1: claimed("me", token="t")}, {}, None),
        # A peer of CosId's that has renewed since keeps it in any case.
        ({1: slot("java", at=5, token="")}, {}, "java"),
        ({1: MachineSlot((Owner("me", 5), Owner("java", 5)))}, {}, "java"),
        (
            {
                1: replace(
                    claimed("x", requested_ms=101), owners=(Owner("x", NOW), Owner("java", NOW))
                )
            },
            *({}, "java"),
        ),
        ({1: slot("java", at=5, token="")}, {"stamps_tell": False}, None),
        ({1: slot("", at=5, token="")}, {}, None),
        ({1: slot("me", at=5, token="")}, {}, None),
        ({1: slot("java", at=NOW - 1000)}, {}, "java"),
        ({1: slot("java", at=NOW - 1001)}, {}, None),
        ({1: noted(slot("java", at=NOW), claimed="q", requested_ms=101)}, {}, None),
    ],
)
def test_who_keeps_an_id_in_a_quarantine(
    slots: dict[int, MachineSlot], facts: dict[str, Any], keeper: str | None
) -> None:
    found = renew(snapshot(slots=slots, space=RUNNING, **facts), taken=TAKEN)
    if keeper is None:
        assert found.error is None
        before = slots.get(1, MachineSlot())
        version = 1 + (before.record.version if before.record else 0)
        record = MachineRecord("me", False, NOW + 60, "t", version, "q", 100)
        stamp_ms = max(before.stamp_ms, NOW)
        assert found.changes.slots[1] == MachineSlot((Owner("me", stamp_ms),), record, NOW)
        return
    assert isinstance(found.error, MachineIdLostError)
    assert ("is running twice" if keeper == "me" else f"{keeper} holds it") in str(found.error)
    assert not found.changes


@pytest.mark.parametrize(("requested_ms", "is_kept"), [(99, True), (101, False)])
def test_whose_receipt_is_later_keeps_an_id_in_a_quarantine(
    requested_ms: int, is_kept: bool
) -> None:
    """By the server's times it took the id after the other lease was over."""
    found = snapshot(slots={1: claimed("x", requested_ms=requested_ms)}, space=RUNNING)
    assert (renew(found, replace(ME, owner="app"), taken=TAKEN).error is None) == is_kept


def test_a_guest_that_holds_nothing_prolongs_no_quarantine() -> None:
    for stranger, space in ((GUEST, None), (ME, replace(RUNNING, guard_ms=ENDLESS_MS))):
        found = renew(snapshot(space=RUNNING), replace(stranger, guard_ms=ENDLESS_MS))
        assert isinstance(found.error, MachineIdQuarantineError)
        assert found.changes.space == space


@pytest.mark.parametrize(
    ("facts", "taken", "space"),
    [
        ({"space": RUNNING}, TAKEN, None),
        ({"space": RUNNING}, replace(TAKEN, bits=3), replace(RUNNING, bits=3)),
        ({"space": RUNNING, "last_new": 1}, TAKEN, None),
        ({"space": RUNNING, "last_new": 0}, TAKEN, replace(RUNNING, gaps=True)),
        ({"space": replace(SPACE, identity="former")}, TAKEN, BEGUN),
        ({"space": replace(RUNNING, guard_ms=1)}, TAKEN, RUNNING),
    ],
)
def test_what_asserting_an_id_says_of_the_namespace(
    facts: dict[str, Any], taken: GrantReceipt, space: NamespaceRecord | None
) -> None:
    mark = {1: slot("me", mark=NOW + 70)}
    found = renew(snapshot(slots=mark, **facts), taken=taken)
    assert (found.changes.space, found.changes.slots[1].fence_ms) == (space, NOW + 70)


@pytest.mark.parametrize("before", [claimed("a", claimed="n"), slot("java", token="")])
def test_losing_an_id_begins_a_quarantine_all_the_same(before: MachineSlot) -> None:
    found = renew(snapshot(slots={1: before}, count=Count("e", 5)), taken=TAKEN)
    assert isinstance(found.error, MachineIdLostError)
    assert (found.changes, found.is_alarm) == (Changes(space=BEGUN), True)


# Giving back, and what operators do.


@pytest.mark.parametrize(
    ("before", "last_ms", "stamp_ms", "fence_ms"),
    [
        (slot("me", at=5, mark=70), -1, 5, 70),
        (slot("me", at=5, mark=70), 0, 5, 0),
        (slot("me", at=5, mark=70), 69, 69, 69),
        (slot("me", at=5, mark=70), 71, 71, 70),
        (slot("me", at=5, token=""), 7, 7, -1),
    ],
)
@pytest.mark.parametrize("stable", [False, True])
def test_giving_back(
    before: MachineSlot, last_ms: int, stamp_ms: int, fence_ms: int, stable: bool
) -> None:
    """A stable instance stays the owner."""
    caller, found = replace(ME, stable=stable), snapshot(slots={1: before}, is_complete=False)
    due = noted(before, fence_ms=fence_ms, version=1)
    owner = Owner("me" if stable else "", stamp_ms)
    due = replace(due if stable else noted(due, instance=""), owners=(owner,))
    own: dict[str, int | None] = {} if stable else {"me": None}
    done = rules.give_back(found, caller, 1, last_ms=last_ms, token="t")
    assert done == Decision(Changes("me", slots={1: due}, own=own))


@pytest.mark.parametrize("before", [MachineSlot(), HELD, noted(MINE, token="another")])
def test_what_is_not_ones_own_is_not_given_back(before: MachineSlot) -> None:
    found = snapshot(slots={1: before})
    assert rules.give_back(found, ME, 1, last_ms=NOW, token="t") == Decision()


@pytest.mark.parametrize(
    ("before", "stamp_ms"),
    [
        (slot("a", at=5), 5),
        (slot("a", at=5, mark=0), 1000),
        (slot("a", at=5000, mark=0), 5000),
        (slot("a", at=5, mark=MAX_MS), MAX_MS),
        (slot("a", "b", at=5, token=""), 5),
    ],
)
def test_taking_away(before: MachineSlot, stamp_ms: int) -> None:
    due = replace(noted(before, instance="", version=1), owners=(Owner("", stamp_ms),))
    changes = Changes(slots={1: due}, own=dict.fromkeys(before.holders))
    assert rules.take_away(snapshot(slots={1: before}), 1) == Decision(changes)


def test_what_nobody_holds_is_not_taken_away() -> None:
    assert isinstance(rules.take_away(snapshot(), 1).error, InvalidArgumentError)


@pytest.mark.parametrize(
    ("before", "last_new", "after", "is_raised"),
    [
        (MachineSlot(), None, slot("", at=50, mark=50, token="", version=1), True),
        (slot("", at=50, mark=49), None, slot("", at=50, mark=50, version=1), False),
        (slot("a", at=49, mark=60), None, slot("a", at=50, mark=60, version=1), False),
        (slot("a", at=49, mark=49), None, slot("a", at=50, mark=50, version=1), True),
        (slot("a", at=50, mark=50), None, None, False),
        (MachineSlot(), 0, slot("", at=50, mark=50, token="", version=1), True),
        (MachineSlot(), 1, slot("", at=50, mark=50, token="", version=1), True),
    ],
)
def test_raising_a_mark(
    before: MachineSlot, last_new: int | None, after: MachineSlot | None, is_raised: bool
) -> None:
    found = rules.raise_mark(snapshot(slots={1: before}, last_new=last_new), 1, 50)
    due = Changes()
    if after is not None:
        record = after.record or MachineRecord(fence_ms=50, version=1)
        due.slots[1] = MachineSlot(after.owners, record, before.seen_ms)
        due.last_new = 1 if last_new == 0 else None
    assert found == Decision(due, is_raised)


def test_no_mark_is_raised_beside_a_damaged_cell() -> None:
    found = rules.raise_mark(snapshot(slots={1: MachineSlot(is_damaged=True)}), 1, 50)
    assert isinstance(found.error, CorruptMachineStateError)
    assert not found.changes


# Administration.


def test_a_width_is_changed() -> None:
    """All is written once more, so that nobody takes an id meanwhile."""
    free = {1: slot(""), 2: slot("", token="")}
    found = administration.set_bits(snapshot(slots=free, count=Count("e", 1)), ME, 3)
    slots = {number: noted(each, version=1) for number, each in free.items()}
    due = Changes(space=replace(SPACE, bits=3), slots=slots, count=Count("e", 1))
    assert found == Decision(due)


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"space": RUNNING}, MachineIdQuarantineError),
        ({"slots": {1: HELD, 2: slot("")}}, MachineIdInUseError),
        ({"slots": {1: MachineSlot(is_damaged=True)}}, MachineIdInUseError),
    ],
)
def test_a_width_is_not_changed(facts: dict[str, Any], error: type[Exception]) -> None:
    found = administration.set_bits(snapshot(**facts), ME, 3)
    assert isinstance(found.error, error)
    assert ("2 bits" in str(found.error)) == (error is MachineIdInUseError)
    assert not found.changes


def test_a_width_that_is_there_needs_no_change() -> None:
    assert administration.set_bits(snapshot(slots={1: HELD}), ME, 2) == Decision()


def test_all_is_read_for_a_width_and_for_a_marker() -> None:
    part, due = snapshot(is_complete=False), Decision(need=WHOLE)
    assert administration.set_bits(part, ME, 3) == due
    assert administration.mark(part, ME, confirm_no_holders=True) == due


NEW: Final = MachineMarker(namespace="ns", is_created=True)


@pytest.mark.parametrize(
    ("facts", "is_new", "space", "count", "marker"),
    [
        # Marked as new: what was known is forgotten, and no quarantine runs.
        (
            {"space": None, "marker": None},
            *(False, NamespaceRecord("here", guard_ms=300_000), Count("", 1), NEW),
        ),
        (
            {"space": replace(RUNNING, is_new=True, guard_ms=2**40)},
            *(True, SPACE, Count("e", 1), NEW),
        ),
        # Else it is looked at.
        ({}, False, None, None, 0.0),
        ({"space": replace(SPACE, guard_ms=1)}, False, SPACE, None, 0.0),
        ({"space": RUNNING}, False, None, None, 304.0),
        ({"space": replace(RUNNING, guard_ms=200_000)}, False, None, None, 204.0),
        ({"space": replace(RUNNING, since_ms=NOW - 305_000)}, False, SPACE, Count("e", 1), 0.0),
        ({"space": None}, False, replace(SPACE, bits=0), Count("e", 1), 0.0),
        (
            {"space": replace(SPACE, identity="x"), "marker": None},
            *(False, replace(BEGUN, marker_id=""), None, 305.0),
        ),
        ({"space": replace(RUNNING, guard_ms=0)}, False, None, None, 304.0),
        (
            {"space": replace(RUNNING, identity="x", guard_ms=1), "marker": None},
            *(False, replace(BEGUN, marker_id=""), None, 305.0),
        ),
        (
            {"space": replace(SPACE, guard_ms=1), "count": Count("e", 5)},
            *(False, BEGUN, None, 305.0),
        ),
        (
            {"space": replace(SPACE, marker_id="former"), "count": Count("e", 5)},
            *(False, BEGUN, None, 305.0),
        ),
    ],
)
def test_marking_a_namespace(
    facts: dict[str, Any],
    is_new: bool,
    space: NamespaceRecord | None,
    count: Count | None,
    marker: MachineMarker | float,
) -> None:
    found = administration.mark(
        snapshot(**({"slots": {0: HELD}} | facts)), ME, confirm_no_holders=is_new
    )
    if isinstance(marker, float):
        marker = MachineMarker(namespace="ns", seconds_left=marker)
    assert (found.changes, found.answer) == (Changes(space=space, count=count), marker)
    assert found.is_alarm == (space == BEGUN)


def test_another_format_is_refused() -> None:
    """The error names both; each rule would take its cells for something else."""
    rules.check_format(snapshot())
    with pytest.raises(StoreFormatError) as caught:
        rules.check_format(snapshot(marker=Marker(format=1)))
    assert (caught.value.found, caught.value.expected) == (1, 2)


@pytest.mark.parametrize(
    ("there", "counted", "written"),
    [
        (None, None, None),  # a store that cannot lose a namespace alone
        (None, 0, 1),
        (3, 3, 4),
        (2, 3, 4),  # one was counted without being written
    ],
)
def test_a_namespace_is_counted_once(
    there: int | None, counted: int | None, written: int | None
) -> None:
    number = None if there is None else NamespaceCount(there)
    found = hand_out(snapshot(space=None, count=None, namespaces=number, counted=counted))
    assert found.changes.namespaces == (None if written is None else NamespaceCount(written))
    later = hand_out(snapshot(namespaces=number, counted=counted))
    assert later.changes.namespaces is None


@pytest.mark.parametrize("space", [None, SPACE])
def test_a_namespace_that_vanished_is_an_alarm(space: NamespaceRecord | None) -> None:
    """It may be this one, so its holders get the time to assert their ids."""
    facts: dict[str, Any] = {"space": space, "count": None, "namespaces": NamespaceCount(3)}
    found = hand_out(snapshot(**facts, counted=2))
    assert isinstance(found.error, MachineIdQuarantineError)
    assert found.is_alarm
    assert not found.changes.slots
    taken = GrantReceipt(1, NOW - 1, 2, "t")
    held = renew(snapshot(**facts, counted=2), taken=taken)
    assert held.changes.slots[1].holders == ("me",)
    over = replace(BEGUN, since_ms=NOW - 305_000)
    for slots, number in (({1: HELD}, 3), ({}, 4)):  # a new one does not hide the lost one
        found = hand_out(snapshot(**(facts | {"space": over, "slots": slots}), counted=2))
        assert found.changes.namespaces == NamespaceCount(number)


def test_a_namespace_without_a_count_needs_all_namespaces() -> None:
    """One that has its count asks for nothing more; nor does a store without a marker."""
    new = snapshot(space=None, count=None, counted=-1)
    due = Decision(need=WHOLE)
    assert (
        hand_out(new)
        == administration.set_bits(new, ME, 3)
        == administration.mark(new, ME, confirm_no_holders=True)
        == due
    )
    assert hand_out(snapshot(counted=-1)).need is None
    unmarked = hand_out(
        snapshot(space=NamespaceRecord("here"), marker=None, count=None, counted=-1)
    )
    assert unmarked.answer.machine_id == 0
    assert unmarked.changes.namespaces is None


def test_a_namespace_is_forgotten() -> None:
    gone = {"space": None, "count": None, "namespaces": NamespaceCount(3)}
    assert administration.forget(snapshot(**gone, counted=-1)).need is not None
    found = administration.forget(snapshot(**gone, counted=2))
    assert (found.changes, found.answer) == (Changes(namespaces=NamespaceCount(2)), True)
    assert administration.forget(snapshot(**gone, counted=3)) == Decision(answer=False)
    there = administration.forget(snapshot(namespaces=NamespaceCount(3), counted=2))
    assert isinstance(there.error, InvalidArgumentError)


def test_a_namespace_that_vanished_waits_as_long_as_any_by_default() -> None:
    """Its longest safe guard is forgotten with its cell."""
    facts: dict[str, Any] = {"count": None, "namespaces": NamespaceCount(3), "counted": 2}
    short = replace(ME, guard_ms=1000)
    for space, guard_ms in ((None, 300_000), (SPACE, max(SPACE.guard_ms, 1000))):
        found = rules.hand_out(
            snapshot(space=space, **facts), short, bits=2, now_ms=NOW, latest_ms=NOW, token="t"
        )
        assert found.changes.space is not None
        assert found.changes.space.guard_ms == guard_ms


@pytest.mark.parametrize(
    ("facts", "was_used"),
    [
        ({"space": None, "count": None}, False),
        ({"space": NamespaceRecord(quarantine="q", is_new=True), "count": None}, False),
        ({"space": NamespaceRecord("here"), "count": None}, True),
        ({"space": None, "count": None, "slots": {0: HELD}}, True),
        ({"space": None, "count": Count("e", 1)}, True),
    ],
)
def test_whoever_was_refused_alone_has_not_used_a_namespace(
    facts: dict[str, Any], *, was_used: bool
) -> None:
    """So ``init`` may follow a start that failed."""
    assert administration.is_used(snapshot(**facts)) == was_used


def test_a_marker_after_a_loss_begins_a_quarantine_in_each_namespace() -> None:
    """Counters may be created under it; it does not say that nothing was lost."""
    partial = administration.mark_store(snapshot(), ME, after_loss=True).changes.marker
    assert partial == Marker("", "n")
    for space in (None, SPACE):
        found = hand_out(snapshot(marker=partial, space=space))
        assert isinstance(found.error, MachineIdQuarantineError)
        assert not isinstance(found.error, StoreNotInitializedError)
        assert found.changes.space is not None
        over = replace(found.changes.space, since_ms=NOW - 305_000)
        assert hand_out(snapshot(marker=partial, space=over)).error is None
    assert not rules.is_initialized(snapshot(marker=partial))


def test_one_namespace_is_doubted_where_none_marks_all() -> None:
    """As on Redis Cluster: the next process that asks waits, whatever the namespace says."""
    assert hand_out(snapshot()).error is None
    doubted = doubt(snapshot()).changes.space
    assert isinstance(hand_out(snapshot(space=doubted)).error, MachineIdQuarantineError)
    assert doubt(snapshot(space=None)) == Decision()


def test_marking_the_store() -> None:
    """It counts the namespaces that are there."""
    assert administration.mark_store(snapshot(counted=-1), ME).need == ReadRequest(namespaces=True)
    counted = administration.mark_store(
        snapshot(counted=4, namespaces=NamespaceCount(9)), ME
    ).changes
    assert counted == Changes(marker=Marker("here", "n"), namespaces=NamespaceCount(4))
    assert administration.mark_store(snapshot(), ME) == Decision(
        Changes(marker=Marker("here", "n"))
    )


def test_a_list_of_machine_ids() -> None:
    """Of the owners of one id all that hold it, else one; the mark is the note's own instance's."""
    slots = {
        2: MachineSlot((Owner("", 1), Owner("b", 2))),
        1: MachineSlot((Owner("a", 3),), MachineRecord("a", stable=True, fence_ms=4)),
        3: MachineSlot((Owner("c", 5), Owner("d", 6)), MachineRecord("d", fence_ms=7)),
        4: MachineSlot((Owner("", 8), Owner("", 9)), MachineRecord(stable=True, fence_ms=10)),
        5: MachineSlot(record=MachineRecord()),
    }
    found = [
        (each.machine_id, each.instance_id, each.last_timestamp_ms, each.fence_ms, each.stable)
        for each in rules.list_machines(snapshot(slots=slots))
    ]
    assert found == [
        (1, "a", 3, 4, True),
        (2, "b", 2, -1, False),
        (3, "c", 5, -1, False),
        (3, "d", 6, 7, False),
        (4, "", 8, 10, False),
    ]


@pytest.mark.parametrize(("caller", "left_ms"), [(ME, 0), (GUEST, 70)])
def test_a_guest_lowers_its_own_mark_alone(caller: Caller, left_ms: int) -> None:
    """To the floor that it found."""
    former = MachineSlot((Owner("", 50),), MachineRecord(fence_ms=70, token="old"), 5)
    taken = hand_out(snapshot(slots={0: former}), caller, now_ms=1).changes.slots[0]
    ours = noted(taken, fence_ms=99)
    freed = rules.give_back(snapshot(slots={0: ours}), caller, 0, last_ms=0, token="new")
    assert freed.changes.slots[0].fence_ms == left_ms
    late = rules.give_back(snapshot(slots={0: ours}), caller, 0, last_ms=120, token="new")
    assert late.changes.slots[0].fence_ms == 99


def test_what_a_wrong_clock_has_written() -> None:
    """A free id's times are set to a minute ahead, if they are further ahead than a mark may be."""
    most_ms = NOW + 60_000 + 24 * 3600 * 1000 + 1000
    right, wrong = (
        MachineSlot((Owner("", at),), MachineRecord(fence_ms=at, token="t", version=3), 5)
        for at in (most_ms, most_ms + 1)
    )
    theirs = MachineSlot((Owner("", most_ms + 1),))
    held = slot("me", mark=most_ms + 1)
    found = snapshot(slots={0: right, 1: wrong, 2: theirs, 3: held})
    done = administration.repair(found, ME, clock_ms=-1)
    owners, at = (Owner("", NOW + 60_000),), NOW + 60_000
    record = MachineRecord(fence_ms=at, token="t", version=4)
    assert done.changes == Changes(
        slots={1: MachineSlot(owners, record, 5), 2: MachineSlot(owners)}
    )
    assert [(each.machine_id, each.fence_ms) for each in done.answer] == [
        (1, most_ms + 1),
        (2, -1),
        (3, most_ms + 1),
    ]
    assert not administration.repair(found, ME, clock_ms=NOW + 1).changes
    assert administration.repair(replace(found, is_complete=False), ME, clock_ms=-1).need == WHOLE
