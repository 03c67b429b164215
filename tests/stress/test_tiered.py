"""A Redis that forgets under eight processes: tiered it repeats nothing; plain, it is counted."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from aiocosid import SegmentChainId, open_store
from aiocosid.abc import Store
from aiocosid.errors import StoreError
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.stores.tiered import TieredStore
from tests.consumers import overlaps
from tests.servers import (
    FaultProxy,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
    eventually,
    free_port,
)

pytestmark = [
    pytest.mark.stress,
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.asyncio,
]

PROCESSES = 8
KILLS, FAILOVERS = 20, 10
STEP, PAUSE = 100, 0.02  # ids, and seconds between two segments: two cores serve all of them

KINDS = ("tiered", "chain", "plain")
QUICK = ("--repl-diskless-sync-delay", "0")


async def take(kind: str, store: Store, name: str, folder: Path, until: Path) -> None:
    """Record segments until a file is there; only plain Redis may fail, and begins anew then."""
    path = folder / kind / name
    with path.open("ab", buffering=0) as record:
        distributor = store.segment_distributor(namespace=kind, name="n", step=STEP)
        while not until.exists():  # noqa: ASYNC240 - a stat is quick
            try:
                max_id = await distributor.next_max_id(STEP)
                record.write(f"{max_id - STEP + 1} {max_id}\n".encode())
            except StoreError:
                if kind != "plain":
                    raise
                distributor = store.segment_distributor(namespace=kind, name="n", step=STEP)
            await asyncio.sleep(PAUSE)


async def take_ids(store: Store, name: str, folder: Path, until: Path) -> None:
    """The same through a chain, which fetches ahead."""
    distributor = store.segment_distributor(namespace="chain", name="n", step=STEP)
    with (folder / "chain" / name).open("ab", buffering=0) as record:
        async with SegmentChainId(distributor, endurance=0) as chain:
            while not until.exists():  # noqa: ASYNC240
                ids = await chain.next_ids(STEP)
                record.write("".join(f"{new_id} {new_id}\n" for new_id in ids).encode())
                await asyncio.sleep(PAUSE)


async def consume(url: str, root: str, name: str, folder: Path) -> None:
    """Take from a tiered and from the plain store, all on one Redis."""
    until = folder / "until"
    async with RedisStore.from_url(url) as plain, SqliteStore.from_url(root) as durable:
        tiered = TieredStore(durable, plain, span=20_000, pause=0.1)
        async with asyncio.TaskGroup() as group:
            group.create_task(take("plain", plain, name, folder, until))
            group.create_task(take("tiered", tiered, name, folder, until))
            group.create_task(take_ids(tiered, name, folder, until))


def work(url: str, root: str, name: str, folder: Path) -> None:
    """Run in a process of its own."""
    asyncio.run(consume(url, root, name, folder))


@asynccontextmanager
async def consumers(url: str, folder: Path) -> AsyncGenerator[Sequence[BaseProcess]]:
    """Have eight of them at work; at the end all have to have ended well."""
    for kind in KINDS:
        (folder / kind).mkdir()
    root = f"sqlite:///{folder / 'ids.db'}"
    async with open_store(root) as store:
        await store.create_schema()
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=work, args=(url, root, str(i), folder)) for i in range(PROCESSES)
    ]
    for process in running:
        process.start()
    try:

        async def are_at_work() -> bool:
            return all(len(list((folder / kind).iterdir())) == PROCESSES for kind in KINDS)

        await eventually(are_at_work, deadline=60.0)
        yield running
        (folder / "until").touch()
        await asyncio.gather(*(asyncio.to_thread(process.join, 30) for process in running))
        assert [process.exitcode for process in running] == [0] * PROCESSES
    finally:
        for process in running:
            process.kill()
            process.join()


def judge(what: str, folder: Path, record: Callable[[str, object], None]) -> None:
    """Count, and tell."""
    found = {kind: overlaps(folder / kind) for kind in KINDS}
    for kind, (count, twice) in found.items():
        print(f"{what}: {kind}: {twice} of {count} ids came twice")  # noqa: T201 - the report
        record(f"{what}, {kind}", f"{twice} of {count}")
    assert found["tiered"][1] == found["chain"][1] == 0
    assert found["tiered"][0] > 10_000, "they have to get on"
    assert found["plain"][1] > 0, "the trouble was no trouble"


@pytest.mark.nightly
async def test_killed_and_empty(
    valkey_factory: Callable[..., ValkeyServer],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Twenty kill -9 in twenty seconds, of a Redis that keeps nothing."""
    server = valkey_factory()
    async with consumers(server.url, tmp_path) as running:
        for _ in range(KILLS):
            begin = time.monotonic()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            assert all(process.is_alive() for process in running), "a caller saw an error"
            await asyncio.sleep(max(0.0, begin + 1.0 - time.monotonic()))
    judge("20 kills", tmp_path, record_property)


@pytest.mark.nightly
async def test_failed_over_to_who_lags(
    valkey_factory: Callable[..., ValkeyServer],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Ten fail-overs, there and back, to a replica that was cut off before; one address."""
    master = valkey_factory(*QUICK)
    replica = valkey_factory(*QUICK, "--replicaof", f"{master.host} {master.port}")

    async def call(server: ValkeyServer, *words: str | int) -> object:
        return await asyncio.to_thread(server.call, *words)

    def follows(server: ValkeyServer) -> Callable[[], Awaitable[bool]]:
        async def does() -> bool:
            return "master_link_status:up" in str(await call(server, "INFO", "replication"))

        return does

    async with FaultProxy(master.host, master.port) as proxy:
        url = f"redis://{proxy.host}:{proxy.port}/0"
        async with consumers(url, tmp_path) as running:
            for _ in range(FAILOVERS):
                await eventually(follows(replica), deadline=20.0)
                await call(replica, "REPLICAOF", "127.0.0.1", free_port())
                await asyncio.sleep(random.uniform(0.1, 0.6))  # noqa: S311 - a pause
                await call(replica, "REPLICAOF", "NO", "ONE")
                proxy.target = (replica.host, replica.port)
                proxy.cut()
                await call(master, "REPLICAOF", replica.host, replica.port)
                master, replica = replica, master
                assert all(process.is_alive() for process in running), "a caller saw an error"
    judge("10 fail-overs", tmp_path, record_property)


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_a_master_dies(request: pytest.FixtureRequest, namespace: str, kind: str) -> None:
    """The root serves until another one is elected, and then the new master does."""
    servers: ValkeyCluster | ValkeySentinel
    if kind == "cluster":
        servers = await asyncio.to_thread(request.getfixturevalue("cluster_factory"), replicas=True)
    else:
        servers = await asyncio.to_thread(request.getfixturevalue("sentinel_factory"))
    async with RedisStore.from_url(servers.url) as cache:
        store = TieredStore(MemoryStore(), cache, pause=0.1)
        counter = store.segment_distributor(namespace=namespace, name="n")
        await counter.aopen()
        ends: list[int] = []

        async def is_served_by_the_cache() -> bool:
            ends.append(await counter.next_max_id(10))
            return counter.statistics().segments_from_cache > 0

        await eventually(is_served_by_the_cache)  # a server on a busy machine may start slowly
        before = counter.statistics()
        if isinstance(servers, ValkeyCluster):
            servers.owner(f"aiocosid:{{{namespace}.n}}:span").kill()
        else:
            servers.master.kill()

        async def is_served_by_the_new_one() -> bool:
            ends.append(await counter.next_max_id(10))
            told = counter.statistics()
            return told.is_cache_up and told.segments_from_cache > before.segments_from_cache

        await eventually(is_served_by_the_new_one, deadline=30.0)
    told = counter.statistics()
    assert told.segments_from_root > before.segments_from_root
    assert told.spans_of_another_server + told.spans_missing == 2
    assert all(b - a >= 10 for a, b in itertools.pairwise(ends))
