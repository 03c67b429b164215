"""Leaf's registries of worker ids: what lies there before and after, and old nodes beside us."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pymysql  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aiocosid import connect
from aiocosid._life import fork
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import MachineIdDistributor
from aiocosid.compat.leaf_snowflake.mysql import LeafWorkerIdStore
from aiocosid.compat.leaf_snowflake.zookeeper import LeafZkNormalStore, LeafZkRecycleStore
from aiocosid.errors import (
    ClockTooManyBackwardsError,
    CorruptMachineStateError,
    ForkedError,
    InvalidArgumentError,
    LeafWorkerIdsUsedUpError,
    MachineIdLostError,
    SchemaMissingError,
    UnsupportedByStoreError,
)
from aiocosid.snowflake import LEAF, SnowflakeId
from tests.servers import ZookeeperServer

from ._leaf_nodes import LeafNormalNode, LeafSqlNode, RefusedError, crash_after

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

NOW = 1_790_000_000_000
LATE = 2**53
PORT = 8080


async def take(one: MachineIdDistributor, *, now_ms: int = NOW, bits: int = 10) -> tuple[int, int]:
    grant = await one.distribute(bits, now_ms=now_ms, latest_ms=LATE)
    return grant.machine_id, grant.floor_ms


async def holds(one: MachineIdDistributor, machine_id: int, *, fence_ms: int = NOW) -> bool:
    """Send a renewal; False if the worker id is lost."""
    try:
        await one.renew(machine_id, now_ms=NOW, fence_ms=fence_ms)
    except MachineIdLostError:
        return False
    return True


def mysql(engine: AsyncEngine, **about: Any) -> Any:
    return LeafWorkerIdStore(engine, **about).machine_id_distributor()


def normal(client: Any, **about: Any) -> Any:
    return LeafZkNormalStore(client, **about).machine_id_distributor()


# What both registries have in common.


class Registry:
    """A registry of one test's own, and old nodes on it."""

    first: int

    def __init__(self, make: Callable[..., Any], node: Callable[..., Any]) -> None:
        self.make = make
        self.node = node


@pytest_asyncio.fixture
async def engine(mariadb_database: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(mariadb_database.replace("mysql://", "mysql+asyncmy://"))
    await LeafWorkerIdStore(engine, ip="x", port=1).create_schema()
    yield engine
    await engine.dispose()


@pytest.fixture
def connection(mariadb_database: str) -> Iterator[Any]:
    """Of an old node."""
    url = urlsplit(mariadb_database)
    with closing(
        pymysql.connect(
            host=url.hostname, port=url.port or 0, user=url.username, database=url.path[1:]
        )
    ) as made:
        yield made


@pytest.fixture(params=["mysql", "zk_normal"])
def registry(request: pytest.FixtureRequest, namespace: str) -> Registry:
    if request.param == "mysql":
        engine: AsyncEngine = request.getfixturevalue("engine")
        connection = request.getfixturevalue("connection")

        def ours(ip: str, port: Any = PORT) -> Any:
            return mysql(engine, ip=ip, port=port)

        made = Registry(ours, partial(LeafSqlNode, connection))
    else:
        server: ZookeeperServer = request.getfixturevalue("zookeeper")

        def ours(ip: str, port: Any = PORT) -> Any:
            return normal(server.behind, name=namespace, ip=ip, port=port)

        made = Registry(ours, partial(LeafNormalNode, server.behind, namespace))
    made.first = 1  # 0 is Leaf's alone: see test_leaf_that_starts_at_once
    return made


@pytest.mark.parametrize("turns", [60, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_ours_in_turn_with_old_nodes(registry: Registry, turns: int) -> None:
    """Each address has one number, whoever asks for it, and none has another's."""
    numbers: dict[str, set[int]] = {}
    for turn in range(turns):
        ip = f"10.0.0.{turn % 20}"
        now_ms = NOW + turn * 100
        if turn % 3 == 0:
            number = registry.node(ip).start(now_ms)
        else:
            one = registry.make(ip)
            number, _ = await take(one, now_ms=now_ms)
            await one.release(number, last_ms=now_ms + 2)
        numbers.setdefault(ip, set()).add(number)
    assert sorted(each for found in numbers.values() for each in found) == sorted(
        {next(iter(found)) for found in numbers.values()}
    )
    assert len(numbers) == 20


async def test_many_at_once_on_an_empty_registry(registry: Registry) -> None:
    """All numbers differ, that of the very first too: N12."""
    found = await asyncio.gather(*(take(registry.make(f"10.0.1.{n}")) for n in range(30)))
    assert len({number for number, _ in found}) == 30
    assert min(number for number, _ in found) == registry.first
    again = await asyncio.gather(*(take(registry.make(f"10.0.1.{n}")) for n in range(30)))
    assert [number for number, _ in again] == [number for number, _ in found]


async def test_two_of_one_address(registry: Registry) -> None:
    """The later has it, above every time that the earlier may use, and the earlier is told: N13."""
    one, two = registry.make("10.0.0.1"), registry.make("10.0.0.1")
    number, _ = await take(one)
    assert await holds(one, number, fence_ms=NOW + 4500)
    assert 0 <= (await take(two))[1] - NOW - 4500 < 64
    assert not await holds(one, number, fence_ms=NOW + 9000)
    assert await holds(two, number, fence_ms=NOW + 6000)
    await one.release(number, last_ms=NOW)
    assert await holds(two, number, fence_ms=NOW + 7000)
    three, four = registry.make("10.0.0.1"), registry.make("10.0.0.1")
    await asyncio.gather(take(three), take(four))
    held = [await holds(each, number, fence_ms=NOW + 8000) for each in (two, three, four)]
    assert held.count(True) == 1
    assert three._life % 64 != four._life % 64
    assert not held[0]


async def test_a_life_that_sleeps_between_reading_and_writing(registry: Registry) -> None:
    """Another has begun meanwhile, and given the very same mark: that is the other's: N13."""
    for last in ("nothing", "mark", "farewell"):
        one, two = registry.make(f"10.0.{last}"), registry.make(f"10.0.{last}")
        number, _ = await take(one)
        kind = type(one._registry)

        async def sleepy(
            self: Any,
            at: Any,
            worker_id: int,
            *,
            last: str = last,
            other: Any = two,
            read: Any = kind.read,
        ) -> Any:
            entry = await read(self, at, worker_id)
            if self is not other._registry and other._worker_id < 0:
                await take(other)
                if last != "nothing":
                    await other.renew(worker_id, now_ms=NOW, fence_ms=NOW + 4500)
                if last == "farewell":
                    await other.release(worker_id, last_ms=NOW + 4500)
            return entry

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "read", sleepy)
            assert not await holds(one, number, fence_ms=NOW + 4500)
        assert await holds(two, number) is (last != "farewell")


async def test_a_mark_whose_answer_was_lost(registry: Registry) -> None:
    """It counts as ours, whether it was written or not."""
    one = registry.make("10.0.0.1")
    number, _ = await take(one)
    kind = type(one._registry)
    write = kind.write
    for is_written in (True, False):

        async def torn(*args: Any, is_written: bool = is_written) -> bool:
            if is_written:
                await write(*args)
            raise ConnectionError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "write", torn)
            with pytest.raises(ConnectionError):
                await one.renew(number, now_ms=NOW, fence_ms=NOW + 4000)
        assert await holds(one, number, fence_ms=NOW + 5000)
    assert len(one._stamps) == 1
    floor_ms = (await take(registry.make("10.0.0.1")))[1]
    assert floor_ms >= NOW + 5000


async def test_marks_never_go_down(registry: Registry) -> None:
    """Not by a clock that steps back; only a farewell lowers it, not below who was before."""
    one = registry.make("10.0.0.1")
    number, _ = await take(one)
    await one.renew(number, now_ms=NOW, fence_ms=NOW + 4000)
    await one.renew(number, now_ms=NOW - 60_000, fence_ms=NOW - 55_000)
    two = registry.make("10.0.0.1")
    _, floor_ms = await take(two)
    assert NOW + 4000 < floor_ms < NOW + 4130
    await two.release(number, last_ms=NOW)
    assert floor_ms <= (await take(registry.make("10.0.0.1")))[1] < floor_ms + 64


async def test_a_floor_is_waited_for_and_never_passed_by(registry: Registry) -> None:
    """A time ahead of the clock is waited for; one that is far ahead is an error: L2, N6."""
    node, now_ms = registry.node("10.0.0.1"), SYSTEM_CLOCK.now_ms()
    node.start(now_ms)
    node.report(now_ms + 300)
    with pytest.raises(RefusedError):
        registry.node("10.0.0.1").start(now_ms)
    async with SnowflakeId(registry.make("10.0.0.1"), layout=LEAF) as gen:
        parts = LEAF.parse(await gen.next_id())
        assert parts.machine_id == node.worker_id
        assert parts.timestamp_ms > now_ms + 300
    node.report(now_ms + 3_600_000)
    for _ in range(2):
        with pytest.raises(ClockTooManyBackwardsError):
            await SnowflakeId(registry.make("10.0.0.1"), layout=LEAF).__aenter__()


async def test_a_leaf_node_after_us(registry: Registry) -> None:
    """It takes the number up again, above our last id; after a crash it waits for our mark."""
    node = registry.node("10.0.0.1")
    async with SnowflakeId(registry.make("10.0.0.1"), layout=LEAF, random_start=100) as gen:
        number = LEAF.parse(await gen.next_id()).machine_id
        with pytest.raises(RefusedError):  # as if we had crashed
            node.start(SYSTEM_CLOCK.now_ms() + 1000)
        last_ms = LEAF.parse((await gen.next_ids(5000))[-1]).timestamp_ms
    with pytest.raises(RefusedError):
        node.start(last_ms)
    assert node.start(last_ms + 100) == number


async def test_an_old_node_under_our_address(registry: Registry) -> None:
    """It writes its clock without looking; we are silent from our next renewal on."""
    one = registry.make("10.0.0.1")
    number, _ = await take(one)
    node = registry.node("10.0.0.1")
    assert node.start(NOW + 10) == number
    node.report(NOW + 3000)
    assert not await holds(one, number)
    await one.release(number, last_ms=NOW)
    assert (await take(registry.make("10.0.0.1")))[1] == NOW + 3000


async def test_bad_arguments(registry: Registry) -> None:
    for ip, port in (("", 1), ("a/b", 1), ("a", 0), ("a", 65536), ("a", "x"), ("a", True)):
        with pytest.raises(InvalidArgumentError):
            registry.make(ip, port)
    one = registry.make("10.0.0.1", "8080")
    with pytest.raises(InvalidArgumentError):
        await one.distribute(0, now_ms=NOW, latest_ms=LATE)
    with pytest.raises(MachineIdLostError, match="does not hold"):
        await one.renew(5, now_ms=NOW, fence_ms=NOW)
    await one.release(5, last_ms=NOW)


async def test_a_forked_child(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is its parent's, for good; it gives nothing back: N21."""
    one = registry.make("10.0.0.1")
    number, _ = await take(one)
    with monkeypatch.context() as patch:
        patch.setattr(fork, "generation", fork.generation + 1)
        with pytest.raises(ForkedError, match="another port"):
            await one.aopen()
        with pytest.raises(ForkedError):
            await take(one)
        with pytest.raises(ForkedError):
            await one.renew(number, now_ms=NOW, fence_ms=NOW)
        await one.release(number, last_ms=NOW)
    assert await holds(one, number)


# MySQL.


async def test_golden_rows(engine: AsyncEngine, connection: Any) -> None:
    """Row before, worker id, row after."""

    def rows() -> Any:
        connection.commit()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, ip, port, ip_port, max_timestamp, create_time IS NULL "
                "FROM leaf_workerid_alloc ORDER BY id"
            )
            return cursor.fetchall()

    LeafSqlNode(connection, "10.0.0.9", 8081).start(NOW - 5)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO leaf_workerid_alloc (ip_port) VALUES ('10.0.0.7:8080')")
    before = rows()
    one = mysql(engine, ip="10.0.0.1", port=PORT)
    assert await take(one) == (3, 0)
    assert rows() == (*before, (3, "10.0.0.1", "8080", "10.0.0.1:8080", NOW + 1, 0))
    await one.renew(3, now_ms=NOW + 3, fence_ms=NOW + 4500)
    assert rows()[2][4] == NOW + 4545  # the first of this life's, of 64
    await one.release(3, last_ms=NOW + 100)
    assert rows()[2][4] == NOW + 129
    null = mysql(engine, ip="10.0.0.7", port=PORT)
    assert await take(null) == (2, -1)
    assert rows()[1] == (2, None, None, "10.0.0.7:8080", NOW, 1)
    assert rows()[0] == before[0]


async def test_rows_that_are_used_up(engine: AsyncEngine, connection: Any) -> None:
    """Before a row is made, with the addresses that were silent for longest: L6, I10."""
    LeafSqlNode(connection, "10.0.0.8", 1).start(5)
    LeafSqlNode(connection, "10.0.0.9", 1).start(4)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE leaf_workerid_alloc AUTO_INCREMENT = 1024")
    LeafSqlNode(connection, "10.0.1.0", 1).start(3)
    for ip, match in (("10.0.1.1", "next worker id"), ("10.0.1.0", "worker id 1024")):
        one = mysql(engine, ip=ip, port=1)
        with pytest.raises(LeafWorkerIdsUsedUpError, match=match) as caught:
            await take(one)
        assert caught.value.holders == ("10.0.0.9:1", "10.0.0.8:1")
        assert str(caught.value.again()) == str(caught.value)
    wide = mysql(engine, ip="10.0.1.0", port=1)
    assert await take(wide, bits=11) == (1024, 3)
    gone = mysql(engine, ip="10.0.0.9", port=1)
    assert await take(gone) == (2, 4)
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM leaf_workerid_alloc")
        assert cursor.fetchone() == (3,)


async def test_examined_rows(engine: AsyncEngine, connection: Any) -> None:
    """Each address with its number and time; nothing is written."""
    LeafSqlNode(connection, "10.0.0.8", 1).start(NOW)
    with connection.cursor() as cursor:
        for row in ((2, "b:1", None), (3, "c:1", -5), (1024, "d:1", NOW)):
            cursor.execute(
                "INSERT INTO leaf_workerid_alloc (id, ip_port, max_timestamp) VALUES (%s, %s, %s)",
                row,
            )
    connection.commit()
    found = await LeafWorkerIdStore(engine, ip="x", port=1).examine()
    assert [(each.name, each.stored) for each in found] == [
        *(("10.0.0.8:1", 1), ("b:1", 2), ("c:1", None), ("d:1", 1024))
    ]
    assert found[0].meaning == "its worker id; ids up to 2026-09-21T14:13:20Z"
    assert found[1].meaning == "its worker id; no time is stored"
    assert [bool(each.problems) for each in found] == [False, False, True, True]
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM leaf_workerid_alloc")
        assert cursor.fetchone() == (4,)


async def test_rows_that_are_no_good(
    engine: AsyncEngine, connection: Any, mariadb_database: str
) -> None:
    one = mysql(engine, ip="a", port=1)
    for bad in (-5, LATE):
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM leaf_workerid_alloc")
            cursor.execute(
                "INSERT INTO leaf_workerid_alloc (ip_port, max_timestamp) VALUES ('a:1', %s)",
                (bad,),
            )
        connection.commit()
        with pytest.raises(CorruptMachineStateError, match="max_timestamp"):
            await take(one)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE leaf_workerid_alloc")
    with pytest.raises(SchemaMissingError):
        await take(one)
    with pytest.raises(InvalidArgumentError, match="MySQL"):
        LeafWorkerIdStore(create_async_engine("sqlite+aiosqlite:///x.db"), ip="a", port=1)
    for url in (mariadb_database, f"{mariadb_database}?ip=a", f"{mariadb_database}?ip=a&port=x"):
        with pytest.raises(InvalidArgumentError):
            LeafWorkerIdStore.from_url(f"leaf-workerid+{url}")


# ZooKeeper.


@pytest.fixture
def forever(namespace: str) -> str:
    return f"/snowflake/{namespace}/forever"


async def test_golden_nodes(zookeeper: ZookeeperServer, namespace: str, forever: str) -> None:
    """Node before, worker id, node after; a name with dashes, and one of Leaf's own: L7."""
    behind = zookeeper.behind
    LeafNormalNode(behind, namespace, "10.0.0.9", 8081).start(NOW - 5)
    before = behind.get(f"{forever}/10.0.0.9:8081-0000000000")[0]
    assert before == b'{"ip":"10.0.0.9","port":"8081","timestamp":1789999999995}'
    one = normal(behind, name=namespace, ip="pod-1", port=PORT)
    assert await take(one) == (1, -1)
    path = f"{forever}/pod-1:8080-0000000001"
    data, stat = behind.get(path)
    assert data == b'{"ip":"pod-1","port":"8080","timestamp":1790000000000}'
    assert stat.ephemeralOwner == 0
    await one.renew(1, now_ms=NOW + 3, fence_ms=NOW + 4500)
    assert behind.get(path)[0] == b'{"ip":"pod-1","port":"8080","timestamp":1790000004544}'
    await one.release(1, last_ms=NOW + 100)
    assert json.loads(behind.get(path)[0])["timestamp"] == NOW + 128
    leafs = normal(behind, name=namespace, ip="10.0.0.9", port=8081)
    assert await take(leafs) == (0, NOW - 5)
    dashed = f"{namespace}-a-b"
    for _ in range(2):
        other = normal(behind, name=dashed, ip="pod-1", port=PORT)
        assert (await take(other))[0] == 1
    assert behind.get_children(f"/snowflake/{dashed}/forever") == ["pod-1:8080-0000000001"]


async def test_examined_nodes(zookeeper: ZookeeperServer, namespace: str, forever: str) -> None:
    """Those of all addresses; two that have one number, as Leaf's may, are a problem."""
    behind = zookeeper.behind
    store = LeafZkNormalStore(behind, name=namespace, ip="x", port=1)
    assert await store.examine() == []
    assert not behind.exists(f"/snowflake/{namespace}")
    good = b'{"ip":"a","port":"1","timestamp":%d}' % NOW
    for name, data in {
        "a:1-0000000000": good,
        "b:1-0000000000": good,
        "c:1-0000000001": b"?",
    }.items():
        behind.create(f"{forever}/{name}", data, makepath=True)
    found = await store.examine()
    assert [(each.name, each.stored) for each in found] == [("a:1", 0), ("b:1", 0), ("c:1", None)]
    assert found[0].problems == ("worker id 0 has 2 holders: ids repeat",)
    assert "JSON" in found[2].problems[0]
    assert len(behind.get_children(forever)) == 3


async def test_examined_pools(zookeeper: ZookeeperServer, namespace: str) -> None:
    """The worker ids that are in use."""
    behind = zookeeper.behind
    store = LeafZkRecycleStore(behind, name=namespace, ip="10.0.0.1", port=PORT, pool_size=4)
    assert await store.examine() == []
    number, _ = await take(store.machine_id_distributor())
    [found] = await store.examine()
    assert (found.name, found.stored, found.problems) == (f"workId:{number}", number, ())


async def test_leaf_that_starts_at_once(
    zookeeper: ZookeeperServer, namespace: str, forever: str
) -> None:
    """One that found nothing takes 0 whatever its node says; no new node of ours is 0: L1."""
    node = LeafNormalNode(zookeeper.behind, namespace, "10.0.0.9", 8080)
    assert node.is_first()
    one = normal(zookeeper.behind, name=namespace, ip="a", port=1)
    assert await take(one) == (1, -1)
    node.create(NOW)
    assert node.worker_id == 0
    assert sorted(zookeeper.behind.get_children(forever)) == [
        "10.0.0.9:8080-0000000002",
        "a:1-0000000001",
    ]


async def test_numbers_that_are_used_up(
    zookeeper: ZookeeperServer, namespace: str, forever: str
) -> None:
    """No node is left behind, and the error says whose number may be had: L6."""
    nodes = [LeafNormalNode(zookeeper.behind, namespace, f"10.0.0.{n}", 1) for n in range(4)]
    for node in nodes:
        node.start(NOW)
    nodes[0].report(NOW)
    one = normal(zookeeper.behind, name=namespace, ip="a", port=1)
    with pytest.raises(LeafWorkerIdsUsedUpError, match=r"worker id 4 .* 2 machine bits") as caught:
        await take(one, bits=2)
    assert caught.value.holders == ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
    assert len(zookeeper.behind.get_children(forever)) == 4
    gone = normal(zookeeper.behind, name=namespace, ip="10.0.0.3", port=1)
    with pytest.raises(LeafWorkerIdsUsedUpError, match=r"worker id 3 .* 1 machine bits"):
        await take(gone, bits=1)
    assert await take(gone, bits=2) == (3, NOW)


async def test_a_crash_after_each_step(
    zookeeper: ZookeeperServer, namespace: str, forever: str
) -> None:
    """Whatever was sent last, the next life finds its node, and there is one: N14."""
    for steps in range(1, 8):
        ip = f"10.0.0.{steps}"
        for step in (steps, 100):
            one = normal(zookeeper.behind, name=f"{namespace}{steps}", ip=ip, port=PORT)
            wire = one._registry.door._wire
            with crash_after(wire, step):
                try:
                    await take(one)
                except ConnectionAbortedError:
                    assert step == steps
        children = zookeeper.behind.get_children(f"/snowflake/{namespace}{steps}/forever")
        assert [each.rpartition("-")[0] for each in children] == [f"{ip}:{PORT}"]


async def test_nodes_that_are_no_good(
    zookeeper: ZookeeperServer, namespace: str, forever: str
) -> None:
    """Each is an error that names the node, and nothing takes its place: N6."""
    one = normal(zookeeper.behind, name=namespace, ip="a", port=1)
    node = LeafNormalNode(zookeeper.behind, namespace, "a", 1)
    node.start(NOW)
    for bad in (b"", b"x", b"[]", b"{}", b'{"timestamp":null}', b'{"timestamp":-1}', b'"\xff'):
        zookeeper.behind.set(node.path, bad)
        with pytest.raises(CorruptMachineStateError, match="0000000000"):
            await take(one)
        assert zookeeper.behind.get(node.path)[0] == bad


async def test_by_url(
    zookeeper: ZookeeperServer, namespace: str, engine: AsyncEngine, mariadb_database: str
) -> None:
    """A store of worker ids alone, one for each address; what it opened is closed."""
    urls: dict[Any, str] = {
        LeafZkNormalStore: f"leaf-zk-normal+{zookeeper.url}/?name={namespace}&session_timeout=5",
        LeafWorkerIdStore: f"leaf-workerid+{mariadb_database}",
    }
    for store_type, place in urls.items():
        url = f"{place}{'&' if '?' in place else '?'}ip=10.0.0.1&port=8080"
        async with store_type.from_url(url) as store:
            machine = store.machine_id_distributor(namespace="x")
            assert machine is store.machine_id_distributor(instance_id="y")
            assert machine.instance_id.text == "10.0.0.1:8080"
            assert (await take(machine, now_ms=SYSTEM_CLOCK.now_ms()))[0] == 1
            assert "10.0.0.1:8080" in repr(store)
            assert await store.counters() == ()
            with pytest.raises(UnsupportedByStoreError, match=r"leaf\+mysql"):
                store.segment_distributor(name="a")
            with pytest.raises(UnsupportedByStoreError):
                await store.set_floor(name="a", above=1)
        alone = store_type.from_url(url)
        machine = alone.machine_id_distributor()
        assert (await take(machine, now_ms=SYSTEM_CLOCK.now_ms()))[0] == 1
        await alone.aclose()
        async with connect(url) as ids:
            gen = await ids.snowflake("order", layout=LEAF)
            assert LEAF.parse(await gen.next_id()).machine_id == 1
        with pytest.raises(InvalidArgumentError, match="ip, port"):
            store_type.from_url(url.partition("?")[0] + "?name=x")
