"""How long a machine id may be used: both ends of the lease, its loss, the marks, the return."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.abc.events import MachineIdDistributed, MachineIdGuarded, MachineIdLost
from aiocosid.errors import (
    BusyError,
    ClockTooManyBackwardsError,
    ClosedError,
    InvalidArgumentError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdUnavailableError,
    StoreAuthenticationError,
    StoreUnavailableError,
    WouldBlock,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine._opening import LOSSES
from aiocosid.machine.cells import MachineRecord, MachineSlot, Owner
from aiocosid.snowflake import COSID_MS, SnowflakeId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, settle

from .._kit import Call, Ear, settled
from ._kit import Link, store_of

STABLE = InstanceId("one", stable=True)


async def test_it_takes_an_id_guards_it_and_gives_it_back(clock: ManualClock, ear: Ear) -> None:
    """The mark is ahead of the clock while it is held, and after the last id when it is closed."""
    store = store_of(clock)
    link = Link(store)
    async with MachineIdLease(link, clock=clock, instrument=ear) as lease:
        assert (lease.machine_id, lease.term) == (0, 1)
        began = clock.now_ms()
        [machine] = await store.machines()
        assert machine.fence_ms == began + 90_000 == lease.limit_ms()
        await clock.advance(60)
        assert link.calls == ["distribute", "guard", "guard"]
        assert lease.limit_ms() > began + 90_000
        async with SnowflakeId(lease, clock=clock) as gen:
            last = COSID_MS.parse(await gen.next_id()).timestamp_ms
    assert [type(event) for event in ear.events[:2]] == [MachineIdDistributed, MachineIdGuarded]
    [machine] = await store.machines()
    assert (machine.instance_id, machine.fence_ms) == ("", last + 1)


async def test_a_stamp_a_second_above_the_mark_is_waited_for(clock: ManualClock) -> None:
    """As of an id that was let go in passing, with a clock that may be wrong by half a second."""
    store, who = store_of(clock), InstanceId("a", stable=True)
    former = store.machine_id_distributor(instance_id=who)
    grant = await former.distribute(10, now_ms=clock.now_ms(), latest_ms=clock.now_ms())
    floor = clock.now_ms() + 90_999
    await former.renew(grant.machine_id, now_ms=clock.now_ms(), fence_ms=floor)
    again = store.machine_id_distributor(instance_id=who)
    lease = MachineIdLease(again, clock=clock, broken_threshold=0.5, start_timeout=200)
    opening = Call(lease.__aenter__)
    await clock.advance(91)
    assert opening.is_done
    assert opening.error is None
    assert (lease.machine_id, lease.floor_ms) == (grant.machine_id, floor)
    assert clock.now_ms() > floor
    await lease.aclose()
    await settle()


async def test_ten_generators_have_one_lease(clock: ManualClock, link: Link) -> None:
    """One renewal a minute for all of them."""
    async with anyio.create_task_group() as group:
        gens = [SnowflakeId(link, name=f"g{n}", clock=clock) for n in range(10)]
        for gen in gens:
            await group.start(gen.run)
        link.calls.clear()
        await clock.advance(600)
        assert 10 <= len(link.calls) <= 12
        group.cancel_scope.cancel()


async def test_past_the_mark_it_is_silent_until_the_store_answers(clock: ManualClock) -> None:
    """To the millisecond; a caller waits, then gets the store's error as the cause."""
    link = Link(store_of(clock))
    lease = MachineIdLease(link, clock=clock)
    async with lease, SnowflakeId(lease, clock=clock) as gen:
        mark = lease.limit_ms()
        link.cut()
        await clock.advance((mark - clock.now_ms()) / 1000)
        assert COSID_MS.parse(await gen.next_id()).timestamp_ms == mark
        await clock.advance(0.001)
        call = Call(gen.next_id)
        await clock.advance(5)
        assert isinstance(call.error, MachineIdUnavailableError)
        assert isinstance(call.error.__cause__, StoreUnavailableError)
        call = await settled(Call, gen.next_id)
        link.heal()
        await clock.advance(35)
        assert call.result is not None or isinstance(call.error, MachineIdUnavailableError)
        assert await gen.next_id() > 0


@pytest.mark.parametrize(
    ("named", "until_the_cut", "unnoticed"),
    [("one", 0.0, 90.0), ("one", 59.999, 30.001), (STABLE, 0.0, 15.0), (STABLE, 9.999, 5.001)],
)
async def test_how_long_an_outage_is_unnoticed(
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    named: str | InstanceId,
    until_the_cut: float,
    unnoticed: float,
) -> None:
    """Longest if the store fails just after a renewal, and shortest just before one."""
    monkeypatch.setattr("random.uniform", max)  # no renewal comes earlier
    link = Link(store_of(clock), named)
    lease = MachineIdLease(link, clock=clock)
    async with lease, SnowflakeId(lease, clock=clock) as gen:
        await clock.advance(until_the_cut)
        assert link.calls == ["distribute", "guard"]
        link.cut()
        await clock.advance(unnoticed)
        assert gen.next_id_nowait() > 0
        await clock.advance(0.001)
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()


async def test_past_the_lease_it_is_silent_by_the_monotonic_clock(clock: ManualClock) -> None:
    """Although the wall clock was set back, and is below the mark."""
    link = Link(store_of(clock), safe_guard=200.0)
    async with MachineIdLease(link, lead=180, clock=clock) as lease:
        link.cut()
        await clock.advance(170)
        clock.step_wall_ms(-160_000)
        assert lease.limit_ms() > clock.now_ms()
        await clock.advance(10)
        assert lease.limit_ms() == -1


async def test_an_id_that_somebody_else_holds_is_replaced(clock: ManualClock, ear: Ear) -> None:
    """A paused owner finds it out before it issues; its ids go on above."""
    store = store_of(clock)
    link = Link(store)
    gen = SnowflakeId(MachineIdLease(link, clock=clock, instrument=ear), clock=clock)
    async with gen:
        first = await gen.next_id()
        link.cut()
        clock.stall(400)  # SIGSTOP past the safe guard
        await store.evict_machine(machine_id=0)  # as if no other id were left
        heir = store.machine_id_distributor(instance_id="heir")
        grant = await heir.distribute(10, now_ms=clock.now_ms(), latest_ms=2**62)
        assert grant.machine_id == 0
        link.heal()
        call = Call(gen.next_id)
        await clock.advance(5)
        assert call.error is None
        assert call.result > first
        assert COSID_MS.parse(call.result).machine_id != grant.machine_id
        assert gen.statistics().machine.losses == 1
    assert len(ear.of(MachineIdLost)) == 1


async def test_there_is_no_id_while_it_is_being_opened(clock: ManualClock, link: Link) -> None:
    """Whoever asks is told that, and not that it is closed."""
    link.opens = anyio.Event()
    gen = SnowflakeId(MachineIdLease(link, clock=clock), clock=clock)
    opening = Call(gen.__aenter__)
    await clock.advance(0)
    for ask in (gen.next_id, partial(gen.next_ids, 2)):
        with pytest.raises(BusyError, match="is being opened"):
            await ask()
    with pytest.raises(BusyError, match="is being opened"):
        gen.next_id_nowait()
    link.opens.set()
    await clock.advance(1)
    assert opening.result is gen
    assert gen.next_id_nowait() > 0
    await gen.aclose()


@pytest.mark.parametrize("first", ["waits", "next_id", "next_ids"])
async def test_the_machine_id_that_replaces_a_lost_one_may_be_0(
    clock: ManualClock, first: str
) -> None:
    """No id of the lost one follows, whoever asks first: its heir issues them."""
    store = store_of(clock)
    earlier = store.machine_id_distributor(instance_id="earlier")
    assert (await earlier.distribute(10, now_ms=clock.now_ms(), latest_ms=2**62)).machine_id == 0
    link = Link(store)
    async with SnowflakeId(MachineIdLease(link, clock=clock), clock=clock) as gen:
        lost = [await gen.next_id(), gen.next_id_nowait()]
        assert {COSID_MS.parse(each).machine_id for each in lost} == {1}
        link.cut()
        clock.stall(400)
        await earlier.renew(0, now_ms=clock.now_ms(), fence_ms=clock.now_ms())
        await store.evict_machine(machine_id=1)
        heir = store.machine_id_distributor(instance_id="heir")
        grant = await heir.distribute(10, now_ms=clock.now_ms(), latest_ms=2**62)
        assert grant.machine_id == 1
        await earlier.release(0, last_ms=clock.now_ms())
        waiting = [Call(gen.next_id)] if first == "waits" else []
        await settle()
        link.heal()
        await clock.advance(5)
        found = [call.result for call in waiting]
        found += [await gen.next_id()] if first == "next_id" else []
        found += await gen.next_ids(2)
        await clock.advance(0.001)
        for _ in range(3):  # without another wait
            found += await gen.next_ids(2)
        assert {COSID_MS.parse(each).machine_id for each in found} == {0}
        assert found == sorted(set(found))
        assert found[0] > lost[-1]


async def test_an_outage_is_not_made_worse_by_many_callers(clock: ManualClock, link: Link) -> None:
    """However often ids are asked for, the store is asked again after the pause."""
    async with MachineIdLease(link, clock=clock) as lease, SnowflakeId(lease, clock=clock) as gen:
        link.cut()
        await clock.advance(100)
        link.calls.clear()
        for _ in range(200):
            with pytest.raises(WouldBlock):
                gen.next_id_nowait()
            await clock.advance(0.01)
        assert 1 <= len(link.calls) <= 3
        link.heal()
        await clock.advance(2.1)
        assert gen.next_id_nowait() > 0


async def test_a_lease_that_is_closed_ends_who_stamps_under_it(clock: ManualClock) -> None:
    """At once, and not after a wait."""
    lease = MachineIdLease(Link(store_of(clock)), clock=clock)
    await lease.__aenter__()
    async with SnowflakeId(lease, clock=clock) as gen:
        await gen.next_id()
        await lease.aclose()
        await clock.advance(0.001)
        with pytest.raises(ClosedError):
            await gen.next_id()


async def test_a_loss_may_be_an_error_instead(clock: ManualClock, link: Link) -> None:
    """Terminal, for all generators on it."""
    store = link.store_
    lease = MachineIdLease(link, on_lost="raise", clock=clock)
    async with lease, SnowflakeId(lease, clock=clock) as gen:
        await gen.next_id()
        await store.evict_machine(machine_id=0)
        await clock.advance(60)
        for _ in range(2):
            with pytest.raises(MachineIdLostError):
                await gen.next_id()
        with pytest.raises(MachineIdLostError):
            gen.next_id_nowait()


class Overtaken(Link):
    """Is handed an id just before another process of its instance id is, so many times."""

    times = 1

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        grant = await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        if self.times:
            self.times -= 1
            twin = self.store_.machine_id_distributor(instance_id=self.instance_id)
            await twin.distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        return grant


@pytest.mark.parametrize(
    ("times", "on_lost", "error"),
    [
        (1, "redistribute", None),
        (1, "raise", MachineIdLostError),
        (LOSSES, "redistribute", MachineIdInUseError),
    ],
)
async def test_whoever_is_overtaken_while_it_opens_takes_the_id_once_more(
    times: int, on_lost: Any, error: type[Exception] | None, clock: ManualClock
) -> None:
    """Unless a loss is to be an error, and not without end, if a namesake always is faster."""
    link = Overtaken(store_of(clock))
    link.times = times
    lease = MachineIdLease(link, on_lost=on_lost, clock=clock)
    opening = Call(lease.__aenter__)
    await clock.advance(1)
    assert opening.is_done
    assert type(opening.error) is (type(None) if error is None else error)
    assert lease.statistics().losses == (0 if error is MachineIdLostError else times)
    await lease.aclose()
    await settle()


async def test_crash_and_restart_after_a_step_back(clock: ManualClock) -> None:
    """The same instance takes another id, and waits for none: nothing can repeat."""
    store = store_of(clock)
    crashed = SnowflakeId(MachineIdLease(Link(store, "host:1"), clock=clock), clock=clock)
    await crashed.__aenter__()
    ids = await crashed.next_ids(100)
    clock.step_wall_ms(-1500)
    async with SnowflakeId(MachineIdLease(Link(store, "host:1"), clock=clock), clock=clock) as gen:
        more = await gen.next_ids(100)
        assert gen.statistics().machine.fence_wait == 0
    assert set(ids).isdisjoint(more)
    assert COSID_MS.parse(more[0]).machine_id == 1
    await crashed.aclose()


async def test_where_there_is_no_choice_the_mark_is_waited_for(clock: ManualClock) -> None:
    """A stable instance keeps its machine id, and begins above what it may have issued."""
    store = store_of(clock)
    pod = InstanceId("pod-0", stable=True)
    link = Link(store, pod)
    crashed = MachineIdLease(link, clock=clock)
    await crashed.__aenter__()
    mark = crashed.limit_ms()
    link.cut()
    again = MachineIdLease(store.machine_id_distributor(instance_id=pod), clock=clock)
    opening = Call(again.__aenter__)
    await clock.advance((mark - clock.now_ms()) / 1000)
    before = opening.is_done
    await clock.advance(0.002)
    assert (before, opening.is_done, opening.error) == (False, True, None)
    assert again.machine_id == 0
    assert again.floor_ms >= mark
    assert again.statistics().fence_wait > 14
    await again.aclose()
    await crashed.aclose()


async def test_a_stored_time_that_no_mark_explains_is_an_error(clock: ManualClock) -> None:
    """The clock is wrong; nothing is issued, and the id is given back."""
    store = store_of(clock)
    pod = InstanceId("pod-0", stable=True)
    async with MachineIdLease(store.machine_id_distributor(instance_id=pod), clock=clock):
        pass
    clock.step_wall_ms(-3_600_000)
    with pytest.raises(ClockTooManyBackwardsError) as caught:
        async with MachineIdLease(store.machine_id_distributor(instance_id=pod), clock=clock):
            raise AssertionError
    assert caught.value.backwards > 3599


async def test_the_mark_stays_when_the_clock_is_set_back(clock: ManualClock) -> None:
    """Ids up to it may have been stamped; and the floor stays, though nobody has stamped any."""
    link = Link(store_of(clock), InstanceId("pod-0", stable=True), interval=60)
    async with MachineIdLease(link, clock=clock) as lease:
        mark = lease.limit_ms()
        clock.step_wall_ms(-70_000)
        await clock.advance(60)
        assert lease.statistics().renewals == 2
        assert lease.limit_ms() == mark
        link.cut()  # a crash
    link.heal()
    await clock.advance(15)
    opening = Call(MachineIdLease(link, clock=clock).__aenter__)
    await clock.advance(1)
    assert not opening.is_done
    await settled(opening.cancel)
    (machine,) = await link.store_.machines()
    assert machine.fence_ms >= mark


async def test_a_sign_of_life_is_not_torn(clock: ManualClock, link: Link) -> None:
    """By a task group that is cancelled; its connection could not be used again."""
    async with anyio.create_task_group() as group:
        await group.start(MachineIdLease(link, clock=clock).run)
        link.clock, link.slowness = clock, 1
        calls = len(link.calls)
        while len(link.calls) == calls:  # early, by its jitter
            await clock.advance(0.5)
        assert link.calls[-1] == "guard"
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await clock.advance(1)
    assert "guarded" in link.calls
    assert link.calls.index("guarded") < link.calls.index("revert")


async def test_two_leases_on_one_distributor_are_refused(clock: ManualClock, link: Link) -> None:
    """It would find its own id for both; the first one goes on."""
    async with MachineIdLease(link, clock=clock) as lease:
        with pytest.raises(MachineIdInUseError):
            async with MachineIdLease(link, clock=clock):
                raise AssertionError
        assert lease.limit_ms() > 0
        assert ("revert" in link.calls, link.closed) == (False, 0)
    await clock.advance(0.001)
    async with MachineIdLease(link, clock=clock) as lease:
        assert lease.machine_id == 0


async def test_a_store_that_is_down_at_the_start(clock: ManualClock, link: Link) -> None:
    """Tried until the start timeout; what is not worth a retry is raised at once."""
    link.cut()
    lease = MachineIdLease(link, clock=clock)
    opening = Call(lease.__aenter__)
    await clock.advance(1)
    assert not opening.is_done
    await clock.advance(5)
    assert isinstance(opening.error, MachineIdUnavailableError)
    assert isinstance(opening.error.__cause__, StoreUnavailableError)
    opening = Call(lease.__aenter__)
    await clock.advance(1)
    link.heal()
    await clock.advance(2)
    assert opening.error is None
    assert lease.machine_id == 0
    await lease.aclose()
    await settle()
    link.failure = lambda: StoreAuthenticationError("memory", "no")
    with pytest.raises(StoreAuthenticationError):
        await lease.__aenter__()


async def test_an_opening_that_asyncio_cancels_gives_its_id_back(clock: ManualClock) -> None:
    """The call to the store runs to its end, whoever gives up, and however."""
    store = store_of(clock)
    link = Link(store)
    link.held = anyio.Event()
    lease = MachineIdLease(link, clock=clock)
    opening = asyncio.create_task(lease.__aenter__())
    await settle()
    await settled(opening.cancel)
    link.held.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert link.calls == ["distribute", "guard", "revert"]
    assert [machine.instance_id for machine in await store.machines()] == [""]


async def test_opening_ends_with_its_timeout_though_the_store_is_silent(clock: ManualClock) -> None:
    """The last call has what is left of it."""
    link = Link(store_of(clock))
    link.is_silent = True
    lease = MachineIdLease(link, start_timeout=3, call_timeout=2, clock=clock)
    opening = Call(lease.__aenter__)
    await clock.advance(2.9)
    assert not opening.is_done
    await clock.advance(0.1)
    assert isinstance(opening.error, MachineIdUnavailableError)
    assert isinstance(opening.error.__cause__, StoreUnavailableError)


async def test_a_clock_that_keeps_stepping_back_at_the_start(clock: ManualClock) -> None:
    """One deadline covers all steps."""
    store = store_of(clock)
    pod = InstanceId("pod-0", stable=True)
    link = Link(store, pod)
    async with MachineIdLease(link, clock=clock):
        link.cut()  # it cannot lower its mark
    link.heal()
    lease = MachineIdLease(Link(store, pod), clock=clock)
    opening = Call(lease.__aenter__)
    for _ in range(100):
        await clock.advance(1)
        clock.step_wall_ms(-1000)
    assert isinstance(opening.error, ClockTooManyBackwardsError)


async def test_two_that_run_under_one_instance_id(clock: ManualClock) -> None:
    """One of them ends with an error that says so; the other goes on, and no id is there twice."""
    store = store_of(clock)
    older, newer = (MachineIdLease(Link(store, "order-1"), clock=clock) for _ in range(2))
    generators = [SnowflakeId(lease, clock=clock) for lease in (older, newer)]
    ids: list[int] = []
    async with generators[0], generators[1]:
        ended: list[Exception] = []
        for _ in range(600):
            await clock.advance(1)
            for generator in generators:
                try:
                    ids.append(generator.next_id_nowait())
                except WouldBlock:
                    pass
                except MachineIdInUseError as error:
                    ended.append(error)
        assert ended
        assert "order-1" in str(ended[0])
        assert [lease.lost is None for lease in (older, newer)].count(True) == 1
        assert sum(lease.statistics().losses for lease in (older, newer)) <= 2 * LOSSES
    assert len(set(ids)) == len(ids)
    assert len(ids) > 300


async def test_a_store_that_forgot_who_we_are_is_no_second_instance(clock: ManualClock) -> None:
    """One loss to our own name is healed; it takes two in a row to end a lease."""
    store = store_of(clock)
    lease = MachineIdLease(Link(store, "order-1"), clock=clock)
    async with lease:
        for _ in range(3):
            await Link(store, "order-1").distribute(
                10, now_ms=clock.now_ms(), latest_ms=clock.now_ms() + 2000
            )
            await clock.advance(600)
            assert lease.lost is None
            assert lease.limit_ms() > clock.now_ms()
        assert lease.statistics().losses == 3


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("on_lost", "ignore"),
        ("lead", 60),
        ("lead", 271),
        ("peer_safe_guard", 10),
        ("broken_threshold", -1),
        ("start_timeout", 0),
        ("call_timeout", -1),
        ("close_timeout", float("inf")),
        ("bits", 0),
        ("bits", 32),
    ],
)
async def test_bad_arguments_are_named(argument: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        MachineIdLease(Link(MemoryStore()), **{argument: value})
    assert caught.value.argument == ("lead" if argument == "peer_safe_guard" else argument)


@pytest.mark.parametrize(("ahead_ms", "note"), [(3000, None), (400, None), (3000, MachineRecord())])
async def test_a_stamp_of_cosid_s_far_ahead_fails_the_start_at_once(
    ahead_ms: int, note: MachineRecord | None
) -> None:
    """No mark explains it, as it does where an instance of ours has had the id."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    await store.machine_id_distributor(instance_id="other").distribute(
        10, now_ms=clock.now_ms(), latest_ms=2**60
    )
    stamp_ms = clock.now_ms() + ahead_ms
    store._backend.cells_of("cosid").slots[1] = MachineSlot((Owner("pod", stamp_ms),), note)
    lease = MachineIdLease(
        store.machine_id_distributor(instance_id=InstanceId("pod", stable=True)),
        clock=clock,
        broken_threshold=0.5,
    )
    opening = Call(lease.__aenter__)
    await clock.advance(5)
    assert opening.is_done
    assert (type(opening.error) is ClockTooManyBackwardsError) == (note is None and ahead_ms > 500)
    await lease.aclose()
