"""Machine ids in this process's memory: what is not in the contract."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from aiocosid.abc import InstanceId, Machine, MachineIdDistributor
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreUnavailableError,
)
from aiocosid.machine import rules
from aiocosid.machine.cells import Need
from aiocosid.machine.distributor import transact
from aiocosid.machine.rules import Asker
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock
from tests.script import run_python

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
FORK = """
import json, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from aiocosid.errors import ForkedError
from aiocosid.stores.memory import MemoryStore

store = MemoryStore()
who = store.machine_id_distributor(instance_id="a")

def run(call):
    try:
        call.send(None)
    except StopIteration:
        return "done"
    except ForkedError as error:
        return str(error)

times = dict(now_ms=1, latest_ms=1)
run(who.distribute(2, **times))
if os.fork():
    os.wait()
    sys.exit()
print(json.dumps([run(each) for each in (
    who.distribute(2, **times),
    who.guard(0, now_ms=1, mark_ms=1),
    who.revert(0, last_ms=1),
    who.aopen(),
    store.revert_machine(machine_id=0),
)]))
"""


async def take(distributor: MachineIdDistributor, bits: int = 2) -> tuple[int, int]:
    grant = await distributor.distribute(bits, now_ms=NOW, latest_ms=NOW)
    return grant.machine_id, grant.floor_ms


async def test_the_defaults_are_the_contracts() -> None:
    """Namespace cosid, CosId's times, an instance of its own, the store that the process shares."""
    one, other = MemoryStore().machine_id_distributor(), MemoryStore().machine_id_distributor()
    assert (one.namespace, one.safe_guard, one.interval) == ("cosid", 300, 60)
    assert one.is_leased
    assert one.instance_id != other.instance_id
    assert repr(one) == f"<CellMachineIdDistributor cosid {one.instance_id.text}>"


async def test_distributors_of_one_process_share_the_ids() -> None:
    """By whatever notation of the URL; another store is apart."""
    namespace = uuid.uuid4().hex
    made = [
        MemoryStore.from_url().machine_id_distributor(namespace=namespace),
        MemoryStore.from_url("memory://").machine_id_distributor(namespace=namespace),
        MemoryStore.from_url("memory:").machine_id_distributor(namespace=namespace),
        MemoryStore().machine_id_distributor(namespace=namespace),
    ]
    assert [(await take(each))[0] for each in made] == [0, 1, 2, 0]


async def test_who_is_silent_is_told_by_the_stores_clock() -> None:
    """To the moment; the wall clocks of those who ask do not matter."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    made = [
        store.machine_id_distributor(instance_id=text, safe_guard=10, interval=3) for text in "abc"
    ]
    for each in made[:2]:
        await take(each, 1)
    clock.step_wall_ms(10**9)
    await clock.advance(9.999)
    with pytest.raises(MachineIdOverflowError):
        await take(made[2], 1)
    await made[0].guard(0, now_ms=1, mark_ms=1)
    await clock.advance(0.001)
    assert await take(made[2], 1) == (1, NOW)


async def test_a_narrower_layout_takes_no_wide_id() -> None:
    """Neither one given back nor the own; a wide one that is held does not count."""
    store = MemoryStore()
    wide = [store.machine_id_distributor(instance_id=f"wide{n}") for n in range(5)]
    for each in wide:
        await take(each, 3)
    cells = store._backend.cells["cosid"]
    assert cells.space is not None
    cells.space = replace(cells.space, bits=0)  # as if all of them were Java's
    await wide[3].revert(3, last_ms=-1)
    with pytest.raises(MachineIdOverflowError):
        await take(store.machine_id_distributor(instance_id="narrow"), 1)
    await wide[1].revert(1, last_ms=-1)
    assert await take(wide[4], 1) == (1, NOW)
    with pytest.raises(MachineIdLostError):
        await wide[4].guard(4, now_ms=NOW, mark_ms=NOW)


async def test_machines_can_be_listed() -> None:
    """By namespace and number, also those that were given back."""
    store, z = MemoryStore(), None
    for namespace, text, stable in (("b", "x", False), ("a", "y", True), ("a", "z", False)):
        who = InstanceId(text, stable=stable)
        z = store.machine_id_distributor(namespace=namespace, instance_id=who)
        await take(z)
    assert z is not None
    await z.guard(1, now_ms=NOW + 5, mark_ms=NOW + 70)
    await z.revert(1, last_ms=NOW + 4)
    x = Machine(namespace="b", machine_id=0, instance_id="x", last_timestamp_ms=NOW)
    y = Machine(namespace="a", machine_id=0, instance_id="y", last_timestamp_ms=NOW, stable=True)
    given_back = Machine(
        namespace="a", machine_id=1, instance_id="", last_timestamp_ms=NOW + 5, mark_ms=NOW + 4
    )
    assert await store.machines() == [y, given_back, x]
    assert await store.machines(namespace="b") == [x]
    assert await store.machines(namespace="none") == []


@pytest.mark.parametrize("stable", [False, True])
async def test_a_return_of_an_earlier_life_comes_too_late(stable: bool) -> None:
    """Of the same object, sent before it took the id again; also if no mark was raised since."""
    store = MemoryStore()
    who = InstanceId("a", stable=stable)
    one = store.machine_id_distributor(instance_id=who)
    await take(one)
    await one.guard(0, now_ms=NOW, mark_ms=NOW + 70)
    sent_with = one._token
    await one.distribute(2, now_ms=NOW, latest_ms=NOW + 100)
    late = partial(rules.give_back, machine_id=0, last_ms=NOW, token=sent_with)
    asker = Asker(who.text, who.stable)
    await transact(store._backend, "cosid", Need(), lambda found, _: late(found, asker))
    await one.guard(0, now_ms=NOW, mark_ms=NOW)
    [machine] = await store.machines()
    assert (machine.instance_id, machine.mark_ms) == ("a", NOW + 70)
    await one.revert(0, last_ms=NOW)
    assert (await store.machines())[0].mark_ms == NOW


@pytest.mark.parametrize("stable", [False, True])
async def test_two_objects_under_one_name_are_told_apart(stable: bool) -> None:
    """Only the one that took the id last may go on with it; a late farewell changes nothing."""
    store = MemoryStore()
    who = InstanceId("a", stable=stable)
    first, second = (store.machine_id_distributor(instance_id=who) for _ in range(2))
    await take(first)
    await first.guard(0, now_ms=NOW, mark_ms=NOW + 70)
    again = await second.distribute(2, now_ms=NOW, latest_ms=NOW + 100)
    assert (again.machine_id, again.floor_ms) == (0, NOW + 70)
    await second.guard(0, now_ms=NOW, mark_ms=NOW + 90)
    with pytest.raises(MachineIdLostError):
        await first.guard(0, now_ms=NOW, mark_ms=NOW + 80)
    await first.revert(0, last_ms=NOW)
    [machine] = await store.machines()
    assert (machine.instance_id, machine.mark_ms) == ("a", NOW + 90)


async def test_an_id_can_be_taken_away() -> None:
    """Also from a stable owner, who is told; its mark stays for the next one."""
    store = MemoryStore()
    stable = store.machine_id_distributor(instance_id=InstanceId("a", stable=True))
    await take(stable)
    await stable.guard(0, now_ms=NOW, mark_ms=NOW + 99)
    await store.revert_machine(machine_id=0)
    with pytest.raises(MachineIdLostError, match="nobody holds it"):
        await stable.guard(0, now_ms=NOW, mark_ms=NOW)
    other = store.machine_id_distributor(instance_id="b")
    grant = await other.distribute(2, now_ms=NOW, latest_ms=NOW + 1099)
    # A second above the mark: the next owner might be CosId's, which knows none.
    assert (grant.machine_id, grant.floor_ms) == (0, NOW + 1099)
    with pytest.raises(MachineIdLostError, match="b holds it"):
        await stable.guard(0, now_ms=NOW, mark_ms=NOW)
    for machine_id, namespace in ((1, "cosid"), (0, "none")):
        with pytest.raises(InvalidArgumentError, match="machine_id"):
            await store.revert_machine(machine_id=machine_id, namespace=namespace)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("distribute", {"bits": 0, "now_ms": 1, "latest_ms": 1}),
        ("distribute", {"bits": 32, "now_ms": 1, "latest_ms": 1}),
        ("distribute", {"bits": 1, "now_ms": -1, "latest_ms": 1}),
        ("distribute", {"bits": 1, "now_ms": 1, "latest_ms": 2**63}),
        ("guard", {"machine_id": -1, "now_ms": 1, "mark_ms": 1}),
        ("guard", {"machine_id": 1, "now_ms": 1.5, "mark_ms": 1}),
        ("guard", {"machine_id": 1, "now_ms": 1, "mark_ms": 2**63}),
        ("revert", {"machine_id": 2**31, "last_ms": 1}),
        ("revert", {"machine_id": 1, "last_ms": -2}),
    ],
)
async def test_an_argument_out_of_its_range(method: str, arguments: dict[str, Any]) -> None:
    """It is refused before anything is sent."""
    one = MemoryStore().machine_id_distributor()
    with pytest.raises(InvalidArgumentError):
        await getattr(one, method)(**arguments)


async def test_a_commit_that_is_always_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, in the store's own error."""
    store = MemoryStore()
    monkeypatch.setattr("aiocosid.machine.distributor.LONGEST_TRY", 0.2)
    monkeypatch.setattr(type(store._backend), "commit", AsyncMock(return_value=False))
    with pytest.raises(StoreUnavailableError, match="each time"):
        await take(store.machine_id_distributor())


async def test_machine_ids_are_not_for_the_child() -> None:
    """It would hand out what its parent hands out."""
    refusals = run_python(FORK)
    assert len(refusals) == 5
    assert {each.split("; ")[1] for each in refusals} == {
        "use a store that both processes can reach"
    }
