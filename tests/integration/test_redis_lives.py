"""The Redis store in forked processes."""

from __future__ import annotations

import pytest

from tests.script import run_python
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.integration]


class TestFork:
    """A forked child starts over."""

    @pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_a_forked_child(
        self, valkey: ValkeyServer, namespace: str, loop: str, ending: str
    ) -> None:
        """It neither uses nor ends the parent's connections, and may open its own."""
        code = FORK.replace("ENDING", ending).replace("LOOP", loop)
        told = run_python(code, valkey.url, namespace)
        assert told == {
            "refused": ["ForkedError"] * 4,
            "borrowed opened": "ForkedError",
            "child": [30, 40, 50],
            "another connection": True,
            "parent": [10, 20, 60, 70],
            "same connections": True,
        }

    @pytest.mark.parametrize("ending", ["sys.exit(0)", "runner.close()"])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    @pytest.mark.parametrize("server", ["valkey", "valkey_unix", "valkey_cluster"])
    def test_a_child_that_does_nothing(
        self, request: pytest.FixtureRequest, server: str, namespace: str, loop: str, ending: str
    ) -> None:
        """Its mere end, with destructors or as asyncio.run does it, ends no connection."""
        found = request.getfixturevalue(server)
        url = found.unix_url if server == "valkey_unix" else found.url
        code = QUIET.replace("LOOP", loop).replace("ENDING", ending)
        assert run_python(code, url, namespace) == {"granted": [10, 20], "same connection": True}


FORK = """
import asyncio, ctypes, gc, json, os, sys
import uvloop
from redis.asyncio import Redis
from aiocosid.stores.redis import RedisStore

url, namespace = sys.argv[1:]
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]
named = {"namespace": namespace, "name": "order"}

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

async def connection(of):
    return await of._backend.link.call(lambda client: client.client_id())

async def child(counter, store, borrowed, before):
    refused = [await outcome(each) for each in (
        counter.next_max_id(10), store.counters(), borrowed.next_max_id(10),
        store.segment_distributor(**named).next_max_id(10))]
    told = {"refused": refused, "borrowed opened": await outcome(borrowed.aopen())}
    gc.collect()
    await counter.aopen()
    granted = [await counter.next_max_id(10)]
    told["another connection"] = await connection(counter) != before
    await counter._backend.aclose()
    async with store:
        mine = store.segment_distributor(**named)
        granted += [await mine.next_max_id(10), await mine.next_max_id(10)]
    return told | {"child": granted}

async def main():
    client = Redis.from_url(url)
    own = RedisStore.from_url(url)
    counter = own.segment_distributor(**named)
    store = RedisStore.from_url(url)
    borrowed = RedisStore(client).segment_distributor(**named)
    granted = [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    before = await connection(counter), await connection(store)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The user's own client says good-bye by itself; that is none of ours.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        return theirs, counter, store, borrowed, before[0]
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    granted += [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    same = before == (await connection(counter), await connection(store))
    for each in (own, store, client):
        await each.aclose()
    told = json.loads(os.read(ours, 10_000))
    print(json.dumps(told | {"parent": granted, "same connections": same}))

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
from aiocosid.stores.redis import RedisStore

url, namespace = sys.argv[1:]
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]

async def connection(of):
    # Of a cluster the one to the counter's own node.
    key = "cosid:{%s.order}.adder" % namespace
    def ask(client):
        if not hasattr(client, "nodes_manager"):
            return client.client_id()
        return client.execute_command(
            "CLIENT ID", target_nodes=client.get_node_from_key(key))
    return await of._backend.link.call(ask)

async def main():
    store = RedisStore.from_url(url)
    counter = store.segment_distributor(namespace=namespace, name="order")
    granted = [await counter.next_max_id(10)]
    before = await connection(store)
    if (pid := os.fork()) == 0:
        return store
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    granted.append(await counter.next_max_id(10))
    same = before == await connection(store)
    await store.aclose()
    print(json.dumps({"granted": granted, "same connection": same}))

runner = asyncio.Runner(loop_factory=new_loop)
if runner.run(main()):
    ENDING
else:
    runner.close()
"""
