"""Which ids may be stamped at a given time."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.errors import InvalidArgumentError, LayoutExpiredError, WouldBlock
from aiocosid.snowflake import SnowflakeLayout
from aiocosid.snowflake._sequencer import PIECE, Behind, Full, Limited, Sequencer

from .._vectors import load
from ._kit import FOREVER_MS

EPOCH = 1_577_203_200_000
NOW = 1_700_000_000_000


def layout(sequence_bits: int = 12, unit: str = "ms") -> SnowflakeLayout:
    machine_bits = min(10, 22 - sequence_bits)
    return SnowflakeLayout(41 if unit == "ms" else 31, machine_bits, sequence_bits, unit, EPOCH)  # type: ignore[arg-type]


def sequencer(
    sequence_bits: int = 12, *, floor_ms: int = 0, threshold: int | None = None, unit: str = "ms"
) -> Sequencer:
    fields = layout(sequence_bits, unit)
    floor_tick = fields.tick_at(floor_ms or NOW - 1)
    return Sequencer(fields, machine_id=7, floor_tick=floor_tick, reset_threshold=threshold)


def parts(made: Sequencer, ids: list[int]) -> list[tuple[int, int]]:
    """Milliseconds since NOW and sequence of each id."""
    seen = [made.layout.parse(each) for each in ids]
    assert {each.machine_id for each in seen} <= {7}
    return [(each.timestamp_ms - NOW, each.sequence) for each in seen]


def take(made: Sequencer, n: int, now_ms: int, limit_ms: int = FOREVER_MS) -> list[int]:
    pieces, _ = made.take(n, now_ms, limit_ms)
    return [each for piece in pieces for each in piece]


def one(made: Sequencer, now_ms: int) -> int | None:
    """One id as `next_id` takes it, from the piece if it still may."""
    if not made.begin_ns <= now_ms * 1_000_000 < made.until_ns or not made.in_hand:
        made.install(now_ms, FOREVER_MS)
    return next(made.piece, None)


def test_a_random_start_is_drawn_for_each_new_tick() -> None:
    """Not within a tick, nor after a used-up one; what was not handed out is drawn again: N26."""
    drawn = iter([3, 0, 9, 5, 7, 9, 1])
    made = Sequencer(
        layout(4),
        machine_id=7,
        floor_tick=layout(4).tick_at(NOW - 1),
        reset_threshold=None,
        random_start=10,
        draw=lambda limit: next(drawn) + limit - 10,
    )
    ids = take(made, 2, NOW) + take(made, 1, NOW + 1) + take(made, 1, NOW + 5)
    assert parts(made, ids) == [(0, 3), (0, 4), (1, 0), (5, 9)]
    assert made.install(NOW + 6, FOREVER_MS) is None  # nobody comes
    ids = [one(made, NOW + 7) or 0, one(made, NOW + 7) or 0]
    assert parts(made, ids) == [(7, 7), (7, 8)]
    assert parts(made, take(made, 7 + 16 + 1, NOW + 9))[6:9] == [(7, 15), (8, 0), (8, 1)]
    assert parts(made, take(made, 7, NOW + 15))[0] == (15, 9)  # what each tick surely has
    assert parts(made, take(made, 8, NOW + 20))[0] == (17, 0)  # more
    assert next(drawn) == 1


def golden() -> list[Any]:
    runs = load("snowflake", "snowflake.generate_sequence")
    assert len(runs) > 30
    # A threshold above the highest sequence burns a tick in Java; ours refuses it.
    return [
        each
        for each in runs
        if each["args"]["sequence_reset_threshold"] < 1 << each["args"]["sequence_bit"]
    ]


@pytest.mark.parametrize("vector", golden(), ids=lambda each: f"{each['args']['unit']}")
def test_ids_are_cosids(vector: Any) -> None:
    """Number by number, on a clock that is set; where the sequence wraps Java reads the next tick.

    Java goes on without a check where the clock is before the epoch; ours gives no id.
    """
    args = vector["args"]
    is_ms = args["unit"] == "millisecond"
    unit_ms = 1 if is_ms else 1000
    fields = SnowflakeLayout(
        args["timestamp_bit"],
        args["machine_bit"],
        args["sequence_bit"],
        "ms" if is_ms else "s",
        args["epoch"] * unit_ms,
    )
    made = Sequencer(
        fields,
        machine_id=args["machine_id"],
        floor_tick=-1,
        reset_threshold=args["sequence_reset_threshold"],
    )
    for time, expected in zip(args["times"], vector["result"], strict=True):
        now_ms = time * unit_ms
        try:
            pieces, refusal = made.take(1, now_ms, FOREVER_MS)
            if isinstance(refusal, Full):
                pieces, refusal = made.take(1, now_ms + unit_ms, FOREVER_MS)
        except (LayoutExpiredError, InvalidArgumentError):
            assert expected["error"] is not None or expected["id"] < 0
            break  # Java has moved its clock on, and reports no further id of this time
        if isinstance(refusal, Behind):
            if expected["error"] is None:
                assert expected["id"] < 0 or time * unit_ms < fields.epoch_ms
                break
            assert "Backwards" in json.dumps(expected["error"])
            continue
        assert [each for piece in pieces for each in piece] == [expected["id"]]


def test_there_is_nothing_in_hand_before_the_first_step() -> None:
    """Nor in the iterator that stands for nothing."""
    made = sequencer()
    assert (made.in_hand, made.handed_out, made.term) == (0, 0, 0)
    assert length_hint(made.piece) == 0


def test_nothing_comes_out_of_what_stands_for_nothing() -> None:
    """A thread that lost a race may step it: on a first import, before anybody else has."""
    found = importlib.util.find_spec("aiocosid.snowflake._sequencer")
    assert found is not None
    assert found.loader is not None
    fresh = importlib.util.module_from_spec(found)
    found.loader.exec_module(fresh)
    assert list(fresh.EMPTY) == list(fresh.SHUT.piece) == []


def test_the_sequence_rises_from_tick_to_tick_below_the_threshold() -> None:
    """And begins anew at 1 above it; the very first one is 1."""
    made = sequencer(2, threshold=1)
    seen = [one(made, NOW + tick) for tick in range(5)]
    assert parts(made, [each for each in seen if each]) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    made = sequencer(3, threshold=3)
    seen = [one(made, NOW + tick) for tick in range(6)]
    assert [sequence for _, sequence in parts(made, [s for s in seen if s])] == [1, 2, 3, 1, 2, 3]


def test_without_a_threshold_each_tick_begins_at_0() -> None:
    """As Twitter's does."""
    made = sequencer(3)
    seen = [one(made, NOW), one(made, NOW), one(made, NOW + 1)]
    assert parts(made, [each for each in seen if each is not None]) == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("bits", range(1, 13))
def test_a_tick_has_exactly_so_many_ids(bits: int) -> None:
    """The one after the last has to wait for the next tick, and begins it at 0."""
    made = sequencer(bits)
    ids = take(made, 2**bits, NOW)
    assert len(set(ids)) == 2**bits
    assert made.take(1, NOW, FOREVER_MS) == ([], Full(NOW + 1))
    assert parts(made, take(made, 1, NOW + 1)) == [(1, 0)]


def test_a_clock_that_steps_back_gives_no_id() -> None:
    """Until it shows the last id's tick again; the sequence goes on there."""
    made = sequencer()
    first = one(made, NOW + 5)
    assert made.take(1, NOW + 4, FOREVER_MS) == ([], Behind(NOW + 5, 1, is_floor=False))
    assert made.install(NOW, FOREVER_MS) == Behind(NOW + 5, 5, is_floor=False)
    second = one(made, NOW + 5)
    assert first is not None
    assert second == first + 1


@pytest.mark.parametrize(("unit", "floor", "last"), [("ms", -1, 0), ("s", -1000, 999)])
def test_the_time_of_the_last_id(unit: str, floor: int, last: int) -> None:
    """A second counts whole, once it has an id: a peer may issue ids of the rest of it."""
    made = sequencer(unit=unit)
    assert made.last_ms == NOW + floor
    take(made, 1, NOW)
    assert made.last_ms == NOW + last


def test_nothing_at_or_below_the_floor() -> None:
    """Not even in the floor's own tick."""
    made = sequencer(floor_ms=NOW + 10)
    assert made.install(NOW + 10, FOREVER_MS) == Behind(NOW + 11, 1, is_floor=True)
    assert made.install(NOW + 11, FOREVER_MS) is None
    seconds = sequencer(floor_ms=NOW + 10, unit="s")
    assert seconds.install(NOW + 999, FOREVER_MS) == Behind(NOW + 1000, 1, is_floor=True)


def test_nothing_above_the_limit() -> None:
    """Which is a time: a tick may be used if it begins at or before it."""
    made = sequencer()
    assert made.take(1, NOW + 3, NOW + 2) == ([], Limited(NOW + 3))
    assert made.install(NOW + 3, -1) == Limited(NOW + 3)
    assert made.install(NOW + 2, NOW + 2) is None


def test_a_batch_fills_ticks_that_passed_unused() -> None:
    """At most three in the past, and only for more than the clock's own tick holds."""
    made = sequencer(2)
    assert parts(made, take(made, 1, NOW)) == [(0, 0)]
    small = take(made, 4, NOW + 10)
    assert {at for at, _ in parts(made, small)} == {10}
    large = take(made, 16, NOW + 20)
    assert [at for at, _ in parts(made, large)] == [17] * 4 + [18] * 4 + [19] * 4 + [20] * 4
    assert made.take(1, NOW + 20, FOREVER_MS) == ([], Full(NOW + 21))


def test_a_batch_of_one_more_than_the_tick_holds_comes_at_once() -> None:
    """Out of ticks that passed unused, also where the clock's own tick would begin at 1."""
    made = sequencer(2)
    take(made, 1, NOW)
    assert [at for at, _ in parts(made, take(made, 5, NOW + 20))] == [17] * 4 + [18]
    made = sequencer(2, threshold=0)
    take(made, 1, NOW)
    assert [at for at, _ in parts(made, take(made, 3, NOW + 20))] == [20] * 3
    assert [at for at, _ in parts(made, take(made, 4, NOW + 40))] == [37] * 4


def test_a_batch_finishes_the_tick_that_it_began() -> None:
    """If that is not too long ago."""
    for late, ticks in ((1, [0, 0, 1, 1, 1, 1]), (3, [0, 0, 1, 1, 1, 1]), (4, [1, 1, 1, 1, 2, 2])):
        made = sequencer(2)
        take(made, 2, NOW)
        assert [at for at, _ in parts(made, take(made, 6, NOW + late))] == ticks


def test_who_waited_for_a_tick_and_woke_late_uses_it_all_the_same() -> None:
    """So single ids reach the layout's ceiling too; a long time later they are of the present."""
    made = sequencer(1)
    take(made, 2, NOW)
    assert made.install(NOW, FOREVER_MS) == Full(NOW + 1)
    late = [one(made, NOW + 3) for _ in range(6)]
    assert parts(made, [each for each in late if each]) == [
        (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1),
    ]  # fmt: skip
    assert made.install(NOW + 3, FOREVER_MS) == Full(NOW + 4)
    assert parts(made, take(made, 1, NOW + 100)) == [(100, 0)]


@pytest.mark.parametrize(("woke_at", "ticks"), [(4, [1, 2, 3, 4]), (5, [5])])
def test_who_woke_too_late_uses_the_present(woke_at: int, ticks: list[int]) -> None:
    """An id is of three ticks back at most."""
    made = sequencer(1)
    take(made, 2, NOW)
    assert made.install(NOW, FOREVER_MS) == Full(NOW + 1)
    late = [one(made, NOW + woke_at) for _ in range(2 * len(ticks))]
    used = [at for at, _ in parts(made, [each for each in late if each is not None])]
    assert used == [each for each in ticks for _ in range(2)]


def test_a_piece_of_a_tick_that_passed_lasts_as_long_as_that_may_be_used() -> None:
    """One of the present lasts as long as the present does."""
    made = sequencer(2)
    assert made.install(NOW, FOREVER_MS) is None
    assert (made.begin_ns, made.until_ns) == (NOW * 10**6, (NOW + 1) * 10**6)
    take(made, 4, NOW)
    assert made.install(NOW, FOREVER_MS) == Full(NOW + 1)
    assert made.install(NOW + 2, FOREVER_MS) is None  # of the tick after NOW
    assert (made.begin_ns, made.until_ns) == ((NOW + 1) * 10**6, (NOW + 5) * 10**6)


def test_0_follows_only_upon_a_tick_that_was_used_up() -> None:
    """A piece that began at 0 is followed by the next number in the next tick."""
    made = sequencer(2, threshold=3)
    take(made, 4, NOW)
    take(made, 1, NOW)
    for used in (1, 2):
        assert made.install(NOW + used, FOREVER_MS) is None
        ids = [next(made.piece) for _ in range(used)]
        assert parts(made, ids)[0] == (used, used - 1)


def test_no_unused_tick_at_or_below_the_floor() -> None:
    """A batch right after the machine id was taken over begins above it."""
    made = sequencer(1, floor_ms=NOW)
    assert parts(made, take(made, 4, NOW + 2)) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_piece_is_no_longer_than_a_turn_of_the_loop() -> None:
    """A tick of 262,144 ids is handed out in pieces."""
    made = sequencer(18)
    assert made.install(NOW, FOREVER_MS) is None
    assert made.in_hand == PIECE == 10_000
    ids = list(made.piece)
    assert made.handed_out == PIECE
    assert made.install(NOW, FOREVER_MS) is None
    assert next(made.piece) == ids[-1] + 1


def test_it_counts_what_was_handed_out() -> None:
    """Out of the piece in hand, of earlier ones, and of batches."""
    made = sequencer()
    for piece in (1, 2):
        assert made.install(NOW + piece, FOREVER_MS) is None
        for _ in range(3):
            next(made.piece)
        assert made.handed_out == 8 * piece - 5
        take(made, 5, NOW + piece)
        assert made.handed_out == 8 * piece


def test_what_is_left_of_a_piece_is_given_out_again() -> None:
    """By a batch, or in the next tick as the sequence goes on."""
    made = sequencer(threshold=100)
    made.install(NOW, FOREVER_MS)
    first = [next(made.piece), next(made.piece)]
    rest = take(made, 2, NOW)
    assert [sequence for _, sequence in parts(made, first + rest)] == [1, 2, 3, 4]
    assert parts(made, take(made, 1, NOW + 1)) == [(1, 5)]


def test_a_new_machine_id_goes_on_above_every_id() -> None:
    """And above the floor it came with."""
    made = sequencer()
    take(made, 3, NOW + 5)
    made.move(8, made.layout.tick_at(NOW))
    assert isinstance(made.install(NOW + 5, FOREVER_MS), Behind)
    ids = take(made, 1, NOW + 6)
    assert made.layout.parse(ids[0]).machine_id == 8
    made.move(9, made.layout.tick_at(NOW + 50))
    assert made.install(NOW + 50, FOREVER_MS) == Behind(NOW + 51, 1, is_floor=True)


def test_a_piece_of_the_former_machine_id_is_out_of_reach() -> None:
    """Another process may own it now; what was handed out is counted."""
    made = sequencer()
    made.install(NOW, FOREVER_MS)
    for _ in range(3):
        next(made.piece)
    made.move(8, made.layout.tick_at(NOW))
    assert next(made.piece, None) is None
    assert made.begin_ns == made.until_ns
    assert made.handed_out == 3
    assert made.install(NOW, FOREVER_MS) == Behind(NOW + 1, 1, is_floor=True)


@pytest.mark.parametrize("outer", ["take", "install", "move"])
def test_a_step_in_the_middle_of_a_step_is_refused(outer: str) -> None:
    """By a signal handler or a finalizer; the one that it fell into goes on as if alone."""
    made = sequencer()
    steps: dict[str, Callable[[], object]] = {
        "take": lambda: made.take(2, NOW + 1, FOREVER_MS),
        "install": lambda: made.install(NOW + 1, FOREVER_MS),
        "move": lambda: made.move(8, made.layout.tick_at(NOW)),
    }
    refused: list[str] = []

    class Piece:
        """Interrupted while it is counted."""

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            raise StopIteration

        def __length_hint__(self) -> int:
            for name, step in steps.items():
                with pytest.raises(WouldBlock):
                    step()
                refused.append(name)
            return 0

    made.install(NOW, FOREVER_MS)
    made._held = Piece()
    steps[outer]()
    assert refused == ["take", "install", "move"]
    assert take(made, 1, NOW + 2)  # the door is open again


def test_the_layouts_end_is_an_error() -> None:
    """Not a wrapped id; nor is there one before its epoch."""
    fields = SnowflakeLayout(10, 10, 12, "ms", EPOCH)
    made = Sequencer(fields, machine_id=1, floor_tick=-1, reset_threshold=None)
    assert len(take(made, 1, EPOCH + 1023)) == 1
    with pytest.raises(LayoutExpiredError):
        made.take(1, EPOCH + 1024, FOREVER_MS)
    with pytest.raises(LayoutExpiredError):
        made.check(EPOCH + 1024, FOREVER_MS)
    assert isinstance(made.install(EPOCH - 1, FOREVER_MS), Behind)


@given(
    st.integers(1, 6),
    st.sampled_from([None, 0, 1]),
    st.lists(
        st.tuples(st.integers(-4, 6), st.integers(0, 40), st.booleans(), st.booleans()), max_size=60
    ),
)
def test_ids_are_unique_rising_and_never_of_the_future(
    bits: int, threshold: int | None, steps: list[tuple[int, int, bool, bool]]
) -> None:
    """Whatever the clock does, in pieces or batches, through new terms."""
    made = sequencer(bits, threshold=threshold)
    now, last = NOW, 0
    for step, n, in_piece, moves in steps:
        now += step
        if moves:
            made.move(7, made.layout.tick_at(now - 1))
        ids = (
            [each for each in (one(made, now) for _ in range(n)) if each is not None]
            if in_piece
            else take(made, n, now, now + 1)
        )
        for each in ids:
            assert each > last
            at = made.layout.parse(each).timestamp_ms
            assert at <= now
            last = each


def test_a_thread_that_steps_the_piece_while_it_is_counted_gets_nothing() -> None:
    """It is out of reach first, and counted then."""
    made = sequencer(threshold=None)
    stolen: list[int] = []

    class Piece:
        """Stepped by somebody else in the middle of being counted."""

        def __init__(self, ids: list[int]) -> None:
            self.ids = ids

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            return self.ids.pop(0)

        def __length_hint__(self) -> int:
            left = len(self.ids)
            if made.piece is self:
                stolen.append(next(made.piece))
            return left

    made.install(NOW, FOREVER_MS)
    mine = next(made.piece)
    made.piece = made._held = Piece(list(made.piece))
    ids = [mine, *take(made, 100, NOW)]
    assert set(stolen).isdisjoint(ids)
    assert len(set(ids)) == 101
