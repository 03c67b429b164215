"""The rules of machine ids, explored in small worlds: no history within a budget repeats an id.

The page on guarantees names how many states each budget has; `test_a_planted_defect` shows that a
rule that is wrong is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from aiocosid.machine import losses, rules
from aiocosid.machine.cells import MachineSlot, Snapshot

from ._exploration import Budget, explore


@dataclass(frozen=True)
class Case:
    """A small world, and at least how many states it has."""

    budget: Budget
    states: int
    about: dict[str, Any] = field(default_factory=dict[str, Any])


TWO: Final = {"texts": "ab"}
TIGHT: Final = {"texts": "ab", "is_tight": True}
UNMARKED: Final = {**TIGHT, "is_marked": False}

# All of them are small enough for each run of the tests, and large enough for each planted defect.
CASES: Final = {
    "three instances": Case(Budget(steps=1, calls=2), 5_000),
    "one id for two": Case(Budget(steps=5, calls=2), 5_000, TIGHT),
    "a crash": Case(Budget(steps=3, crashes=1, calls=2), 10_000, TIGHT),
    "a lost and a late reply": Case(Budget(steps=3, lost=1, late=1, calls=2), 10_000, TIGHT),
    "a part is emptied": Case(Budget(steps=2, wipes=1, calls=2), 10_000, TWO),
    "initialised meanwhile": Case(Budget(steps=3, inits=1, calls=2), 10_000, UNMARKED),
    "another server": Case(Budget(steps=4, restarts=1, calls=2), 10_000, TIGHT),
    "an older state": Case(Budget(steps=3, restores=1, calls=2), 10_000, TIGHT),
    "a clock that is set": Case(Budget(steps=3, clock_steps=1, calls=2), 10_000, TIGHT),
    "given back": Case(Budget(steps=3, returns=1, calls=3), 10_000, TIGHT),
    "a peer": Case(Budget(steps=2, peers=1, returns=1, calls=2), 10_000, TIGHT),
}

LONGER: Final = {
    name: replace(case, budget=case.budget._replace(steps=case.budget.steps + 1))
    for name, case in CASES.items()
}
WIDE: Final = LONGER | {
    "three instances": Case(Budget(steps=2, calls=2), 30_000),
    "three instances and a crash": Case(Budget(steps=1, crashes=1, calls=2), 30_000),
    "one id for two": Case(Budget(steps=6, calls=3), 100_000, TIGHT),
    "emptied": Case(Budget(steps=4, wipes=1, calls=2), 100_000, TWO),
    "a peer": Case(Budget(steps=4, peers=1, returns=1, calls=2), 100_000, TIGHT),
}


@pytest.mark.parametrize("name", CASES)
def test_no_history_repeats_an_id(name: str) -> None:
    """Every order of reads, commits and mishaps within the budget."""
    case = CASES[name]
    found = explore(case.budget, **case.about)
    assert found.repeats == []
    assert found.states >= case.states, found
    assert found.handed_out > found.states // 4, "hardly anybody was handed an id"


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WIDE)
def test_no_longer_history_either(name: str) -> None:
    """The same in wider worlds."""
    case = WIDE[name]
    found = explore(case.budget, **case.about)
    assert found.repeats == []
    assert found.states >= case.states, found


# Planted defects.


def _expires_by_stamp(snapshot: Snapshot, slot: MachineSlot, caller: rules.Caller) -> bool:
    return bool(slot.holders) and slot.stamp_ms <= snapshot.now_ms - caller.guard_ms


def _expires_early(snapshot: Snapshot, slot: MachineSlot, caller: rules.Caller) -> bool:
    return _is_expired(snapshot, slot, replace(caller, guard_ms=caller.guard_ms // 2))


_is_expired = rules._is_expired
_give_back = rules.give_back


def _gives_back_silently(snapshot: Snapshot, caller: Any, machine_id: int, **about: Any) -> Any:
    return _give_back(snapshot, caller, machine_id, **(about | {"last_ms": -1}))  # pyright: ignore[reportArgumentType]


def _is_never_short(_: Snapshot) -> bool:
    return False


def _knows_all(*_: object) -> bool:
    return True


def _ends_at_once(_: object) -> int:
    return 0


def _believes_markers(snapshot: Snapshot) -> bool:
    return snapshot.marker is not None


DEFECTS: Final[dict[str, tuple[object, str, object, str]]] = {
    "who is silent is told by the stamp alone": (
        *(rules, "_is_expired", _expires_by_stamp),
        "a clock that is set",
    ),
    "an id expires before its lease ends": (
        *(rules, "_is_expired", _expires_early),
        "one id for two",
    ),
    "the mark is not looked at": (
        *(MachineSlot, "floor_ms", property(lambda slot: slot.stamp_ms)),
        "a crash",
    ),
    "a return does not tell what was issued": (
        *(rules, "give_back", _gives_back_silently),
        "a peer",
    ),
    "missing ids are not counted": (*(losses, "is_short", _is_never_short), "a part is emptied"),
    "the identity of the store is not looked at": (
        *(Snapshot, "knows", _knows_all),
        "an older state",
    ),
    "a quarantine is over at once": (*(losses, "quarantine_ms", _ends_at_once), "an older state"),
    "a marker of another server will do": (
        *(losses, "is_newly_initialized", _believes_markers),
        "an older state",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found by a repeat, in one of the small worlds."""
    where, name, wrong, world = DEFECTS[defect]
    monkeypatch.setattr(where, name, wrong)
    case = CASES[world]
    assert explore(case.budget, **case.about).repeats, f"{defect} is not found in {world!r}"
