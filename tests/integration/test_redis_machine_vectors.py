"""CosId 3.2.1's own runs of machine ids on Redis, replayed on ours: the same keys after each step.

The vectors were made by the Java classes; ``source`` in the files says how.  Each step begins with
CosId's keys as its own step before left them, so that one difference on purpose does not hide the
steps after it.  All differences are named in `DIFFERENCES` and `SCRIPT_DIFFERENCES`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.errors import (
    CorruptMachineStateError,
    CosIdError,
    MachineIdLostError,
    MachineIdOverflowError,
)
from aiocosid.machine import rules
from aiocosid.machine.cells import MachineSlot, NamespaceRecord, ReadRequest, Snapshot
from aiocosid.machine.distributor import transact
from aiocosid.machine.rules import Caller, Decision
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._backend import RedisBackend
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.integration]

FOLDER = Path(__file__).parents[1] / "vectors"
MACHINE = json.loads((FOLDER / "redis_machine.json").read_text(encoding="utf-8"))
SCRIPTS = json.loads((FOLDER / "redis_scripts.json").read_text(encoding="utf-8"))

OURS = (":note", ":seen", ":space", ":marker")  # the keys of which CosId knows nothing

FAR = 2**62  # no floor is too late

# What ours raises where CosId does.
ERRORS = {
    "MachineIdOverflowException": MachineIdOverflowError,
    "MachineIdLostException": MachineIdLostError,
}

State = dict[str, Any]


def vectors(found: Any, operation: str) -> list[Any]:
    chosen = [each for each in found["vectors"] if each["op"] == operation]
    assert chosen, operation
    return [pytest.param(each, id=f"{each['args'].get('no', i)}") for i, each in enumerate(chosen)]


@pytest.fixture(scope="module", params=["valkey", "redis_server"])
def empty_server(request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    """A server of these tests' own, of either product: they look at every key."""
    shared = request.getfixturevalue(request.param)  # skips where the product is missing
    with type(shared)() as server:
        yield server


@pytest_asyncio.fixture
async def store(empty_server: ValkeyServer) -> AsyncIterator[RedisStore]:
    empty_server.call("FLUSHALL")
    async with RedisStore.from_url(empty_server.url) as store:
        store._backend = AtTheTime(store._backend.link)
        yield store


def pairs(server: ValkeyServer, key: str) -> list[list[str]]:
    flat = server.call("HGETALL", key)
    assert isinstance(flat, list)
    texts = [str(each) for each in flat]
    return [list(pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


def state(server: ValkeyServer) -> State:
    """CosId's keys, as the vectors write them."""
    keys = server.call("KEYS", "*")
    assert isinstance(keys, list)
    found: State = {}
    for key in sorted(str(each) for each in keys):
        if key.endswith(OURS):
            continue
        kind = server.call("TYPE", key)
        value = server.call("GET", key) if kind == "string" else pairs(server, key)
        found[key] = {"type": kind, "ttl": server.call("TTL", key), "value": value}
    return found


def plain(theirs: State) -> State:
    """Without the encoding, which is the server's affair."""
    return {
        key: {name: each[name] for name in ("type", "ttl", "value")} for key, each in theirs.items()
    }


def put(server: ValkeyServer, theirs: State) -> None:
    """Write CosId's keys as they were; ours stay but for the width, of which CosId takes any.

    And the count of ours, for CosId's keys may be those of a run with less of them.
    """
    spaces = server.call("KEYS", "*:space")
    assert isinstance(spaces, list)
    for key in map(str, spaces):
        space = NamespaceRecord.read(str(server.call("GET", key)))
        server.call("SET", key, replace(space, bits=0).text())
    for key in (*state(server), "aiocosid:marker"):
        server.call("DEL", key)
    for key, each in theirs.items():
        if each["type"] == "string":
            server.call("SET", key, each["value"])
        else:
            for field, value in each["value"]:
                server.call("HSET", key, field, value)


class AtTheTime(RedisBackend):
    """With the vectors' clock on the server, which has seen nobody but by their stamps."""

    __slots__ = ()

    server_ms: ClassVar[int] = 0

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        found = await super().read(namespace, need)
        slots = {number: replace(slot, seen_ms=-1) for number, slot in found.slots.items()}
        return replace(found, slots=slots, now_ms=self.server_ms)


class TestDistributor:
    """The Java distributor's scenarios, done by ours."""

    # Where ours does something else on purpose: (scenario, step) -> what it does instead.
    DIFFERENCES: ClassVar[dict[tuple[int, int], type[CosIdError]]] = {
        # A stable owner keeps its id: CosId asks whether the taker is stable, not the owner.
        (5, 3): MachineIdOverflowError,
        # An id above the maximum stays in the pool: CosId binds it to the caller, and then raises.
        (8, 4): MachineIdOverflowError,
    }

    @pytest.mark.parametrize("vector", vectors(MACHINE, "redis.machine_scenario"))
    async def test_scenario(
        self, store: RedisStore, empty_server: ValkeyServer, vector: Any
    ) -> None:
        """Every machine id, and all of CosId's keys after every step."""
        number, namespace = vector["args"]["no"], vector["args"]["namespace"]
        await store.initialize_namespace(namespace=namespace)
        processes: defaultdict[str, Process] = defaultdict(Process)
        before: State = {}
        compared = 0
        for i, (step, theirs) in enumerate(
            zip(vector["args"]["steps"], vector["result"], strict=True)
        ):
            process, after = processes[step["process"]], plain(theirs["state"])
            if not process.is_silent(step):
                compared += 1
                put(empty_server, before)
                expected = process.expected(step, theirs["result"], before)
                outcome = await process.do(step, store, namespace)
                if different := self.DIFFERENCES.get((number, i)):
                    assert type(outcome) is different
                    assert state(empty_server) == before != after
                else:
                    assert outcome == expected or type(outcome) is expected, step
                    assert state(empty_server) == after, step
                process.remember(step, theirs["result"])
            before = after
        assert compared > 3


class Process:
    """One of CosId's processes, with the local state that ours keeps in the lease."""

    def __init__(self) -> None:
        self.stamp = -1
        self.machine_id: int | None = None

    def is_silent(self, step: dict[str, Any]) -> bool:
        """Whether CosId answers out of the local state, without a word to Redis."""
        is_known = self.machine_id is not None
        return is_known if step["do"] == "distribute" else not is_known

    async def do(self, step: dict[str, Any], store: RedisStore, namespace: str) -> Any:
        forever = step.get("safe_guard_ms", "forever") == "forever"
        machine = store.machine_id_distributor(
            namespace=namespace,
            instance_id=InstanceId(step["instance_id"], stable=step["stable"]),
            safe_guard=inf if forever else step["safe_guard_ms"] / 1000,
        )
        # CosId's process has no token.
        found = await store._backend.read(namespace, ReadRequest(step["instance_id"]))
        records = [
            each.record for each in found.slots.values() if step["instance_id"] in each.holders
        ]
        machine._token = next((each.token for each in records if each is not None), "")
        AtTheTime.server_ms = now = step["now_ms"]
        held = -1 if self.machine_id is None else self.machine_id
        try:
            match step["do"]:
                case "distribute":
                    return await machine.distribute(step["machine_bit"], now_ms=now, latest_ms=FAR)
                case "guard":
                    # CosId keeps stamps from falling here; ours does so in the script.
                    return await machine.renew(held, now_ms=now, fence_ms=-1)
                case _:
                    return await machine.release(held, last_ms=now)
        except CosIdError as exc:
            return exc

    def expected(self, step: dict[str, Any], result: Any, before: State) -> Any:
        """Our outcome for CosId's: the same id above the stamp that it had, or the same error."""
        if isinstance(result, dict) and result.get("error", {}).get("type") in ERRORS:
            return ERRORS[result["error"]["type"]]
        if step["do"] != "distribute":
            assert result is None
            return None
        # Where the clock is too far back the id is bound all the same; the lease waits or raises.
        stamps = before_stamps(before)
        if "error" in result:
            assert result["error"]["type"] == "ClockTooManyBackwardsException"
            later = {stamp: each for each, stamp in stamps.items() if stamp > step["now_ms"]}
            ((stamp, machine_id),) = later.items()
            return MachineGrant(machine_id, stamp)
        machine_id = result["machine_id"]
        return MachineGrant(machine_id, stamps.get(machine_id, -1))

    def remember(self, step: dict[str, Any], result: Any) -> None:
        if isinstance(result, dict) and "error" in result:
            return
        match step["do"]:
            case "distribute":
                self.machine_id = result["machine_id"]
            case "revert":
                self.machine_id = None
            case _:
                pass


def before_stamps(before: State) -> dict[int, int]:
    """The last renewal of each machine id in the hashes."""
    found: dict[int, int] = {}
    for key, each in before.items():
        if key.endswith(":itc_idx"):
            entries = [value.split("|") for _, value in each["value"]]
            found |= {int(machine_id): int(stamp) for machine_id, stamp in entries}
        elif key.endswith(":revert"):
            found |= {int(field): int(value) for field, value in each["value"]}
    return found


class TestScripts:
    """CosId's scripts with odd arguments and odd states; ours with the same."""

    # Where ours refuses on purpose and writes nothing: (scenario, step) -> what it says instead.
    REFUSED: ClassVar[dict[tuple[int, int], Any]] = {
        # CosId reads its own 1e+14 and 9e+15; ours takes plain integers of up to 15 digits only.
        **dict.fromkeys([(1, 2), (1, 5)], CorruptMachineStateError),
        # No integer; the distributor would not have sent it.
        **dict.fromkeys([(1, 7), (1, 8), (1, 9)], ValueError),
        # An entry without machine id or stamp.  CosId's guard writes over what it cannot read.
        **dict.fromkeys([(2, 1), (2, 3)], CorruptMachineStateError),
        # An id in the pool that somebody holds: CosId gives it a second owner.
        (2, 9): [-1, -1],
    }

    # Where ours hands out another machine id on purpose: what is given back with a stamp that
    # nobody can read stays where it is.
    INSTEAD: ClassVar[dict[tuple[int, int], list[int]]] = {(1, 6): [2, 1]}

    @pytest.mark.parametrize("vector", vectors(SCRIPTS, "redis.script_scenario")[:3])
    async def test_scenario(
        self, store: RedisStore, empty_server: ValkeyServer, vector: Any
    ) -> None:
        """The same reply and the same keys, or a refusal that is named."""
        number = vector["args"]["no"]
        before: State = {}
        for i, (step, theirs) in enumerate(
            zip(vector["args"]["steps"], vector["result"], strict=True)
        ):
            after = plain(theirs["state"])
            put(empty_server, before)
            if step["do"] == "command":
                assert empty_server.call(*step["args"]) == theirs["reply"]
            else:
                outcome = await run_script(store, step, before)
                if instead := self.INSTEAD.get((number, i)):
                    assert outcome == instead
                    untouched = "cosid:{ns}:revert"
                    assert state(empty_server)[untouched] == before[untouched]
                elif refused := self.REFUSED.get((number, i)):
                    assert outcome == refused or type(outcome) is refused, step
                    assert state(empty_server) == before, step
                else:
                    assert outcome == theirs["reply"], step
                    assert state(empty_server) == written_right(after, step["argv"][0]), step
            before = after


def written_right(after: State, instance: str) -> State:
    """CosId's keys, with what was written now as an integer: the text of Lua is 1e+14."""
    rewritten: State = json.loads(json.dumps(after))
    for entry in rewritten["cosid:{ns}:itc_idx"]["value"]:
        if entry[0] == instance:
            entry[1] = entry[1].replace("1e+14", f"{10**14}")
    return rewritten


TOKEN = "of any call"  # noqa: S105 - no secret


async def run_script(store: RedisStore, step: dict[str, Any], before: State) -> Any:
    """Our rules for CosId's script: the reply in CosId's form, or the error."""
    namespace = step["keys"][0].strip("{}")
    await store.initialize_namespace(namespace=namespace)
    instance, *argv = step["argv"]
    caller = Caller(instance)
    held = dict(before.get(f"cosid:{{{namespace}}}:itc_idx", {"value": []})["value"])
    # CosId's guard and revert do not say which machine id they are about.
    machine_id = int(re.match(r"\d*", held.get(instance, ""))[0] or 0)  # type: ignore[index]

    def decide(found: Snapshot, _: int) -> Decision:
        is_ours = instance in found.slots.get(machine_id, MachineSlot()).holders
        match step["script"]:
            case "machine_id_distribute.lua":
                bits, now = int(argv[0]).bit_length(), int(argv[1])
                return rules.hand_out(
                    found,
                    caller,
                    bits=bits,
                    now_ms=now,
                    latest_ms=FAR,
                    token=TOKEN,
                )
            case "machine_id_guard.lua":
                now = int(argv[0])
                return rules.renew(found, caller, machine_id, now_ms=now, fence_ms=-1, token=TOKEN)
            case name:
                by = replace(caller, stable=name == "machine_id_revert_stable.lua")
                last = int(argv[0])
                decision = rules.give_back(found, by, machine_id, last_ms=last, token=TOKEN)
                return replace(decision, answer=is_ours)

    try:
        AtTheTime.server_ms = int(argv[-1])
        answer, _ = await transact(store._backend, namespace, ReadRequest(instance), decide)
    except MachineIdOverflowError:
        return [-1, -1]
    except MachineIdLostError:
        return 0
    except (CosIdError, ValueError) as exc:
        return exc
    if isinstance(answer, MachineGrant):
        return [answer.machine_id, max(answer.floor_ms, int(argv[1]))]
    return 1 if answer is None else int(answer)


def test_vectors_are_the_golden_ones() -> None:
    """The headers say where they are from, and none is missing."""
    for found in (MACHINE, SCRIPTS):
        source = found["source"]
        assert (source["version"], source["count"]) == ("3.2.1", len(found["vectors"]))
