"""A lease on a store that forgot: who runs goes on, who comes waits, who was silent stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiocosid.abc.events import MachineIdLost, MachineIdsQuarantined
from aiocosid.errors import MachineIdQuarantineError, MachineIdUnavailableError
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import COSID_MS, SnowflakeId
from aiocosid.testing import ManualClock, settle

from .._kit import Call, Ear, settled
from ._kit import Link, store_of


async def test_who_runs_keeps_its_id_and_who_comes_waits(clock: ManualClock) -> None:
    """For the safe guard and 5 s; it says why, by the error, the statistics and one event."""
    store, ear = store_of(clock), Ear()
    async with MachineIdLease(Link(store), clock=clock) as lease:
        store.forget_machines()
        await clock.advance(60)
        assert (lease.machine_id, lease.statistics().losses) == (0, 0)
        late = MachineIdLease(Link(store, "late"), clock=clock, start_timeout=400, instrument=ear)
        hurried = Call(MachineIdLease(Link(store, "soon"), clock=clock).__aenter__)
        opening = Call(late.__aenter__)
        await clock.advance(6)
        assert isinstance(hurried.error, MachineIdUnavailableError)
        assert isinstance(hurried.error.__cause__, MachineIdQuarantineError)
        assert "aiocosid init --store URL" in str(hurried.error)
        left = late.statistics().quarantine_left
        assert 230 < left < 305 - 6
        await clock.advance(left - 1)
        assert (opening.result, opening.error) == (None, None)
        await clock.advance(5)
        assert opening.result is late
        assert (lease.machine_id, late.machine_id) == (0, 1)
        assert late.statistics().quarantine_left == 0
        [event] = ear.of(MachineIdsQuarantined)
        assert left < event.seconds_left <= 305
        await late.aclose()


@pytest.mark.parametrize("everything", [True, False])
async def test_a_lease_that_has_ended_takes_nothing_back(
    clock: ManualClock, everything: bool
) -> None:
    """It may have been somebody else's since: it is silent, and takes another one afterwards."""
    store = store_of(clock)
    link, ear = Link(store), Ear()
    lease = MachineIdLease(link, clock=clock, instrument=ear)
    async with lease, SnowflakeId(lease, clock=clock, wait_timeout=1) as gen:
        link.cut()
        clock.stall(400)
        store.forget_machines(everything=everything)
        link.heal()
        call = Call(gen.next_id)
        await clock.advance(2)
        assert isinstance(call.error, MachineIdUnavailableError)
        assert isinstance(call.error.__cause__, MachineIdQuarantineError)
        assert lease.limit_ms() == -1
        assert len(ear.of(MachineIdsQuarantined)) == 1
        await clock.advance(310)
        assert await gen.next_id() > 0


async def test_of_two_owners_the_later_yields_at_once(clock: ManualClock) -> None:
    """And takes another id when the quarantine is over."""
    store = store_of(clock)
    first = MachineIdLease(Link(store, "first"), clock=clock)
    ear = Ear()
    other = Link(store, "second")
    second = MachineIdLease(other, clock=clock, instrument=ear)
    async with first, second:
        assert (first.machine_id, second.machine_id) == (0, 1)
        # As if an earlier loss had handed it to both.
        second._opening.tenure.machine_id = 0
        inner = other.inner
        assert inner._taken is not None
        inner._taken = replace(inner._taken, machine_id=0)
        store.forget_machines()
        for lease in (first, second):
            lease.renew_now()
            await settle()
        assert (first.machine_id, second.machine_id) == (0, -1)
        assert second.limit_ms() == -1
        assert len(ear.of(MachineIdLost)) == 1
        await clock.advance(310)
        assert (first.machine_id, second.machine_id) == (0, 1)
        assert first.statistics().losses == 0


async def test_the_mark_is_kept_across_a_loss(clock: ManualClock) -> None:
    """The next owner begins above what was issued, although the store had forgotten it."""
    store = store_of(clock)
    async with MachineIdLease(Link(store), clock=clock) as lease:
        store.forget_machines()
        await clock.advance(60)
        async with SnowflakeId(lease, clock=clock) as gen:
            last = COSID_MS.parse(await gen.next_id()).timestamp_ms
        await clock.advance(300)
    await settle()
    heir = store.machine_id_distributor(instance_id="heir")
    grant = await heir.distribute(10, now_ms=clock.now_ms(), latest_ms=2**62)
    assert grant.machine_id == 0
    assert grant.floor_ms >= last


async def test_the_cause_is_what_the_store_said(clock: ManualClock) -> None:
    """Not that the last call had no time for an answer, when the start timeout has passed."""
    store = store_of(clock)
    store.forget_machines()
    link = Link(store)
    call = await settled(Call, MachineIdLease(link, clock=clock, start_timeout=1).__aenter__)
    link.is_silent = True
    await clock.advance(1)
    assert isinstance(call.error, MachineIdUnavailableError)
    assert isinstance(call.error.__cause__, MachineIdQuarantineError)
    assert "no answer" not in str(call.error)


@pytest.mark.parametrize("forgets", [True, False])
async def test_an_answer_after_the_end_of_the_lease_revives_nothing(
    clock: ManualClock, forgets: bool, link: Link
) -> None:
    """The store was told in good faith, and late; only a sound one may say whose the id is."""
    store = link.store_
    async with MachineIdLease(link, clock=clock, call_timeout=10) as lease:
        link.cut()
        await clock.advance(267)
        if forgets:
            store.forget_machines()
        link.heal()
        link.clock, link.slowness = clock, 5
        await clock.advance(7)
        assert "after the lease had ended" in str(lease.statistics().last_error)
        assert lease.limit_ms() == -1
        link.slowness = 0
        await clock.advance(8)
        assert (lease.limit_ms() == -1) is forgets


async def test_whoever_was_suspended_takes_nothing_back(clock: ManualClock) -> None:
    """Its monotonic clock stood still; the wall clock tells that the lease has long ended."""
    server = ManualClock()
    store = store_of(server)
    async with MachineIdLease(Link(store), clock=clock) as lease:
        clock.step_wall_ms(271_000)
        server.stall(271)
        store.forget_machines()
        lease.renew_now()
        await settle()
        assert isinstance(lease.statistics().last_error, MachineIdQuarantineError)
        assert not await store.machines()
