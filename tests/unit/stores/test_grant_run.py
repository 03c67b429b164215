"""Which ids a distributor may offer to give back, and what ends calls of a store over stores."""

from __future__ import annotations

import pytest

from aiocosid._life import fork
from aiocosid.errors import StoreUnavailableError
from aiocosid.stores._give_back import GrantNote, GrantRun, Offer
from aiocosid.stores._over import Closings


def granted(run: GrantRun, max_id: int, base: int | None = 0) -> GrantNote:
    note = run.note()
    run.granted(note, max_id, base)
    return note


@pytest.mark.parametrize(
    ("base", "max_id", "unused", "lower"),
    [
        (0, 10, 4, 6),
        (8, 10, 4, 8),  # what is below the run is another distributor's
        (0, 10, 10, 0),
        (0, 10, 0, None),
        (10, 10, 4, None),
        (0, 9, 4, None),  # another grant was the last one
    ],
)
def test_the_end_of_a_run_is_offered_once(
    base: int, max_id: int, unused: int, lower: int | None
) -> None:
    run = GrantRun()
    note = granted(run, 10, base)
    assert run.offer(max_id, unused) == (None if lower is None else Offer(lower, note.nonce))
    assert run.offer(10, 4) is None


def test_a_fork_before_the_first_grant_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GrantRun()
    assert run.offer(10, 4) is None
    monkeypatch.setattr(fork, "children", fork.children + 1)
    note = granted(run, 10)
    assert run.offer(10, 10) == Offer(0, note.nonce)


def test_each_note_names_the_one_before() -> None:
    run = GrantRun()
    assert not run.is_noted, "nobody has asked for it yet"
    first = granted(run, 10)
    second = granted(run, 20)
    assert (first.previous, second.previous) == ("", first.nonce)
    assert first.nonce != second.nonce
    late = GrantNote("late", "")
    run.granted(late, 15, 10)
    assert run.offer(20, 5) == Offer(15, second.nonce)


def test_nothing_is_offered_after_a_grant_without_a_note() -> None:
    run = GrantRun()
    granted(run, 10)
    granted(run, 20, None)
    assert run.note().previous == ""
    assert (run.offer(10, 4), run.offer(20, 4)) == (None, None)


def test_nothing_is_offered_while_a_call_is_under_way_or_after_it_failed() -> None:
    run = GrantRun()
    granted(run, 10)
    with run.call():
        assert run.offer(10, 4) is None
    granted(run, 20)
    with pytest.raises(ZeroDivisionError), run.call():
        raise ZeroDivisionError
    assert run.offer(20, 4) is None
    note = granted(run, 30)
    assert run.offer(30, 4) == Offer(26, note.nonce), "no call is counted any more"


@pytest.mark.parametrize("at", ["before the note", "before the grant", "before the offer"])
def test_what_a_forked_child_may_have_seen_is_kept(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = GrantRun()
    granted(run, 10)

    def step(name: str) -> None:
        if name == at:
            monkeypatch.setattr(fork, "children", fork.children + 1)

    step("before the note")
    note = run.note()
    step("before the grant")
    run.granted(note, 20, 0)
    step("before the offer")
    due = None if at == "before the offer" else Offer(10, note.nonce)
    assert run.offer(20, 15) == due


def test_the_child_offers_nothing_of_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a call that began in the parent count in it."""
    run = GrantRun()
    granted(run, 10)
    with run.call():
        monkeypatch.setattr(fork, "generation", fork.generation + 1)
        assert run.note().previous == ""
        assert run.offer(10, 4) is None
    note = granted(run, 20)
    assert run.offer(20, 4) == Offer(16, note.nonce)
    granted(run, 30)
    monkeypatch.setattr(fork, "generation", fork.generation + 1)
    assert run.offer(30, 4) is None


def test_a_closing_ends_calls_that_began_before() -> None:
    """Of the whole as well as of the part."""
    whole = Closings()
    part = Closings(whole)
    assert (whole.count, part.count) == (0, 0)
    for closed, counts in ((whole, (1, 1)), (part, (1, 2))):
        go_on = part.watch("store")
        go_on()
        closed.note()
        assert (whole.count, part.count) == counts
        with pytest.raises(StoreUnavailableError):
            go_on()
