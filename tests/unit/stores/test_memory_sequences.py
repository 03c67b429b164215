"""Sequences of a second in memory."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from aiocosid import stores
from aiocosid.abc import SecondFenced, SecondSpent, SequenceGrant
from aiocosid.errors import ClockSkewError, ForkedError, InvalidArgumentError, WouldBlock
from aiocosid.stores.memory import MemoryBackend, MemorySequenceDistributor, MemoryStore
from aiocosid.testing import ManualClock
from tests.unit._interrupted import interrupted


def backend_of(distributor: MemorySequenceDistributor) -> MemoryBackend:
    assert isinstance(distributor._backend, MemoryBackend)
    return distributor._backend


async def test_each_sequence_is_granted_once() -> None:
    """R4, R5: the last grant of a second is shorter, and then it is spent."""
    clock = ManualClock()
    distributor = MemorySequenceDistributor(name="n", max_sequence=100, clock=clock)
    second = clock.now_ms() // 1000
    replies = [await distributor.grant(second, 7) for _ in range(15)]
    grants = [each for each in replies if isinstance(each, SequenceGrant)]
    assert (grants[0].first, grants[-1].last, len(grants)) == (1, 100, 15)
    assert all(one.last + 1 == other.first for one, other in pairwise(grants))
    assert await distributor.grant(second, 1) == SecondSpent(second)
    assert await distributor.grant(second + 1, 5) == SequenceGrant(second + 1, 1, 5)


async def test_what_is_refused() -> None:
    """R6, R14: sizes that are none, and seconds that are far off."""
    clock = ManualClock()
    distributor = MemorySequenceDistributor(name="n", clock=clock)
    second = clock.now_ms() // 1000
    for size in (0, -1, 524_288):
        with pytest.raises(InvalidArgumentError):
            await distributor.grant(second, size)
    for off in (-3, 3):
        with pytest.raises(ClockSkewError) as caught:
            await distributor.grant(second + off, 1)
        assert caught.value.ahead == off
    backend_of(distributor)._fork_generation -= 1  # what a fork comes to
    with pytest.raises(ForkedError):
        await distributor.grant(second, 1)


async def test_a_clock_that_was_far_ahead() -> None:
    """What was forgotten meanwhile is granted no more; and it does not keep all seconds."""
    clock = ManualClock()
    distributor = MemorySequenceDistributor(name="n", clock=clock)
    began = clock.now_ms() // 1000
    for _ in range(100):
        await distributor.grant(clock.now_ms() // 1000, 1)
        await clock.advance(1)
    [state] = backend_of(distributor)._sequences.values()
    assert state is not None
    assert len(state.granted) == 3
    clock.set_wall_ms(began * 1000)
    reply = await distributor.grant(began, 1)
    assert isinstance(reply, SecondFenced)
    assert reply.now == began < reply.opens


async def test_a_store_that_is_emptied_grants_nothing_again() -> None:
    """The fence is above all that may have been granted; other names are as they were."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    lost = store.sequence_distributor(namespace="shop", name="n", tolerance=2, margin=1)
    other = store.sequence_distributor(namespace="shopping", name="n")
    second = clock.now_ms() // 1000
    for each in (lost, other):
        assert await each.grant(second, 5) == SequenceGrant(second, 1, 5)
    store.forget_machines(namespace="shop", everything=False)
    assert await lost.grant(second, 5) == SequenceGrant(second, 6, 10)
    store.forget_machines(namespace="shop")
    for late in range(3):
        assert await lost.grant(second + late, 5) == SecondFenced(second + 4, second)
    assert await other.grant(second, 5) == SequenceGrant(second, 6, 10)
    await clock.advance(2)
    assert await lost.grant(second + 4, 5) == SequenceGrant(second + 4, 1, 5)


async def test_they_are_not_copied() -> None:
    """A copy would grant the same sequences again, also one that a process gets by pickle."""
    distributor = MemorySequenceDistributor(name="n", clock=ManualClock())
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(distributor)


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads that are changed as often as Python can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


async def test_loops_of_several_threads_share_it(busy_threads: None) -> None:
    clock = ManualClock()
    distributor = MemorySequenceDistributor(name="n", clock=clock)
    second = clock.now_ms() // 1000

    async def take() -> list[object]:
        return [await distributor.grant(second, 1) for _ in range(2000)]

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(asyncio.run, take()) for _ in range(4)]
        replies = [reply for call in calls for reply in call.result()]
    assert len({*replies}) == len(replies) == 8000


async def test_a_signal_handler_takes_none_of_a_call_under_way() -> None:
    """At whichever line it runs it gets sequences of its own, or none."""
    clock = ManualClock()
    distributor = MemorySequenceDistributor(name="n", clock=clock)
    second = clock.now_ms() // 1000
    replies: list[object] = []
    refused = 0

    def handler() -> None:
        nonlocal refused
        try:
            distributor.grant(second, 1).send(None)
        except StopIteration as returned:
            replies.append(returned.value)
        except WouldBlock:
            refused += 1

    with interrupted(stores, "line", handler):
        replies.append(await distributor.grant(second, 1))
    assert len({*replies}) == len(replies) > 1
    assert refused > 1
