"""Ids that go back: calls that are delivered twice or late, floors, restarts, forks, rights."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiosqlite
import pytest
import pytest_asyncio
from anyio.lowlevel import checkpoint

from aiocosid import SegmentChainId, connect, open_store
from aiocosid.abc import MAX_ID, Store
from aiocosid.errors import SchemaMissingError, StoreUnavailableError
from aiocosid.stores._give_back import GrantNote, GrantRun, Offer
from aiocosid.stores._schema import GRANT_TABLE
from aiocosid.stores._sqlite import SQLITE
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlite import SqliteStore
from tests.contracts._stores import STORES, Backend
from tests.script import run_python
from tests.servers import PostgresServer, ValkeyServer, eventually

pytestmark = [pytest.mark.integration]

MakePair = Callable[[], tuple[Any, Any]]
NEAR_THE_END: Final = MAX_ID - 1000


@pytest.fixture(
    params=[
        *("memory", "sqlite", "valkey", "postgres"),
        pytest.param("mariadb", marks=pytest.mark.stress),
    ]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    return STORES[request.param](request)


@pytest_asyncio.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    async with backend.open() as store:
        await store.create_schema()
        yield store


@pytest.fixture
def pair(store: Store, namespace: str) -> MakePair:
    """Makes two distributors that take ids back, on one counter that is new."""
    numbers = iter(range(100))

    def make() -> tuple[Any, Any]:
        name, offset = f"c{next(numbers)}", NEAR_THE_END
        about: Any = {"namespace": namespace, "name": name, "offset": offset, "step": 10}
        both = store.segment_distributor(**about), store.segment_distributor(**about)
        for each in both:
            assert each.allow_give_back()
        return both

    return make


def delivered_again(distributor: Any) -> Callable[[], Awaitable[int]]:
    """Return what sends the distributor's next give-back, as it would be now, at any time."""
    run: GrantRun = distributor._run
    top = run._top
    offer = Offer(top - 5, run._nonce)

    async def send() -> int:
        kept, distributor._run = distributor._run, _Again(offer)
        try:
            return int(await distributor.give_back(top, 5))
        finally:
            distributor._run = kept

    return send


class _Again(GrantRun):
    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self._offer = offer

    def offer(self, max_id: int, unused: int) -> Offer | None:
        return self._offer


class _Repeating(GrantRun):
    sent: GrantNote | None = None

    def note(self) -> GrantNote:
        return self.sent or super().note()


@pytest.mark.asyncio
async def test_a_give_back_that_is_delivered_again_does_nothing(
    store: Store, pair: MakePair, namespace: str
) -> None:
    """Whatever came between, also if the counter is where it was."""
    far = NEAR_THE_END

    async def nothing(_: Any, __: Any) -> None:
        return None

    async def plain(_: Any, other: Any) -> None:
        other._run.is_noted = False
        await other.next_max_id(5)

    async def noted(_: Any, other: Any) -> None:
        await other.next_max_id(5)

    async def our_own(one: Any, _: Any) -> None:
        await one.next_max_id(5)

    async def there_and_back(_: Any, other: Any) -> None:
        await other.next_max_id(10)
        assert await other.give_back(far + 15, 5) == 5

    async def floor(one: Any, _: Any) -> None:
        await store.set_floor(namespace=namespace, name=one.name, above=far + 10)

    for between in (nothing, plain, noted, our_own, there_and_back, floor):
        one, other = pair()
        assert await one.next_max_id(10) == far + 10
        again = delivered_again(one)
        assert await one.give_back(far + 10, 5) == 5
        await between(one, other)
        at = await other.next_max_id(1)
        assert await again() == 0, between
        one, other = pair()
        assert await one.next_max_id(10) == far + 10
        again = delivered_again(one)
        assert await one.give_back(far + 10, 5) == 5
        await between(one, other)
        assert await again() == 0, between
        assert await other.next_max_id(1) == at, between


@pytest.mark.asyncio
async def test_a_grant_that_is_delivered_again_makes_a_gap(pair: MakePair) -> None:
    """It notes its nonce anew, with a range that nobody reads of: no give-back goes below that."""
    one, other = pair()
    far = NEAR_THE_END
    one._run = run = _Repeating()
    run.is_noted = True
    assert await one.next_max_id(5) == far + 5
    run.sent = GrantNote("again", run._nonce)
    assert await one.next_max_id(5) == far + 10
    assert (run._base, run._top) == (far, far + 10)
    assert await one.give_back(far + 10, 10) == 10
    assert await other.next_max_id(5) == far + 5  # somebody's
    assert await one.next_max_id(5) == far + 10  # delivered again, and nobody reads the answer
    one._run = _Again(Offer(far, "again"))
    assert await one.give_back(far + 10, 10) == 0
    assert await other.next_max_id(5) == far + 15


@pytest.mark.asyncio
async def test_no_id_comes_below_a_floor(store: Store, pair: MakePair, namespace: str) -> None:
    """Also if the floor was set below what was granted: the counter stays above it."""
    one, other = pair()
    await one.next_max_id(10)
    await store.set_floor(namespace=namespace, name=one.name, above=NEAR_THE_END + 7)
    assert await one.give_back(NEAR_THE_END + 10, 9) == 0
    assert await other.next_max_id(1) == NEAR_THE_END + 11


@pytest.mark.asyncio
async def test_a_store_that_was_set_back_takes_nothing(backend: Backend, pair: MakePair) -> None:
    one, other = pair()
    await one.next_max_id(10)
    backend.set_counter(one, NEAR_THE_END + 3)
    assert await one.give_back(NEAR_THE_END + 10, 9) == 0
    assert await other.next_max_id(1) == NEAR_THE_END + 4


@pytest.mark.asyncio
async def test_a_call_that_failed_ends_it(pair: MakePair) -> None:
    one, _ = pair()
    top = await one.next_max_id(10)
    call = asyncio.ensure_future(one.next_max_id(10))
    while not one._run._calls and not call.done():
        await checkpoint()
    call.cancel()
    await asyncio.wait((call,))
    if one.store == "memory":  # it was done at once, and the next give-back is about it
        assert await one.give_back(top, 5) == 0
        top = await one.next_max_id(10)
        assert await one.give_back(top, 5) == 5
    else:
        assert call.cancelled()
        assert await one.give_back(top, 5) == 0


@pytest.mark.asyncio
async def test_tables_of_an_earlier_version(
    postgres: PostgresServer, postgres_database: str
) -> None:
    """Who gives nothing back, and floors, need no new table; the others are told of it."""
    async with connect(postgres_database) as ids, open_store(postgres_database) as store:
        await store.create_schema()
        name = postgres_database.rpartition("/")[2]
        postgres.execute("drop table aiocosid_grant", database=name)
        assert await (await ids.segment_chain("a")).next_id() == 1
        assert (await store.set_floor(name="a", above=5000)).last_max_id == 5000
        with pytest.raises(SchemaMissingError, match="'aiocosid_grant' does not exist"):
            await ids.segment_chain("b", give_back=True)
        await store.create_schema()
        assert await (await ids.segment_chain("b", give_back=True)).next_id() == 1


@pytest.mark.asyncio
async def test_sqlite_makes_its_table_when_it_is_needed() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        store = SqliteStore(connection)
        assert (await store.set_floor(name="order", above=7)).last_max_id == 7
        async with SegmentChainId(
            store.segment_distributor(name="order"), give_back=True
        ) as orders:
            assert await orders.next_id() == 8
        assert [each.last_max_id for each in await store.counters()] == [8]


class _Between:
    """Has somebody make the table, and a noted grant, just before a floor is set without notes."""

    def __init__(self, inner: Any, grant: Callable[[], Awaitable[int]]) -> None:
        self._inner = inner
        self._grant = grant
        self._missing = 2  # also when it was made on first use: somebody drops it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fetch_rows(self, statement: str, **values: Any) -> Any:
        if statement == SQLITE.raise_to.creating and self._missing:
            self._missing -= 1
            raise SchemaMissingError("sqlite", table=GRANT_TABLE)
        if statement == SQLITE.raise_unnoted.creating:
            await self._grant()
        return await self._inner.fetch_rows(statement, **values)


@pytest.mark.asyncio
async def test_a_floor_takes_away_the_note_of_a_table_that_was_just_made() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        store, other = SqliteStore(connection), SqliteStore(connection)
        one = other.segment_distributor(name="order")
        one.allow_give_back()
        backend: Any = store._backend
        backend.link = _Between(backend.link, lambda: one.next_max_id(10))
        assert (await store.set_floor(name="order", above=7)).last_max_id == 10
        assert await one.give_back(10, 9) == 0


@pytest.mark.asyncio
async def test_a_restarted_server_takes_nothing_back(
    valkey_factory: Callable[..., ValkeyServer],
    postgres_factory: Callable[..., PostgresServer],
) -> None:
    """It may have been restored from a copy: note and counter fit each other, as of then."""
    for server in (valkey_factory(persistent=True), postgres_factory()):
        async with open_store(server.url) as store:
            await store.create_schema()
            one = store.segment_distributor(name="order")
            one.allow_give_back()
            assert await one.next_max_id(10) == 10
            server.stop()
            server.start()
            await eventually(store.counters, StoreUnavailableError)
            assert await one.give_back(10, 5) == 0, server
            assert await one.next_max_id(10) == 20
            assert await one.give_back(20, 5) == 5, server


@pytest.mark.asyncio
async def test_a_server_that_hides_what_it_is(
    valkey: ValkeyServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ids come, nothing goes back, and the log says why, once."""
    words = ("SETUSER", namespace, "on", ">x", "~cosid:*", "~aiocosid:*", "+@all", "-info")
    valkey.call("ACL", *words)
    url = valkey.url_for(username=namespace, password="x")  # noqa: S106 - the test's
    store = RedisStore.from_url(url)
    distributor = store.segment_distributor(namespace=namespace, name="order")
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        async with SegmentChainId(distributor, give_back=True) as orders:
            await orders.next_id()
        assert orders.statistics().ids_given_back == 0
    assert caplog.text.count("refuses INFO") == 1
    await store.aclose()
    valkey.call("ACL", "DELUSER", namespace)


@pytest.mark.asyncio
async def test_whatever_lies_under_the_note_is_replaced(
    valkey: ValkeyServer, namespace: str
) -> None:
    """A key of another type, or with other fields, costs nothing but the first give-back."""
    key = f"cosid:{{{namespace}.order}}.grant"
    for plant in (("SET", key, "x"), ("HSET", key, "nonce", "x"), ("LPUSH", key, "x")):
        valkey.call("DEL", key)
        valkey.call(*plant)
        async with connect(valkey.url, namespace=namespace) as ids:
            orders = await ids.segment_chain("order", give_back=True)
            await orders.next_id()
        assert orders.statistics().ids_given_back == 1999


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_a_fork_nothing_from_before_goes_back(valkey: ValkeyServer, namespace: str) -> None:
    """The child remembers how far the parent had come, and the parent's ids are not its own."""
    run_python(f"""
import asyncio, os
from aiocosid.stores.redis import RedisStore

store = RedisStore.from_url({valkey.url!r})
one = store.segment_distributor(namespace={namespace!r}, name="order")
one.allow_give_back()

async def take(n):
    await one.aopen()
    found = await one.next_max_id(n)
    await store.aclose()
    return found

async def back(max_id, unused):
    await one.aopen()
    found = await one.give_back(max_id, unused)
    await store.aclose()
    return found

assert asyncio.run(take(10)) == 10
pid = os.fork()
if pid == 0:
    code = 1
    try:
        assert asyncio.run(back(10, 5)) == 0, "the child gave the parent's ids back"
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert asyncio.run(take(10)) == 20
assert asyncio.run(back(20, 15)) == 10, "it went below what the child remembers"
pid = os.fork()
if pid == 0:
    code = 1
    try:
        assert asyncio.run(take(10)) == 20
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("null")
""")
