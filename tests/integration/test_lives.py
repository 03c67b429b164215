"""Stores on several event loops, and in forked processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocosid import store_from_url
from aiocosid.errors import UnsupportedByStoreError, UnsupportedRuntimeError, WrongLoopError
from tests.script import run_python

from ._clients import close_pool, make_pool, scheme_of, store_on
from ._engines import SERVERS
from ._sql import DATABASES, own_url_of

pytestmark = [pytest.mark.integration]

ENDINGS = ("os._exit(0)", "sys.exit(0)")
ENGINELESS = ("valkey", "cosid_proxy", "etcd", "nats", "zookeeper")
ENGINES = [pytest.param(driver, marks=pytest.mark.stress) for driver in SERVERS]
QUIET_ONES = ("postgres", "valkey", "valkey_unix", "valkey_cluster")
SESSIONLESS = {"sqlite", "cosid"}
FORKS = [
    *(("valkey", loop, ending) for loop in ("asyncio", "uvloop") for ending in ENDINGS),
    *((kind, "asyncio", "sys.exit(0)") for kind in ("cosid_proxy", "nats", "zookeeper")),
    *(("sqlite", "asyncio", ending) for ending in ENDINGS),
    *(("postgres", loop, ending) for loop in ("asyncio", "uvloop") for ending in ENDINGS),
    *(("mariadb", "asyncio", ending) for ending in ENDINGS),
    *(pytest.param("mariadb", "uvloop", ending, marks=pytest.mark.stress) for ending in ENDINGS),
    *((each, "asyncio", "sys.exit(0)") for each in ("asyncpg", "psycopg", "asyncmy", "aiomysql")),
]


@pytest.fixture(params=[*DATABASES, *ENGINELESS])
def url(request: pytest.FixtureRequest) -> str:
    """A database of one kind after the other, with its tables, or the session's server."""
    kind = request.param
    if kind in DATABASES or kind in SERVERS:
        url = own_url_of(request, kind)
    else:
        server = request.getfixturevalue(kind)
        url = server.unix_url if kind == "valkey_unix" else server.url
    if kind == "cosid_proxy":
        url = f"cosid+{request.getfixturevalue('cosid_proxy_url')}"
    asyncio.run(_create_schema(url))
    return url


async def _create_schema(url: str) -> None:
    async with store_from_url(url) as store:
        await store.create_schema(disposable=True)


class TestLoops:
    """One object, several event loops one after the other."""

    def test_closed_and_used_again(self, url: str, namespace: str) -> None:
        """After aclose, also in another asyncio.run, it connects anew; trio is refused."""
        own = store_from_url(url)
        counter = own.segment_distributor(namespace=namespace, name="order")

        async def life() -> int:
            first = await counter.next_max_id(10)
            await own.aclose()
            await own.aclose()
            assert await counter.next_max_id(10) == first + 10
            await own.aclose()
            return first

        assert [asyncio.run(life()) for _ in range(3)] == [10, 30, 50]
        import trio

        with pytest.raises(UnsupportedRuntimeError, match="asyncio"):
            trio.run(counter.next_max_id, 10)

    def test_never_closed(self, url: str, namespace: str) -> None:
        """The connections end with their loop, politely; the next loop gets others."""
        counter = store_from_url(url).segment_distributor(namespace=namespace, name="order")
        assert [asyncio.run(counter.next_max_id(10)) for _ in range(3)] == [10, 20, 30]

    @pytest.mark.parametrize("url", ["postgres", "mariadb", *ENGINES], indirect=True)
    def test_a_loop_that_ends_without_a_word(self, url: str) -> None:
        """A loop closed by hand leaves a session behind; the next loop ends it and has its own."""
        assert run_python(DEAD_LOOPS, url, "n") == [10, 20, 30]

    def test_two_live_loops(self, url: str, namespace: str) -> None:
        """A second loop is refused while the first one lives."""
        own = store_from_url(url)
        counter = own.segment_distributor(namespace=namespace, name="order")
        with asyncio.Runner() as one, asyncio.Runner() as other:
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            with pytest.raises(WrongLoopError):
                other.run(own.aclose())
            assert one.run(counter.next_max_id(10)) == 20
            one.run(own.aclose())
            assert other.run(counter.next_max_id(10)) == 30
            other.run(own.aclose())

    @pytest.mark.parametrize("url", ["postgres", "mariadb", "nats"], indirect=True)
    def test_a_users_pool_on_another_loop(self, url: str, namespace: str) -> None:
        """A pool lives on its own loop; the error says so, and the pool goes on there."""
        with asyncio.Runner() as one, asyncio.Runner() as other:
            pool = one.run(make_pool(url))
            counter = store_on(pool).segment_distributor(namespace=namespace, name="order")
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            assert one.run(counter.next_max_id(10)) == 20
            one.run(close_pool(pool))


class TestFork:
    """A forked child starts over."""

    @pytest.mark.parametrize(("url", "loop", "ending"), FORKS, indirect=["url"])
    def test_a_forked_child(
        self, request: pytest.FixtureRequest, url: str, namespace: str, loop: str, ending: str
    ) -> None:
        """It neither uses nor ends the parent's sessions, and may open its own.

        It is another instance then, unless it was told which: who asks last has the machine id.
        """
        due: dict[str, Any] = {
            "refused": ["ForkedError"] * 4,
            "borrowed opened": "ForkedError",
            "child": [30, 40, 50],
            "another session": scheme_of(url) not in SESSIONLESS,
            "parent": [10, 20, 60, 70],
            "same session": True,
            "sound": "ok",
            "no machine ids": ["ForkedError"] * 4,
            "machine ids": [True, True, True],
            "parent's": [None, "MachineIdLostError"],
        }
        if scheme_of(url) == "cosid":
            for told in ("no machine ids", "machine ids", "parent's"):
                del due[told]
            due["refused"][1] = UnsupportedByStoreError.__name__  # it lists no counters
        code = FORK.replace("ENDING", ending).replace("LOOP", loop)
        assert run_python(code, url, namespace) == due
        if scheme_of(url) == "cosid":
            connections = request.getfixturevalue("cosid_proxy").connections
            assert len(connections) == 4, "two of the parent, before and after, two of the child"

    @pytest.mark.parametrize("url", QUIET_ONES, indirect=True)
    @pytest.mark.parametrize("ending", ["sys.exit(0)", "runner.close()"])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_a_child_that_does_nothing(
        self, url: str, namespace: str, loop: str, ending: str
    ) -> None:
        """Its mere end, with destructors or as asyncio.run does it, ends no session."""
        code = QUIET.replace("LOOP", loop).replace("ENDING", ending)
        assert run_python(code, url, namespace) == {"granted": [10, 20], "same session": True}


BEGIN = """
import asyncio, ctypes, gc, json, os, sys, warnings
import uvloop
from aiocosid import store_from_url
from tests.integration import _clients as pools

warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: a fork beside threads
url, namespace = sys.argv[1:]
named = {"namespace": namespace, "name": "order"}
own = store_from_url(url)
counter = own.segment_distributor(**named)
"""

FORK = (
    BEGIN
    + """
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]
store = store_from_url(url)

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

async def take(machine):
    return (await machine.distribute(4, now_ms=1, latest_ms=2**53)).machine_id

SIGN = {"now_ms": 1, "fence_ms": 1}

async def child(borrowed, before, machines, ids):
    refused = [await outcome(each) for each in (
        counter.next_max_id(10), store.counters(), borrowed.next_max_id(10),
        store.segment_distributor(**named).next_max_id(10))]
    told = {"refused": refused, "borrowed opened": await outcome(borrowed.aopen())}
    if machines:
        unique, called = machines
        told["no machine ids"] = [await outcome(each) for each in (
            take(unique), take(called), unique.renew(0, **SIGN), unique.release(0, last_ms=-1))]
    gc.collect()
    await counter.aopen()
    granted = [await counter.next_max_id(10)]
    told["another session"] = await pools.session_of(own, url, f"{namespace}.order") != before
    await own.aclose()
    async with store:
        mine = store.segment_distributor(**named)
        granted += [await mine.next_max_id(10), await mine.next_max_id(10)]
        if machines:
            parents = unique.instance_id
            await unique.aopen()
            await called.aopen()
            new, same = await take(unique), await take(called)
            told["machine ids"] = [
                unique.instance_id != parents, new not in ids, same == ids[1]]
    return told | {"child": granted}

async def sessions():
    return [await pools.session_of(each, url) for each in (own, store)]

async def main():
    pool = await pools.make_pool(url)
    borrowed = pools.store_on(pool).segment_distributor(**named)
    granted = [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    who = () if pools.scheme_of(url) == "cosid" else (None, "10.0.0.1:80")
    machines = [
        store.machine_id_distributor(namespace=namespace, instance_id=each) for each in who]
    ids = [await take(each) for each in machines]
    before = await sessions()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The user's own pool says good-bye by itself; that is none of ours.
        for each in (pool, getattr(pool, "pool", None)):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        return theirs, borrowed, before[0], machines, ids
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status == 0, status
    granted += [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    told = {"parent": granted, "same session": before == await sessions()}
    if machines:
        told["parent's"] = [
            await outcome(each.renew(number, **SIGN)) for each, number in zip(machines, ids)]
    is_file = pools.scheme_of(url) == "sqlite"
    told["sound"] = await pools.fetch(own, "PRAGMA integrity_check") if is_file else "ok"
    await own.aclose()
    await store.aclose()
    await pools.close_pool(pool)
    print(json.dumps(json.loads(os.read(ours, 10_000)) | told))

runner = asyncio.Runner(loop_factory=new_loop)
forked = runner.run(main())
if forked:
    theirs, *objects = forked
    os.write(theirs, json.dumps(asyncio.run(child(*objects))).encode())
    ENDING
runner.close()
"""
)

QUIET = (
    BEGIN
    + """
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]

async def main():
    granted = [await counter.next_max_id(10)]
    session = await pools.session_of(own, url, f"{namespace}.order")
    if (pid := os.fork()) == 0:
        return True
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    granted.append(await counter.next_max_id(10))
    same = session == await pools.session_of(own, url, f"{namespace}.order")
    await own.aclose()
    print(json.dumps({"granted": granted, "same session": same}))

runner = asyncio.Runner(loop_factory=new_loop)
if runner.run(main()):
    ENDING
else:
    runner.close()
"""
)

DEAD_LOOPS = (
    BEGIN
    + """
granted = []
for _ in range(3):
    loop = asyncio.new_event_loop()
    granted.append(loop.run_until_complete(asyncio.wait_for(counter.next_max_id(10), 5)))
    loop.close()
    gc.collect()

async def sessions():
    async with asyncio.timeout(10):
        while await pools.fetch(own, pools.SESSIONS[pools.scheme_of(url)]) > 1:
            gc.collect()
            await asyncio.sleep(0.01)
    await own.aclose()

asyncio.run(sessions())
print(json.dumps(granted))
"""
)
