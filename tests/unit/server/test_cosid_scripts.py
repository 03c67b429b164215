"""CosId's scripts of machine ids over RESP: the operations that they stand for."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final

import pytest
import pytest_asyncio

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.server import Token, TokenScope, digest_of
from aiocosid.stores.memory import MemoryStore
from tests.servers.cosid_service import age

from ._wire import Wire, command

INDEX: Final = "local index = 'cosid:' .. KEYS[1] .. ':itc_idx'; local who = ARGV[1];"
TEXTS: Final = {
    "distribute": f"{INDEX} redis.call('hdel', index); redis.call('incr', KEYS[1] .. ':adder')",
    "guard": f"{INDEX} redis.call('hset', index, who, 'guard')",
    "stable": f"{INDEX} local pool = ':revert'; redis.call('hset', index, who, 'stable')",
    "revert": f"{INDEX} redis.call('hdel', index, who); redis.call('hset', ':revert', who)",
}
"""They touch the keys that CosId's do, by the same commands."""

NO_SCRIPT: Final = "NOSCRIPT No matching script. Please use EVAL."


def digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


async def answered(wire: Wire, asked: bytes) -> list[Any]:
    """The reply, which may wait until a machine id can be used."""
    wire.feed(asked)
    async with asyncio.timeout(10):
        while not wire.sent:  # noqa: ASYNC110 - bytes, which set no event
            await asyncio.sleep(0.01)
    return wire.replies()


async def ask(wire: Wire, name: str, *arguments: str | int) -> Any:
    """Run a script as Spring does: by its digest, and by its text if that is unknown."""
    words: list[str | int] = [1, "{ns}", *arguments]
    (found,) = await answered(wire, command("EVALSHA", digest(TEXTS[name]), *words))
    if found == NO_SCRIPT:
        (found,) = await answered(wire, command("EVAL", TEXTS[name], *words))
    return found


async def take(wire: Wire, instance: str, *, guard_ms: int | None = 300_000) -> Any:
    now_ms = SYSTEM_CLOCK.now_ms()
    safe_at = 0 if guard_ms is None else now_ms - guard_ms
    return await ask(wire, "distribute", instance, 1, now_ms, safe_at)


@pytest_asyncio.fixture
async def store() -> MemoryStore:
    found = MemoryStore()
    await found.initialize(confirm_no_holders=True)
    return found


async def held(store: MemoryStore) -> dict[str, int]:
    found = await store.machines(namespace="ns")
    return {each.instance_id: each.machine_id for each in found if each.instance_id}


async def test_the_life_of_a_client(store: MemoryStore) -> None:
    """It takes, renews and releases; what it is told is never ahead of the clock."""
    wire = Wire(store)
    assert (await take(wire, "a"))[0] == 0
    assert (await take(wire, "b"))[0] == 1
    assert await take(wire, "c") == [-1, -1]
    assert await ask(wire, "guard", "a", SYSTEM_CLOCK.now_ms()) == 1
    assert await ask(wire, "guard", "c", SYSTEM_CLOCK.now_ms()) == 0
    assert await ask(wire, "stable", "b", SYSTEM_CLOCK.now_ms()) == 1
    assert await held(store) == {"a": 0, "b": 1}
    assert await ask(wire, "revert", "a", SYSTEM_CLOCK.now_ms()) == 1
    assert await ask(wire, "revert", "a", SYSTEM_CLOCK.now_ms()) == 0
    machine_id, last_ms = await take(wire, "c")
    assert (machine_id, last_ms <= SYSTEM_CLOCK.now_ms()) == (0, True)


async def test_only_a_short_safe_guard_takes_a_silent_ones(store: MemoryStore) -> None:
    wire = Wire(store)
    for name in "ab":
        await take(wire, name)
    age(store, "ns", 301)
    assert await take(wire, "c", guard_ms=None) == [-1, -1]
    assert (await take(wire, "c", guard_ms=1))[0] == 0
    assert await ask(wire, "guard", "a", SYSTEM_CLOCK.now_ms()) == 0


async def test_scripts_are_known_once_they_are_loaded(store: MemoryStore) -> None:
    wire, text = Wire(store), TEXTS["guard"]
    sha = digest(text)
    assert await wire.ask(command("SCRIPT", "EXISTS", sha, "0")) == [[0, 0]]
    assert await wire.ask(command("SCRIPT", "LOAD", text)) == [sha.encode()]
    assert await wire.ask(command("SCRIPT", "EXISTS", sha, "0")) == [[1, 0]]
    assert await wire.ask(command("EVALSHA", sha.upper(), 1, "{ns}", "a", 1)) == [0]


@pytest.mark.parametrize(
    "words",
    [
        ("EVAL", "return 1", 0),
        ("EVAL",),
        ("EVALSHA",),
        ("SCRIPT", "FLUSH"),
        ("SCRIPT", "LOAD", "return redis.call('get', KEYS[1])"),
        ("EVAL", TEXTS["guard"], 1, "ns", "a", 1),
        ("EVAL", TEXTS["guard"], 2, "{ns}", "a", 1),
        ("EVAL", TEXTS["guard"], 1, "{ns}", "a"),
        ("EVAL", TEXTS["guard"], 1, b"\xff", "a", 1),
        ("EVAL", TEXTS["distribute"], 1, "{ns}", "a", 5, 9, 1),
        ("EVAL", TEXTS["distribute"], 1, "{ns}", "a", 1, 1, 9),
        ("EVAL", TEXTS["distribute"], 1, "{ns}", "a", "x", 9, 1),
        ("EVAL", TEXTS["distribute"], 1, "{ns}", "a", "9" * 5000, 9, 1),
        ("EVAL", TEXTS["distribute"], 1, "{ns}", "", 1, 9, 1),
    ],
)
async def test_what_is_refused(store: MemoryStore, words: tuple[Any, ...]) -> None:
    (found,) = await Wire(store).ask(command(*words))
    assert found.startswith(("ERR ", "NOSCRIPT "))
    assert found != "ERR internal error"
    assert await store.machines() == []


async def test_an_id_is_its_tokens(store: MemoryStore) -> None:
    """Another token, and one without the scope, neither renews nor releases it."""
    tokens = [
        Token(name=name, digest=digest_of(f"aiocosid_{name}"), scopes=scopes, names=("ns",))
        for name, scopes in (
            ("one", (TokenScope.MACHINES,)),
            ("two", (TokenScope.MACHINES,)),
            ("three", (TokenScope.SEGMENTS,)),
        )
    ]
    wires = {each.name: Wire(store, tokens=tokens) for each in tokens}
    (refused,) = await wires["one"].ask(command("EVAL", TEXTS["guard"], 1, "{ns}", "a", 1))
    assert refused.startswith("NOAUTH")
    for name, wire in wires.items():
        assert await wire.ask(command("AUTH", f"aiocosid_{name}")) == [b"OK"]
    assert (await take(wires["one"], "a"))[0] == 0
    for script in ("guard", "stable", "revert"):
        assert await ask(wires["two"], script, "a", 1) == 0
        assert (await ask(wires["three"], script, "a", 1)).startswith("NOPERM")
    assert await held(store) == {"a": 0}
    assert await ask(wires["one"], "guard", "a", 1) == 1


async def test_a_lease_is_released_by_its_token_alone(store: MemoryStore) -> None:
    """A process of ours with the same instance id keeps its machine id."""
    now_ms = SYSTEM_CLOCK.now_ms()
    mine = store.machine_id_distributor(namespace="ns", instance_id="ours")
    await mine.distribute(1, now_ms=now_ms, latest_ms=now_ms)
    assert await ask(Wire(store), "revert", "ours", now_ms) == 0
    assert await held(store) == {"ours": 0}
