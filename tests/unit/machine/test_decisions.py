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
    Marker,
    NamespaceCount,
    Need,
    Note,
    Owner,
    Seat,
    Snapshot,
    Space,
)
from aiocosid.machine.losses import doubt
from aiocosid.machine.rules import Asker, Decision, Taken

NOW: Final = 1_000_000_000
ME: Final = Asker("me", guard_ms=300_000, nonce="n")
GUEST: Final = replace(ME, is_guest=True)
SPACE: Final = Space("here", "e", bits=2, guard_ms=300_000)
RUNNING: Final = replace(SPACE, quarantine="q", since_ms=NOW - 1000)
BEGUN: Final = replace(SPACE, quarantine="n", since_ms=NOW)
WHOLE: Final = Need("me", is_complete=True, namespaces=True)
HELD: Final = Seat((Owner("other", NOW),), Note("other", token="t"), NOW)


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


def hand_out(found: Snapshot, asker: Asker = ME, **options: Any) -> Decision:
    usual: dict[str, Any] = {"bits": 2, "now_ms": NOW, "latest_ms": NOW, "token": "new"}
    return rules.hand_out(found, asker, **(usual | options))


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
            *(replace(BEGUN, epoch="", bits=0, is_new=True), None, StoreNotInitializedError, False),
        ),
        (
            {"space": None, "marker": Marker("elsewhere", "e")},
            *(replace(BEGUN, bits=0), None, 305.0, False),
        ),
        (
            {"space": replace(SPACE, identity="elsewhere"), "marker": None},
            *(replace(BEGUN, epoch=""), None, 305.0, False),
        ),
        ({"is_doubtful": True}, BEGUN, None, 305.0, False),
        # The store was initialised since.
        ({"space": None}, SPACE, 1, 0, False),
        (
            {"space": replace(RUNNING, epoch="former", is_new=True), "count": None},
            *(SPACE, 1, 0, False),
        ),
        # Fewer machine ids are there than were counted.
        ({"count": Count("e", 1)}, BEGUN, None, 305.0, True),
        ({"count": Count("former", 1)}, None, 1, 0, False),
        ({"count": None}, None, 1, 0, False),
        ({"count": Count("e", 1), "damages": (Damage("a", "b"),)}, None, 1, 0, False),
        (
            {"count": Count("e", 2), "damages": (Damage("a", "b"),), "seats": {0: HELD}},
            *(None, 2, 1, False),
        ),
        (
            {"count": Count("e", 3), "damages": (Damage("a", "b"),), "seats": {0: HELD}},
            *(BEGUN, None, 305.0, True),
        ),
        (
            {"count": Count("e", 1), "is_complete": False, "cells": 1, "notes": 0},
            *(BEGUN, None, 305.0, True),
        ),
        (
            {"count": Count("e", 1), "is_complete": False, "cells": 0, "notes": 1},
            *(BEGUN, None, 305.0, True),
        ),
    ],
)
def test_what_was_lost(
    facts: dict[str, Any], space: Space | None, count: int | None, answer: Any, is_alarm: bool
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
    assert not changes.seats


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


def seat(
    *owners: str, at: int = NOW, seen: int = NOW, mark: int = -1, token: str = "t", turn: int = 0
) -> Seat:
    """A machine id whose note describes its only owner, if there is a token."""
    note = Note("".join(owners), mark_ms=mark, token=token, turn=turn) if token else None
    return Seat(tuple(Owner(each, at) for each in owners), note, seen)


def left(at: int, mark: int = -1) -> Seat:
    """A machine id that was given back by a decision."""
    return seat("", at=at, mark=mark, turn=1)


FULL: Final = {number: seat(f"i{number}") for number in range(4)}
MINE: Final = seat("me", at=5)
MINE_LATE: Final = seat("me", at=5, mark=LATE)
SHARED: Final = Seat((Owner("me", 5), Owner("x", 6), Owner("", 7)))
PEERS: Final = {number: seat(f"i{number}", at=SILENT, seen=-1, token="") for number in range(4)}


@pytest.mark.parametrize(
    ("seats", "facts", "machine_id", "others"),
    [
        # Those given back come first, then new ones; what is late comes last, the earliest first.
        ({0: seat("i0")}, {}, 1, {}),
        ({1: seat("")}, {}, 1, {}),
        ({1: seat("", at=LATE)}, {}, 0, {}),
        ({1: seat("", mark=LATE)}, {}, 0, {}),
        (FULL | {2: seat("", at=LATE + 1), 3: seat("", at=LATE)}, {}, 3, {}),
        ({4: seat("")}, {}, 0, {}),
        ({0: Seat(is_damaged=True), 1: Seat(note=Note(token="t"))}, {}, 1, {}),
        # One's own; if it is late another one, which is there.
        ({0: seat(""), 2: MINE}, {}, 2, {}),
        ({2: MINE_LATE}, {}, 0, {2: left(LATE + 1000, LATE)}),
        ({2: MINE_LATE}, {"stable": True}, 2, {}),
        (FULL | {2: MINE_LATE}, {}, 2, {}),
        ({4: MINE}, {}, 0, {4: left(5)}),
        ({4: seat("me", at=5, mark=0)}, {}, 0, {4: left(1000, 0)}),
        ({1: MINE, 2: MINE}, {}, 1, {2: left(5)}),
        ({1: MINE, 2: SHARED}, {}, 1, {2: Seat((Owner("x", 6),))}),
        # An expired one.
        (FULL, {}, None, {}),
        (FULL | {2: seat("x", at=SILENT, seen=SILENT)}, {}, 2, {}),
        (FULL | {2: seat("x", at=SILENT, seen=SILENT + 1)}, {}, None, {}),
        (FULL | {2: seat("x", at=SILENT + 1, seen=SILENT)}, {}, None, {}),
        (FULL | {2: seat("x", at=SILENT + 1, seen=SILENT)}, {"stamps_tell": False}, 2, {}),
        (FULL | {2: seat("x", at=SILENT, seen=SILENT)}, {"guard_ms": ENDLESS_MS}, None, {}),
        (FULL | {2: replace(PEERS[2], is_damaged=True)}, {}, None, {}),
        (PEERS, {}, 0, {}),
        (PEERS | {0: replace(PEERS[0], seen_ms=NOW)}, {}, 1, {}),
        (FULL | {2: Seat((Owner("x", SILENT),), Note("x", stable=True), SILENT)}, *({}, None, {})),
        (FULL | {2: Seat((Owner("java", SILENT),), Note("x", stable=True), SILENT)}, {}, 2, {}),
        (FULL | {2: Seat((Owner("", NOW), Owner("x", SILENT)))}, {}, 2, {}),
        (FULL | {2: Seat((Owner("", SILENT), Owner("x", NOW)))}, {}, None, {}),
        (PEERS, {"stamps_tell": False, "guard_ms": ENDLESS_MS}, None, {}),
        # On a store with CosId's adder.
        ({}, {"first_new": 2}, 2, {}),
        ({0: HELD}, {"last_new": 0}, 1, {}),
        (
            {0: HELD, 1: Seat(is_damaged=True)},
            *({"last_new": 0, "spread": 1}, 3, {2: Seat((Owner("", NOW),))}),
        ),
        ({0: HELD}, {"last_new": 0, "spread": 1}, 2, {1: Seat((Owner("", NOW),))}),
        ({0: HELD}, {"last_new": 3}, None, {}),
        ({0: HELD, 1: HELD}, {"last_new": 3, "space": replace(SPACE, gaps=True)}, 2, {}),
        ({0: HELD}, {"last_new": 1, "space": replace(SPACE, gaps=True)}, 2, {}),
        ({1: HELD}, {"last_new": 3, "space": replace(SPACE, gaps=True)}, 0, {}),
        # After conflicts.
        ({}, {"spread": 5}, 1, {}),
        ({1: seat(""), 2: seat("")}, {"spread": 1}, 2, {}),
        ({}, {"spread": 3000, "bits": 12, "space": replace(SPACE, bits=12)}, 952, {}),
        # For a clock before all times.
        ({1: seat("", at=0)}, {"latest_ms": -1}, 0, {}),
    ],
)
def test_which_is_handed_out(
    seats: dict[int, Seat], facts: dict[str, Any], machine_id: int | None, others: dict[int, Seat]
) -> None:
    facts, options = dict(facts), {}
    for name in facts.keys() & {"bits", "spread", "latest_ms"}:
        options[name] = facts.pop(name)
    asker = replace(
        ME, stable=facts.pop("stable", False), guard_ms=facts.pop("guard_ms", ME.guard_ms)
    )
    noted = sum(each.is_noted for each in seats.values())
    found = snapshot(seats=seats, count=Count("e", noted), **facts)
    decision = hand_out(found, asker, **options)
    changes = decision.changes
    if machine_id is None:
        assert isinstance(decision.error, MachineIdOverflowError)
        assert not changes
        return
    before = seats.get(machine_id, Seat())
    is_marked = before.note is not None or not before.owners
    assert decision.answer == MachineGrant(machine_id, before.floor_ms, is_marked=is_marked)
    turn = before.note.turn + 1 if before.note else 1
    note = Note("me", asker.stable, before.mark_ms, token="new", turn=turn)
    taken = Seat((Owner("me", max(before.stamp_ms, NOW)),), note, NOW)
    assert changes.seats == {machine_id: taken} | others
    assert changes.own == dict.fromkeys(before.holders) | {"me": machine_id}
    last_new = facts.get("last_new")
    is_further = last_new is not None and machine_id > last_new
    assert changes.last_new == (machine_id if is_further else None)
    assert (changes.signed, changes.guard_ms) == (machine_id, asker.guard_ms)
    noted_now = sum(each.is_noted for each in (seats | changes.seats).values())
    assert changes.count == (Count("e", noted_now) if noted_now > noted else None)


@pytest.mark.parametrize("stable", [False, True])
def test_ones_own_late_id_is_enough_of_a_sample_for_a_stable_instance(stable: bool) -> None:
    """Another one may take an earlier id, which the sample does not show."""
    part = {"seats": {2: MINE_LATE}, "is_complete": False, "cells": 1, "notes": 1}
    found = hand_out(snapshot(count=Count("e", 1), **part), replace(ME, stable=stable))
    assert (found.need is None) == stable


def test_the_error_of_a_full_pool_names_five_holders() -> None:
    seats = {number: seat(f"i{number}") for number in range(8)}
    space = replace(SPACE, bits=3)
    error = hand_out(snapshot(seats=seats, space=space), bits=3).error
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


def noted(seat: Seat, **facts: Any) -> Seat:
    """The same, with another note."""
    return replace(seat, note=replace(seat.note or Note(), **facts))


def renew(found: Snapshot, asker: Asker = ME, **options: Any) -> Decision:
    usual: dict[str, Any] = {"machine_id": 1, "now_ms": NOW, "mark_ms": NOW + 60, "token": "t"}
    return rules.renew(found, asker, **(usual | options))


RENEWED: Final = seat("me", mark=NOW + 60, turn=1)


@pytest.mark.parametrize(
    ("before", "asker", "token", "after", "space"),
    [
        (seat("me", at=5, seen=6), ME, "t", RENEWED, None),
        (seat("me", at=NOW + 5, mark=NOW + 70), ME, "t", None, None),  # nothing is lowered
        (seat("me", turn=3), ME, "t", noted(RENEWED, turn=4), None),
        (noted(MINE, token=""), ME, "new", noted(RENEWED, token="new"), None),
        (seat("me", token=""), ME, "t", RENEWED, None),
        (MINE, replace(ME, stable=True), "t", noted(RENEWED, stable=True), None),
        (MINE, replace(ME, guard_ms=1), "t", RENEWED, None),
        (MINE, replace(ME, guard_ms=400_000), "t", RENEWED, replace(SPACE, guard_ms=400_000)),
        (SHARED, ME, "t", replace(RENEWED, owners=(Owner("me", NOW), *SHARED.owners[1:])), None),
    ],
)
def test_a_renewal(
    before: Seat, asker: Asker, token: str, after: Seat | None, space: Space | None
) -> None:
    found = snapshot(seats={1: before}, is_complete=False)
    after = noted(before, turn=1) if after is None else after
    due = Changes("me", space=space, seats={1: after}, signed=1, guard_ms=asker.guard_ms)
    assert renew(found, asker, token=token) == Decision(due)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"seats": {1: seat("x")}},
        {"seats": {1: noted(MINE, token="another")}},
        {"seats": {1: MINE}, "space": RUNNING},
        {"seats": {1: MINE}, "space": None},
        {"seats": {1: MINE}, "is_doubtful": True},
    ],
)
def test_where_something_is_wrong_all_is_read(facts: dict[str, Any]) -> None:
    due = Decision(need=replace(WHOLE, machine_id=1))
    assert renew(snapshot(is_complete=False, **facts)) == due


def test_a_hand_out_needs_all_or_a_sample() -> None:
    assert hand_out(snapshot(is_complete=False)) == Decision(need=WHOLE)


@pytest.mark.parametrize(
    ("before", "asker", "token", "reason"),
    [
        (Seat(), ME, "t", "nobody holds it"),
        (seat("x"), ME, "t", "x holds it"),
        (noted(MINE, token="another"), ME, "t", "me, which runs twice"),
        (MINE, ME, "", "me, which runs twice"),
        # A guest has to know the token, also where there is none.
        (noted(MINE, token=""), GUEST, "t", "me, which runs twice"),
        (noted(MINE, token=""), GUEST, "", "me, which runs twice"),
        (replace(MINE, note=None), GUEST, "", "me, which runs twice"),
    ],
)
def test_an_id_that_is_lost(before: Seat, asker: Asker, token: str, reason: str) -> None:
    """It is not released either."""
    found = renew(snapshot(seats={1: before}, count=None), asker, token=token)
    assert isinstance(found.error, MachineIdLostError)
    assert reason in str(found.error)
    assert not found.changes
    where = snapshot(seats={1: before})
    assert rules.give_back(where, asker, 1, last_ms=NOW, token=token) == Decision()


# Guests of a server.


OWNED: Final = seat("me", token="t@app")


@pytest.mark.parametrize(
    ("before", "facts", "is_taken"),
    [
        (OWNED, {"owner": "app"}, True),
        (OWNED, {}, True),  # nobody needs a token there
        (OWNED, {"owner": "other"}, False),
        (MINE, {"owner": "app"}, False),
        (replace(seat("me", at=NOW), note=None), {"owner": "app"}, False),
        (OWNED, {"owner": "other", "guard_ms": 1}, False),
        # It was silent for the safe guard: of the asker, the server and the namespace.
        (seat("me", at=1, seen=1, token="t@app"), {"owner": "other", "guard_ms": 1}, True),
        (noted(seat("me", at=1, seen=1), stable=True), {"owner": "other"}, True),
        (
            seat("me", at=1, seen=1, token="t@app"),
            {"owner": "other", "guard_ms": 1, "least_guard_ms": NOW},
            False,
        ),
    ],
)
def test_whose_id_a_guest_takes(before: Seat, facts: dict[str, Any], is_taken: bool) -> None:
    found = hand_out(snapshot(seats={1: before}), replace(GUEST, **facts))
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
    held = {number: seat("x", at=silent_ms, seen=silent_ms) for number in range(4)}
    found = snapshot(seats=held, space=replace(SPACE, guard_ms=300_000))
    guest = replace(GUEST, **guards)
    assert (hand_out(found, guest).error is None) == is_taken
    if guards == {"guard_ms": 1}:
        assert hand_out(found, replace(guest, is_guest=False)).error is None


@pytest.mark.parametrize("clock_ms", [-1, NOW + 1000])
def test_a_guests_time_that_is_far_ahead_is_refused(clock_ms: int) -> None:
    """Of the store's clock, or the server's, whichever is later."""
    at_most = max(NOW, clock_ms) + 60_000
    guest, found = replace(GUEST, clock_ms=clock_ms), snapshot(seats={1: MINE})
    day = 24 * 3600 * 1000
    for ahead, is_right in ((0, True), (1, False)):
        last = at_most + day + ahead
        decisions = [
            hand_out(found, guest, now_ms=at_most + ahead),
            renew(found, guest, now_ms=at_most + ahead),
            renew(found, guest, mark_ms=last),
            rules.give_back(found, guest, 1, last_ms=last, token="t"),
        ]
        for each in decisions:
            assert (each.error is None) == is_right
            assert is_right or isinstance(each.error, ClockSkewError)
            assert bool(each.changes) == is_right
    assert renew(found, ME, mark_ms=NOW + 9 * day).error is None


def test_a_renewal_ends_a_quarantine_that_is_over() -> None:
    """And counts all again."""
    space = replace(RUNNING, since_ms=NOW - 305_000)
    found = renew(snapshot(seats={1: MINE, 2: HELD}, space=space, count=Count("e", 5)))
    assert (found.changes.space, found.changes.count) == (SPACE, Count("e", 2))


def test_a_renewal_in_a_quarantine_is_refused_unless_the_lease_is_valid() -> None:
    found = renew(snapshot(seats={1: MINE}, space=RUNNING))
    assert isinstance(found.error, MachineIdQuarantineError)


# Asserting an id in a quarantine.

TAKEN: Final = Taken(1, born_ms=100, bits=2, token="t")
CLAIM: Final = Note("x", token="y", claimed="q", born_ms=100)


def claimed(by: str, **facts: Any) -> Seat:
    return Seat((Owner(by, 5),), replace(CLAIM, instance=by, **facts), 5)


@pytest.mark.parametrize(
    ("seats", "facts", "keeper"),
    [
        ({}, {}, None),
        # The earlier one keeps it, then the one with the lower text.
        ({0: HELD, 1: claimed("a")}, {}, "a"),
        ({1: claimed("x")}, {}, None),
        ({1: claimed("x", born_ms=99)}, {}, "x"),
        ({1: claimed("a", born_ms=101)}, {}, None),
        ({1: claimed("a", claimed="former")}, {}, None),
        ({1: claimed("", born_ms=1)}, {}, None),
        ({2: claimed("a")}, {}, None),
        # Of two processes of one instance the later one.
        ({2: claimed("me")}, {}, "me"),
        ({2: claimed("me", born_ms=99)}, {}, None),
        ({1: claimed("me", token="t")}, {}, None),
        # A peer of CosId's that has renewed since keeps it in any case.
        ({1: seat("java", at=5, token="")}, {}, "java"),
        ({1: Seat((Owner("me", 5), Owner("java", 5)))}, {}, "java"),
        (
            {1: replace(claimed("x", born_ms=101), owners=(Owner("x", NOW), Owner("java", NOW)))},
            *({}, "java"),
        ),
        ({1: seat("java", at=5, token="")}, {"stamps_tell": False}, None),
        ({1: seat("", at=5, token="")}, {}, None),
        ({1: seat("me", at=5, token="")}, {}, None),
        ({1: seat("java", at=NOW - 1000)}, {}, "java"),
        ({1: seat("java", at=NOW - 1001)}, {}, None),
        ({1: noted(seat("java", at=NOW), claimed="q", born_ms=101)}, {}, None),
    ],
)
def test_who_keeps_an_id_in_a_quarantine(
    seats: dict[int, Seat], facts: dict[str, Any], keeper: str | None
) -> None:
    found = renew(snapshot(seats=seats, space=RUNNING, **facts), taken=TAKEN)
    if keeper is None:
        assert found.error is None
        before = seats.get(1, Seat())
        turn = 1 + (before.note.turn if before.note else 0)
        note = Note("me", False, NOW + 60, "t", turn, "q", 100)
        stamp_ms = max(before.stamp_ms, NOW)
        assert found.changes.seats[1] == Seat((Owner("me", stamp_ms),), note, NOW)
        return
    assert isinstance(found.error, MachineIdLostError)
    assert ("runs twice" if keeper == "me" else f"{keeper} holds it") in str(found.error)
    assert not found.changes


@pytest.mark.parametrize(("born_ms", "is_kept"), [(99, True), (101, False)])
def test_whose_receipt_is_later_keeps_an_id_in_a_quarantine(born_ms: int, is_kept: bool) -> None:
    """By the server's times it took the id after the other lease was over."""
    found = snapshot(seats={1: claimed("x", born_ms=born_ms)}, space=RUNNING)
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
    facts: dict[str, Any], taken: Taken, space: Space | None
) -> None:
    mark = {1: seat("me", mark=NOW + 70)}
    found = renew(snapshot(seats=mark, **facts), taken=taken)
    assert (found.changes.space, found.changes.seats[1].mark_ms) == (space, NOW + 70)


@pytest.mark.parametrize("before", [claimed("a", claimed="n"), seat("java", token="")])
def test_losing_an_id_begins_a_quarantine_all_the_same(before: Seat) -> None:
    found = renew(snapshot(seats={1: before}, count=Count("e", 5)), taken=TAKEN)
    assert isinstance(found.error, MachineIdLostError)
    assert (found.changes, found.is_alarm) == (Changes(space=BEGUN), True)


# Giving back, and what operators do.


@pytest.mark.parametrize(
    ("before", "last_ms", "stamp_ms", "mark_ms"),
    [
        (seat("me", at=5, mark=70), -1, 5, 70),
        (seat("me", at=5, mark=70), 0, 5, 0),
        (seat("me", at=5, mark=70), 69, 69, 69),
        (seat("me", at=5, mark=70), 71, 71, 70),
        (seat("me", at=5, token=""), 7, 7, -1),
    ],
)
@pytest.mark.parametrize("stable", [False, True])
def test_giving_back(before: Seat, last_ms: int, stamp_ms: int, mark_ms: int, stable: bool) -> None:
    """A stable instance stays the owner."""
    asker, found = replace(ME, stable=stable), snapshot(seats={1: before}, is_complete=False)
    due = noted(before, mark_ms=mark_ms, turn=1)
    owner = Owner("me" if stable else "", stamp_ms)
    due = replace(due if stable else noted(due, instance=""), owners=(owner,))
    own: dict[str, int | None] = {} if stable else {"me": None}
    done = rules.give_back(found, asker, 1, last_ms=last_ms, token="t")
    assert done == Decision(Changes("me", seats={1: due}, own=own))


@pytest.mark.parametrize("before", [Seat(), HELD, noted(MINE, token="another")])
def test_what_is_not_ones_own_is_not_given_back(before: Seat) -> None:
    found = snapshot(seats={1: before})
    assert rules.give_back(found, ME, 1, last_ms=NOW, token="t") == Decision()


@pytest.mark.parametrize(
    ("before", "stamp_ms"),
    [
        (seat("a", at=5), 5),
        (seat("a", at=5, mark=0), 1000),
        (seat("a", at=5000, mark=0), 5000),
        (seat("a", at=5, mark=MAX_MS), MAX_MS),
        (seat("a", "b", at=5, token=""), 5),
    ],
)
def test_taking_away(before: Seat, stamp_ms: int) -> None:
    due = replace(noted(before, instance="", turn=1), owners=(Owner("", stamp_ms),))
    changes = Changes(seats={1: due}, own=dict.fromkeys(before.holders))
    assert rules.take_away(snapshot(seats={1: before}), 1) == Decision(changes)


def test_what_nobody_holds_is_not_taken_away() -> None:
    assert isinstance(rules.take_away(snapshot(), 1).error, InvalidArgumentError)


@pytest.mark.parametrize(
    ("before", "last_new", "after", "is_raised"),
    [
        (Seat(), None, seat("", at=50, mark=50, token="", turn=1), True),
        (seat("", at=50, mark=49), None, seat("", at=50, mark=50, turn=1), False),
        (seat("a", at=49, mark=60), None, seat("a", at=50, mark=60, turn=1), False),
        (seat("a", at=49, mark=49), None, seat("a", at=50, mark=50, turn=1), True),
        (seat("a", at=50, mark=50), None, None, False),
        (Seat(), 0, seat("", at=50, mark=50, token="", turn=1), True),
        (Seat(), 1, seat("", at=50, mark=50, token="", turn=1), True),
    ],
)
def test_raising_a_mark(
    before: Seat, last_new: int | None, after: Seat | None, is_raised: bool
) -> None:
    found = rules.raise_mark(snapshot(seats={1: before}, last_new=last_new), 1, 50)
    due = Changes()
    if after is not None:
        note = after.note or Note(mark_ms=50, turn=1)
        due.seats[1] = Seat(after.owners, note, before.seen_ms)
        due.last_new = 1 if last_new == 0 else None
    assert found == Decision(due, is_raised)


def test_no_mark_is_raised_beside_a_damaged_cell() -> None:
    found = rules.raise_mark(snapshot(seats={1: Seat(is_damaged=True)}), 1, 50)
    assert isinstance(found.error, CorruptMachineStateError)
    assert not found.changes


# Administration.


def test_a_width_is_changed() -> None:
    """All is written once more, so that nobody takes an id meanwhile."""
    free = {1: seat(""), 2: seat("", token="")}
    found = administration.set_bits(snapshot(seats=free, count=Count("e", 1)), ME, 3)
    seats = {number: noted(each, turn=1) for number, each in free.items()}
    due = Changes(space=replace(SPACE, bits=3), seats=seats, count=Count("e", 1))
    assert found == Decision(due)


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"space": RUNNING}, MachineIdQuarantineError),
        ({"seats": {1: HELD, 2: seat("")}}, MachineIdInUseError),
        ({"seats": {1: Seat(is_damaged=True)}}, MachineIdInUseError),
    ],
)
def test_a_width_is_not_changed(facts: dict[str, Any], error: type[Exception]) -> None:
    found = administration.set_bits(snapshot(**facts), ME, 3)
    assert isinstance(found.error, error)
    assert ("2 bits" in str(found.error)) == (error is MachineIdInUseError)
    assert not found.changes


def test_a_width_that_is_there_needs_no_change() -> None:
    assert administration.set_bits(snapshot(seats={1: HELD}), ME, 2) == Decision()


def test_all_is_read_for_a_width_and_for_a_marker() -> None:
    part, due = snapshot(is_complete=False), Decision(need=WHOLE)
    assert administration.set_bits(part, ME, 3) == due
    assert administration.mark(part, ME, is_new=True) == due


NEW: Final = MachineMarker(namespace="ns", is_new=True)


@pytest.mark.parametrize(
    ("facts", "is_new", "space", "count", "marker"),
    [
        # Marked as new: what was known is forgotten, and no quarantine runs.
        (
            {"space": None, "marker": None},
            *(False, Space("here", guard_ms=300_000), Count("", 1), NEW),
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
            *(False, replace(BEGUN, epoch=""), None, 305.0),
        ),
        ({"space": replace(RUNNING, guard_ms=0)}, False, None, None, 304.0),
        (
            {"space": replace(RUNNING, identity="x", guard_ms=1), "marker": None},
            *(False, replace(BEGUN, epoch=""), None, 305.0),
        ),
        (
            {"space": replace(SPACE, guard_ms=1), "count": Count("e", 5)},
            *(False, BEGUN, None, 305.0),
        ),
        (
            {"space": replace(SPACE, epoch="former"), "count": Count("e", 5)},
            *(False, BEGUN, None, 305.0),
        ),
    ],
)
def test_marking_a_namespace(
    facts: dict[str, Any],
    is_new: bool,
    space: Space | None,
    count: Count | None,
    marker: MachineMarker | float,
) -> None:
    found = administration.mark(snapshot(**({"seats": {0: HELD}} | facts)), ME, is_new=is_new)
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
def test_a_namespace_that_vanished_is_an_alarm(space: Space | None) -> None:
    """It may be this one, so its holders get the time to assert their ids."""
    facts: dict[str, Any] = {"space": space, "count": None, "namespaces": NamespaceCount(3)}
    found = hand_out(snapshot(**facts, counted=2))
    assert isinstance(found.error, MachineIdQuarantineError)
    assert found.is_alarm
    assert not found.changes.seats
    taken = Taken(1, NOW - 1, 2, "t")
    held = renew(snapshot(**facts, counted=2), taken=taken)
    assert held.changes.seats[1].holders == ("me",)
    over = replace(BEGUN, since_ms=NOW - 305_000)
    for seats, number in (({1: HELD}, 3), ({}, 4)):  # a new one does not hide the lost one
        found = hand_out(snapshot(**(facts | {"space": over, "seats": seats}), counted=2))
        assert found.changes.namespaces == NamespaceCount(number)


def test_a_namespace_without_a_count_needs_all_namespaces() -> None:
    """One that has its count asks for nothing more; nor does a store without a marker."""
    new = snapshot(space=None, count=None, counted=-1)
    due = Decision(need=WHOLE)
    assert (
        hand_out(new)
        == administration.set_bits(new, ME, 3)
        == administration.mark(new, ME, is_new=True)
        == due
    )
    assert hand_out(snapshot(counted=-1)).need is None
    unmarked = hand_out(snapshot(space=Space("here"), marker=None, count=None, counted=-1))
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
        ({"space": Space(quarantine="q", is_new=True), "count": None}, False),
        ({"space": Space("here"), "count": None}, True),
        ({"space": None, "count": None, "seats": {0: HELD}}, True),
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
    assert administration.mark_store(snapshot(counted=-1), ME).need == Need(namespaces=True)
    counted = administration.mark_store(
        snapshot(counted=4, namespaces=NamespaceCount(9)), ME
    ).changes
    assert counted == Changes(marker=Marker("here", "n"), namespaces=NamespaceCount(4))
    assert administration.mark_store(snapshot(), ME) == Decision(
        Changes(marker=Marker("here", "n"))
    )


def test_a_list_of_machine_ids() -> None:
    """Of the owners of one id all that hold it, else one; the mark is the note's own instance's."""
    seats = {
        2: Seat((Owner("", 1), Owner("b", 2))),
        1: Seat((Owner("a", 3),), Note("a", stable=True, mark_ms=4)),
        3: Seat((Owner("c", 5), Owner("d", 6)), Note("d", mark_ms=7)),
        4: Seat((Owner("", 8), Owner("", 9)), Note(stable=True, mark_ms=10)),
        5: Seat(note=Note()),
    }
    found = [
        (each.machine_id, each.instance_id, each.last_timestamp_ms, each.mark_ms, each.stable)
        for each in rules.list_machines(snapshot(seats=seats))
    ]
    assert found == [
        (1, "a", 3, 4, True),
        (2, "b", 2, -1, False),
        (3, "c", 5, -1, False),
        (3, "d", 6, 7, False),
        (4, "", 8, 10, False),
    ]


@pytest.mark.parametrize(("asker", "left_ms"), [(ME, 0), (GUEST, 70)])
def test_a_guest_lowers_its_own_mark_alone(asker: Asker, left_ms: int) -> None:
    """To the floor that it found."""
    former = Seat((Owner("", 50),), Note(mark_ms=70, token="old"), 5)
    taken = hand_out(snapshot(seats={0: former}), asker, now_ms=1).changes.seats[0]
    ours = noted(taken, mark_ms=99)
    freed = rules.give_back(snapshot(seats={0: ours}), asker, 0, last_ms=0, token="new")
    assert freed.changes.seats[0].mark_ms == left_ms
    late = rules.give_back(snapshot(seats={0: ours}), asker, 0, last_ms=120, token="new")
    assert late.changes.seats[0].mark_ms == 99


def test_what_a_wrong_clock_has_written() -> None:
    """A free id's times are set to a minute ahead, if they are further ahead than a mark may be."""
    most_ms = NOW + 60_000 + 24 * 3600 * 1000 + 1000
    right, wrong = (
        Seat((Owner("", at),), Note(mark_ms=at, token="t", turn=3), 5)
        for at in (most_ms, most_ms + 1)
    )
    theirs = Seat((Owner("", most_ms + 1),))
    held = seat("me", mark=most_ms + 1)
    found = snapshot(seats={0: right, 1: wrong, 2: theirs, 3: held})
    done = administration.repair(found, ME, clock_ms=-1)
    owners, at = (Owner("", NOW + 60_000),), NOW + 60_000
    note = Note(mark_ms=at, token="t", turn=4)
    assert done.changes == Changes(seats={1: Seat(owners, note, 5), 2: Seat(owners)})
    assert [(each.machine_id, each.mark_ms) for each in done.answer] == [
        (1, most_ms + 1),
        (2, -1),
        (3, most_ms + 1),
    ]
    assert not administration.repair(found, ME, clock_ms=NOW + 1).changes
    assert administration.repair(replace(found, is_complete=False), ME, clock_ms=-1).need == WHOLE
