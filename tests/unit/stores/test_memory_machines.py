"""Machine ids in this process's memory: what is not in the contract."""

from __future__ import annotations

import uuid

from aiocosid.abc import InstanceId, Machine, MachineIdDistributor
from aiocosid.stores.memory import MemoryStore
from tests.script import run_python

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
    who.renew(0, now_ms=1, fence_ms=1),
    who.release(0, last_ms=1),
    who.aopen(),
    store.evict_machine(machine_id=0),
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


async def test_machines_can_be_listed() -> None:
    """By namespace and number, also those that were given back."""
    store, z = MemoryStore(), None
    for namespace, text, stable in (("b", "x", False), ("a", "y", True), ("a", "z", False)):
        who = InstanceId(text, stable=stable)
        z = store.machine_id_distributor(namespace=namespace, instance_id=who)
        await take(z)
    assert z is not None
    await z.renew(1, now_ms=NOW + 5, fence_ms=NOW + 70)
    await z.release(1, last_ms=NOW + 4)
    x = Machine(namespace="b", machine_id=0, instance_id="x", last_timestamp_ms=NOW)
    y = Machine(namespace="a", machine_id=0, instance_id="y", last_timestamp_ms=NOW, stable=True)
    given_back = Machine(
        namespace="a", machine_id=1, instance_id="", last_timestamp_ms=NOW + 5, fence_ms=NOW + 4
    )
    assert await store.machines() == [y, given_back, x]
    assert await store.machines(namespace="b") == [x]
    assert await store.machines(namespace="none") == []


async def test_machine_ids_are_not_for_the_child() -> None:
    """It would hand out what its parent hands out."""
    refusals = run_python(FORK)
    assert len(refusals) == 5
    assert {each.split("; ")[1] for each in refusals} == {
        "use a store that both processes can reach"
    }
