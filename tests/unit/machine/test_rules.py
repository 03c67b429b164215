"""The rules of machine ids to the millisecond, as all stores of cells follow them.

The contract tells what every distributor does, tests/integration/test_sql_machines.py the rest.
"""

from __future__ import annotations

from math import inf

import pytest

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.errors import MachineIdOverflowError
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

pytestmark = pytest.mark.asyncio

T = 1_700_000_000_000  # some time in the past, in ms
FAR = 2**62  # no floor is too late


class Instances:
    """Distributors of one namespace, by the text of the instance."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=T)
        self.store = MemoryStore(clock=self.clock)

    def __call__(
        self, text: str, *, stable: bool = False, safe_guard: float = 300
    ) -> CellMachineIdDistributor:
        return self.store.machine_id_distributor(
            instance_id=InstanceId(text, stable=stable), safe_guard=safe_guard
        )

    async def take(
        self, text: str, *, bits: int = 1, latest: int = FAR, stable: bool = False
    ) -> MachineGrant:
        return await self(text, stable=stable).distribute(bits, now_ms=T, latest_ms=latest)


@pytest.fixture
def instances() -> Instances:
    return Instances()


async def test_the_owners_stability_counts(instances: Instances) -> None:
    """CosId asks whether the taker is stable; ours notes what the owner said of itself, last."""
    await instances.take("a", stable=True)
    await instances.take("b")
    await instances.clock.advance(300)
    assert await instances.take("c", stable=True) == MachineGrant(1, T)
    with pytest.raises(MachineIdOverflowError):
        await instances.take("d")
    assert await instances.take("a") == MachineGrant(0, T)
    await instances.clock.advance(300)
    assert await instances.take("d") == MachineGrant(0, T)


async def test_an_owner_that_comes_back_is_no_longer_silent(instances: Instances) -> None:
    """Whoever is handed an expired one has not been silent either."""
    one = instances("a")
    await one.distribute(1, now_ms=T, latest_ms=FAR)
    await instances.take("b")
    await one.guard(0, now_ms=T, mark_ms=T + 60_000)
    await instances.clock.advance(300)
    assert await instances.take("c", latest=T) == MachineGrant(1, T)
    assert await instances.take("d", latest=T) == MachineGrant(0, T + 60_000)
    with pytest.raises(MachineIdOverflowError):
        await instances.take("e", latest=T)


@pytest.mark.parametrize("guard", [inf, 302.5])
async def test_who_asks_may_name_a_longer_safe_guard(instances: Instances, guard: float) -> None:
    """The longer one of the two decides."""
    await instances.take("a")
    await instances.take("b")
    await instances.clock.advance(302)
    one = instances("c", safe_guard=guard)
    with pytest.raises(MachineIdOverflowError):
        await one.distribute(1, now_ms=T, latest_ms=FAR)
    assert await instances.take("c") == MachineGrant(0, T)


async def test_the_time_of_the_last_id_never_raises_the_mark(instances: Instances) -> None:
    """Were an id later than the mark, the stamp would say so."""
    one = instances("a")
    await one.distribute(1, now_ms=T, latest_ms=FAR)
    await one.guard(0, now_ms=T, mark_ms=T + 1)
    await one.revert(0, last_ms=T + 5)
    [found] = await instances.store.machines()
    assert (found.mark_ms, found.last_timestamp_ms) == (T + 1, T + 5)
