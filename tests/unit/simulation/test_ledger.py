"""What may never happen, and is seen."""

from __future__ import annotations

import pytest

from tests.simulation import Ledger


@pytest.fixture
def found() -> list[str]:
    return []


@pytest.fixture
def ledger(found: list[str]) -> Ledger:
    return Ledger(found.append)


def test_different_ids_are_in_order(ledger: Ledger, found: list[str]) -> None:
    ledger.handed_out("c.a", [1, 2, 3], "x")
    ledger.handed_out("c.a", [4], "y")
    ledger.handed_out("c.b", [1, 2], "y")
    assert (found, ledger.ids) == ([], 6)


@pytest.mark.parametrize(
    ("ids", "said"),
    [([3], "id 3 of c.a was handed out twice: x, then y"), ([0], "not positive"), ([5, 5], "one")],
)
def test_an_id_that_comes_twice_is_seen(
    ledger: Ledger, found: list[str], ids: list[int], said: str
) -> None:
    ledger.handed_out("c.a", [1, 2, 3], "x")
    ledger.handed_out("c.a", ids, "y")
    assert len(found) == 1
    assert said in found[0]


def test_a_machine_id_may_change_hands(ledger: Ledger, found: list[str]) -> None:
    """The one before used it up to the floor of the next, and may tell of it late."""
    ledger.granted("c", 7, "x", floor_ms=-1)
    ledger.emitted("c", 7, "x", 100)
    ledger.granted("c", 7, "y", floor_ms=150)
    ledger.emitted("c", 7, "y", 151)
    ledger.emitted("c", 7, "x", 150)
    ledger.granted("c", 7, "x", floor_ms=200)
    ledger.emitted("c", 7, "x", 201)
    assert found == []


def test_an_id_that_is_used_late_is_of_the_grant_it_was_made_under(
    ledger: Ledger, found: list[str]
) -> None:
    """The store has forgotten of that one, and lets its owner have the machine id again."""
    ledger.forgets = True
    ledger.granted("c", 7, "x", floor_ms=-1)
    held = ledger.grants("c", 7)
    ledger.granted("c", 7, "y", floor_ms=-1)
    ledger.emitted("c", 7, "y", 150)
    ledger.granted("c", 7, "x", floor_ms=-1)
    ledger.emitted("c", 7, "x", 100, grants=held)
    assert found == []
    ledger.emitted("c", 7, "x", 101)
    assert found == ["x used machine id 7 of c for an id of 101, as late as one of y"]


@pytest.mark.parametrize(("owner", "at_ms"), [("x", 151), ("y", 150), ("z", 200)])
def test_two_owners_at_one_time_are_seen(
    ledger: Ledger, found: list[str], owner: str, at_ms: int
) -> None:
    ledger.granted("c", 7, "x", floor_ms=-1)
    ledger.granted("c", 7, "y", floor_ms=150)
    ledger.emitted("c", 7, "y", 151)
    ledger.emitted("c", 7, owner, at_ms)
    assert len(found) == 1


def test_a_grant_that_nobody_uses_ends_nothing(ledger: Ledger, found: list[str]) -> None:
    """A call of a process that died arrives late: the store finds its successor's id for it."""
    ledger.granted("c", 7, "x", floor_ms=-1)
    ledger.granted("c", 7, "dead", floor_ms=150)
    ledger.emitted("c", 7, "x", 160)
    assert found == []
    ledger.emitted("c", 7, "dead", 155)
    assert found == ["machine id 7 of c went to dead above 150, but x had used it for an id of 160"]


def test_a_floor_below_what_was_used_is_seen(ledger: Ledger, found: list[str]) -> None:
    ledger.granted("c", 7, "x", floor_ms=-1)
    ledger.emitted("c", 7, "x", 151)
    ledger.granted("c", 7, "y", floor_ms=150)
    assert found == ["machine id 7 of c went to y above 150, but x had used it for an id of 151"]


def test_a_machine_id_that_nobody_was_given_is_seen(ledger: Ledger, found: list[str]) -> None:
    ledger.emitted("c", 7, "x", 1)
    assert "it was given to: nobody" in found[0]
