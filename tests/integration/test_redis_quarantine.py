"""A server that forgot: emptied, started anew, failed over and back, restored, beside CosId's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.errors import (
    CorruptMachineStateError,
    MachineIdQuarantineError,
    StoreAuthenticationError,
    StoreNotInitializedError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine.cells import NamespaceRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.redis import RedisStore
from tests.machine_marks import identity, initialize_namespace
from tests.servers import ValkeyServer, wait_until

from ._snowflakes import LAYOUT, check_unique, consuming, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T = 1_700_000_000_000  # some time in the past, in ms
FAR = 2**62  # no floor is too late
NS = "ns"


def key(suffix: str, namespace: str = NS) -> str:
    return f"cosid:{{{namespace}}}:{suffix}"


def hash_of(server: ValkeyServer, suffix: str) -> dict[str, str]:
    flat = server.call("HGETALL", key(suffix))
    assert isinstance(flat, list)
    texts = [str(each) for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def make(
    store: RedisStore, text: str, *, safe_guard: float = 300.0, stable: bool = False
) -> CellMachineIdDistributor:
    who = InstanceId(text, stable=stable)
    return store.machine_id_distributor(namespace=NS, instance_id=who, safe_guard=safe_guard)


async def take(machine: CellMachineIdDistributor, *, now: int = T) -> MachineGrant:
    return await machine.distribute(3, now_ms=now, latest_ms=FAR)


def space(server: ValkeyServer, namespace: str = NS) -> NamespaceRecord:
    return NamespaceRecord.read(str(server.call("GET", key("space", namespace))))


def alter(server: ValkeyServer, namespace: str = NS, **about: Any) -> None:
    """Change the namespace's cell behind everybody's back."""
    altered = replace(space(server, namespace), **about)
    server.call("SET", key("space", namespace), altered.text())


async def keep(machine: CellMachineIdDistributor, number: int, mark: int = -1) -> None:
    await machine.reassert(number, now_ms=T, fence_ms=mark)


def pass_time(server: ValkeyServer, seconds: float, namespace: str = NS) -> None:
    since_ms = space(server, namespace).since_ms - int(seconds * 1000)
    alter(server, namespace, since_ms=since_ms)


async def is_quarantined(store: RedisStore, text: str = "newcomer") -> bool:
    try:
        await take(make(store, text))
    except MachineIdQuarantineError:
        return True
    return False


@asynccontextmanager
async def store_on(server: ValkeyServer) -> AsyncGenerator[RedisStore]:
    async with RedisStore.from_url(server.patient_url) as store:
        yield store


@pytest.fixture
def server(valkey_factory: Callable[..., ValkeyServer]) -> ValkeyServer:
    """One of the test's own."""
    return valkey_factory()


def patient_lease(store: RedisStore, **options: Any) -> MachineIdLease:
    """One that a busy machine does not end: then it could assert nothing."""
    machine = store.machine_id_distributor(namespace=NS, safe_guard=30.0, interval=0.1)
    return MachineIdLease(machine, bits=1, **options)


async def test_emptied_while_two_leases_live(server: ValkeyServer) -> None:
    """They go on with their ids; a newcomer is told why, and gets another one afterwards."""
    initialize_namespace(server, NS)
    async with store_on(server) as store:
        leases = [patient_lease(store) for _ in range(2)]
        async with (
            SnowflakeId(leases[0], layout=LAYOUT) as one,
            SnowflakeId(leases[1], layout=LAYOUT) as two,
            consuming(one, two) as consumers,
        ):
            for _ in range(2):
                await asyncio.gather(*(each.more() for each in consumers))
                held = [each.machine_id for each in leases]
                server.call("FLUSHALL")
                newcomer = SnowflakeId(patient_lease(store, start_timeout=0.3), layout=LAYOUT)
                with pytest.raises(StoreNotInitializedError, match="has been emptied"):
                    await newcomer.__aenter__()
                await until(lambda: len(hash_of(server, "itc_idx")) == 2)
                await asyncio.gather(*(each.more() for each in consumers))
                assert [each.machine_id for each in leases] == held
            assert all(each.statistics().losses == 0 for each in leases)
        pass_time(server, 40)
        async with SnowflakeId(patient_lease(store), layout=LAYOUT) as newcomer:
            ids = await newcomer.next_ids(3)
        check_unique(*(each.ids for each in consumers), ids)


async def test_started_anew(valkey_factory: Callable[..., ValkeyServer]) -> None:
    """Empty, or with all that it had: nobody knows, so it is the same for both."""
    for persistent in (False, True):
        server = valkey_factory(persistent=persistent)
        async with store_on(server) as store:
            await store.initialize_namespace(namespace=NS)
            owner = make(store, "owner")
            assert await take(owner) == MachineGrant(0, -1)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            assert await is_quarantined(store)
            assert await is_quarantined(store, "owner")
            await keep(owner, 0, mark=T + 9)
            [marker] = await store.machine_markers()
            assert 290 < marker.seconds_left <= 305
            pass_time(server, 305)
            assert (await take(make(store, "newcomer"))).machine_id == 1
            assert await take(owner) == MachineGrant(0, T + 9)


def link_of(server: ValkeyServer) -> str:
    lines = str(server.call("INFO", "replication")).splitlines()
    return next((each for each in lines if each.startswith("master_link_status")), "")


async def test_failed_over_to_a_replica_that_lags_and_back(
    valkey_factory: Callable[..., ValkeyServer],
) -> None:
    """The first master comes back with its old run_id; its replication id tells."""
    at_once = ("--repl-diskless-sync-delay", 0)
    one = valkey_factory(*at_once)
    two = valkey_factory(*at_once, "--replicaof", one.host, one.port)

    async def linked(replica: ValkeyServer) -> None:
        await asyncio.to_thread(
            wait_until, lambda: link_of(replica).endswith("up"), "it follows", deadline=20
        )

    await linked(two)
    async with store_on(one) as first, store_on(two) as second:
        await first.initialize_namespace(namespace=NS)
        known = make(first, "known")
        await take(known)
        await asyncio.to_thread(
            wait_until,
            lambda: two.call("HLEN", key("itc_idx")) == 1,
            "the replica has it",
            deadline=20,
        )
        two.call("REPLICAOF", "127.0.0.1", 1)  # cut off: what comes now is lost
        owner = make(first, "owner")
        assert (await take(owner)).machine_id == 1
        two.call("REPLICAOF", "NO", "ONE")
        assert await is_quarantined(second)
        owner._backend = second._backend
        await keep(owner, 1)
        assert hash_of(two, "itc_idx")["owner"].startswith("1|")
        pass_time(two, 305)
        heirs = [(await take(make(second, text))).machine_id for text in "ab"]
        assert heirs == [2, 3]
        before = identity(one)
        one.call("REPLICAOF", two.host, two.port)
        await linked(one)
        one.call("REPLICAOF", "NO", "ONE")
        after = identity(one)
        assert before.partition(" ")[0] == after.partition(" ")[0]
        assert before != after
        assert await is_quarantined(first)


@pytest.mark.parametrize(("field", "value"), [("store", "x"), (f"count:{NS}", "1")])
async def test_a_damaged_marker(server: ValkeyServer, field: str, value: str) -> None:
    """It is named, and nothing is written."""
    async with store_on(server) as store:
        owner = make(store, "a")
        await store.initialize_namespace(namespace=NS)
        await take(owner)
        server.call("HSET", "aiocosid:marker", field, value)
        owner._snapshot = None  # of a process that was started since
        before = server.call("DEBUG", "DIGEST")
        for call in (
            keep(owner, 0),
            take(make(store, "b")),
            store.initialize_namespace(namespace=NS),
            store.machine_markers(),
        ):
            with pytest.raises(CorruptMachineStateError) as caught:
                await call
            assert caught.value.place == f"aiocosid:marker[{field}]"
        assert server.call("DEBUG", "DIGEST") == before


async def test_a_server_that_hides_who_it_is(server: ValkeyServer) -> None:
    """Without a right to INFO nothing is handed out or guarded; the error says what to allow."""
    initialize_namespace(server, NS)
    rights = "evalsha eval type time get set hget hmget hset hdel hgetall hlen"
    allowed = [f"+{each}" for each in rights.split()] + ["~aiocosid:marker"]
    server.call("ACL", "SETUSER", "app", "on", ">secret", "~cosid:*", *allowed)
    url = f"redis://app:secret@{server.host}:{server.port}"
    async with RedisStore.from_url(url) as store:
        machine = make(store, "a")
        for hidden in (lambda: take(machine), lambda: keep(machine, 0), lambda: mark(store)):
            with pytest.raises(StoreAuthenticationError, match=r"\+info"):
                await hidden()
        assert server.call("KEYS", "cosid:*") == [key("space")]
        server.call("ACL", "SETUSER", "app", "+info")
        await take(machine)
        await keep(machine, 0)
        alter(server, identity="another one")
        await keep(machine, 0)
        assert await is_quarantined(store)
        pass_time(server, 305)
        assert not await is_quarantined(store)
        await machine.release(0, last_ms=T)
        assert (await mark(store)).seconds_left == 0


async def mark(store: RedisStore) -> Any:
    return await store.initialize_namespace(namespace=NS)
