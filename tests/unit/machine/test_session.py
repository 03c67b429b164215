"""A lease on a store with sessions: one that is interrupted silences it at once."""

from __future__ import annotations

import pytest

from aiocosid.abc.events import Event, MachineIdGuarded
from aiocosid.errors import WouldBlock
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeId
from aiocosid.testing import ManualClock, settle

from .._kit import Call, settled
from ._kit import Link, store_of


class SessionLink(Link):
    """Has a session, which a test interrupts."""

    number = 7
    interrupts_itself = False

    @property
    def session(self) -> int:
        return self.number

    async def _answer(self) -> None:
        if self.interrupts_itself:
            self.number += 1


class Flap:
    """Interrupts a session once more, when the renewal has just been answered."""

    def __init__(self, link: SessionLink) -> None:
        self.link, self.left = link, 0

    def on_event(self, event: Event) -> None:
        if isinstance(event, MachineIdGuarded) and self.left:
            self.left -= 1
            self.link.number += 1


async def test_an_interrupted_session_silences_it_at_once() -> None:
    """With most of the lease left; a renewal that was sent after it makes it good again."""
    clock = ManualClock()
    link = SessionLink(store_of(clock))
    async with MachineIdLease(link, clock=clock) as lease, SnowflakeId(lease, clock=clock) as gen:
        machine_id = lease.machine_id
        await gen.next_id()
        link.number += 1  # as from a thread: nobody tells the lease
        link.cut()
        assert lease.limit_ms() == -1
        await clock.advance(0.001)
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        await clock.advance(1)
        assert lease.limit_ms() == -1
        link.heal()
        await clock.advance(5)
        assert lease.limit_ms() > clock.now_ms()
        assert await gen.next_id() > 0
        assert (lease.machine_id, lease.term) == (machine_id, 1)


async def test_a_waiter_is_served_when_the_session_is_back() -> None:
    """Whoever waits for an id has the renewal sent, long before the next one is due."""
    clock = ManualClock()
    link = SessionLink(store_of(clock))
    async with MachineIdLease(link, clock=clock) as lease, SnowflakeId(lease, clock=clock) as gen:
        await gen.next_id()
        await clock.advance(0.001)
        link.number += 1
        calls = len(link.calls)
        assert await gen.next_id() > 0
        await settle()
        assert link.calls[calls:] == ["guard"]


async def test_a_sign_of_life_of_an_interrupted_session_does_not_count() -> None:
    """It was sent in a session that was over when its answer came."""
    clock = ManualClock()
    link = SessionLink(store_of(clock))
    async with MachineIdLease(link, clock=clock) as lease:
        link.interrupts_itself = True
        await clock.advance(60)
        assert "guard" in link.calls[2:]
        assert lease.limit_ms() == -1
        assert "interrupted" in str(lease.last_error)
        link.interrupts_itself = False
        await clock.advance(5)
        assert lease.limit_ms() > clock.now_ms()
        assert lease.last_error is None


async def test_a_waiter_asks_again_when_the_session_is_interrupted_again() -> None:
    """It is woken by the renewal, which counts no more by then."""
    clock = ManualClock()
    link = SessionLink(store_of(clock))
    flap = Flap(link)
    async with (
        MachineIdLease(link, clock=clock, instrument=flap) as lease,
        SnowflakeId(lease, clock=clock) as gen,
    ):
        await gen.next_id()
        await clock.advance(0.001)
        calls, flap.left = len(link.calls), 3
        link.number += 1
        call = await settled(Call, gen.next_id)
        assert call.is_done
        assert call.error is None
        assert link.calls[calls:] == ["guard"] * 4


async def test_ids_that_go_with_their_sessions_are_no_thefts() -> None:
    """However often in a row, as on a client that is restarted: nobody else is there."""
    clock = ManualClock()
    link = SessionLink(store_of(clock))
    async with MachineIdLease(link, clock=clock) as lease, SnowflakeId(lease, clock=clock) as gen:
        for losses in range(5):
            assert lease.statistics().losses == losses
            await link.inner.release(lease.machine_id, last_ms=-1)
            link.number += 1
            await clock.advance(0.001)
            assert await gen.next_id() > 0
        assert lease.lost is None
