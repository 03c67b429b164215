"""CosId 3.2.1's own runs on Redis, replayed on ours: the same replies and the same keys.

The vectors were made by the Java classes; ``source`` in the file says how.  Where ours differs on
purpose, `expected_state` and the tests below name the difference.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiocosid import SegmentId
from aiocosid.errors import (
    CorruptCounterError,
    CosIdError,
    InvalidArgumentError,
    StoreRolledBackError,
)
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.redis import RedisStore
from tests.servers import ValkeyServer
from tests.servers.valkey import MARK

pytestmark = [pytest.mark.integration]

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "redis_segment.json").read_text(encoding="utf-8")
)["vectors"]

ERRORS = {
    "RedisError": CorruptCounterError,
    "IllegalArgumentException": InvalidArgumentError,
    "IllegalStateException": StoreRolledBackError,
}

State = dict[str, dict[str, Any]]


def vectors(operation: str) -> list[Any]:
    found = [(i, each) for i, each in enumerate(VECTORS) if each["op"] == operation]
    assert found, operation
    return [pytest.param(each, id=f"{i}") for i, each in found]


@pytest.fixture(scope="module", params=["valkey", "redis_server"])
def empty_server(request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    """A server of these tests' own, of either product: they look at every key."""
    shared = request.getfixturevalue(request.param)  # skips where the product is missing
    with type(shared)() as server:
        yield server


@pytest_asyncio.fixture
async def store(empty_server: ValkeyServer) -> AsyncIterator[RedisStore]:
    empty_server.call("FLUSHALL")
    empty_server.call(*MARK)
    async with RedisStore.from_url(empty_server.url) as store:
        yield store


def state(server: ValkeyServer) -> State:
    """Every key, as the vectors write it."""
    keys = server.call("KEYS", "*")
    assert isinstance(keys, list)
    return {
        str(key): {
            "type": server.call("TYPE", str(key)),
            "encoding": server.call("OBJECT", "ENCODING", str(key)),
            "ttl": server.call("TTL", str(key)),
            "value": server.call("GET", str(key)),
        }
        for key in keys
        if key != MARK[1]
    }


class Scenario:
    """One run: CosId's steps done by ours."""

    def __init__(self, store: RedisStore, server: ValkeyServer, arguments: Any) -> None:
        self._store = store
        self._server = server
        self.step: int = arguments["step"]
        # CosId's constructor, unlike its factory, ignores the offset.  Ours has no such way in.
        self.offset: int = arguments["offset"] if arguments["via"] == "factory" else 0
        self._names = {name: arguments[name] for name in ("namespace", "name")}
        self.key = f"cosid:{{{arguments['namespace']}.{arguments['name']}}}.adder"
        self.counter = self._new()
        self.used = False  # a step has touched the key
        self.is_lost = False  # the key was removed

    def _new(self) -> CounterDistributor:
        return self._store.segment_distributor(offset=self.offset, step=self.step, **self._names)

    async def do(self, step: dict[str, Any]) -> Any:
        match step:
            case {"do": "next"}:
                return await self._next(step.get("step", self.step))
            case {"do": "foreign", "by": by}:
                self.used = True
                return self._server.call("INCRBY", self.key, by)
            case {"do": "set", "value": value}:
                self.used = True
                return self._server.call("SET", self.key, value)
            case {"do": "del"}:
                self.is_lost = True
                return self._server.call("DEL", self.key)
            case {"do": "recreate"}:
                self.counter = self._new()
                return None
            case _:
                raise AssertionError(step)

    async def _next(self, step: int) -> int:
        self.used = self.used or step > 0
        return await self.counter.next_max_id(step)

    def expected_state(self, theirs: State) -> State:
        """CosId's state, but for two differences on purpose."""
        if not self.used:
            return {}  # CosId writes the offset when it is constructed, ours with the first grant
        # CosId restarts a lost counter at 0; both refuse what comes of it, and ours makes none.
        return {} if self.is_lost else theirs


@pytest.mark.parametrize("vector", vectors("redis.segment_scenario"))
async def test_scenario(store: RedisStore, empty_server: ValkeyServer, vector: Any) -> None:
    """The reply, or the meaning of the error, and every key after every step."""
    run = Scenario(store, empty_server, vector["args"])
    created, *steps = vector["result"]
    assert created["adder_key"] == run.key
    assert created["namespaced_name"] == run.counter.namespaced_name
    assert state(empty_server) == {}
    for step, theirs in zip(vector["args"]["steps"], steps, strict=True):
        await check_step(run, step, theirs["result"])
        assert state(empty_server) == run.expected_state(theirs["state"]), step


async def check_step(run: Scenario, step: dict[str, Any], expected: Any) -> None:
    if not isinstance(expected, dict):
        assert await run.do(step) == expected
        return
    with pytest.raises(CosIdError) as caught:
        await run.do(step)
    assert type(caught.value) is ERRORS[expected["error"]["type"]]


@pytest.mark.parametrize("vector", vectors("redis.segment_id"))
async def test_two_clients_in_turn(
    store: RedisStore, empty_server: ValkeyServer, vector: Any
) -> None:
    """Two SegmentIds on one counter hand out what CosId's two do."""
    arguments = vector["args"]
    options = {name: arguments[name] for name in ("namespace", "name", "offset", "step")}
    async with (
        SegmentId(store.segment_distributor(**options)) as first,
        SegmentId(store.segment_distributor(**options)) as second,
    ):
        ids: tuple[list[int], list[int]] = ([], [])
        for _ in range(arguments["count_each"]):
            for generator, drawn in zip((first, second), ids, strict=True):
                drawn.append(await generator.next_id())
    # Both take their first segment when they are opened, and all further ones when they need them.
    assert [*ids] == [vector["result"]["client0"], vector["result"]["client1"]]
    assert state(empty_server) == vector["result"]["state"]


@pytest.mark.parametrize("vector", vectors("redis.segment_new"))
async def test_arguments_that_are_refused(store: RedisStore, vector: Any) -> None:
    """The same ones as by CosId."""
    assert ERRORS[vector["error"]["type"]] is InvalidArgumentError
    with pytest.raises(InvalidArgumentError):
        store.segment_distributor(**vector["args"])


@pytest.mark.parametrize("vector", vectors("redis.segment_defaults"))
async def test_defaults(store: RedisStore, empty_server: ValkeyServer, vector: Any) -> None:
    """The same key and offset; a step of 1000, where CosId's code says 10 and its guides 1000."""
    counter = store.segment_distributor(**vector["args"])
    assert counter.offset == vector["result"]["offset"]
    assert (counter.step, vector["result"]["step"]) == (1000, 10)
    await counter.next_max_id(1)
    assert [*state(empty_server)] == [vector["result"]["adder_key"]]


@pytest.mark.parametrize("vector", vectors("redis.grouped"))
async def test_groups(store: RedisStore, empty_server: ValkeyServer, vector: Any) -> None:
    """A group's counter is one of its own, under ``name@group``; grouping itself is elsewhere."""
    arguments = vector["args"]
    _, *steps = vector["result"]
    counters: dict[str, CounterDistributor] = {}
    for step in steps:
        group = max(step["state"]).partition("@")[2].partition("}")[0]
        counter = counters.setdefault(
            group,
            store.segment_distributor(
                namespace=arguments["namespace"],
                name=f"{arguments['name']}@{group}",
                offset=arguments["offset"],
                step=arguments["step"],
            ),
        )
        assert await counter.next_max_id(counter.step) == step["next"]
        assert state(empty_server) == step["state"]


def test_vectors_are_the_golden_ones() -> None:
    """The header says where they are from, and none is missing."""
    text = (Path(__file__).parents[1] / "vectors" / "redis_segment.json").read_text("utf-8")
    source = json.loads(text)["source"]
    assert (source["version"], source["count"]) == ("3.2.1", len(VECTORS))
