"""The PostgreSQL store on several event loops, and in forked processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import (
    UnsupportedRuntimeError,
    WrongLoopError,
)
from aiocosid.stores.postgres import PostgresStore
from tests.script import run_python
from tests.servers import (
    PostgresServer,
)

pytestmark = [pytest.mark.integration]


driver: Any = asyncpg  # its annotations stop half-way


@asynccontextmanager
async def pool_of(url: str, **options: Any) -> AsyncGenerator[Any]:
    """A user's pool."""
    pool = await driver.create_pool(url, **{"min_size": 0, "max_size": 1, **options})
    try:
        yield pool
    finally:
        await asyncio.wait_for(pool.close(), 10)


class TestLoops:
    """One object, several event loops one after the other."""

    def test_closed_and_used_again(self, postgres_database: str) -> None:
        """After aclose, also in another asyncio.run, it connects anew."""
        own, counter = made(postgres_database)

        async def life() -> int:
            first = await counter.next_max_id(10)
            await own.aclose()
            await own.aclose()
            assert await counter.next_max_id(10) == first + 10
            await own.aclose()
            return first

        assert [asyncio.run(life()) for _ in range(3)] == [10, 30, 50]

    def test_never_closed(self, postgres_database: str, postgres: PostgresServer) -> None:
        """The connections end with their loop, politely; the next loop gets others."""
        _, counter = made(postgres_database)
        assert [asyncio.run(counter.next_max_id(10)) for _ in range(3)] == [10, 20, 30]

    def test_a_loop_that_ends_without_a_word(self, postgres_database: str) -> None:
        """A loop closed by hand leaves a session behind; the next loop ends it and has its own."""
        asyncio.run(_create_schema(postgres_database))
        assert run_python(DEAD_LOOPS, postgres_database) == [10, 20, 30]

    def test_two_live_loops(self, postgres_database: str) -> None:
        """A second loop is refused while the first one lives."""
        own, counter = made(postgres_database)
        with asyncio.Runner() as one, asyncio.Runner() as other:
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            assert one.run(counter.next_max_id(10)) == 20
            one.run(own.aclose())
            assert other.run(counter.next_max_id(10)) == 30

    def test_a_users_pool_on_another_loop(self, postgres_database: str) -> None:
        """A pool lives on its own loop; the error says so, and the pool goes on there."""
        asyncio.run(_create_schema(postgres_database))
        with asyncio.Runner() as one, asyncio.Runner() as other:
            pool_context = pool_of(postgres_database)
            pool = one.run(pool_context.__aenter__())
            counter = PostgresStore(pool).segment_distributor(name="order")
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            assert one.run(counter.next_max_id(10)) == 20
            one.run(pool_context.__aexit__(None, None, None))

    def test_not_under_trio(self, postgres_database: str) -> None:
        """The driver runs on asyncio only, and the error says so."""
        import trio

        own = PostgresStore.from_url(postgres_database)
        counter = own.segment_distributor(name="order")
        with pytest.raises(UnsupportedRuntimeError, match="asyncio"):
            trio.run(counter.next_max_id, 10)


class TestFork:
    """A forked child starts over."""

    @pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_a_forked_child(self, postgres_database: str, loop: str, ending: str) -> None:
        """It neither uses nor ends the parent's sessions, and may open its own."""
        code = FORK.replace("ENDING", ending).replace("LOOP", loop)
        told = run_python(code, postgres_database)
        assert told == {
            "refused": ["ForkedError"] * 4,
            "borrowed opened": "ForkedError",
            "child": [30, 40, 50],
            "another session": True,
            "parent": [10, 20, 60, 70],
            "same session": True,
        }

    @pytest.mark.parametrize("ending", ["sys.exit(0)", "runner.close()"])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_a_child_that_does_nothing(
        self, postgres_database: str, loop: str, ending: str
    ) -> None:
        """Its mere end, with destructors or as asyncio.run does it, ends no session."""
        code = QUIET.replace("LOOP", loop).replace("ENDING", ending)
        assert run_python(code, postgres_database) == {"granted": [10, 20], "same session": True}


def made(url: str) -> tuple[PostgresStore, IdSegmentDistributor]:
    """A store from a URL, and a counter on it, whose table is there."""
    asyncio.run(_create_schema(url))
    store = PostgresStore.from_url(url)
    return store, store.segment_distributor(name="order")


async def _create_schema(url: str) -> None:
    async with PostgresStore.from_url(url) as store:
        await store.create_schema()


FORK = """
import asyncio, ctypes, gc, json, os, sys
import asyncpg, uvloop
from aiocosid.stores.postgres import PostgresStore

url = sys.argv[1]
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

async def session(of):
    return (await of._backend._executor.fetch_rows("SELECT pg_backend_pid()"))[0][0]

async def child(own, counter, store, borrowed, before):
    refused = [await outcome(each) for each in (
        counter.next_max_id(10), store.counters(), borrowed.next_max_id(10),
        store.segment_distributor(name="order").next_max_id(10))]
    told = {"refused": refused, "borrowed opened": await outcome(borrowed.aopen())}
    gc.collect()
    await counter.aopen()
    granted = [await counter.next_max_id(10)]
    told["another session"] = await session(own) != before
    await own.aclose()
    async with store:
        mine = store.segment_distributor(name="order")
        granted += [await mine.next_max_id(10), await mine.next_max_id(10)]
    return told | {"child": granted}

async def main():
    pool = await asyncpg.create_pool(url, min_size=0, max_size=1)
    own = PostgresStore.from_url(url)
    counter = own.segment_distributor(name="order")
    store = PostgresStore.from_url(url)
    await store.create_schema()
    borrowed = PostgresStore(pool).segment_distributor(name="order")
    granted = [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    before = await session(own), await session(store)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The user's own pool says good-bye by itself; that is none of ours.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
        return theirs, own, counter, store, borrowed, before[0]
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    granted += [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    same = before == (await session(own), await session(store))
    await own.aclose()
    await store.aclose()
    await pool.close()
    told = json.loads(os.read(ours, 10_000))
    print(json.dumps(told | {"parent": granted, "same session": same}))

runner = asyncio.Runner(loop_factory=new_loop)
forked = runner.run(main())
if forked:
    theirs, *objects = forked
    os.write(theirs, json.dumps(asyncio.run(child(*objects))).encode())
    ENDING
runner.close()
"""


QUIET = """
import asyncio, json, os, sys
import uvloop
from aiocosid.stores.postgres import PostgresStore

new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]

async def main():
    store = PostgresStore.from_url(sys.argv[1])
    await store.create_schema()
    counter = store.segment_distributor(name="order")
    granted = [await counter.next_max_id(10)]
    session = await store._backend._executor.fetch_rows("SELECT pg_backend_pid()")
    if (pid := os.fork()) == 0:
        return store
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    granted.append(await counter.next_max_id(10))
    same = session == await store._backend._executor.fetch_rows("SELECT pg_backend_pid()")
    await store.aclose()
    print(json.dumps({"granted": granted, "same session": same}))

runner = asyncio.Runner(loop_factory=new_loop)
if runner.run(main()):
    ENDING
else:
    runner.close()
"""


DEAD_LOOPS = """
import asyncio, json, sys
from aiocosid.stores.postgres import PostgresStore

own = PostgresStore.from_url(sys.argv[1])
counter = own.segment_distributor(name="order")
granted = []
for _ in range(3):
    loop = asyncio.new_event_loop()
    granted.append(loop.run_until_complete(asyncio.wait_for(counter.next_max_id(10), 5)))
    loop.close()

async def sessions():
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    async with asyncio.timeout(10):
        while (await own._backend._executor.fetch_rows(count))[0][0] > 1:
            await asyncio.sleep(0.01)
    await own.aclose()

asyncio.run(sessions())
print(json.dumps(granted))
"""
