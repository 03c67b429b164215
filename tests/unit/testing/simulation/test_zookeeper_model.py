"""The simulated ZooKeeper answers as the real one does, and its sessions end as they do there."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from aiocosid import MachineIdLostError, MachineIdQuarantineError, StoreUnavailableError
from aiocosid.stores.zookeeper import ZookeeperStore
from aiocosid.stores.zookeeper._link import as_link
from aiocosid.stores.zookeeper._nodes import Nodes, create, create_ephemeral
from aiocosid.testing.simulation import SCENARIOS, Node, SimulatedZooKeeper, VirtualTimeLoop, World
from tests.servers import ZookeeperServer

PATHS = ("a", "b", "a/x", "a/y", "a/x/z", "b/x", "s")
LIMIT = 20.0  # seconds
MAX_MS = 2**53

Operation = tuple[str, dict[str, Any]]


def operations(rng: random.Random, *, length: int) -> list[list[Operation]]:
    """Calls; those of several operations are transactions."""
    sizes = rng.choices((1, 2, 3), (4, 1, 1), k=length)
    return [[operation(rng, alone=size == 1) for _ in range(size)] for size in sizes]


def operation(rng: random.Random, *, alone: bool) -> Operation:
    looks = ("get", "get_children") if alone else ("check",)
    name = rng.choice(("create", "create", "delete", "set" if alone else "set_data", *looks))
    told: dict[str, Any] = {"path": rng.choice(PATHS)}
    if name.startswith(("create", "set")):
        told["value"] = rng.randbytes(rng.randrange(9))
    if name == "create":
        told |= {"ephemeral": rng.random() < 0.2, "sequence": rng.random() < 0.2}
    elif not name.startswith("get"):
        told["version"] = rng.choice((-1, -1, 0, 1, 2))
    return name, told


def run(client: Any, root: str, calls: list[list[Operation]]) -> list[Any]:
    """What a client says to calls that are sent one behind the other, as on any server."""
    promises: list[Any] = []
    for call in calls:
        rooted = [(name, {**told, "path": f"{root}/{told['path']}"}) for name, told in call]
        if len(rooted) == 1:
            ((name, told),) = rooted
            promises.append(getattr(client, f"{name}_async")(**told))
            continue
        transaction = client.transaction()
        for name, told in rooted:
            getattr(transaction, name)(**told)
        promises.append(transaction.commit_async())
    return [plain(answered(each), root) for each in promises]


def asked(call: Any, **told: Any) -> Any:
    return answered(call(**told))


def answered(promise: Any) -> Any:
    assert promise.wait(LIMIT)
    return promise.exception or promise.value


def plain(answer: Any, root: str) -> Any:
    match answer:
        case Exception():
            return type(answer).__name__
        case str():
            return answer.removeprefix(root)
        case list():
            return [plain(each, root) for each in answer]
        case (bytes(data), stat):
            return data, plain(stat, root)
        case bool():
            return answer
        case _:
            counts = answer.version, answer.cversion, answer.dataLength, answer.numChildren
            return *counts, answer.ephemeralOwner != 0, answer.czxid == answer.mzxid


@pytest.mark.integration
def test_random_requests_are_answered_as_a_server_does(
    zookeeper: ZookeeperServer, namespace: str
) -> None:
    world = World(0)
    ours = SimulatedZooKeeper(world).operator()
    for seed in range(8):
        root = f"/{namespace}-{seed}"
        for client in (ours, zookeeper.behind):
            asked(client.create_async, path=root, value=b"")
        calls = operations(random.Random(seed), length=60)  # noqa: S311 - to be repeatable
        expected = run(zookeeper.behind, root, calls)
        for call, told, said in zip(calls, run(ours, root, calls), expected, strict=True):
            is_same = told == said or (call[0][0] == "get_children" and set(told) == set(said))
            assert is_same, (seed, call, told, said)


async def forever(node: Node) -> None:
    while True:
        await node.clock.sleep(1.0)


def watched(
    zookeeper: SimulatedZooKeeper,
    states: list[str],
    work: Callable[[Nodes], Coroutine[Any, Any, None]],
    *,
    raised: list[Exception] | None = None,
) -> Callable[[Node], Awaitable[None]]:
    """A process with a session of two seconds, that does something, and then nothing."""

    async def main(node: Node) -> None:
        client = zookeeper.client(node, session_timeout=2.0)
        client.add_listener(states.append)

        try:
            await as_link(client).call(work)
        except StoreUnavailableError as error:
            if raised is None:
                raise
            raised.append(error)
        await forever(node)

    return main


def test_an_ephemeral_node_goes_with_its_session_and_its_client_learns_it_late() -> None:
    states: list[str] = []

    async def work(nodes: Nodes) -> None:
        await nodes.commit(create("/stays", b""), create_ephemeral("/goes", b""))

    async def scenario(world: World) -> None:
        zookeeper = SimulatedZooKeeper(world)
        operator = zookeeper.operator()
        node = world.node(watched(zookeeper, states, work))
        await world.sleep(5.0)
        assert asked(operator.get_children_async, path="/") == ["stays", "goes"]
        node.links[0].cut()
        await world.sleep(1.5)
        assert states == ["CONNECTED", "SUSPENDED"]
        assert asked(operator.get_children_async, path="/") == ["stays", "goes"]
        await world.sleep(1.0)
        assert asked(operator.get_children_async, path="/") == ["stays"]
        assert states == ["CONNECTED", "SUSPENDED"]
        node.links[0].heal()
        await world.sleep(1.0)
        assert states == ["CONNECTED", "SUSPENDED", "LOST", "CONNECTED"]
        node.pause(5.0)
        await world.sleep(4.9)
        assert len(states) == 4
        await world.sleep(2.0)
        assert states[4:] == ["SUSPENDED", "LOST", "CONNECTED"]
        node.crash()

    World(1).run(scenario)


def test_a_write_without_a_reply_may_be_done() -> None:
    raised: list[Exception] = []
    states: list[str] = []

    async def scenario(world: World) -> None:
        zookeeper = SimulatedZooKeeper(world)

        async def work(nodes: Nodes) -> None:
            await nodes.get("/done")  # as soon as there is a session
            node.links[0].cut(requests=False)
            await nodes.create("/done", b"")

        node = world.node(watched(zookeeper, states, work, raised=raised))
        await world.sleep(3.0)
        assert len(raised) == 1
        assert "/done" in zookeeper.nodes
        node.crash()

    World(1).run(scenario)


def test_without_a_leader_nobody_is_answered_and_no_session_ends() -> None:
    states: list[str] = []

    async def work(nodes: Nodes) -> None:
        await nodes.commit(create_ephemeral("/goes", b""))

    async def scenario(world: World) -> None:
        zookeeper = SimulatedZooKeeper(world)
        operator = zookeeper.operator()
        node = world.node(watched(zookeeper, states, work))
        await world.sleep(1.0)
        zookeeper.stop()
        await world.sleep(9.0)
        assert type(asked(operator.get_async, path="/goes")).__name__ == "ConnectionLoss"
        zookeeper.start()
        await world.sleep(1.5)
        assert states == ["CONNECTED", "SUSPENDED", "CONNECTED"]
        assert asked(operator.get_children_async, path="/") == ["goes"]
        node.crash()

    World(1).run(scenario)


def test_a_server_that_lags_behind_has_seen_what_its_session_wrote() -> None:
    states: list[str] = []
    seen: list[bool] = []

    async def scenario(world: World) -> None:
        zookeeper = SimulatedZooKeeper(world)
        operator = zookeeper.operator()

        async def work(nodes: Nodes) -> None:
            await nodes.get("/ours")  # as soon as there is a session
            (session,) = (each for each in zookeeper._sessions.values() if each.timeout == 2.0)
            session.lag = 3.0
            asked(operator.create_async, path="/theirs", value=b"")
            seen.extend(each is not None for each in await nodes.get("/theirs"))
            await nodes.create("/ours", b"")
            seen.extend(each is not None for each in await nodes.get("/theirs", "/ours"))

        node = world.node(watched(zookeeper, states, work))
        await world.sleep(2.0)
        assert seen == [False, True, True]
        node.crash()

    World(1).run(scenario)


def test_no_generator_is_left_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not closed would be by a task of the loop's, outside of the call."""
    left: list[object] = []

    def hook(_: VirtualTimeLoop, each: object) -> None:
        left.append(each)

    monkeypatch.setattr(VirtualTimeLoop, "_asyncgen_finalizer_hook", hook)
    World(1).run(SCENARIOS["zookeeper_snowflakes"])
    assert left == []


async def restored(world: World) -> tuple[Any, Any]:
    """Two that ask, the first of which has id 0; and a copy put back that does not know of it."""
    zookeeper = SimulatedZooKeeper(world)
    store = ZookeeperStore(zookeeper.operator())
    await store.mark_machines()
    first, second = (
        store.machine_id_distributor(instance_id=name, safe_guard=4.0, interval=1.0)
        for name in ("first", "second")
    )
    copy = zookeeper.save()
    grant = await first.distribute(2, now_ms=0, latest_ms=MAX_MS)
    assert grant.machine_id == 0
    for _ in range(50):
        await world.sleep(0.1)
        await first.guard(0, now_ms=0, mark_ms=0)
    zookeeper.restore(copy)
    with pytest.raises(StoreUnavailableError):  # the session was that of the server before
        await store.counters()
    return first, second


def test_who_was_handed_the_id_by_a_restored_tree_keeps_it() -> None:
    """The former owner was interrupted; the new one was not, and would go on beside him."""

    async def scenario(world: World) -> None:
        first, second = await restored(world)
        assert (await second.distribute(2, now_ms=0, latest_ms=MAX_MS)).machine_id == 0
        with pytest.raises(MachineIdLostError, match="second holds it"):
            await first.reassert(0, now_ms=0, mark_ms=0)
        await second.reassert(0, now_ms=0, mark_ms=0)
        with pytest.raises(MachineIdQuarantineError):
            await first.distribute(2, now_ms=0, latest_ms=MAX_MS)

    World(1).run(scenario)


def test_one_restored_tree_is_one_quarantine() -> None:
    """Its transactions are counted on from where the copy was made."""

    async def scenario(world: World) -> None:
        first, second = await restored(world)
        await first.reassert(0, now_ms=0, mark_ms=0)
        with pytest.raises(MachineIdQuarantineError):
            await second.distribute(2, now_ms=0, latest_ms=MAX_MS)
        for _ in range(12):
            await world.sleep(1.0)
            await first.reassert(0, now_ms=0, mark_ms=0)
        assert (await second.distribute(2, now_ms=0, latest_ms=MAX_MS)).machine_id == 1

    World(1).run(scenario)
