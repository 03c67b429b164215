"""A lease that generators share: who opens it, who closes it, and what they see of each other."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from anyio.lowlevel import checkpoint

import aiocosid
from aiocosid.abc import InstanceId
from aiocosid.abc.events import SnowflakeOpened, WaitTimedOut
from aiocosid.errors import (
    ClosedError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdUnavailableError,
    StoreError,
    StoreUnavailableError,
    WrongLoopError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    JAVASCRIPT_SAFE_MS,
    CachedSnowflakeId,
    SnowflakeId,
    SnowflakeLayout,
)
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, settle

from .._kit import Call, Ear, settled, tasks
from ._kit import Link, store_of

POD = InstanceId("pod-0", stable=True)


class TestOpening:
    async def test_a_failure_is_told_to_all(self, clock: ManualClock, link: Link) -> None:
        """And not that the lease was closed, which nobody did."""
        link.cut()
        lease = MachineIdLease(link, clock=clock)
        calls = [Call(SnowflakeId(lease, name=name, clock=clock).__aenter__) for name in "abc"]
        await clock.advance(6)
        for call in calls:
            assert isinstance(call.error, MachineIdUnavailableError)
            assert isinstance(call.error.__cause__, StoreUnavailableError)
        await settle()

    @pytest.mark.parametrize("seconds", [1, 30])
    async def test_whoever_began_it_may_give_up(self, clock: ManualClock, seconds: int) -> None:
        """Before the machine id is there, or while its floor is waited for."""
        link = Link(store_of(clock), POD)
        if seconds > 5:
            await leave_a_mark(link, clock)
        else:
            link.cut()
        lease = MachineIdLease(link, clock=clock)
        first, second = (SnowflakeId(lease, name=name, clock=clock) for name in "ab")
        opening = Call(first.__aenter__)
        await clock.advance(seconds / 2)
        joining = Call(second.__aenter__)
        await clock.advance(seconds / 2)
        opening.cancel()
        link.heal()
        await clock.advance(100)
        assert (joining.is_done, joining.error) == (True, None)
        assert len(await second.next_ids(3)) == 3
        await second.aclose()
        await settle()
        assert link.calls.count("revert") == 1

    async def test_all_give_up(self, clock: ManualClock) -> None:
        """Then it is closed; who comes next opens it anew."""
        link = Link(store_of(clock), POD)
        await leave_a_mark(link, clock)
        lease = MachineIdLease(link, clock=clock)
        calls = [Call(SnowflakeId(lease, name=name, clock=clock).__aenter__) for name in "ab"]
        await clock.advance(1)
        for call in calls:
            call.cancel()
        late = SnowflakeId(lease, name="c", clock=clock)
        joining = Call(late.__aenter__)
        await clock.advance(100)
        assert (joining.is_done, joining.error) == (True, None)
        await late.aclose()
        await settle()

    @pytest.mark.parametrize("turns", range(5))
    async def test_all_give_up_at_once(self, clock: ManualClock, link: Link, turns: int) -> None:
        """Before its task has begun, or while it opens the distributor: closing does not wait."""
        link.opens = anyio.Event()
        call = Call(MachineIdLease(link, clock=clock).join)
        for _ in range(turns):
            await checkpoint()
        await settled(call.cancel)
        assert call.is_done

    async def test_one_joins_while_those_before_are_still_giving_up(
        self, clock: ManualClock, link: Link
    ) -> None:
        """It does not inherit their end."""
        link.opens = anyio.Event()
        first, second = (SnowflakeId(link, name=name, clock=clock) for name in "ab")
        opening = await settled(Call, first.__aenter__)
        await settled(opening.cancel)
        joining = await settled(Call, second.__aenter__)
        await settled(link.opens.set)
        assert (joining.is_done, joining.error) == (True, None)
        await second.aclose()
        await settle()

    async def test_a_generator_is_closed_while_it_opens(self, clock: ManualClock) -> None:
        """Its opening says so at once, and holds nothing."""
        link = Link(store_of(clock))
        link.held = anyio.Event()
        generator, other = (SnowflakeId(link, name=name, clock=clock) for name in "ab")
        opening = Call(generator.__aenter__)
        joining = await settled(Call, other.__aenter__)
        await generator.aclose()
        await settle()
        assert isinstance(opening.error, ClosedError)
        await settled(link.held.set)
        assert joining.error is None
        await other.aclose()
        await settle()
        assert [machine.instance_id for machine in await link.store_.machines()] == [""]

    async def test_a_generator_is_closed_and_opened_while_it_opens(
        self, clock: ManualClock, link: Link
    ) -> None:
        """It is in use once, and the last one to close still gives the machine id back."""
        link.held = anyio.Event()
        generator = SnowflakeId(link, clock=clock)
        async with anyio.create_task_group() as group:
            first = await settled(Call, generator.__aenter__)
            group.start_soon(generator.aclose)
            await settle()
            second = await settled(Call, generator.__aenter__)
            link.held.set()
            await clock.advance(1)
            assert isinstance(first.error, ClosedError)
            assert second.error is None
            assert generator.next_id_nowait() > 0
            await generator.aclose()
        assert [machine.instance_id for machine in await link.store_.machines()] == [""]

    @pytest.mark.parametrize("how", ["closed", "cancelled"])
    @pytest.mark.parametrize("others", [0, 1])
    async def test_given_up_at_each_turn(self, clock: ManualClock, how: str, others: int) -> None:
        """The others open, nothing stays open when all have closed, and the id is given back."""
        for turns in range(24):
            link = Link(store_of(clock))
            lease = MachineIdLease(link, clock=clock)
            first, second = (SnowflakeId(lease, name=name, clock=clock) for name in "ab")
            opening = asyncio.create_task(first.__aenter__())
            joining = asyncio.create_task(second.__aenter__()) if others else None
            for _ in range(turns):
                await asyncio.sleep(0)
            if how == "closed":
                await first.aclose()
            else:
                opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await first.aclose()  # it is open, or was before
            if joining is not None:
                await joining
                assert second.next_id_nowait() > 0
                await second.aclose()
            await settle()
            assert lease._users == 0
            assert (link.calls or ["revert"])[-1] == "revert"
            assert {machine.instance_id for machine in await link.store_.machines()} <= {""}
            assert tasks() == []

    async def test_a_distributor_that_is_closed(self, clock: ManualClock, link: Link) -> None:
        """A stranger's, or on a client that is: asked once."""
        link.failure = lambda: ClosedError("the client")
        with pytest.raises(ClosedError, match="the client"):
            async with SnowflakeId(link, clock=clock):
                raise AssertionError
        assert link.calls == ["distribute"]

    async def test_a_driver_whose_own_task_was_cancelled(self, clock: ManualClock) -> None:
        """Is a store that fails: the call is made again, and nobody else is cancelled."""
        link = Link(store_of(clock))
        link.stray = True
        opening = await settled(Call, SnowflakeId(link, clock=clock).__aenter__)
        link.stray = False
        await clock.advance(1)
        generator = opening.result
        link.stray = True
        await clock.advance(61)
        link.stray = False
        await clock.advance(3)
        machine = generator.statistics().machine
        assert (machine.failures > 1, machine.last_error) == (True, None)
        await generator.aclose()
        await settle()

    async def test_a_distributor_that_answers_nonsense(self, clock: ManualClock) -> None:
        """Is an error of the store."""
        link = Link(store_of(clock))
        link.answer = "seven"
        with pytest.raises(StoreError, match="AttributeError"):
            async with SnowflakeId(link, clock=clock):
                raise AssertionError


class TestJoining:
    async def test_a_lost_lease_is_waited_for(self, clock: ManualClock, link: Link) -> None:
        """For the start timeout; the error tells what the store said last."""
        store = link.store_
        lease = MachineIdLease(link, clock=clock)
        async with lease:
            await store.evict_machine(machine_id=0)
            link.refuse("distribute")
            await clock.advance(60)
            assert lease.machine_id < 0
            call = Call(SnowflakeId(lease, clock=clock).__aenter__)
            await clock.advance(6)
            assert isinstance(call.error, MachineIdUnavailableError)
            assert isinstance(call.error.__cause__, StoreUnavailableError)
            link.heal()
            await clock.advance(2)
            async with SnowflakeId(lease, clock=clock) as generator:
                await clock.advance(100)
                assert await generator.next_id() > 0

    async def test_whoever_gives_up_last_closes_it(self, clock: ManualClock, link: Link) -> None:
        """Also the one that never came to use it."""
        store = link.store_
        first, second = (SnowflakeId(link, name=name, clock=clock) for name in "ab")
        await first.__aenter__()
        await store.evict_machine(machine_id=0)
        link.refuse("distribute")
        await clock.advance(61)
        call = await settled(Call, second.__aenter__)
        await first.aclose()
        await clock.advance(6)
        assert isinstance(call.error, MachineIdUnavailableError)

    async def test_a_lease_that_no_generator_could_open_is_its_users(
        self, clock: ManualClock, link: Link
    ) -> None:
        """The last generator closes what a generator has opened, and nothing else."""
        link.cut()
        lease = MachineIdLease(link, clock=clock)
        generator = SnowflakeId(lease, clock=clock)
        call = Call(generator.__aenter__)
        await clock.advance(6)
        assert call.error is not None
        await settled(link.heal)
        async with lease:
            async with generator:
                await generator.next_id()
            assert lease.machine_id == 0
            assert "revert" not in link.calls


class TestLives:
    async def test_a_generator_ends_with_the_life_of_its_lease(self, clock: ManualClock) -> None:
        """Another one may go by its name in the next, and would stamp the same ids."""
        lease = MachineIdLease(Link(store_of(clock)), clock=clock)
        async with lease:
            old = SnowflakeId(lease, clock=clock)
            await old.__aenter__()
            await old.next_ids(3)
        await clock.advance(0.01)
        async with lease, SnowflakeId(lease, clock=clock) as new:
            await clock.advance(0.01)
            with pytest.raises(ClosedError):
                await old.next_ids(3)
            with pytest.raises(ClosedError):
                old.next_id_nowait()
            with pytest.raises(ClosedError):
                await old.next_id()
            assert len(await new.next_ids(3)) == 3
            await old.aclose()

    async def test_a_lease_waits_for_the_end_of_another_on_its_distributor(
        self, clock: ManualClock, link: Link
    ) -> None:
        """Which still gives its id back, and would give back the new one."""
        store = link.store_
        first, second = MachineIdLease(link, clock=clock), MachineIdLease(link, clock=clock)
        await first.__aenter__()
        link.held = anyio.Event()
        closing = await settled(Call, first.aclose)
        opening = await settled(Call, second.__aenter__)
        assert link.calls == ["distribute", "guard", "revert"]
        link.held.set()
        await clock.advance(0.1)
        assert (closing.error, opening.error) == (None, None)
        assert link.calls == ["distribute", "guard", "revert", "distribute", "guard"]
        assert [machine.instance_id for machine in await store.machines()] == ["one"]
        await second.aclose()
        await settle()

    async def test_only_one_of_those_who_wait_for_that_end_opens(self, clock: ManualClock) -> None:
        """Two leases on one distributor would use one machine id."""
        link = Link(store_of(clock))
        closing, *others = (MachineIdLease(link, clock=clock) for _ in range(3))
        await closing.__aenter__()
        link.held = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(closing.aclose)
            await settle()
            openings = [Call(lease.__aenter__) for lease in others]
            await settle()
            await settled(link.held.set)
            errors = [opening.error for opening in openings]
            assert {type(error) for error in errors} == {MachineIdInUseError, type(None)}
            await others[errors.index(None)].aclose()

    async def test_an_answer_for_an_earlier_life(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that outlasts the closing says nothing of the machine id that the next life has."""
        monkeypatch.setattr("aiocosid._life.component.END_TIMEOUT", 0.001)
        store = store_of(clock)
        link = Link(store)
        link.held = anyio.Event()
        lease = MachineIdLease(link, close_timeout=0.1, clock=clock)
        opening = await settled(Call, lease.__aenter__)
        opening.cancel()
        held, link.held = link.held, None
        await clock.advance(0.2)
        with anyio.fail_after(5):
            while not opening.is_done:
                await settle()
        async with lease:
            await store.evict_machine(machine_id=lease.machine_id)
            other = store.machine_id_distributor(instance_id="other")
            async with MachineIdLease(other, clock=clock):
                mine = lease.machine_id
                held.set()
                await clock.advance(0.01)
                assert (lease.machine_id, lease.term, lease.lost) == (mine, 1, None)
                assert len([name for name in tasks() if "guard" in name]) == 2  # one for each
        await settle()

    async def test_a_return_that_arrives_late_takes_nothing_from_the_next_life(
        self, clock: ManualClock
    ) -> None:
        """Although the clock was set back, and the next life's mark is not ahead of the first's."""
        store = store_of(clock)
        link = Link(store, POD)
        lease = MachineIdLease(link, clock=clock)
        await lease.__aenter__()
        link.returns = []
        await lease.aclose()
        clock.step_wall_ms(-1000)
        opening = Call(lease.__aenter__)
        await clock.advance(100)
        assert opening.error is None
        for late in link.returns:
            late()
        (machine,) = await store.machines()
        assert machine.fence_ms >= lease.limit_ms()
        await lease.aclose()
        await settle()

    async def test_a_new_term_begins_above_its_floor(self, clock: ManualClock, link: Link) -> None:
        """And above what this process has stamped itself, whatever the store remembers."""
        store = link.store_
        async with SnowflakeId(link, clock=clock) as generator:
            ids = await generator.next_ids(3)
            link.floor_ms = clock.now_ms() + 70_000  # a former owner's, at the next distribution
            await store.evict_machine(machine_id=0)
            await clock.advance(60)
            call = Call(generator.next_id)
            await clock.advance(9.9)
            assert not call.is_done
            await clock.advance(1)
            assert COSID_MS.parse(call.result).timestamp_ms > link.floor_ms
            assert call.result > max(ids)

    async def test_a_new_term_begins_above_what_was_stamped(self, clock: ManualClock) -> None:
        """The store may have forgotten the mark, and the clock may have been set back."""
        store = store_of(clock)
        link = Link(store)
        async with SnowflakeId(link, clock=clock, broken_threshold=None) as generator:
            await clock.advance(50)
            last = COSID_MS.parse(await generator.next_id()).timestamp_ms
            link.floor_ms = -1
            await store.evict_machine(machine_id=0)
            clock.step_wall_ms(-30_000)
            await clock.advance(15)
            lease = generator._lease
            assert lease.term == 2
            assert lease.floor_ms >= last

    async def test_no_id_is_of_a_tick_before_the_machine_id_was_taken(
        self, clock: ManualClock, link: Link
    ) -> None:
        """Unused ticks are filled, but not those that a former owner may have used."""
        link.floor_ms = -1  # CosId's owner, who kept no mark
        taken = clock.now_ms()
        async with SnowflakeId(link, clock=clock) as generator:
            await clock.advance(0.001)
            call = Call(generator.next_ids, 10_000)
            await clock.advance(0.01)
        assert min(COSID_MS.parse(each).timestamp_ms for each in call.result) >= taken

    async def test_the_lease_counts_from_before_the_sign_of_life(self, clock: ManualClock) -> None:
        """However long the store takes to answer."""
        link = Link(store_of(clock))
        async with MachineIdLease(link, clock=clock) as lease:
            link.slowness = 1.5
            link.clock = clock
            await clock.advance(60)
            await clock.advance(1.5)
            assert lease.statistics().renewals == 2
            assert lease.statistics().seconds_left < 270 - 1.4

    async def test_each_caller_waits_for_its_own_time(self, clock: ManualClock, link: Link) -> None:
        """Who comes later is not told that it has waited when it has not."""
        ear = Ear()
        async with SnowflakeId(link, clock=clock, wait_timeout=5, instrument=ear) as generator:
            opened = ear.of(SnowflakeOpened)
            assert [(each.name, each.machine_id) for each in opened] == [("__share__", 0)]
            link.cut()
            await clock.advance(100)
            first = Call(generator.next_id)
            await clock.advance(4)
            second = Call(generator.next_id)
            await clock.advance(1.5)
            assert isinstance(first.error, MachineIdUnavailableError)
            assert first.error.waited == 5
            (late,) = ear.of(WaitTimedOut)
            assert (late.namespace, late.name, late.waited) == ("cosid", "__share__", 5)
            assert not second.is_done
            link.heal()
            await clock.advance(2)
            assert second.error is None


async def test_a_long_batch_does_not_count_its_ticks_as_waiting(clock: ManualClock) -> None:
    """The store has the whole wait timeout to renew the lease, however late in the batch."""
    link = Link(store_of(clock))
    narrow = SnowflakeLayout(41, 10, 2, "ms", 1_577_203_200_000)
    async with SnowflakeId(link, layout=narrow, wait_timeout=0.05, clock=clock) as generator:
        link.clock, link.slowness = clock, 0.01
        batch = Call(generator.next_ids, 400)
        await clock.advance(0.08)
        clock.step_wall_ms(100_000)  # beyond the mark
        await clock.advance(0.005)
        assert not batch.is_done
        await clock.advance(0.1)
        assert batch.error is None
        assert len(set(batch.result)) == 400


async def test_a_distributor_that_was_refused_a_width_gets_another(clock: ManualClock) -> None:
    """As long as nobody uses the lease of the refused one."""
    store = store_of(clock)
    link = Link(store, "two")
    async with SnowflakeId(Link(store), clock=clock):
        with pytest.raises(MachineBitsMismatchError):
            async with SnowflakeId(link, layout=JAVASCRIPT_SAFE_MS, clock=clock):
                raise AssertionError
        async with SnowflakeId(link, clock=clock) as generator:
            assert generator.next_id_nowait() > 0
            with pytest.raises(MachineBitsMismatchError):
                SnowflakeId(link, layout=JAVASCRIPT_SAFE_MS, clock=clock)


async def test_a_provider_that_was_refused_a_width_takes_another(clock: ManualClock) -> None:
    """The lease of the refused width is nobody's."""
    store = store_of(clock)
    async with (
        aiocosid.connect(store, clock=clock) as others,
        aiocosid.connect(store, clock=clock) as ids,
    ):
        await others.snowflake("order")
        with pytest.raises(MachineBitsMismatchError):
            await ids.snowflake("order", layout=JAVASCRIPT_SAFE_MS)
        assert await (await ids.snowflake("order")).next_id() > 0
        with pytest.raises(MachineBitsMismatchError):
            await ids.snowflake("user", layout=JAVASCRIPT_SAFE_MS)


@pytest.mark.parametrize("kind", [SnowflakeId, CachedSnowflakeId])
async def test_a_clock_that_was_ahead_for_a_moment(
    clock: ManualClock, kind: type[SnowflakeId], link: Link
) -> None:
    """While the store was away: what was needed then is needed no more, and callers are served."""
    async with kind(MachineIdLease(link, clock=clock), layout=COSID_S, clock=clock) as gen:
        ids = [await gen.next_id()]
        link.cut()
        await clock.advance(61)
        clock.step_wall_ms(3_600_000)
        calls = [Call(gen.next_id) for _ in range(3)]
        await clock.advance(2)
        assert not any(call.is_done for call in calls)
        clock.step_wall_ms(-3_600_000)
        link.heal()
        await clock.advance(2.5)
        assert all(call.is_done and call.error is None for call in calls)
        ids += [call.result for call in calls]
        await settle()
        ids.append(gen.next_id_nowait())
        seen = gen.statistics()
        assert (seen.waits_for_lease, seen.waiting) == (1, 0)
    assert ids == sorted(set(ids))
    assert COSID_S.parse(ids[-1]).timestamp_ms <= clock.now_ms() + 60_000


async def test_a_clock_that_steps_on_while_it_is_waited_for(clock: ManualClock, link: Link) -> None:
    """The mark is asked for anew: what was needed at first is not enough any more."""
    link.clock, link.slowness = clock, 0.5
    lease = MachineIdLease(link, clock=clock)
    gen = SnowflakeId(lease, layout=COSID_MS, clock=clock)
    opening = Call(gen.__aenter__)
    await clock.advance(1)
    assert opening.result is gen
    await gen.next_id()
    clock.step_wall_ms(3_600_000)
    call = Call(gen.next_id)
    await clock.advance(0.25)
    clock.step_wall_ms(3_600_000)
    await clock.advance(1)
    assert call.result > 0
    await gen.aclose()
    await settle()


def test_a_loop_that_died_is_survived() -> None:
    """asyncio.run() twice, the first one left without closing."""
    store = MemoryStore()
    distributor = store.machine_id_distributor(instance_id="x")
    generators = [SnowflakeId(distributor, name=name) for name in "ab"]
    ids: list[int] = []

    async def use() -> None:
        for generator in generators:
            await generator.__aenter__()
            ids.append(await generator.next_id())

    asyncio.run(use())
    asyncio.run(use())

    async def close() -> None:
        await use()
        for generator in generators:
            await generator.aclose()
        assert {machine.instance_id for machine in await store.machines()} == {""}

    asyncio.run(close())
    for mine in (ids[::2], ids[1::2]):
        assert mine == sorted(set(mine))


def test_a_loop_that_was_closed_over_its_tasks_is_survived() -> None:
    """Not by asyncio.run(), which ends them: their sleeps are there still, and wake no more."""
    gen = CachedSnowflakeId(MemoryStore().machine_id_distributor(instance_id="x"))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(gen.__aenter__())
    ids = [loop.run_until_complete(gen.next_id())]
    life = asyncio.all_tasks(loop), gen._lease._home.scopes
    loop.close()
    assert life[1]

    async def again() -> None:
        async with gen:
            ids.append(await gen.next_id())

    asyncio.run(again())
    assert ids[0] < ids[1]


def test_a_sleep_on_another_threads_loop_is_left_alone() -> None:
    """Whoever opens a second generator there is refused, and disturbs nobody."""
    lease = MachineIdLease(MemoryStore().machine_id_distributor(instance_id="x"))

    async def elsewhere() -> None:
        with pytest.raises(WrongLoopError):
            await CachedSnowflakeId(lease, name="b").__aenter__()

    async def main() -> None:
        async with CachedSnowflakeId(lease, name="a"):
            await settle()
            sleeps = tuple(lease._home.scopes or ())
            assert sleeps
            await asyncio.to_thread(asyncio.run, elsewhere())
            assert not any(sleep.cancel_called for sleep in sleeps)

    asyncio.run(main())


async def test_a_refused_opening_is_over_whoever_was_there_before(clock: ManualClock) -> None:
    """A generator of an earlier life has not left yet; who comes next opens the lease again."""
    link = Link(store_of(clock))
    lease = MachineIdLease(link, clock=clock)
    async with lease:
        old = SnowflakeId(lease, name="old", clock=clock)
        await old.__aenter__()
    link.cut()
    call = Call(SnowflakeId(lease, clock=clock).__aenter__)
    await clock.advance(6)
    assert isinstance(call.error, MachineIdUnavailableError)
    link.heal()
    async with SnowflakeId(lease, clock=clock) as generator:
        assert generator.next_id_nowait() > 0
        await old.aclose()
        assert generator.next_id_nowait() > 0
    assert link.calls[-1] == "revert"
    assert tasks() == []


async def leave_a_mark(link: Link, clock: ManualClock) -> None:
    """Be a former life that crashed, with a mark that is ahead."""
    grant = await link.inner.distribute(10, now_ms=clock.now_ms(), latest_ms=2**62)
    now_ms = clock.now_ms()
    await link.inner.renew(grant.machine_id, now_ms=now_ms, fence_ms=now_ms + 90_000)
