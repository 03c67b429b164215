"""The rights on the page suffice, and none of them is there for nothing."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from aiocosid.abc import (
    MAX_ID,
    IdSegmentDistributor,
    InstanceId,
    MachineIdDistributor,
    SequenceGrant,
    Store,
)
from aiocosid.errors import (
    CosIdError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreIdentityHiddenError,
)
from aiocosid.machine.cells import Marker, NamespaceRecord
from aiocosid.provider import store_from_url
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.tiered import TieredStore
from aiocosid.testing import (
    DistributorFactory,
    IdSegmentDistributorContract,
    MachineIdDistributorContract,
    MakeMachineIdDistributor,
)
from tests import sql_cells
from tests.contracts._stores import Valkey
from tests.machine_marks import identity, initialize_namespace, mark_postgres
from tests.servers import (
    GUEST,
    GUEST_PASSWORD,
    PASSWORD,
    PostgresServer,
    RedisServer,
    ValkeyServer,
)
from tests.servers.valkey import MARK

pytestmark = pytest.mark.integration

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "rights.md"
LATEST: Final = 2**53 - 1
APP: Final = "app"


# What each line is for: done once by whoever has all rights, and then by who has the line's.


async def segments(store: Store) -> None:
    counter = store.segment_distributor(namespace="shop", name="order")
    await counter.next_max_id(5)


async def segments_of_new_counters(store: Store) -> None:
    name = f"invoice{uuid.uuid4().hex}"
    counter = store.segment_distributor(namespace="shop", name=name, offset=7)
    assert await counter.next_max_id(5) == 12
    full = store.segment_distributor(namespace="shop", name=f"full{name}", offset=MAX_ID - 1)
    with pytest.raises(IdOverflowError):  # and what it has created goes again
        await full.next_max_id(5)


async def segments_of_a_tiered_store(store: Store) -> None:
    assert isinstance(store, RedisStore)
    tiered = TieredStore(MemoryStore(), store, span=100, root_name="root")
    name = f"tiered{uuid.uuid4().hex}"
    counter = tiered.segment_distributor(namespace="shop", name=name, step=40)
    for _ in range(3):
        await counter.next_max_id(40)
    told = counter.statistics()
    if (told.spans, told.segments_from_cache, told.segments_from_root) != (2, 1, 0):
        raise StoreAuthenticationError("the store", f"the root had to serve: {told}")


async def sharded_ids(store: Store) -> None:
    assert isinstance(store, RedisStore)
    sequences = store.sequence_distributor(namespace="shop", name="order")
    assert isinstance(await sequences.grant(int(time.time()), 5), SequenceGrant)


async def set_floor_of_a_tiered_store(store: Store) -> None:
    assert isinstance(store, RedisStore)
    tiered = TieredStore(MemoryStore(), store, root_name="root")
    await tiered.set_floor(namespace="shop", name="order", above=100)


async def init(store: Store) -> None:
    await store.create_schema()
    await store.machine_markers()
    await store.is_initialized()
    await store.initialize(confirm_no_holders=True)
    assert (await store.initialize_namespace(namespace="shop", confirm_no_holders=True)).is_created


async def machine_ids(store: Store) -> None:
    one = store.machine_id_distributor(namespace="shop", instance_id="one")
    for _ in range(2):
        grant = await one.distribute(3, now_ms=1000, latest_ms=LATEST)
        await one.renew(grant.machine_id, now_ms=2000, fence_ms=3000)
        await one.release(grant.machine_id, last_ms=2500)
    pod = store.machine_id_distributor(
        namespace="shop", instance_id=InstanceId(f"pod{uuid.uuid4().hex}", stable=True)
    )
    grant = await pod.distribute(3, now_ms=1000, latest_ms=LATEST)
    await pod.release(grant.machine_id, last_ms=-1)
    await store.evict_machine(namespace="shop", machine_id=grant.machine_id)


async def set_floor(store: Store) -> None:
    name = f"floor{uuid.uuid4().hex}"
    for above in (100, 200, 50):
        await store.set_floor(namespace="shop", name=name, above=above)


async def inspect(store: Store) -> None:
    assert await store.counters()


async def quarantines(store: Store) -> None:
    assert await store.machine_markers()
    await store.machine_markers(namespace="shop")


async def machines_list(store: Store) -> None:
    assert await store.machines()
    await store.machines(namespace="shop")


async def machines_revert(store: Store) -> None:
    for machine in await store.machines(namespace="shop"):
        if machine.instance_id:
            await store.evict_machine(namespace="shop", machine_id=machine.machine_id)


async def machines_bits(store: Store) -> None:
    await store.machine_bits(namespace="shop")
    await store.set_machine_bits(namespace="shop", bits=4)
    await store.set_machine_bits(namespace="shop", bits=5)


HELD: Final = 0
TASKS: Final[dict[str, Callable[[Store], Awaitable[None]]]] = {
    "segments": segments,
    "segments of counters that are new": segments_of_new_counters,
    "segments of a tiered store": segments_of_a_tiered_store,
    "sharded ids": sharded_ids,
    "machine ids": machine_ids,
    "aiocosid init": init,
    "aiocosid set-floor": set_floor,
    "aiocosid set-floor of a tiered store": set_floor_of_a_tiered_store,
    "aiocosid inspect": inspect,
    "aiocosid machines list": machines_list,
    "aiocosid machines evict": machines_revert,
    "aiocosid machines bits": machines_bits,
    "quarantines that inspect and machines list tell of": quarantines,
}
"""By the words of the page, which has a line for each, and no other."""


async def prepare(task: str, owner: Store) -> None:
    """What somebody else has done before."""
    if task in {"aiocosid inspect", "segments"}:
        await segments(owner)
    if "machine" in task:
        await owner.initialize_namespace(namespace="shop")
    if task in {"aiocosid machines list", "aiocosid machines evict"}:
        one = owner.machine_id_distributor(namespace="shop", instance_id="held")
        assert (await one.distribute(3, now_ms=1, latest_ms=LATEST)).machine_id == HELD


# Who finds a quarantine that is over ends it.
OVER: Final = {"machine ids", "aiocosid init", "aiocosid machines bits"}


async def can(task: str, url: str) -> bool:
    """Do what a line is for; any other error than one about rights is one of the test."""
    async with store_from_url(url) as store:
        try:
            await TASKS[task](store)
        except (StoreAuthenticationError, StoreIdentityHiddenError) as error:
            assert not error.retryable  # noqa: PT017 - or none
            return False
    return True


def fenced(language: str, beginning: str) -> str:
    """The block of the page in that language that begins so."""
    found = re.findall(
        rf"^```{language}\n({re.escape(beginning)}.*?)^```",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    (block,) = found
    return str(block)


# Redis


def acl_lines() -> dict[str, list[str]]:
    lines = [line.partition("#") for line in fenced("text", "~cosid:").splitlines()]
    return {what.strip(): rights.split() for rights, _, what in lines}


def set_user(server: ValkeyServer, rights: list[str]) -> str:
    server.call("ACL", "SETUSER", APP, "reset", "on", f">{PASSWORD}", *rights)
    return server.url_for(username=APP, password=PASSWORD)


async def empty(server: ValkeyServer, task: str) -> None:
    """Nothing but what the task needs; no script is known, as after a restart."""
    server.call("FLUSHALL")
    server.call(*MARK)
    server.call("SCRIPT", "FLUSH")
    async with store_from_url(server.url) as owner:
        await prepare(task, owner)
    if task in OVER:
        over = NamespaceRecord(
            identity(server), quarantine="over", since_ms=1, guard_ms=1, gaps=True
        )
        server.call("SET", "cosid:{shop}:space", over.text())
        server.call("SET", "cosid:{shop}:adder", 7)  # the last that there is, with gaps below it
    if task == "sharded ids":  # the server is known, and its fence lies behind
        fence = "aiocosid:{shop.order}:fence"
        server.call("HSET", fence, "server", identity(server), "opens", 1, "seen", 1, "reach", 3)
    server.call("SCRIPT", "FLUSH")


@pytest.fixture
def own_valkey(valkey_factory: Callable[..., ValkeyServer]) -> ValkeyServer:
    return valkey_factory()


async def test_the_lines_for_redis_are_enough_and_not_too_much(own_valkey: ValkeyServer) -> None:
    """With a line its task is done; without any one right of it, it is not."""
    lines = acl_lines()
    assert lines.keys() == TASKS.keys()
    for task, rights in lines.items():
        await empty(own_valkey, task)
        assert await can(task, set_user(own_valkey, rights)), task
        for right in rights:
            await empty(own_valkey, task)
            rest = [each for each in rights if each != right]
            assert not await can(task, set_user(own_valkey, rest)), (task, right)


async def test_the_application_of_the_page(own_valkey: ValkeyServer) -> None:
    """It does its own work, and nothing in the keys of others, its own data's or the server's."""
    words = fenced("text", "ACL SETUSER").split()
    assert words[:5] == ["ACL", "SETUSER", APP, "reset", "on"]
    url = set_user(own_valkey, words[6:])
    for task in ("segments", "segments of counters that are new", "machine ids"):
        await empty(own_valkey, task)
        assert await can(task, url)
    async with store_from_url(url) as store:
        others = store.segment_distributor(namespace="shop2", name="order")
        with pytest.raises(StoreAuthenticationError):
            await others.next_max_id(1)
        with pytest.raises(StoreAuthenticationError):
            await store.counters(namespace="shop")
        with pytest.raises(StoreAuthenticationError):
            await store.machine_id_distributor(namespace="shop2").distribute(
                3, now_ms=1, latest_ms=LATEST
            )
    assert own_valkey.call("EXISTS", "cosid:{shop2.order}.adder", "cosid:{shop2}:itc_idx") == 0


# PostgreSQL


def grants() -> dict[str, list[tuple[str, str]]]:
    """For each task its rights, one by one: (right, what it is on)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in fenced("sql", "-- segments").split("-- ")[1:]:
        task, _, statements = part.partition("\n")
        for rights, table in re.findall(r"GRANT (.*?) ON (\w+) TO app;", statements):
            found.setdefault(task, []).extend((right, table) for right in rights.split(", "))
    return found


def around() -> list[tuple[str, str]]:
    """What a role needs where PUBLIC has nothing."""
    return re.findall(r"GRANT (.*?) ON (.*?) TO app;", fenced("sql", "GRANT CONNECT"))


ON_REDIS: Final = {
    "segments of a tiered store",
    "sharded ids",
    "aiocosid set-floor of a tiered store",
}
"""What has no line of its own for PostgreSQL."""

# What a node of CosId's holds, or has given back: it gets its first note of ours.
JAVA: Final = """
    INSERT INTO cosid_machine (name, namespace, machine_id, last_timestamp, instance_id)
    VALUES ('shop.00000006', 'shop', 6, 1, '{}'), ('shop.00000007', 'shop', 7, 1, '')
"""
BESIDE_JAVA: Final = {
    "aiocosid machines evict": JAVA.format("java"),
    "aiocosid machines bits": JAVA.format(""),
}

TABLES: Final = "cosid, cosid_machine, aiocosid_cell"


class Postgres:
    """A database that PUBLIC may not even connect to."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server, self.database = server, database
        self.owner = server.url_for(database=database)
        self.url = server.url_for(user=GUEST, password=GUEST_PASSWORD, database=database)
        self.execute(
            f"REVOKE ALL ON DATABASE {database} FROM PUBLIC;REVOKE ALL ON SCHEMA public FROM PUBLIC"
        )

    def execute(self, sql: str) -> None:
        self.server.execute(sql, database=self.database)

    def execute_cell(self, sql: str) -> list[list[str]]:
        self.execute(sql)
        return []

    def rows(self, sql: str) -> list[list[str]]:
        return self.server.rows(sql, database=self.database)

    def grant(self, rights: list[tuple[str, str]]) -> None:
        """Give the guest these rights and no others."""
        sql = [
            f"REVOKE ALL ON {TABLES} FROM {GUEST}; REVOKE ALL ON SCHEMA public FROM {GUEST}",
            f"REVOKE ALL ON DATABASE {self.database} FROM {GUEST}",
        ]
        for right, on in rights:
            here = on.replace("DATABASE shop", f"DATABASE {self.database}")
            sql.append(f"GRANT {right} ON {here} TO {GUEST}")
        self.execute(";".join(sql))

    async def empty(self, task: str) -> None:
        self.execute(f"TRUNCATE {TABLES}")
        sql_cells.write_cell(self.execute_cell, "marker", Marker().text())
        async with store_from_url(self.owner) as owner:
            await prepare(task, owner)
        if task in BESIDE_JAVA:
            self.execute(BESIDE_JAVA[task])
        if task in OVER:
            mark_postgres(self.server, "shop", database=self.database)
            space = sql_cells.read_space(self.rows, "shop")
            assert space is not None
            over = replace(space, quarantine="over", since_ms=1, guard_ms=1)
            sql_cells.write_space(self.rows, "shop", over)


@pytest_asyncio.fixture
async def database(
    postgres: PostgresServer, postgres_database: str, namespace: str
) -> AsyncIterator[Postgres]:
    async with store_from_url(postgres_database) as owner:
        await owner.create_schema()
    yield Postgres(postgres, namespace)


async def test_the_grants_for_postgresql_are_enough(database: Postgres) -> None:
    """Each task with its own, and init again by a role that may create nothing."""
    lines = grants()
    assert lines.keys() | ON_REDIS == TASKS.keys()
    for task, rights in lines.items():
        database.grant(around() + rights)
        await database.empty(task)
        assert await can(task, database.url), task
        async with store_from_url(database.url) as store:
            await store.create_schema()


@pytest.mark.stress
async def test_the_grants_for_postgresql_are_not_too_much(database: Postgres) -> None:
    """Without any one of them its task is not done."""
    for task, rights in grants().items():
        every = around() + rights
        for right in every:
            database.grant([each for each in every if each != right])
            await database.empty(task)
            try:
                assert not await can(task, database.url), (task, right)
            except CosIdError as error:  # a schema that may not be looked into looks empty
                assert "SCHEMA" in right[1], (task, right, error)  # noqa: PT017 - or none


async def test_namespaces_are_parted_by_row_security(database: Postgres) -> None:
    """As the page says."""
    database.execute(fenced("sql", "ALTER TABLE").replace("TO app", f"TO {GUEST}"))
    database.grant(around() + grants()["segments of counters that are new"])
    async with store_from_url(database.owner) as owner:
        await owner.segment_distributor(namespace="shop2", name="a").next_max_id(1)
    async with store_from_url(database.url) as store:
        await segments(store)
        assert len(await store.counters()) == 1
        for name in ("a", "b"):
            with pytest.raises(StoreAuthenticationError):
                await store.segment_distributor(namespace="shop2", name=name).next_max_id(1)


# The whole contract, with all the lines and nothing else


class Least:
    """A store of one who has the rights of the page in all namespaces."""

    def __init__(self, server: ValkeyServer | Postgres) -> None:
        self.server = server
        self.marked: set[str] = set()
        if isinstance(server, Postgres):
            server.grant([*around(), *(right for each in grants().values() for right in each)])
            self.url = server.url
        else:
            rights = {right for line in acl_lines().values() for right in line}
            self.url = set_user(server, [each.replace("{shop", "{*") for each in sorted(rights)])

    def set_counter(self, name: str, to: int) -> None:
        if isinstance(self.server, Postgres):
            self.server.execute(f"update cosid set last_max_id = {to} where name = '{name}'")  # noqa: S608 - ours
        else:
            self.server.call("SET", f"cosid:{{{name}}}.adder", to)

    def mark(self, namespace: str) -> None:
        """Once, as somebody else does it."""
        if namespace in self.marked or "\0" in namespace:
            return
        self.marked.add(namespace)
        if isinstance(self.server, Postgres):
            mark_postgres(self.server.server, namespace, database=self.server.database)
        else:
            initialize_namespace(self.server, namespace)

    def age(self, namespace: str, seconds: float) -> None:
        if isinstance(self.server, Postgres):
            sql_cells.age(self.server.rows, namespace, seconds)
        else:
            self.as_redis().age(namespace, seconds)

    def forget(self, namespace: str, *, everything: bool) -> None:
        if isinstance(self.server, Postgres):
            sql_cells.forget(self.server.rows, namespace, everything=everything)
        else:
            self.as_redis().forget(namespace, everything=everything)

    def as_redis(self) -> Valkey:
        """What the contracts do to a server, done to this one."""
        assert isinstance(self.server, ValkeyServer)
        backend = object.__new__(Valkey)
        backend.server = self.server
        return backend


@pytest.fixture(params=["valkey", "redis", "postgres"])
def least(request: pytest.FixtureRequest) -> Iterator[Least]:
    if request.param == "postgres":
        yield Least(request.getfixturevalue("database"))
        return
    factory: Callable[..., ValkeyServer | RedisServer] = request.getfixturevalue(
        f"{request.param}_factory"
    )
    yield Least(factory())


@pytest.mark.nightly
@pytest.mark.asyncio
class TestContractOfDistributors(IdSegmentDistributorContract):
    @pytest_asyncio.fixture
    async def make_distributor(self, least: Least) -> AsyncIterator[DistributorFactory]:
        self.least = least
        async with AsyncExitStack() as stack:
            yield (await stack.enter_async_context(store_from_url(least.url))).segment_distributor

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.least.set_counter(distributor.namespaced_name, to)


@pytest.mark.nightly
@pytest.mark.asyncio
class TestContractOfMachineIds(MachineIdDistributorContract):
    @pytest_asyncio.fixture
    async def make_machines(self, least: Least) -> AsyncIterator[MakeMachineIdDistributor]:
        self.least = least
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(store_from_url(least.url))

            def made(*, namespace: str, **about: Any) -> MachineIdDistributor:
                least.mark(namespace)
                return store.machine_id_distributor(namespace=namespace, **about)

            yield made

    async def age(self, namespace: str, seconds: float) -> None:
        self.least.age(namespace, seconds)

    async def forget(self, namespace: str, *, everything: bool) -> None:
        self.least.forget(namespace, everything=everything)
