"""Sharded ids while the store is away: what is in hand, and then one of four policies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from aiocosid._life import fork
from aiocosid.abc import MachineGrant, SecondFenced, SequenceGrant, SequenceReply
from aiocosid.errors import (
    BusyError,
    ForkedError,
    InvalidArgumentError,
    SequenceUnavailableError,
    StoreAuthenticationError,
    StoreUnavailableError,
    WouldBlock,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.provider._configured import ConfiguredProvider
from aiocosid.snowflake import ShardedId
from aiocosid.snowflake._batch_size import BatchSize
from aiocosid.snowflake._lane import Lane
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, settle

from .._kit import Call, settled
from ..machine.test_lease_fork import in_child
from ._sequences import LAYOUT, Sequences

AWAY = StoreUnavailableError("redis", "it is unplugged")
START = 1_700_000_000
BELOW_LANES = 458_751


class Cut(CellMachineIdDistributor):
    """Its store can be unplugged, or slow.

    Attributes:
        is_cut: whether renewals fail.
        gate: what giving out a number waits for, if anything.
    """

    is_cut = False
    gate: anyio.Event | None = None

    async def distribute(self, *args: Any, **kwargs: Any) -> MachineGrant:
        if self.gate is not None:
            await self.gate.wait()
        return await super().distribute(*args, **kwargs)

    async def renew(self, *args: Any, **kwargs: Any) -> None:
        if self.is_cut:
            raise AWAY.again()
        await super().renew(*args, **kwargs)

    async def reassert(self, *args: Any, **kwargs: Any) -> None:
        if self.is_cut:
            raise AWAY.again()
        await super().reassert(*args, **kwargs)


def lanes(clock: ManualClock, count: int, **times: float) -> Sequence[Cut]:
    """Where so many instances get a lane number each."""
    store = MemoryStore(clock=clock)
    return [Cut(store._backend, instance_id=f"{each}", **times) for each in range(count)]  # type: ignore[arg-type]


async def make_busy(clock: ManualClock, gen: ShardedId) -> None:
    """Have 100 ids in hand in the last moment of a second, and 3000 of the next one."""
    for _ in range(3):
        await gen.next_ids(3000)
        await clock.advance(0.3)
        await gen.next_ids(3000)
        await clock.advance(0.7)
    await gen.next_ids(2000)
    await clock.advance(0.1)
    await gen.next_ids(900)
    await clock.advance(0.89)
    assert (gen.statistics().remaining, gen.statistics().prefetched) == (100, 3000)


class Recancelling(Sequences):
    """Raises another CancelledError than the one that cut it, as grpc's driver does."""

    async def grant(self, second: int, size: int) -> SequenceReply:
        try:
            return await super().grant(second, size)
        except asyncio.CancelledError:
            pass
        raise asyncio.CancelledError


async def test_a_driver_that_raises_a_cancellation_of_its_own(clock: ManualClock) -> None:
    """A call that took too long is like any other, and the generator goes on."""
    store = Recancelling(clock)
    async with ShardedId(store, layout=LAYOUT, clock=clock, on_unavailable="wait") as gen:
        await gen.next_id()
        store.gate = anyio.Event()
        call = Call(gen.next_ids, 3000)
        await clock.advance(3)
        assert gen.statistics().failures >= 1
        assert not call.is_done
        store.gate.set()
        await clock.advance(2)
        assert store.holds(call.result[-1])


@pytest.mark.parametrize("policy", ["raise", "random_unsafe"])
async def test_what_is_in_hand_comes_first(clock: ManualClock, policy: Any) -> None:
    """This second's ids, then the next one's, and only then what the policy says."""
    store = Sequences(clock)
    async with ShardedId(
        store, layout=LAYOUT, clock=clock, batch=3000, nodes=1, on_unavailable=policy
    ) as gen:
        await make_busy(clock, gen)
        store.error = AWAY
        await gen.next_ids(100)
        call = await settled(Call, gen.next_ids, 3000)
        assert not call.is_done
        await clock.advance(0.01)
        assert {LAYOUT.parse(each).second for each in call.result} == {START + 4}
        assert all(map(store.holds, call.result))
        await clock.advance(0.05)
        if policy == "raise":
            with pytest.raises(SequenceUnavailableError, match="unplugged"):
                await gen.next_id()
        else:
            assert not store.holds(await gen.next_id())


async def test_nothing_is_guessed_of_a_spent_second(clock: ManualClock, store: Sequences) -> None:
    """R9: known from a call in advance, and the store is away by then."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, on_unavailable="random_unsafe") as gen:
        await gen.next_ids(100)
        gen._opening.hand.mark_spent(START + 1)
        store.error = AWAY
        guessed = await gen.next_ids(10)
        assert LAYOUT.parse(guessed[0]).second == START
        await clock.advance(1)
        call = await settled(Call, gen.next_id)
        assert not call.is_done
        await clock.advance(1)
        assert LAYOUT.parse(call.result).second == START + 2


async def test_the_store_is_back_in_a_second_that_was_guessed(clock: ManualClock) -> None:
    """What it grants of that second is lower than what was handed out: it is given up."""
    store = Sequences(clock)
    async with ShardedId(store, layout=LAYOUT, clock=clock, on_unavailable="random_unsafe") as gen:
        ids = await gen.next_ids(100)
        store.error = AWAY
        ids += await gen.next_ids(10)
        await clock.advance(1)
        store.gate = anyio.Event()
        ids += await gen.next_ids(10)
        store.error = None
        await settled(store.gate.set)
        assert not gen.statistics().is_away
        ids += await gen.next_ids(54)
        call = await settled(Call, gen.next_ids, 3)
        await clock.advance(1)
        ids += call.result
        assert ids == sorted(set(ids))
        assert store.holds(ids[-1])


class Lease:
    """What a lane asks of a lease."""

    lost = None
    machine_id, term = 3, 1
    floor_ms, taken_ms, limit = 5_500, 3_000, 9_000

    def __init__(self) -> None:
        self.issuers: dict[str, Any] = {}

    def limit_ms(self) -> int:
        return self.limit


async def test_a_lane_begins_above_its_former_owner() -> None:
    """In no second of which that one may have used it, and none before its number was taken."""
    lease = Lease()
    lane = Lane.of(lease, 100, 10, "order")  # type: ignore[arg-type]  # as much as it needs
    assert [lane.take(second, 1, 0) for second in (4, 5)] == [None, None]
    assert lane.take(6, 1, 0) == SequenceGrant(6, 131, 140)
    assert lane.take(6, 1, 0) is None
    assert lane.take(9, 1, 0) == SequenceGrant(9, 131, 140)
    assert lane.last_ms == 9_999
    assert lane.take(10, 1, 0) is None
    lease.limit = 99_000
    assert lane.take(8, 1, 0) is None
    lease.term, lease.machine_id, lease.floor_ms, lease.taken_ms = 2, 0, 10_000, 15_000
    assert lane.take(13, 1, 0) is None
    assert lane.take(15, 1, 0) == SequenceGrant(15, 101, 110)


async def test_an_error_at_once(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """The default; each call tries, and the first that succeeds ends it."""
    store = Sequences(clock)
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await clock.advance(1)
        store.error, asked = AWAY, len(store.asked)
        with caplog.at_level(logging.WARNING, "aiocosid"):
            for _ in range(3):
                with pytest.raises(SequenceUnavailableError) as caught:
                    await gen.next_id()
                assert isinstance(caught.value.__cause__, StoreUnavailableError)
                assert caught.value.retryable
                await clock.advance(0.05)
        assert len([each for each in caplog.messages if "unplugged" in each]) == 1
        assert len(store.asked) == asked + 3
        assert gen.statistics().is_away
        store.error = None
        await gen.next_id()
        assert gen.statistics().last_error is None


async def test_waiting_for_it(clock: ManualClock, store: Sequences) -> None:
    """Until it is back, or the caller has waited long enough."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, on_unavailable="wait") as gen:
        await clock.advance(1)
        store.error = AWAY
        errors: list[BaseException | None] = []
        for mends in (True, False):
            call = await settled(Call, gen.next_id)
            await clock.advance(3)
            assert not call.is_done
            assert len(store.asked) < 20
            store.error = None if mends else AWAY
            await clock.advance(2)
            assert (call.result is not None) == mends
            errors.append(call.error)
            await clock.advance(1)
            store.error = AWAY
        assert isinstance(errors[-1], SequenceUnavailableError)
        assert errors[-1].waited == 5
        store.error = StoreAuthenticationError("redis", "WRONGPASS")
        with pytest.raises(SequenceUnavailableError, match="WRONGPASS") as caught:
            await gen.next_id()  # no second attempt mends it
        assert not caught.value.retryable


async def test_sequences_that_are_guessed(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, store: Sequences
) -> None:
    """Warned of and counted; above what the store had granted, and never once more by itself."""
    async with ShardedId(store, layout=LAYOUT, clock=clock, on_unavailable="random_unsafe") as gen:
        assert "ids will repeat" in caplog.text
        ids = await gen.next_ids(100)
        store.error = AWAY
        for _ in range(3):
            ids += [await gen.next_id() for _ in range(5)]
            ids += await gen.next_ids(200)
            await clock.advance(1)
        assert ids == sorted(set(ids))
        assert not any(map(store.holds, ids[100:]))
        assert gen.statistics().ids_not_granted == 3 * 205
        ids += await gen.next_ids(10)
        store.error = None
        await clock.advance(0.5)
        ids += await gen.next_ids(10)  # the rest of the second is higher
        assert not store.holds(ids[-1])
        await clock.advance(0.5)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                ids += await gen.next_ids(10)
                await clock.advance(1)
            del group
        assert ids == sorted(set(ids))
        assert store.holds(ids[-1])
        store.error = StoreAuthenticationError("redis", "WRONGPASS")
        await clock.advance(1)
        with pytest.raises(SequenceUnavailableError, match="WRONGPASS"):
            await gen.next_id()  # no outage


async def test_sixty_four_lanes(clock: ManualClock) -> None:
    """R23: ten seconds without the store; no id is another's, nor one that it had granted."""
    store = Sequences(clock, max_sequence=BELOW_LANES)
    pairs: list[tuple[int, int]] = []

    def note(ids: list[int]) -> None:
        pairs.extend((second, sequence) for second, _, sequence in map(LAYOUT.parse, ids))

    async with AsyncExitStack() as stack:
        gens = [
            await stack.enter_async_context(
                ShardedId(
                    store, layout=LAYOUT, clock=clock, on_unavailable="lane", lane=lane, batch=20
                )
            )
            for lane in lanes(clock, 64)
        ]
        for gen in gens:
            note(await gen.next_ids(30))
        store.error = AWAY
        for _ in range(5):
            for gen in gens:
                note(await gen.next_ids(15))
                note([gen.next_id_nowait(), await gen.next_id(9)])
            await clock.advance(2)
        told = [gen.statistics() for gen in gens]
        assert sum(each.ids_not_granted for each in told) >= 64 * 4 * 17
        store.error = None
        for _ in range(2):
            for gen in gens:
                note(await gen.next_ids(5))
            await clock.advance(2)
    assert len(set(pairs)) == len(pairs) == 64 * (30 + 85 + 10)
    assert max(sequence for _, sequence in pairs) > BELOW_LANES
    assert max(each.last for each in store.grants) <= BELOW_LANES


async def test_a_lane_has_its_width(clock: ManualClock) -> None:
    """1024 ids a second; then the next second is waited for.  Two generators share one."""
    store = Sequences(clock, max_sequence=BELOW_LANES)
    (lane,) = lanes(clock, 1)
    options: dict[str, Any] = {"on_unavailable": "lane", "lane": lane}
    async with (
        ShardedId(store, layout=LAYOUT, clock=clock, **options) as one,
        ShardedId(store, layout=LAYOUT, clock=clock, **options) as other,
    ):
        await clock.advance(1)
        store.error = AWAY
        ids = [*await one.next_ids(500), *await other.next_ids(524)]
        calls = [Call(one.next_id), Call(other.next_id)]
        await settle()
        assert not any(call.is_done for call in calls)
        await clock.advance(1)
        ids += [call.result for call in calls]
        found = [LAYOUT.parse(each) for each in ids]
        assert len({each[::2] for each in found}) == 1026
        assert {each.sequence for each in found[:1024]} == set(range(458_752, 459_776))
        narrower = Sequences(clock, max_sequence=BELOW_LANES - 64)
        with pytest.raises(BusyError, match="width"):
            await ShardedId(narrower, layout=LAYOUT, clock=clock, **options).__aenter__()
    with pytest.raises(InvalidArgumentError, match="524223"):
        ShardedId(Sequences(clock), layout=LAYOUT, clock=clock, **options)
    lease = MachineIdLease(lane, bits=17, clock=clock)
    with pytest.raises(InvalidArgumentError, match="131072 lanes"):
        ShardedId(store, layout=LAYOUT, on_unavailable="lane", lane=lease)


async def test_a_lane_whose_lease_ends(clock: ManualClock) -> None:
    """R23: no id is later than the lease's mark; whoever has the number next begins above."""
    store = Sequences(clock, max_sequence=BELOW_LANES)
    mine, theirs = lanes(clock, 2, safe_guard=30, interval=4)
    lease = MachineIdLease(mine, bits=1, lead=6, clock=clock)
    options: dict[str, Any] = {"on_unavailable": "lane", "layout": LAYOUT, "clock": clock}
    pairs: list[tuple[int, ...]] = []
    async with ShardedId(store, lane=lease, **options) as gen:
        store.error, mine.is_cut = AWAY, True
        fence_ms = lease.statistics().fence_ms
        while clock.now_ms() < fence_ms + 1000:
            pairs += [LAYOUT.parse(each)[::2] for each in await gen.next_ids(3)]
            await clock.advance(1)
            if clock.now_ms() > fence_ms:
                break
        last = pairs[-1][0]
        assert last == fence_ms // 1000
        call = await settled(Call, gen.next_id)
        await clock.advance(5)
        assert isinstance(call.error, SequenceUnavailableError)
        await clock.advance(60)
        taken = MachineIdLease(theirs, bits=1, clock=clock)
        store.error = None
        async with ShardedId(store, lane=taken, **options) as heir:
            store.error = AWAY
            await clock.advance(1)
            pairs += [LAYOUT.parse(each)[::2] for each in await heir.next_ids(3)]
            assert pairs[-1][0] > last
    assert len(set(pairs)) == len(pairs)


async def test_a_lane_is_of_one_life_of_its_lease(clock: ManualClock) -> None:
    """Closed and opened anew by its user: the generator that stayed open has no lane any more."""
    store = Sequences(clock, max_sequence=BELOW_LANES)
    (numbers,) = lanes(clock, 1)
    lease = MachineIdLease(numbers, bits=6, clock=clock)
    options: dict[str, Any] = {"on_unavailable": "lane", "layout": LAYOUT, "clock": clock}
    pairs: list[tuple[int, ...]] = []
    async with AsyncExitStack() as stack:
        async with lease:
            old = await stack.enter_async_context(ShardedId(store, lane=lease, **options))
        await clock.advance(1)
        async with lease:
            new = await stack.enter_async_context(ShardedId(store, lane=lease, **options))
            await clock.advance(2)
            store.error = AWAY
            for _ in range(3):
                pairs += [LAYOUT.parse(each)[::2] for each in await new.next_ids(200)]
                with pytest.raises(WouldBlock):
                    old.next_id_nowait()
                await clock.advance(1)
            store.error = None
            await clock.advance(1)
            pairs += [LAYOUT.parse(each)[::2] for each in await old.next_ids(9)]
            await old.aclose()
            async with ShardedId(store, lane=lease, **options) as again:
                store.error = AWAY
                await clock.advance(1)
                for gen in (again, new):
                    pairs += [LAYOUT.parse(each)[::2] for each in await gen.next_ids(200)]
    assert len(set(pairs)) == len(pairs) == 1009


async def test_a_lane_is_left(clock: ManualClock) -> None:
    """Also by who could not have it, or who is closed by a provider."""
    store, narrower = (Sequences(clock, max_sequence=BELOW_LANES - each) for each in (0, 64))
    (lane,) = lanes(clock, 1)
    options: dict[str, Any] = {"on_unavailable": "lane", "layout": LAYOUT, "clock": clock}
    gen, refused = (ShardedId(each, lane=lane, **options) for each in (store, narrower))
    lease = gen._lease
    assert lease is not None
    async with gen:
        with pytest.raises(BusyError, match="width"):
            await refused.__aenter__()
        await clock.advance(1)
        assert lease.machine_id >= 0
    await refused.aclose()
    assert lease.machine_id == -1
    async with ConfiguredProvider({"order": gen}, clock=clock):
        await clock.advance(1)
        await gen.next_id()
        assert lease.machine_id >= 0
        assert not gen._opening.calls.under_way
    assert lease.machine_id == -1
    async with ConfiguredProvider({"order": ShardedId(store, layout=LAYOUT, clock=clock)}):
        pass  # it has nothing to wait for


async def test_a_lane_bridges_the_fence(clock: ManualClock) -> None:
    """While a server that forgot grants nothing, as ids of a lane are nobody else's."""
    store = Sequences(clock, max_sequence=BELOW_LANES)
    (lane,) = lanes(clock, 1)
    async with ShardedId(
        store, layout=LAYOUT, clock=clock, on_unavailable="lane", lane=lane
    ) as gen:
        await clock.advance(1)
        store.replies = [SecondFenced(START + 5, START + 1)]
        with pytest.raises(Exception, match="no id is buffered"):
            gen.next_id_nowait()
        await settle()
        ids = await gen.next_ids(10)
        assert gen.statistics().ids_not_granted == 10
        await clock.advance(2)
        call = await settled(Call, gen.next_ids, 100)
        await clock.advance(1)
        ids += call.result
        assert ids == sorted(set(ids))


async def test_a_forked_child_has_nothing(clock: ManualClock, store: Sequences) -> None:
    """Neither ids nor a lane of the parent's; in the parent all goes on."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        ids = [await gen.next_id()]

        async def child() -> list[str]:
            kinds: list[str] = []
            try:
                gen.next_id_nowait()
            except Exception as error:  # noqa: BLE001 - its kind is looked at
                kinds.append(type(error).__name__)
            for call in (gen.next_id, lambda: gen.next_ids(3), gen.next_str, gen.__aenter__):
                try:
                    await call()
                except Exception as error:  # noqa: BLE001 - as above
                    kinds.append(type(error).__name__)
            return kinds

        assert in_child(child) == ["ForkedError"] * 5
        ids += await gen.next_ids(3)
        assert ids == sorted(set(ids))


@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_that_goes_on_in_the_child(
    clock: ManualClock, waits: bool, monkeypatch: pytest.MonkeyPatch, store: Sequences
) -> None:
    """Waiting for a second, or writing a long list; the parent may hand out the same ids."""
    async with ShardedId(store, layout=LAYOUT, clock=clock) as gen:
        await gen.next_ids(50_000)
        if waits:
            store.gate = anyio.Event()
            call: asyncio.Task[Any] = asyncio.create_task(gen.next_ids(60_000))
        else:
            call = asyncio.create_task(gen.next_ids(15_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not call.done()
        with monkeypatch.context() as patch:  # what a fork does to this process's count
            patch.setattr(fork, "generation", fork.generation + 1)
            if store.gate is not None:
                store.gate.set()
            await clock.advance(0.1)
            with pytest.raises(ForkedError):
                await call


async def test_the_size_follows_the_demand() -> None:
    """A mean of the last seconds with some headroom, doubled within a second that needs more."""
    batch = BatchSize(50_000, None)
    assert batch.size(0, 1) == 100
    assert [batch.size(0, 1), batch.size(0, 1), batch.size(0, 5000)] == [200, 400, 5000]
    issued = 0
    for second in range(20):
        batch.note(second, issued)
        issued += 4000
    assert 3990 < batch.rate <= 4000
    assert batch.size(20, 1) == 5000
    batch.note(19 + 60, issued)
    assert batch.rate < 1
    assert batch.size(80, 10**9) == 50_000
    assert BatchSize(50_000, 7).size(0, 10**9) == 7


async def test_the_demand_is_counted_anew_by_each_opening(clock: ManualClock) -> None:
    """Its counts begin at 0 again: compared with the old ones, callers would give ids back."""
    gen = ShardedId(Sequences(clock), layout=LAYOUT, clock=clock)
    for _ in range(2):
        async with gen:
            await gen.next_ids(500)
            await clock.advance(1)
            await gen.next_ids(1)
            assert gen.statistics().rate == 250


async def test_a_caller_is_served_while_the_lane_is_taken(clock: ManualClock) -> None:
    """The answer that serves the caller does not end the opening."""
    store = Sequences(clock, max_sequence=BELOW_LANES)
    (numbers,) = lanes(clock, 1)
    numbers.gate = anyio.Event()
    gen = ShardedId(store, layout=LAYOUT, on_unavailable="lane", lane=numbers, clock=clock)
    opening = await settled(Call, gen.__aenter__)
    caller = await settled(Call, gen.next_id)
    assert store.holds(caller.result)
    assert not opening.is_done
    numbers.gate.set()
    await settle()
    assert opening.error is None
    await gen.aclose()
