"""Which sequences of a second are granted: of any history, none twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocosid.stores._sequence_rules import (
    FENCED,
    GRANTED,
    SKEWED,
    SPENT,
    SequenceRequest,
    SequenceState,
    grant,
)

START = 1_700_000_000
MOST = 20

Act = tuple[str, int, int]
ACTS = st.one_of(
    st.tuples(st.just("ask"), st.integers(-3, 3), st.integers(1, MOST)),
    st.tuples(st.just("clock"), st.integers(-90, 90), st.just(0)),
    st.tuples(st.sampled_from(("lose", "restore", "restore")), st.integers(0, 9), st.just(0)),
)


def asked(second: int, size: int, *, tolerance: int = 2, margin: int = 0) -> SequenceRequest:
    return SequenceRequest(second, size, MOST, tolerance, margin)


@given(st.lists(ACTS, max_size=60))
@settings(max_examples=600, deadline=None)
def test_no_sequence_is_granted_twice(acts: list[Act]) -> None:
    """Whatever the clock does, and whatever is lost while the highest time so far is known."""
    now = peak = START
    state: SequenceState | None = SequenceState("file 0")
    backups = [SequenceState("file 0")]
    file = "file 0"
    taken: set[tuple[int, int]] = set()
    for act, number, size in acts:
        if act == "ask":
            written, answer = grant(state, asked(now + number, size), file, now)
            state, again = SequenceState.read(written.text(answer))
            assert (state, again) == (written, answer)
            backups.append(written)
            assert len(written.granted) <= 2 * 2 + 1
            if answer.status == GRANTED:
                new = {(now + number, each) for each in range(answer.first, answer.last + 1)}
                assert 1 <= answer.first <= answer.last <= MOST
                assert not new & taken
                taken |= new
        elif act == "clock":
            now += number
        elif act == "lose" and now >= peak:
            state = None
        elif act == "restore":
            restored = backups[-1 - number % len(backups)]
            if max(now, restored.seen) >= peak:
                state, file = restored, f"{file} restored"
        peak = max(peak, now)


def test_each_answer() -> None:
    state, answer = grant(SequenceState("x"), asked(START, 15), "x", START)
    assert answer == (GRANTED, 1, 15, START, START - 2)
    state, answer = grant(state, asked(START, 15), "x", START)
    assert answer[:3] == (GRANTED, 16, 20)
    after, answer = grant(state, asked(START, 1), "x", START)
    assert answer.status == SPENT
    assert after == state
    for off in (-3, 3):
        assert grant(state, asked(START + off, 1), "x", START)[1].status == SKEWED
    for lost, here in ((None, "x"), (state, "y")):
        for off in range(3):
            _, answer = grant(lost, asked(START + off, 1), here, START)
            assert (answer.status, answer.opens) == (FENCED, START + 3)


def test_a_wider_reach_raises_the_fence() -> None:
    """A fence covers the widest reach that any distributor has named, also if it comes later."""
    narrow, answer = grant(None, asked(START, 1, margin=1), "x", START)
    assert answer.opens == START + 4
    wide, answer = grant(narrow, asked(START, 1, tolerance=5, margin=3), "x", START)
    assert answer.opens == START + 9
    _, answer = grant(wide, asked(START, 1), "another", START)
    assert answer.opens == START + 9
    state, _ = grant(SequenceState("x"), asked(START, 1), "x", START)
    _, answer = grant(state, asked(START, 1, tolerance=60), "x", START)
    assert answer == (GRANTED, 2, 2, START, START - 2)  # there was no fence to raise


def test_a_clock_that_is_set_back() -> None:
    """What is not known any more is granted no more; the rest goes on where it was."""
    state, _ = grant(SequenceState("x"), asked(START, 5), "x", START)
    state, _ = grant(state, asked(START + 1, 7), "x", START + 1)
    assert grant(state, asked(START, 5), "x", START)[1][:3] == (GRANTED, 6, 10)
    state, answer = grant(state, asked(START + 3600, 1), "x", START + 3600)
    assert answer.status == GRANTED
    _, answer = grant(state, asked(START + 1, 1), "x", START + 1)
    assert (answer.status, answer.opens) == (FENCED, START + 3598)


def test_a_backup_that_is_restored_while_the_clock_is_behind() -> None:
    """The fence is above the highest time that the backup knows of."""
    backup, _ = grant(SequenceState("x"), asked(START + 90, 5), "x", START + 90)
    assert grant(backup, asked(START + 92, 5), "x", START + 90)[1].status == GRANTED
    _, answer = grant(backup, asked(START, 5), "y", START)
    assert (answer.status, answer.opens) == (FENCED, START + 93)


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "null", "[]", "{}", '{"answer": [1]}', '{"answer": [0, 1, 1, 1, 1]}'),
        *('{"answer": [0, 1, 1, 1, Infinity]}', "[" * 100_000),
    ],
)
def test_what_is_no_state(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - `json`'s, or ours
        SequenceState.read(text)
