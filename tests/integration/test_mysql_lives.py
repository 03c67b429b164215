"""The MySQL and MariaDB store on several event loops, in forked processes, and with TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncmy
import pytest

from aiocosid.errors import StoreError, UnsupportedRuntimeError, WrongLoopError
from aiocosid.stores._executor import Executor
from aiocosid.stores._sql import SqlBackend
from aiocosid.stores.mysql import MysqlStore
from tests.script import run_python
from tests.servers import MariadbServer

pytestmark = [pytest.mark.integration]


def executor_of(store: MysqlStore) -> Executor:
    """What runs its statements."""
    assert isinstance(store._backend, SqlBackend)
    return store._backend._executor


def made(url: str) -> MysqlStore:
    """A store from a URL, whose tables are there."""

    async def create_schema() -> None:
        async with MysqlStore.from_url(url) as store:
            await store.create_schema()

    asyncio.run(create_schema())
    return MysqlStore.from_url(url)


class TestLoops:
    """One object, several event loops one after the other."""

    def test_one_after_the_other(self, mariadb: MariadbServer, mariadb_database: str) -> None:
        """Closed or not, in another asyncio.run it connects anew; no session is left behind."""
        store = made(mariadb_database)
        counter = store.segment_distributor(name="order")

        async def life() -> int:
            first = await counter.next_max_id(10)
            await store.aclose()
            await store.aclose()
            assert await counter.next_max_id(10) == first + 10
            return first

        assert [asyncio.run(life()) for _ in range(3)] == [10, 30, 50]
        import trio

        with pytest.raises(UnsupportedRuntimeError, match="asyncio"):
            trio.run(counter.next_max_id, 10)

    def test_a_loop_that_ends_without_a_word(self, mariadb_database: str) -> None:
        """A loop closed by hand leaves a session behind; the next loop ends it and has its own."""
        made(mariadb_database)
        assert run_python(DEAD_LOOPS, mariadb_database) == [10, 20, 30]

    def test_two_live_loops(self, mariadb_database: str) -> None:
        """A second loop is refused while the first one lives; so is a pool on a foreign loop."""
        store = made(mariadb_database)
        counter = store.segment_distributor(name="order")
        with asyncio.Runner() as one, asyncio.Runner() as other:
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            assert one.run(counter.next_max_id(10)) == 20
            one.run(store.aclose())
            assert other.run(counter.next_max_id(10)) == 30
            other.run(store.aclose())

            async def make() -> asyncmy.Pool:
                return asyncmy.Pool(0, 1, host="127.0.0.1")

            borrowed = MysqlStore(one.run(make())).segment_distributor(name="order")
            with pytest.raises(WrongLoopError):
                other.run(borrowed.next_max_id(10))


class TestFork:
    """A forked child starts over."""

    @pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
    @pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.stress)])
    def test_a_forked_child(self, mariadb_database: str, loop: str, ending: str) -> None:
        """It neither uses nor ends the parent's sessions, and may open its own."""
        code = FORK.replace("ENDING", ending).replace("LOOP", loop)
        told = run_python(code, mariadb_database)
        assert told == {
            "refused": ["ForkedError"] * 4,
            "borrowed opened": "ForkedError",
            "child": [30, 40, 50],
            "another session": True,
            "parent": [10, 20, 60, 70],
            "same session": True,
        }


@pytest.mark.asyncio
async def test_tls(mariadb_factory: Callable[..., MariadbServer]) -> None:
    """With whom the authority vouches for, or anybody, or nobody."""
    server = mariadb_factory(tls=True)
    asked = {
        "": None,
        "ssl-mode=REQUIRED": None,
        f"ssl-ca={server.ca_path}": None,
        f"ssl-mode=VERIFY_IDENTITY&ssl-ca={server.ca_path}": None,
        f"ssl-ca={server.stranger_ca_path}": "not trusted",
        "ssl-mode=VERIFY_CA": "not trusted",
    }
    for options, refusal in asked.items():
        async with MysqlStore.from_url(f"{server.url}?{options}") as store:
            if refusal is None:
                executor = executor_of(store)
                ((_, cipher),) = await executor.fetch_rows("SHOW STATUS LIKE 'Ssl_cipher'")
                assert bool(cipher) is bool(options)
            else:
                with pytest.raises(StoreError, match=refusal) as caught:
                    await store.counters()
                assert not caught.value.retryable


FORK = """
import asyncio, ctypes, gc, json, os, sys
from urllib.parse import urlsplit
import asyncmy, uvloop
from aiocosid.stores.mysql import MysqlStore

url = sys.argv[1]
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

async def session(of):
    return (await of._backend._executor.fetch_rows("SELECT CONNECTION_ID()"))[0][0]

async def child(counter, store, borrowed, before):
    refused = [await outcome(each) for each in (
        counter.next_max_id(10), store.counters(), borrowed.next_max_id(10),
        store.segment_distributor(name="order").next_max_id(10))]
    told = {"refused": refused, "borrowed opened": await outcome(borrowed.aopen())}
    gc.collect()
    await counter.aopen()
    granted = [await counter.next_max_id(10)]
    told["another session"] = await session(counter) != before
    await counter._backend.aclose()
    async with store:
        mine = store.segment_distributor(name="order")
        granted += [await mine.next_max_id(10), await mine.next_max_id(10)]
    return told | {"child": granted}

async def main():
    parts = urlsplit(url)
    pool = await asyncmy.create_pool(minsize=0, maxsize=1, host=parts.hostname, port=parts.port,
                                     user=parts.username, database=parts.path[1:])
    single = MysqlStore.from_url(url)
    counter = single.segment_distributor(name="order")
    store = MysqlStore.from_url(url)
    await store.create_schema()
    borrowed = MysqlStore(pool).segment_distributor(name="order")
    granted = [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    before = await session(counter), await session(store)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The user's own pool says good-bye by itself; that is none of ours.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
        return theirs, counter, store, borrowed, before[0]
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    granted += [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    same = before == (await session(counter), await session(store))
    await single.aclose()
    await store.aclose()
    pool.close()
    await pool.wait_closed()
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


DEAD_LOOPS = """
import asyncio, json, sys
from aiocosid.stores.mysql import MysqlStore

store = MysqlStore.from_url(sys.argv[1])
counter = store.segment_distributor(name="order")
granted = []
for _ in range(3):
    loop = asyncio.new_event_loop()
    granted.append(loop.run_until_complete(asyncio.wait_for(counter.next_max_id(10), 5)))
    loop.close()

async def sessions():
    count = "SELECT count(*) FROM information_schema.processlist WHERE db = database()"
    async with asyncio.timeout(10):
        while (await store._backend._executor.fetch_rows(count))[0][0] > 1:
            await asyncio.sleep(0.01)
    await store.aclose()

asyncio.run(sessions())
print(json.dumps(granted))
"""
