"""The generator of sharded ids: seconds, waits, the fence, clocks.  R8 and such: see Redis's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiocosid.abc import SecondFenced, SecondSpent, SequenceGrant
from aiocosid.abc.events import (
    ClockBackwards,
    FetchFailed,
    IdsDiscarded,
    SegmentFetched,
    WaitTimedOut,
)
from aiocosid.errors import (
    ClockSkewError,
    ClockTooManyBackwardsError,
    ClosedError,
    InvalidArgumentError,
    LayoutExpiredError,
    SequenceExhaustedError,
    SequenceUnavailableError,
    StoreUnavailableError,
    WouldBlock,
)
from aiocosid.snowflake import ShardedId, ShardedLayout
from aiocosid.snowflake._seconds_in_hand import NS, SecondsInHand
from aiocosid.testing import ManualClock, settle

from .._kit import Call, Ear, settled, tasks
from ._sequences import LAYOUT, Sequences

AWAY = StoreUnavailableError("redis", "it is unplugged")
START = 1_700_000_000


async def test_ids_carry_second_shard_and_sequence(clock: ManualClock) -> None:
    """The generator's own sharding id, or the caller's; as a text too."""
    async with ShardedId(Sequences(clock), layout=LAYOUT, sharding_id=7, clock=clock) as gen:
        assert LAYOUT.parse(await gen.next_id()) == (START, 7, 1)
        assert LAYOUT.parse(await gen.next_id(4095)) == (START, 4095, 2)
        assert LAYOUT.parse(gen.next_id_nowait(0)) == (START, 0, 3)
        assert [LAYOUT.parse(each) for each in await gen.next_ids(2, 9)] == [
            (START, 9, 4),
            (START, 9, 5),
        ]
        await clock.advance(1)
        assert await gen.next_str(3, "A") == "A202311142213210000010003"
        assert await gen.next_str(prefix="-") == "-202311142213210000020007"
        before = gen.statistics().ids_handed_out
        wrong: list[Any] = [-1, 4096, "7", 1.0, True]
        for sharding_id in wrong:
            calls: list[Callable[[], Any]] = [
                lambda s=sharding_id: gen.next_id(s),  # type: ignore[misc]
                lambda s=sharding_id: gen.next_ids(1, s),  # type: ignore[misc]
                lambda s=sharding_id: gen.next_str(s),  # type: ignore[misc]
            ]
            for call in calls:
                with pytest.raises(InvalidArgumentError, match="sharding_id"):
                    await call()
            with pytest.raises(InvalidArgumentError, match="sharding_id"):
                gen.next_id_nowait(sharding_id)
        assert gen.statistics().ids_handed_out == before


async def test_what_is_refused_when_it_is_made(clock: ManualClock) -> None:
    """Each by its name."""
    bad: list[dict[str, Any]] = [
        *({"sharding_id": 4096}, {"sharding_id": -1}, {"on_unavailable": "retry"}),
        *({"batch": 0}, {"batch": 524_288}, {"nodes": 0}, {"wait_timeout": 0}),
        *({"broken_threshold": -1}, {"close_timeout": -1}, {"lane": object()}),
        {"on_unavailable": "lane"},
    ]
    for options in bad:
        with pytest.raises(InvalidArgumentError, match="|".join((*options, "lane"))):
            ShardedId(Sequences(clock), layout=LAYOUT, **options)
    with pytest.raises(InvalidArgumentError, match="distributor"):
        ShardedId("redis://", layout=LAYOUT)  # type: ignore[arg-type]
    narrow = ShardedLayout(START, sequence_bits=10)
    with pytest.raises(InvalidArgumentError, match="1023"):
        ShardedId(Sequences(clock), layout=narrow)


async def test_the_second_is_read_once(clock: ManualClock) -> None:
    """R12: counter, call and id hold the same second, however the clock runs meanwhile."""

    class Running(ManualClock):
        def wall_reader(self) -> Callable[[], int]:
            read = super().wall_reader()

            def reader() -> int:
                self.step_wall_ms(31)
                return read()

            return reader

    clock = Running()
    store = Sequences(clock)
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        ids = [await gen.next_id() for _ in range(200)]
        ids += await gen.next_ids(50)
    assert all(map(store.holds, ids))
    assert ids == sorted(set(ids))
    assert len({LAYOUT.parse(each).second for each in ids}) > 5


async def test_a_spent_second_is_waited_out(clock: ManualClock) -> None:
    """R8: ten sequences a second, 25 asked for: three seconds; who comes later waits behind."""
    store = Sequences(clock, max_sequence=10)
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        batch = await settled(Call, gen.next_ids, 25)
        single = await settled(Call, gen.next_id)
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        for _ in range(2):
            assert not batch.is_done
            await clock.advance(1)
        seconds = [LAYOUT.parse(each).second - START for each in batch.result]
        assert seconds == [0] * 10 + [1] * 10 + [2] * 5
        assert LAYOUT.parse(single.result) == (START + 2, 0, 6)
        assert gen.statistics().spent == 2
        assert gen.statistics().fenced == gen.statistics().failures == 0


async def test_a_wait_has_an_end(clock: ManualClock, ear: Ear) -> None:
    """R8: nobody waits for longer than he was told while nothing comes."""
    store = Sequences(clock, max_sequence=10)
    async with ShardedId(store, layout=LAYOUT, clock=clock, instrument=ear) as gen:
        await gen.next_ids(10)
        store.replies = [SecondSpent(START + each) for each in range(9)]
        call = await settled(Call, gen.next_id)
        await clock.advance(4.9)
        assert not call.is_done
        await clock.advance(0.1)
        assert isinstance(call.error, SequenceExhaustedError)
        assert "10 sequences" in str(call.error)
        assert (call.error.waited, call.error.retryable) == (5, True)
        assert [each.waited for each in ear.of(WaitTimedOut)] == [5]
        store.replies = []
        await clock.advance(1)
        assert LAYOUT.parse(await gen.next_id()).second == START + 6


async def test_a_batch_of_more_seconds_than_anybody_waits(clock: ManualClock) -> None:
    """Each second in which it gets ids counts, also if nobody is through with his."""
    store = Sequences(clock, max_sequence=10)
    async with ShardedId(store, layout=LAYOUT, clock=clock, nodes=1) as gen:
        calls = [Call(gen.next_ids, n) for n in (85, 5)]
        await settle()
        for _ in range(9):
            await clock.advance(1)
        ids = [each for call in calls for each in call.result]
        assert len(set(ids)) == 90
        assert gen.statistics().ids_discarded == 0


async def test_a_spent_second_is_no_outage(clock: ManualClock) -> None:
    """R9: nothing is guessed for it, also if the store is away by then."""
    store = Sequences(clock, max_sequence=10)
    async with ShardedId(
        store, layout=LAYOUT, clock=clock, on_unavailable="random_unsafe", batch=10
    ) as gen:
        await gen.next_ids(10)
        call = await settled(Call, gen.next_id)
        assert not call.is_done
        store.error = AWAY
        await clock.advance(0.9)
        assert not call.is_done
        await clock.advance(0.1)
        assert LAYOUT.parse(call.result).second == START + 1
        assert gen.statistics().ids_not_granted > 0


async def test_one_call_for_a_thousand(clock: ManualClock, store: Sequences) -> None:
    """R10: one is under way, and it is sized for all who wait."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await clock.advance(1)
        store.asked.clear()
        store.gate = anyio.Event()
        calls = [Call(gen.next_id) for _ in range(1000)]
        await settle()
        assert len(store.asked) == 1
        await settled(store.gate.set)
        assert len(store.asked) == 2  # the first was sent for the one who came first
        assert store.asked[1] == (START + 1, 900)
        ids = [call.result for call in calls]
        assert ids == sorted(set(ids))


async def test_a_cancelled_caller_takes_nothing_along(clock: ManualClock, store: Sequences) -> None:
    """R11: the call goes on, and its ids are for those who stay."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, batch=4) as gen:
        await gen.next_ids(4)
        store.gate = anyio.Event()
        gone, stays = Call(gen.next_ids, 3), Call(gen.next_ids, 2)
        await settle()
        await settled(gone.cancel)
        await settled(store.gate.set)
        assert [LAYOUT.parse(each).sequence for each in stays.result] == [5, 6]
        assert len(store.asked) == 2
        store.gate = anyio.Event()
        half = Call(gen.next_ids, 5)  # two are there, and are set aside
        await settle()
        await settled(half.cancel)
        last = await settled(Call, gen.next_id)
        await settled(store.gate.set)
        assert LAYOUT.parse(last.result).sequence == 9
        told = gen.statistics()
        assert (told.ids_handed_out, told.ids_discarded) == (7, 2)


async def test_a_clock_that_steps_back(clock: ManualClock, ear: Ear, store: Sequences) -> None:
    """R13: up to the threshold ids stay in their second; beyond it there are none."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, instrument=ear) as gen:
        await clock.advance(10)
        ids = [await gen.next_id()]
        clock.step_wall_ms(-2000)
        ids += [await gen.next_id(), *await gen.next_ids(2)]
        assert [LAYOUT.parse(each).second for each in ids] == [START + 10] * 4
        assert ids == sorted(set(ids))
        clock.step_wall_ms(-500)
        for call in (gen.next_id, lambda: gen.next_ids(2)):
            with pytest.raises(ClockTooManyBackwardsError) as caught:
                await call()
            assert (caught.value.backwards, caught.value.threshold) == (2.5, 2.0)
        with pytest.raises(ClockTooManyBackwardsError):
            gen.next_id_nowait()
        assert {each.backwards for each in ear.of(ClockBackwards)} == {2.5}
        clock.step_wall_ms(600)
        ids.append(await gen.next_id())
        await clock.advance(3)
        ids.append(await gen.next_id())
        assert ids == sorted(set(ids))
    async with ShardedId(store, layout=LAYOUT, clock=clock, broken_threshold=None) as gen:
        ids.append(await gen.next_id())
        clock.step_wall_ms(-1500)
        ids.append(await gen.next_id())
        assert ids == sorted(set(ids))


async def test_ids_in_hand_are_not_lost_to_a_late_answer() -> None:
    """It is of a second that is over."""
    seconds = SecondsInHand(LAYOUT, None)
    now = (START + 1) * NS
    assert seconds.land(SequenceGrant(START + 1, 1, 5), now, ahead=False, fallback=False)
    assert not seconds.land(SequenceGrant(START, 1, 7), now, ahead=False, fallback=False)
    assert (seconds.in_hand(now), seconds.dropped) == (5, 7)
    assert seconds.land(SequenceGrant(START + 2, 1, 9), now, ahead=True, fallback=False)
    assert (seconds.in_hand(now), seconds.ahead) == (5, 9)
    assert (seconds.in_hand(now + NS), seconds.ahead, seconds.dropped) == (9, 0, 12)
    assert (seconds.in_hand(now + 2 * NS), seconds.dropped) == (0, 21)


async def test_what_came_in_advance_is_handed_out_first() -> None:
    """Also if its second begins before the clock is there, as behind a fence: ids rise."""
    seconds, now = SecondsInHand(LAYOUT, 2.0), START * NS
    assert seconds.land(SequenceGrant(START + 1, 1, 5), now, ahead=True, fallback=False)
    assert seconds.top(START + 1, granted=True) == 5
    assert seconds.land(SequenceGrant(START + 1, 6, 9), now, ahead=False, fallback=False)
    ids = [each for piece in seconds.take(9, now) for each in piece]
    assert ids == sorted(ids)
    assert (len(ids), seconds.ahead, seconds.dropped) == (9, 0, 0)


async def test_a_clock_that_was_wrong_before_any_id(clock: ManualClock, store: Sequences) -> None:
    """The store said so: what was not handed out holds nobody up."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await gen.next_id()
        other = ManualClock(wall_ms=clock.now_ms())
        store.counts._clock = other  # the server's, which is right
        clock.step_wall_ms(3_600_000)
        with pytest.raises(ClockSkewError) as caught:
            await gen.next_id()
        assert caught.value.ahead == 3600
        clock.step_wall_ms(-3_600_000)
        assert LAYOUT.parse(await gen.next_id()).second == START
        clock.step_wall_ms(-3000)
        other.step_wall_ms(60_000)
        assert gen.statistics().skewed == 1


async def test_seconds_that_may_be_lost(clock: ManualClock, store: Sequences) -> None:
    """Status 3: the first one behind the fence is asked for as soon as the store would grant it."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await gen.next_ids(100)
        store.asked.clear()
        store.replies = [SecondFenced(START + 4, START)]
        call = await settled(Call, gen.next_id)
        assert store.asked == [(START, 200)]
        await clock.advance(1.9)
        assert len(store.asked) == 1
        await clock.advance(0.1)
        assert store.asked[1:] == [(START + 4, 100)]
        ids = [call.result]
        assert LAYOUT.parse(ids[0]) == (START + 4, 0, 1)
        for _ in range(4):  # until the clock is there
            ids.append(await gen.next_id())
            await clock.advance(1)
        assert [LAYOUT.parse(each).second - START for each in ids] == [4, 4, 4, 4, 5]
        assert LAYOUT.parse(await gen.next_id()).second == START + 6
        assert gen.statistics().fenced == 1


async def test_a_fence_that_is_far_off(clock: ManualClock, store: Sequences) -> None:
    """Is waited for no longer than anything else, and the error says why."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await clock.advance(1)
        store.replies = [SecondFenced(START + 99, START + 1)] * 9
        store.asked.clear()
        call = await settled(Call, gen.next_id)
        for _ in range(5):
            await clock.advance(1)
        assert isinstance(call.error, SequenceUnavailableError)
        assert not isinstance(call.error, SequenceExhaustedError)
        assert str(START + 99) in str(call.error)
        # In each call of a second that the store would have granted.
        assert [second - START for second, _ in store.asked] == [1, 3, 5]


async def test_a_fence_that_is_taken_away(clock: ManualClock, store: Sequences) -> None:
    """Soon the store is believed again, and not before."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await clock.advance(1)
        store.replies = [SecondFenced(START + 86_400, START + 1)]
        call = Call(gen.next_id)
        await clock.advance(1.9)
        assert not call.is_done
        await clock.advance(0.1)
        assert LAYOUT.parse(call.result).second == START + 3
        store.asked.clear()
        for _ in range(3):
            await clock.advance(1)
            await gen.next_id()
        assert [second - START for second, _ in store.asked] == [4, 5, 6]
        assert gen._opening.availability.opens == START + 3


async def test_what_no_store_may_answer(clock: ManualClock) -> None:
    """R7: a range that is inverted, of another second, above the highest, or had before."""
    store = Sequences(clock, max_sequence=1000)
    wrong: list[Any] = [
        *(SequenceGrant(START, 60, 50), SequenceGrant(START + 1, 1, 9)),
        *(SequenceGrant(START, 990, 1001), SequenceGrant(START, 0, 5), SequenceGrant(START, 5, 9)),
        *(None, 17),
    ]
    for each in wrong:
        store.counts._sequences.clear()
        async with ShardedId(store, layout=LAYOUT, clock=clock, batch=20) as gen:
            second = clock.now_ms() // 1000
            await gen.next_ids(20)
            if isinstance(each, SequenceGrant):
                reply: Any = SequenceGrant(each.second - START + second, each.first, each.last)
            else:
                reply = each
            store.replies = [reply]
            with pytest.raises(SequenceUnavailableError, match=r"is damaged|answered"):
                await gen.next_id()
            call = await settled(Call, gen.next_id)
            await clock.advance(1)
            assert LAYOUT.parse(call.result).second > second or reply is None or reply == 17
            assert store.holds(call.result)
        await clock.advance(5)


async def test_answers_that_are_no_numbers(clock: ManualClock, store: Sequences) -> None:
    """R7: a stranger's are refused, and it goes on with the next one."""
    wrong: list[Callable[[int], Any]] = [
        lambda second: SequenceGrant(second, 2e5, 2e5 + 9),  # type: ignore[arg-type]
        lambda second: SequenceGrant(second, "1", "9"),  # type: ignore[arg-type]
        lambda second: SequenceGrant(float(second), 1, 9),  # type: ignore[arg-type]
        lambda second: SequenceGrant(second, True, 9),
        lambda second: SecondFenced(None, second),  # type: ignore[arg-type]
        lambda second: SecondFenced(second + 1, float(second)),  # type: ignore[arg-type]
        lambda _: SecondSpent("now"),  # type: ignore[arg-type]
        lambda _: Unspeakable(),
    ]
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        for make in wrong:
            await clock.advance(1)
            reply: Any = make(clock.now_ms() // 1000)
            store.replies = [reply]
            with pytest.raises(SequenceUnavailableError):
                await gen.next_id()
            await clock.advance(1)
            assert store.holds(await gen.next_id())


class Unspeakable:
    """Cannot even be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


async def test_a_clock_before_the_epoch(clock: ManualClock, store: Sequences) -> None:
    """With nothing in hand the store has ids of that second, but the layout has not."""
    layout = ShardedLayout(START - 3600)
    async with ShardedId(store, layout=layout, clock=clock) as gen:
        await clock.advance(1)
        store.error = AWAY
        with pytest.raises(SequenceUnavailableError):
            await gen.next_id()
        store.error = None
        store.asked.clear()
        clock.step_wall_ms(-7_200_000)
        await clock.advance(1)
        with pytest.raises(InvalidArgumentError, match="epoch"):
            await gen.next_id()
        assert store.asked == []
        clock.step_wall_ms(7_200_000)
        await clock.advance(1)
        assert layout.parse(await gen.next_id()).second == clock.now_ms() // 1000


async def test_a_late_answer_is_of_no_use(clock: ManualClock, ear: Ear, store: Sequences) -> None:
    """It is for its own second, which is over; the next one is asked for meanwhile."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, instrument=ear, batch=10) as gen:
        await gen.next_ids(10)
        store.gate = anyio.Event()
        call = await settled(Call, gen.next_id)
        await clock.advance(1)
        assert [second for second, _ in store.asked[1:]] == [START, START + 1]
        await settled(store.gate.set)
        assert LAYOUT.parse(call.result).second == START + 1
        assert gen.statistics().ids_discarded == 10
        await clock.advance(1)
        await gen.next_id()
        discarded = [(each.count, each.reason) for each in ear.of(IdsDiscarded)]
        assert discarded == [(10, "expired"), (9, "expired")]
        assert [each.count for each in ear.of(SegmentFetched)] == [10] * 4


async def test_a_store_that_says_nothing(clock: ManualClock, store: Sequences) -> None:
    """A call is given up, and a few at most are under way."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, on_unavailable="wait") as gen:
        await clock.advance(1)
        store.asked.clear()
        store.gate = anyio.Event()
        call = await settled(Call, gen.next_id)
        for _ in range(10):
            await clock.advance(0.5)
            assert len(gen._opening.calls.under_way) <= 4
        await settled(store.gate.set)
        assert isinstance(call.error, SequenceUnavailableError)
        assert "no answer within 2 s" in str(call.error)


async def test_the_next_second_comes_in_advance(clock: ManualClock, store: Sequences) -> None:
    """At a high rate, in the second half of the second before; and nothing when nobody asks."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        for _ in range(4):
            await gen.next_ids(5000)
            await clock.advance(0.4)
            await gen.next_ids(10)
            await clock.advance(0.55)
            await clock.advance(0.05)
        assert gen.statistics().rate > 3000
        store.asked.clear()
        await gen.next_ids(100)  # in hand already
        assert store.asked == []
        await clock.advance(0.45)
        await gen.next_ids(100)
        assert store.asked == []
        await clock.advance(0.54)
        assert [second for second, _ in store.asked] == [START + 5]
        assert 4000 < gen.statistics().prefetched < 8000
        await clock.advance(60)
        assert len(store.asked) == 1
        for _ in range(5):
            await gen.next_ids(5000)
            await clock.advance(1)
        await gen.next_ids(100)
        store.error = AWAY
        await clock.advance(0.95)
        told = gen.statistics()
        assert (told.failures, told.is_away) == (1, False)  # who needs one asks again
        assert [each for each in tasks() if "prefetch" in each] == []


async def test_how_much_is_asked_for(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A fixed size is kept, and warned of if it is too large; else each node keeps to its part."""
    store = Sequences(clock)
    ShardedId(store, layout=LAYOUT, batch=32_767)
    assert caplog.messages == []
    async with ShardedId(store, layout=LAYOUT, clock=clock, batch=32_768) as gen:
        assert "at most 32767" in caplog.text
        await gen.next_ids(100_000)
        assert {size for _, size in store.asked} == {32_768}
    store.asked.clear()
    async with ShardedId(store, layout=LAYOUT, clock=clock, nodes=100) as gen:
        await gen.next_ids(100_000)
        assert max(size for _, size in store.asked) == 5242


async def test_statistics_add_up(clock: ManualClock) -> None:
    """Granted is handed out, in hand, or given up; at any moment, and after closing."""
    store = Sequences(clock, max_sequence=60)
    gen = ShardedId(store, layout=LAYOUT, clock=clock, batch=20)
    taken = 0

    def check() -> None:
        told = gen.statistics()
        assert told.ids_handed_out == taken
        in_hand = told.remaining + told.prefetched
        assert told.ids_granted == taken + in_hand + told.ids_discarded

    async with gen:
        for n in (1, 3, 25, 7, 24):
            for _ in range(2):
                await gen.next_id()
                gen.next_id_nowait()
                taken += 2
                check()
            call = await settled(Call, gen.next_ids, n)
            await clock.advance(1)
            taken += len(call.result)
            check()
            await gen.next_id()
            taken += 1
    check()


async def test_it_goes_on_above_what_it_had(clock: ManualClock, store: Sequences) -> None:
    """Opened anew, even with a clock that was set back; nothing in hand is left over."""
    gen = ShardedId(store, layout=LAYOUT, clock=clock)
    ids: list[int] = []
    for _ in range(3):
        async with gen:
            ids += await gen.next_ids(3)
        clock.step_wall_ms(-600)
    assert ids == sorted(set(ids))
    assert gen.statistics().remaining == 0


async def test_closing_while_a_call_is_under_way(clock: ManualClock, store: Sequences) -> None:
    """Who waits gets ClosedError, the call ends, and no task is left."""
    gen = ShardedId(store, layout=LAYOUT, clock=clock)
    async with gen:
        await clock.advance(1)
        store.gate = anyio.Event()
        call = await settled(Call, gen.next_id)
        closing = await settled(Call, gen.aclose)
        assert isinstance(call.error, ClosedError)
        assert (closing.is_done, bool(tasks())) == (False, True)
        await clock.advance(5)
        assert closing.is_done
    assert gen.statistics().remaining == 0


async def test_a_layout_that_has_ended(clock: ManualClock) -> None:
    """While it is in use, and when it is opened."""
    layout = ShardedLayout(START - 1020, timestamp_bits=10)
    store = Sequences(clock)
    gen = ShardedId(store, layout=layout, clock=clock)
    with pytest.warns(UserWarning, match="ends at"):
        await gen.__aenter__()
    await clock.advance(3.5)
    await gen.next_id()
    await clock.advance(0.5)
    with pytest.raises(LayoutExpiredError):
        await gen.next_id()
    with pytest.raises(LayoutExpiredError):
        gen.next_id_nowait()
    await gen.aclose()
    with pytest.raises(LayoutExpiredError):
        await gen.__aenter__()


async def test_it_opens_with_ids(clock: ManualClock, ear: Ear, store: Sequences) -> None:
    """Or says why it cannot."""
    store.error = AWAY
    gen = ShardedId(store, layout=LAYOUT, clock=clock, instrument=ear)
    with pytest.raises(SequenceUnavailableError, match="unplugged") as caught:
        await gen.__aenter__()
    assert isinstance(caught.value.__cause__, StoreUnavailableError)
    assert [each.attempt for each in ear.of(FetchFailed)] == [1]
    store.error = ClockSkewError("redis", ahead=7, tolerance=2)
    with pytest.raises(ClockSkewError):
        await gen.__aenter__()
    store.error = InvalidArgumentError("key", "order", "must be with a hash tag")
    with pytest.raises(InvalidArgumentError, match="hash tag"):
        await gen.__aenter__()
    store.error = None
    async with gen:
        gen.next_id_nowait()
        assert "ShardedId shop.order open sharding_id=0" in repr(gen)
