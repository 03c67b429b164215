"""The fault wrappers do what their names say, and nothing else."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from aiocosid import SegmentChainId
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import InvalidArgumentError, StoreUnavailableError, WouldBlock
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.memory import MemoryBackend, MemoryStore
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    LossyDistributor,
    ManualClock,
    RolledBackDistributor,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, settled

pytestmark = pytest.mark.anyio


def counters_of(inner: CounterDistributor) -> dict[str, int]:
    """What lies in the store."""
    backend = inner._backend
    assert isinstance(backend, MemoryBackend)
    return backend._counters


@pytest.fixture
def inner() -> CounterDistributor:
    return MemoryStore().segment_distributor(namespace="shop", name="order", offset=5, step=10)


@pytest.mark.parametrize(
    "wrapper",
    [
        WrappedDistributor,
        FailingDistributor,
        LossyDistributor,
        RolledBackDistributor,
        partial(SlowDistributor, latency=0),
    ],
)
async def test_a_wrapper_passes_everything_on(
    inner: CounterDistributor, wrapper: type[WrappedDistributor]
) -> None:
    """Description, calls, opening and closing reach the wrapped one; it has to be awaited."""
    wrapped = wrapper(inner)
    assert (wrapped.namespaced_name, wrapped.offset, wrapped.step) == ("shop.order", 5, 10)
    assert wrapped.store == "memory"
    await wrapped.aopen()
    assert [await wrapped.next_max_id(10), await wrapped.next_max_id(3)] == [15, 18]
    assert (wrapped.steps, wrapped.calls) == ([10, 3], 2)
    await wrapped.aclose()
    assert (wrapped.opened, wrapped.closed) == (1, 1)
    with pytest.raises(WouldBlock):
        wrapped.next_max_id_nowait(10)
    with pytest.raises(InvalidArgumentError):
        await wrapped.next_max_id(0)
    assert wrapped.steps == [10, 3, 0]


class Third(IdSegmentDistributor):
    """Of every three ids one, and no more than four of them a call."""

    step_limit = 4

    def __init__(self) -> None:
        super().__init__(name="order", step=4)
        self.stride = 0  # as long as nobody has asked
        self.last = 1

    async def next_max_id(self, step: int) -> int:
        self.stride = 3
        self.last += 3 * step
        return self.last


async def test_which_ids_a_call_grants_is_passed_on() -> None:
    """A wrapper that says less hands out ids that are another database's."""
    wrapped = WrappedDistributor(Third())
    assert (wrapped.stride, wrapped.step_limit) == (0, 4)
    async with SegmentChainId(wrapped) as ids:
        assert await ids.next_ids(10) == list(range(4, 34, 3))
    assert set(wrapped.steps) == {4}


async def test_slow(inner: CounterDistributor) -> None:
    """The effect comes after half of the latency, the reply after the whole."""
    clock = ManualClock()
    call = Call(SlowDistributor(inner, latency=2.0, clock=clock).next_max_id, 10)
    await clock.advance(0.9)
    assert counters_of(inner) == {}
    await clock.advance(0.2)
    assert (counters_of(inner), call.is_done) == ({"shop.order": 15}, False)
    await clock.advance(0.9)
    assert (call.is_done, call.result) == (True, 15)


async def test_failing_so_many_times(inner: CounterDistributor) -> None:
    """The next calls fail before anything is written; the one after them works."""
    failing = FailingDistributor(inner)
    failing.fail(times=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="unplugged"):
            await failing.next_max_id(10)
    assert counters_of(inner) == {}
    assert await failing.next_max_id(10) == 15
    assert failing.calls == 3


async def test_failing_until_told(inner: CounterDistributor) -> None:
    """Without a number all calls fail, each with the given error, until `recover`."""
    failing = FailingDistributor(inner)
    failing.fail(RuntimeError("odd"))
    for _ in range(5):
        with pytest.raises(RuntimeError, match="odd"):
            await failing.next_max_id(10)
    failing.recover()
    assert await failing.next_max_id(10) == 15


async def test_each_failure_is_an_error_of_its_own(inner: CounterDistributor) -> None:
    """One error object raised twice would collect the tracebacks of both."""
    failing = FailingDistributor(inner)
    error = StoreUnavailableError("x", "y")
    failing.fail(error)
    caught: list[BaseException] = []
    for _ in range(2):
        with pytest.raises(StoreUnavailableError) as info:
            await failing.next_max_id(10)
        caught.append(info.value)
    assert len({id(each) for each in (*caught, error)}) == 3


async def test_the_gate_holds_calls(inner: CounterDistributor) -> None:
    """A call at the gate has had no effect; first come, first served."""
    gated = GatedDistributor(inner)
    calls = [await settled(Call, gated.next_max_id, step) for step in (1, 2, 3)]
    assert (gated.held, gated.steps, counters_of(inner)) == (3, [1, 2, 3], {})
    for served in (1, 2, 3):
        gated.let_through()
        await settle()
        assert [call.is_done for call in calls] == [True] * served + [False] * (3 - served)
    assert (gated.held, [call.result for call in calls]) == (0, [6, 8, 11])


@pytest.mark.parametrize("is_opened", [False, True])
async def test_the_gate_lets_the_next_ones_pass(
    inner: CounterDistributor, *, is_opened: bool
) -> None:
    """By permissions given beforehand, or while it is open; the one after them is held."""
    gated = GatedDistributor(inner)
    if is_opened:
        gated.let_through()
        gated.open()
    else:
        gated.let_through(2)
    assert [await gated.next_max_id(10), await gated.next_max_id(10)] == [15, 25]
    gated.close()
    call = await settled(Call, gated.next_max_id, 10)
    assert (gated.held, call.is_done) == (1, False)
    await settled(call.cancel)
    assert (gated.held, counters_of(inner)) == (0, {"shop.order": 25})


async def test_the_gate_knows_who_has_arrived(inner: CounterDistributor) -> None:
    """`arrived` waits for the nth call ever."""
    gated = GatedDistributor(inner)
    gated.open()
    two_came = Call(gated.arrived, 2)
    await gated.next_max_id(10)
    await settle()
    assert not two_came.is_done
    await gated.next_max_id(10)
    await gated.arrived(2)
    await settle()
    assert two_came.is_done


async def test_the_gate_can_hold_replies(inner: CounterDistributor) -> None:
    """With ``holds_replies`` the store has done its part when a call arrives at the gate."""
    gated = GatedDistributor(inner, holds_replies=True)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(gated.next_max_id, 10)
            await gated.arrived()
            assert (gated.held, counters_of(inner)) == (1, {"shop.order": 15})
            scope.cancel()


async def test_lossy(inner: CounterDistributor) -> None:
    """A lost reply is an error to the caller and an effect in the store."""
    lossy = LossyDistributor(inner)
    lossy.lose()
    with pytest.raises(StoreUnavailableError, match="before the reply"):
        await lossy.next_max_id(10)
    assert await lossy.next_max_id(10) == 25
    lossy.lose(None)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            await lossy.next_max_id(10)
    lossy.lose(0)
    assert await lossy.next_max_id(10) == 65


async def test_rolled_back(inner: CounterDistributor) -> None:
    """The counter goes back by so many ids, and on from there."""
    rolled_back = RolledBackDistributor(inner)
    assert await rolled_back.next_max_id(10) == 15
    assert await rolled_back.next_max_id(10) == 25
    rolled_back.set_back(15)
    assert await rolled_back.next_max_id(10) == 20
    assert await rolled_back.next_max_id(10) == 30
