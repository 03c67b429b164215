"""Seconds prepared ahead of the clock: what bounds them, and how they come back to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.errors import InvalidArgumentError, LayoutExpiredError
from aiocosid.snowflake import SnowflakeLayout
from aiocosid.snowflake._ring import Ring
from aiocosid.snowflake._sequencer import Behind, Full, Limited
from aiocosid.snowflake.options import RingOptions

from ._kit import FOREVER_MS

EPOCH = 1_577_203_200_000
NOW = 1_700_000_000_000
PER_SECOND = 16
BORROW = 20


def ring(
    *, boost: int = 2, padding: int = 50, borrow: float = BORROW, bits: int = 31, floor: int = -1
) -> Ring:
    layout = SnowflakeLayout(bits, 10, 4, "s", EPOCH)
    options = RingOptions(boost=boost, padding_factor=padding, max_borrow=borrow)
    return Ring(layout, options, machine_id=7, floor_tick=layout.tick_at(NOW) + floor)


def take(made: Ring, n: int, now_ms: int = NOW, limit_ms: int = FOREVER_MS) -> list[int]:
    pieces, _ = made.take(n, now_ms, limit_ms)
    return [each for piece in pieces for each in piece]


def seconds(made: Ring, ids: list[int]) -> list[int]:
    return [(made.layout.parse(each).timestamp_ms - NOW) // 1000 for each in ids]


def test_a_burst_takes_seconds_that_are_yet_to_come() -> None:
    """Whole ones from sequence 0 to the highest, one after the other: N9."""
    made = ring()
    ids = take(made, 3 * PER_SECOND + 1)
    assert seconds(made, ids) == [0] * 16 + [1] * 16 + [2] * 16 + [3]
    assert [made.layout.parse(each).sequence for each in ids] == [*range(16)] * 3 + [0]
    assert {made.layout.parse(each).machine_id for each in ids} == {7}
    assert made.borrowed(NOW) == 3
    assert made.last_ms == NOW + 3999


def test_the_bound_is_never_passed() -> None:
    """The rest waits until the clock has come so far: N23."""
    made = ring()
    pieces, refusal = made.take(1000, NOW + 300, FOREVER_MS)
    assert sum(map(len, pieces)) == (BORROW + 1) * PER_SECOND
    assert refusal == Full(NOW + 1000)
    assert made.install(NOW + 999, FOREVER_MS) == Full(NOW + 1000)
    assert seconds(made, take(made, 1000, NOW + 1000)) == [BORROW + 1] * 16


def test_nothing_lies_above_the_mark() -> None:
    """It is asked for as much as two rings need, then for thrice what is borrowed."""
    made = ring()
    pieces, refusal = made.take(1000, NOW, NOW + 2500)
    assert sum(map(len, pieces)) == 3 * PER_SECOND
    assert refusal == Limited(NOW + 10_000)  # of seconds 3 to 10
    pieces, refusal = made.take(1000, NOW, NOW + 5999)
    assert refusal == Limited(NOW + 17_000)  # of seconds 6 to 17
    pieces, refusal = made.take(1000, NOW, NOW + 19_999)
    assert refusal == Limited(NOW + 20_000)  # never above the bound
    assert made.take(1, NOW, -1) == ([], Limited(NOW + 20_000))
    assert made.check(NOW, NOW + 20_000) is None


def test_an_idle_hour_brings_it_back_to_the_clock() -> None:
    """What is left of seconds that passed is dropped, prepared or in hand: N23."""
    made = ring()
    assert made.install(NOW, FOREVER_MS) is None
    first = next(made.piece)
    later = NOW + 3_600_000
    assert made.until_ns == (NOW + 1000) * 1_000_000
    assert made.install(later, FOREVER_MS) is None
    ids = [first, next(made.piece), *take(made, 1, later)]
    assert seconds(made, ids) == [0, 3600, 3600]
    assert ids == sorted(ids)
    assert made.filled(later) == 4 * PER_SECOND - 2


def test_a_piece_ahead_of_the_clock_is_judged_anew_after_a_second() -> None:
    """By then the lease may be lost; and not while the clock is behind by more than the bound."""
    made = ring()
    take(made, 5 * PER_SECOND)
    assert made.install(NOW + 250, FOREVER_MS) is None
    assert made.until_ns == (NOW + 1250) * 1_000_000
    assert made.begin_ns == (NOW + (5 - BORROW) * 1000) * 1_000_000


def test_a_clock_that_steps_back() -> None:
    """Within the bound it is borrowed time; beyond it is waited for; no id comes twice: N3."""
    made = ring()
    ids = take(made, 2 * PER_SECOND)
    ids += take(made, 1, NOW - 15_000)
    assert made.check(NOW - 18_001, FOREVER_MS) == Behind(NOW - 18_000, 1, is_floor=False)
    assert made.take(1, NOW - 3_600_000, FOREVER_MS)[1] == Behind(
        NOW - 18_000, 3_582_000, is_floor=False
    )
    ids += take(made, PER_SECOND, NOW - 15_000)
    assert seconds(made, ids) == [0] * 16 + [1] * 16 + [2] * 16 + [3]
    assert ids == sorted(set(ids))


def test_it_begins_above_its_floor_at_once() -> None:
    """As long as that is no more than may be borrowed: N15, N24."""
    made = ring(floor=BORROW - 1)
    assert seconds(made, take(made, 1)) == [BORROW]
    made = ring(floor=BORROW)
    assert made.check(NOW, FOREVER_MS) == Behind(NOW + 1000, 1000, is_floor=True)
    made.move(8, made.layout.tick_at(NOW) + 3)
    assert made.filled(NOW) == 0
    assert made.check(NOW + 1000, FOREVER_MS) is None
    ids = take(made, 1, NOW + 1000)
    assert (seconds(made, ids), made.layout.parse(ids[0]).machine_id) == ([BORROW + 1], 8)


def test_the_ring_is_filled_below_its_padding_factor() -> None:
    """Up to its capacity, which stops it, and as far as mark and bound go."""
    made = ring()
    assert (made.capacity, made.filled(NOW), made.fills) == (64, 0, 0)
    assert made.refill(NOW, NOW + 90_000) is None
    assert (made.filled(NOW), made.fills) == (64, 1)
    take(made, 32)
    made.refill(NOW, NOW + 90_000)
    assert (made.filled(NOW), made.fills) == (32, 1)
    assert made.install(NOW, FOREVER_MS) is None
    next(made.piece)
    assert made.filled(NOW) == 31  # with a piece in hand
    made.refill(NOW, NOW + 90_000)
    assert (made.filled(NOW), made.fills) == (63, 2)  # whole seconds
    take(made, 64)
    assert made.fills == 3  # nobody waits for a filling that nothing forbids
    assert made.filled(NOW + 10_000) == 0
    made.refill(NOW + 10_000, NOW + 90_000)
    assert (made.filled(NOW + 10_000), made.fills) == (64, 4)
    assert made.filled(NOW + 8000) == 64  # set back: no more than it holds


def test_the_mark_is_asked_for_before_it_is_needed() -> None:
    """When too little is below it; not beyond the bound, nor without a lease."""
    made = ring()
    assert made.refill(NOW, NOW + 4000) is None  # a ring above this second
    assert made.filled(NOW) == 4 * PER_SECOND
    assert made.refill(NOW, NOW + 3999) == NOW + 7000
    assert made.refill(NOW, -1) is None
    take(made, 6 * PER_SECOND)
    assert made.refill(NOW, NOW + 12_000) is None
    assert made.refill(NOW, NOW + 11_999) == NOW + 17_000
    take(made, 14 * PER_SECOND)
    assert made.refill(NOW, NOW + 20_000) is None
    assert made.refill(NOW, NOW + 19_999) == NOW + 20_000


def test_borrowing_ends_with_the_layout() -> None:
    """An error, and no id with a time that is negative or has wrapped around: N1."""
    made = ring(bits=5, borrow=BORROW)
    last_ms = EPOCH + 31_000
    made = Ring(
        made.layout,
        RingOptions(boost=2, padding_factor=50, max_borrow=BORROW),
        machine_id=7,
        floor_tick=-1,
    )
    pieces, _ = made.take(PER_SECOND * 2, last_ms - 1000, FOREVER_MS)
    assert [piece[-1] for piece in pieces] == [
        made.layout.compose(30, 7, 15),
        made.layout.compose(31, 7, 15),
    ]
    made.refill(last_ms - 1000, FOREVER_MS)
    for now_ms in (last_ms - 1000, last_ms, last_ms + 1000):
        with pytest.raises(LayoutExpiredError):
            made.check(now_ms, FOREVER_MS)
        with pytest.raises(LayoutExpiredError):
            made.take(1, now_ms, FOREVER_MS)
        with pytest.raises(LayoutExpiredError):
            made.install(now_ms, FOREVER_MS)


def test_bad_options_are_refused() -> None:
    """A ring that is larger than what may be borrowed could never be full."""
    good = {"boost": 3, "padding_factor": 50, "max_borrow": 60.0}
    for name, value in (
        *(("boost", bad) for bad in (0, -1, 17, True, 2.0)),
        *(("padding_factor", bad) for bad in (0, 100, -1, 50.0)),
        *(("max_borrow", bad) for bad in (7.9, 0, -1, float("nan"), float("inf"), "60")),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            RingOptions(**{**good, name: value})  # type: ignore[arg-type]
        assert caught.value.argument == name


def test_options_at_their_ends() -> None:
    for padding in (1, 99):
        options = RingOptions(boost=1, padding_factor=padding, max_borrow=2.0)
        assert options.seconds == 2


def test_nothing_is_borrowed_by_ids_that_are_yet_to_come_or_have_passed() -> None:
    made = ring(floor=3)
    assert made.borrowed(NOW) == 0
    take(made, 1)
    assert (made.borrowed(NOW), made.borrowed(NOW + 10_000)) == (4, 0)


def test_it_is_filled_no_higher_than_the_mark() -> None:
    made = ring()
    made.refill(NOW, NOW + 1500)
    assert (made.filled(NOW), made.fills) == (2 * PER_SECOND, 1)
    made = ring()
    for _ in range(2):
        made.refill(NOW, NOW + 999)
        assert (made.filled(NOW), made.fills) == (PER_SECOND, 1)


def test_another_machine_id_begins_with_an_empty_ring() -> None:
    made = ring()
    made.refill(NOW, NOW + 90_000)
    made.move(8, made.layout.tick_at(NOW))
    assert made.filled(NOW) == 0


def test_a_piece_ends_with_its_second() -> None:
    made = ring()
    assert made.install(NOW + 500, FOREVER_MS) is None
    assert made.until_ns == (NOW + 1000) * 1_000_000


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "one", "refill", "move"]),
        st.integers(0, 70),  # ids
        st.integers(-4000, 9000),  # the clock's step
        st.integers(-1000, 30_000),  # the mark, ahead of the clock
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens(steps: list[tuple[str, int, int, int]]) -> None:
    """Rising ids, not of the past, not too far ahead, not above the mark; never over-full."""
    made, now_ms, ids, fence_ms = ring(), NOW, [0], NOW
    for kind, n, step, ahead in steps:
        now_ms, fence_ms = now_ms + step, max(fence_ms, now_ms + ahead)
        new: list[int] = []
        if kind == "take":
            new = take(made, n, now_ms, fence_ms)
        elif kind == "refill":
            made.refill(now_ms, fence_ms)
        elif kind == "move":
            made.move(n % 8, made.layout.tick_at(now_ms + step))
        else:
            is_good = made.begin_ns <= now_ms * 1_000_000 < made.until_ns and made.in_hand
            if is_good or made.install(now_ms, fence_ms, 5) is None:
                new = [next(made.piece)]
        assert [*ids[-1:], *new] == sorted({*ids[-1:], *new})
        for second in seconds(made, new):
            assert (now_ms - NOW) // 1000 <= second <= (now_ms - NOW) // 1000 + BORROW
            assert NOW + second * 1000 <= fence_ms
        assert 0 <= made.filled(now_ms) <= made.capacity
        assert made.borrowed(now_ms) <= BORROW or not new
        ids += new
