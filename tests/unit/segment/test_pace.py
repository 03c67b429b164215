"""How far ahead to buy."""

from __future__ import annotations

from copy import copy
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.segment import MAX_DISTANCE, MAX_IDS_AHEAD
from aiocosid.segment.pace import CALM, CHAIN_STEP, ENDURANCE, QUIET_PERIOD, TIGHT, Pace, RateMeter

steps = st.integers(1, 5000)
distances = st.integers(1, 50)


def starve(pace: Pace, times: int = 1) -> None:
    for _ in range(times):
        pace.landed(taken=0, demand=inf, starved=True)


def test_the_limits_are_those_that_are_documented() -> None:
    pace = Pace(step=1, safe_distance=1)
    assert pace.limit == MAX_DISTANCE == 4_096_000
    assert Pace(step=2**20, safe_distance=1).limit == 3
    assert Pace(step=2**20, safe_distance=1, max_distance=2**30).limit == 16
    assert Pace(step=2**23, safe_distance=1).limit == 1
    assert Pace(step=10, safe_distance=2, max_distance=99).limit == 9
    assert CHAIN_STEP == 100
    assert MAX_IDS_AHEAD == 16_777_216
    assert (ENDURANCE, QUIET_PERIOD) == (60.0, 5.0)


def test_it_begins_at_the_safe_distance() -> None:
    """Nothing has grown, and so many ids are kept ahead."""
    pace = Pace(step=10, safe_distance=3)
    assert (pace.distance, pace.target, pace.is_grown) == (3, 30, False)


@pytest.mark.parametrize(
    ("remaining", "wanted", "segments"),
    [(0, 0, 3), (1, 0, 3), (10, 0, 2), (29, 0, 1), (30, 0, 0), (99, 0, 0), (30, 1, 1), (0, 25, 6)],
)
def test_what_is_missing_is_bought(remaining: int, wanted: int, segments: int) -> None:
    """As many whole segments as lack to the distance, and to what callers wait for."""
    assert Pace(step=10, safe_distance=3).missing(remaining, wanted) == segments


def test_without_a_distance_only_what_is_waited_for_is_bought() -> None:
    """A generator that never prefetches buys nothing for nobody, and never grows."""
    pace = Pace(step=10, safe_distance=0)
    assert [pace.missing(0, wanted) for wanted in (0, 1, 10, 11)] == [0, 1, 1, 2]
    starve(pace, 5)
    assert (pace.distance, pace.is_grown) == (0, False)


@given(steps, distances, st.integers(0, 10**6), st.integers(0, 10**6))
def test_after_buying_the_distance_is_full(
    step: int, safe_distance: int, remaining: int, wanted: int
) -> None:
    """And at rest not by a whole segment more."""
    pace = Pace(step=step, safe_distance=safe_distance)
    after = remaining + pace.missing(remaining, wanted) * step - wanted
    assert after >= pace.target
    if remaining - wanted < pace.target:
        assert after < pace.target + step


def test_what_a_flight_used_up_is_bought_on_top_and_half_of_it_the_next_time() -> None:
    """So a lull is forgotten slowly."""
    pace = Pace(step=10, safe_distance=20)
    pace.landed(taken=120, demand=0, starved=False)
    assert pace.missing(0, 0) == 20 + 12
    for on_top in (6, 3, 1, 0):
        pace.landed(taken=9, demand=0, starved=False)
        assert pace.missing(0, 0) == 20 + on_top


def test_a_starvation_may_be_excused_from_the_start_and_again_after_a_rest() -> None:
    """Once each time, if the distance would have been long enough."""
    at_rest = Pace(step=10, safe_distance=2)
    for _ in range(2):
        assert copy(at_rest).landed(taken=0, demand=5, starved=True) is False
    pace = copy(at_rest)
    for _ in range(2):  # growth makes an end of it as well
        assert pace.landed(taken=0, demand=5, starved=True) is False
        assert pace.landed(taken=0, demand=5, starved=True) is True


def test_two_thirds_left_are_not_more_than_two_thirds() -> None:
    """Which is what a quiet period has to leave."""
    pace = Pace(step=3, safe_distance=2)
    starve(pace)
    assert pace.target == 12
    pace.end_period(8, idle=False)
    assert not pace.end_period(9, idle=False)
    assert pace.end_period(9, idle=False)


def test_a_starvation_doubles_the_distance_once() -> None:
    """And tells that it grew."""
    pace = Pace(step=10, safe_distance=2)
    assert pace.landed(taken=20, demand=inf, starved=True)
    assert (pace.distance, pace.is_grown) == (4, True)


def test_a_landing_without_starvation_at_rest_changes_nothing() -> None:
    """However much of the safe distance a fetch used up."""
    pace = Pace(step=10, safe_distance=2)
    assert not pace.landed(taken=19, demand=19, starved=False)
    assert pace.distance == 2


def test_a_blip_at_rest_costs_nothing_besides() -> None:
    """What was taken during the fetch that starved is not bought ahead too."""
    pace = Pace(step=10, safe_distance=2)
    pace.landed(taken=20, demand=inf, starved=True)
    assert pace.missing(40, 0) == 0
    assert pace.missing(35, 0) == 1


def test_what_a_flight_uses_up_is_bought_with_the_next() -> None:
    """Under load the distance is full when the fetch lands, not when it takes off."""
    pace = Pace(step=10, safe_distance=2)
    starve(pace, 3)
    assert not pace.landed(taken=50, demand=50, starved=False)
    assert pace.distance == 16
    assert pace.missing(159, 0) == 1 + 5
    assert pace.missing(160, 0) == 0


def test_a_tight_flight_makes_a_grown_distance_longer_before_anybody_starves() -> None:
    """By a quarter, when a fetch used up more than three fifths of it; at rest it is nothing."""
    pace = Pace(step=10, safe_distance=2)
    assert not pace.landed(taken=19, demand=20 * TIGHT + 1, starved=False)
    starve(pace, 2)
    assert not pace.landed(taken=48, demand=80 * TIGHT, starved=False)
    assert pace.landed(taken=49, demand=80 * TIGHT + 1, starved=False)
    assert pace.distance == 10
    assert pace.landed(taken=99, demand=99, starved=False)
    assert pace.distance == 13, "rounded up"


def test_a_steady_load_does_not_halve_and_grow_for_ever() -> None:
    """Just calm enough for halving, it grows by one quarter, and is not calm enough any more."""
    pace = Pace(step=100, safe_distance=2)
    starve(pace, 5)
    load = int(pace.target / 3) - 1
    distances = []
    for _ in range(8):
        pace.end_period(pace.target, idle=False)
        for _ in range(100):
            pace.landed(taken=load, demand=load, starved=False)
            pace.note(pace.target - load, 0.0)
        pace.end_period(pace.target, idle=False)
        distances.append(pace.distance)
    assert distances == [32] + [40] * 7


def test_a_distance_that_is_not_stocked_up_yet_is_excused_once() -> None:
    """It was doubled before and would have been enough; the second time it doubles again."""
    pace = Pace(step=10, safe_distance=2)
    starve(pace, 2)
    assert not pace.landed(taken=20, demand=30, starved=True)
    assert pace.distance == 8
    assert pace.landed(taken=20, demand=30, starved=True)
    assert pace.distance == 16


@given(
    steps,
    distances,
    st.integers(1, 10**7),
    st.integers(1, 10**7),
    st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=60),
)
def test_the_distance_stays_between_rest_and_its_limit(
    step: int,
    safe_distance: int,
    max_distance: int,
    max_ids_ahead: int,
    landings: list[tuple[int, bool]],
) -> None:
    """In segments and in ids, whatever happens; a trip is at most twice the distance."""
    pace = Pace(
        step=step,
        safe_distance=safe_distance,
        max_distance=max_distance,
        max_ids_ahead=max_ids_ahead,
    )
    for taken, starved in landings:
        before = pace.distance
        grew = pace.landed(taken=taken, demand=inf if starved else taken, starved=starved)
        assert grew == (pace.distance > before)
        assert pace.distance <= 2 * before
        assert safe_distance <= pace.distance <= pace.limit
        assert pace.missing(0, 0) <= 2 * pace.distance
    assert pace.limit * step <= max(safe_distance * step, min(max_distance, max_ids_ahead))


@given(
    st.tuples(steps, distances, st.integers(1, 60)),
    st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=30),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_no_more_is_bought_than_the_limit(
    sizes: tuple[int, int, int], landings: list[tuple[int, bool]], remaining: int, wanted: int
) -> None:
    """Not even with what a fetch uses up on top; at rest a segment that was begun is replaced."""
    step, safe_distance, max_distance = sizes
    pace = Pace(step=step, safe_distance=safe_distance, max_distance=max_distance * step)
    for taken, starved in landings:
        pace.landed(taken=taken, demand=inf if starved else taken, starved=starved)
    bought = pace.missing(remaining, wanted)
    after = remaining + bought * step - wanted
    assert after >= (0 if pace.is_grown else pace.target), "whoever waits is served"
    if bought:
        assert after <= pace.limit * step + (0 if pace.is_grown else step - 1)


def test_the_defaults_carry_a_slow_store_at_full_speed() -> None:
    """More than 4 million ids ahead, with any step."""
    for step in (1, CHAIN_STEP, 1000):
        pace = Pace(step=step, safe_distance=2)
        starve(pace, 30)
        assert pace.target == MAX_DISTANCE == 4_096_000
    large = Pace(step=100_000, safe_distance=2)
    starve(large, 30)
    assert large.target <= MAX_IDS_AHEAD


@pytest.mark.parametrize(
    ("n", "distance"),
    [(20, 2), (21, 5), (50, 10), (1000, 30)],  # of 10 ids each, at most 30
)
def test_a_caller_that_takes_more_than_the_distance(n: int, distance: int) -> None:
    """Twice as many are kept ahead at once, and no fewer than before; a generator may keep none."""
    pace = Pace(step=10, safe_distance=2, max_distance=300)
    pace.end_period(1000, idle=False)
    assert pace.asked_for(n) is (distance > 2)
    assert pace.distance == distance
    assert not pace.asked_for(n)
    assert not pace.end_period(pace.target, idle=False), "the period under way is not quiet"
    none = Pace(step=10, safe_distance=0)
    assert not none.asked_for(n)
    assert none.distance == 0


# Quiet.


def grown(times: int = 3) -> Pace:
    pace = Pace(step=10, safe_distance=2)
    starve(pace, times)
    pace.end_period(pace.target, idle=False)
    return pace


def test_an_idle_period_halves() -> None:
    """Nobody took an id: half of it, and at last the safe distance."""
    pace = grown()
    distances = []
    while pace.end_period(0, idle=True):
        distances.append(pace.distance)
    assert distances == [8, 4, 2]
    assert not pace.is_grown


def test_a_busy_period_halves_if_most_was_never_used() -> None:
    """The low-water mark has to stay above two thirds of the distance, at every boundary."""
    for low, halved in ((160, True), (160 * CALM + 1, True), (160 * CALM - 1, False), (0, False)):
        pace = grown()
        for ahead in (160, int(low), 160):
            pace.note(ahead, 0.0)
        assert pace.end_period(160, idle=False) is halved


def test_each_period_has_a_mark_of_its_own() -> None:
    """What was low in the last one is forgotten."""
    pace = grown()
    pace.note(0, 0.0)
    assert not pace.end_period(160, idle=False)
    pace.note(150, 0.0)
    assert pace.end_period(160, idle=False)


def test_a_period_with_a_starvation_is_not_quiet() -> None:
    """However full the chain was before and after."""
    pace = grown()
    pace.end_period(10**6, idle=False)
    pace.note(10**6, 0.0)
    starve(pace)
    pace.note(10**6, 0.0)
    assert not pace.end_period(10**6, idle=False)


def test_a_step_that_is_no_power_of_two_comes_back_to_rest() -> None:
    """Halving rounds down, but not below the safe distance."""
    pace = Pace(step=10, safe_distance=3, max_distance=200)
    starve(pace, 5)
    assert pace.distance == 20
    while pace.end_period(0, idle=True):
        pass
    assert pace.distance == 3


def test_a_copy_does_not_know_what_another_has_seen() -> None:
    """A generator that is opened anew begins like a new one, with a copy of what it began with."""
    at_rest = Pace(step=10, safe_distance=2)
    used = copy(at_rest)
    used.landed(taken=20, demand=inf, starved=True)
    used.landed(taken=50, demand=50, starved=False)
    assert used.distance > 2
    pace = copy(at_rest)
    assert (pace.distance, pace.missing(0, 0)) == (2, 2)


@given(st.integers(1, 400), st.integers(1, 20))
def test_a_steady_load_finds_its_distance_and_keeps_it(per_flight: int, safe_distance: int) -> None:
    """After some fetches it neither starves, nor doubles, nor halves any more."""
    pace = Pace(step=10, safe_distance=safe_distance)
    ahead, changes = safe_distance * 10, []
    for fetch in range(200):
        bought = pace.missing(ahead, 0) * 10
        if bought == 0:  # used up at the same rate until a fetch is due
            ahead -= per_flight
            pace.note(max(ahead, 0), 0.0)
            continue
        taken = min(per_flight, ahead)
        starved = per_flight > ahead
        pace.note(ahead - taken, 0.0)
        before = pace.distance
        pace.landed(taken=taken, demand=per_flight if taken else inf, starved=starved)
        if pace.distance != before or starved:
            changes.append(fetch)
        ahead += bought - taken
        if fetch % 20 == 19 and pace.end_period(ahead, idle=False):
            changes.append(fetch)
    assert all(fetch < 100 for fetch in changes)
    assert pace.distance <= max(safe_distance, 4 * (per_flight / 10 + 1))


# The reserve.


@pytest.mark.parametrize(
    ("rate", "space", "ttl", "reserve"),
    [
        (100.0, 2**62, inf, 6200),  # 60 s, and two more
        (10**6, 2**62, inf, 2**24 * 2 // 3),  # a refill is at most all ids ahead
        (10**6, 3_000_000, inf, 2000),  # or a thousandth of those that are left
        (100.0, 2**62, 10.0, 500),  # or lasts three quarters of the ttl
        (0.0, 2**62, inf, 0),  # the rate is not known yet
    ],
)
def test_a_reserve(rate: float, space: int, ttl: float, reserve: int) -> None:
    """Is bought when it is not there, once and a half."""
    pace = Pace(step=1, safe_distance=2, endurance=60.0, ttl=ttl)
    pace.plan(0.0, rate, space)
    assert pace.reserve == reserve
    assert pace.missing(reserve, 0) == (0 if reserve else 2)
    assert pace.missing(reserve - 1, 1) == (reserve * 3 // 2 - reserve + 2 if reserve else 4)


@pytest.mark.parametrize(
    ("ends", "sizes"),
    [
        ([0.25], [16]),
        ([0.0, 0.1, 0.125], [32, 32, 64]),
        ([0.0, 0.0, 0.5, 1.0625, 1.625, 2.1875], [32, 64, 64, 32, 16, 16]),
    ],
)
def test_a_piece_lasts_between_a_tenth_and_half_a_second(
    ends: list[float], sizes: list[int]
) -> None:
    """One that lasts less or more is followed by one of twice or half as many, 16 at least."""
    pace, found = Pace(step=10, safe_distance=1, endurance=60.0), []
    assert pace.piece(10**6, 1) == 16
    for now in ends:
        pace.note(10**6, now)
        found.append(pace.piece(10**6, 1))
    assert found == sizes


@pytest.mark.parametrize(
    ("endurance", "remaining", "short", "size"),
    [
        (0.0, 100, 1, 50),  # half of what is left
        (0.0, 4, 9, 2),
        (0.0, 3, 9, 2),
        (0.0, 30, 1, 10),  # what is above the distance
        (0.0, 25, 8, 8),
        (60.0, 400, 1, 64),  # as many as last for a moment
        (60.0, 140, 1, 40),  # what is above the reserve
        (60.0, 101, 1, 16),
        (60.0, 100, 1, 50),
    ],
)
def test_a_piece_ends_where_something_is_missing(
    endurance: float, remaining: int, short: int, size: int
) -> None:
    pace = Pace(step=10, safe_distance=2, endurance=endurance)
    for _ in range(2):
        pace.note(remaining, 0.0)
    pace.reserve = 100
    assert pace.piece(remaining, short) == size


def test_none_is_kept_in_hand_without_a_distance_and_by_single_ids() -> None:
    sizes = [(1, 0), (1, 1), (2, 0)]
    found = [Pace(step=step, safe_distance=distance).keeps_none for step, distance in sizes]
    assert found == [True, False, False]


def test_a_rate_is_sustained_over_two_seconds() -> None:
    """Younger than that it is 0; then it is taken since the older of two samples."""
    meter = RateMeter(7.0)
    assert [meter.sustained(at, 10) for at in (8.9, 9.0)] == [0.0, 5.0]
    meter.note(8.9, 10)
    meter.note(9.0, 10)
    meter.note(11.0, 30)
    assert meter.rate(11.0, 30) == meter.rate(9.5, 15) == 10.0
    assert meter.rate(9.0, 30) == 0.0
