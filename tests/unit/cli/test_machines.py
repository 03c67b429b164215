"""``machines list``, ``machines evict`` and ``machines bits``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from aiocosid.abc import Machine
from aiocosid.errors import CorruptMachineStateError
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock
from tests.command import Command

from ._doubles import ScriptedStore

Types = Callable[[str], None]

WEB = Machine(
    namespace="shop",
    machine_id=3,
    instance_id="web-3",
    last_timestamp_ms=1_700_000_000_500,
    fence_ms=1_700_000_090_500,
    stable=True,
)
FREE = Machine(namespace="shop", machine_id=4, instance_id="", last_timestamp_ms=1_700_000_000_000)


def cells(out: str, word: str) -> list[str]:
    [row] = [line for line in out.splitlines() if word in line]
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_a_row_a_machine_id(aiocosid: Command, scripted: ScriptedStore) -> None:
    """Who holds it, since when nothing was heard, and how far its ids may have come."""
    scripted.known = [[WEB, FREE]]
    out = aiocosid("machines", "list").out
    assert cells(out, "web-3") == [
        *("shop", "3", "web-3", "stable"),
        *("2023-11-14 22:13:20", "2023-11-14 22:14:50"),
    ]
    assert cells(out, " 4 ") == ["shop", "4", "-", "free", "2023-11-14 22:13:20", "-"]


def test_json_has_the_names_of_the_library(aiocosid: Command, scripted: ScriptedStore) -> None:
    """One object a machine id, with the names that `aiocosid.abc.Machine` has, and ``free``."""
    scripted.known = [[WEB, FREE]]
    first, second = aiocosid.json("machines", "list")
    assert first == {
        "namespace": "shop",
        "machine_id": 3,
        "instance_id": "web-3",
        "last_timestamp_ms": 1_700_000_000_500,
        "fence_ms": 1_700_000_090_500,
        "stable": True,
        "free": False,
    }
    assert (second["instance_id"], second["fence_ms"], second["free"]) == ("", -1, True)


def test_a_stamp_of_zero_is_no_time(
    aiocosid: Command, scripted: ScriptedStore, types: Types
) -> None:
    """A number that was never used, as CosId's on ZooKeeper: absent, not 1970."""
    never = Machine(namespace="shop", machine_id=5, instance_id="java:1", last_timestamp_ms=0)
    scripted.known = [[never]] * 3
    assert cells(aiocosid("machines", "list").out, "java:1")[3:] == ["held", "-", "-"]
    [only] = aiocosid.json("machines", "list")
    assert only["last_timestamp_ms"] is None
    types("n\n")
    asked = aiocosid("machines", "evict", "5", "--namespace", "shop")
    assert "it was never renewed." in asked.out + asked.err


def test_no_machine_ids(aiocosid: Command, scripted: ScriptedStore) -> None:
    """An empty store is no error: a sentence, or an empty array."""
    assert aiocosid("machines", "list").out == "no machine ids\n"
    assert aiocosid.json("machines", "list") == []


def test_what_the_store_holds_is_only_text(aiocosid: Command, scripted: ScriptedStore) -> None:
    """An instance is neither markup nor a command to the terminal."""
    scripted.known = [
        [Machine(namespace="a", machine_id=0, instance_id="[red]\x1b[2J", last_timestamp_ms=2**62)]
    ]
    assert r"[red]\x1b[2J" in aiocosid("machines", "list").out


def test_only_one_namespace(aiocosid: Command, namespace: str) -> None:
    """--namespace leaves the others out."""
    for name in (namespace, f"{namespace}x"):
        aiocosid("snowflake", "--store", "memory:", "--namespace", name)
    words = ("machines", "list", "--store", "memory:", "--format", "json")
    [found] = json.loads(aiocosid(*words, "--namespace", namespace).out)
    assert found["namespace"] == namespace
    every = {each["namespace"] for each in json.loads(aiocosid(*words).out)}
    assert {namespace, f"{namespace}x"} <= every


def test_a_damaged_entry(aiocosid: Command, scripted: ScriptedStore) -> None:
    """It is the store's refusal, code 4, and names the place."""
    scripted.script = [CorruptMachineStateError("redis", place="cosid:{a}:itc_idx", found="'x'")]
    assert "cosid:{a}:itc_idx" in aiocosid.refuses("machines", "list", code=4)


def test_revert_without_asking(aiocosid: Command, scripted: ScriptedStore) -> None:
    """--yes is for scripts; what was done is said."""
    scripted.known = [[WEB, FREE]]
    ended = aiocosid("machines", "evict", 3, "--namespace", "shop", "--yes")
    assert (ended.code, ended.err) == (0, "aiocosid: written to redis://host\n")
    assert ended.out == "machine id 3 of namespace shop is free; it was held by web-3\n"
    assert scripted.reverted == [("shop", 3)]


def test_revert_asks_nobody_without_a_terminal(aiocosid: Command, scripted: ScriptedStore) -> None:
    """A script that forgot --yes changes nothing, and does not hang."""
    scripted.known = [[WEB]]
    ended = aiocosid("machines", "evict", 3)
    assert (ended.code, ended.out, scripted.reverted) == (2, "", [])
    assert "--yes" in ended.err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_revert_asks_on_a_terminal(
    aiocosid: Command,
    scripted: ScriptedStore,
    types: Types,
    answer: str,
    code: int,
) -> None:
    """It says who holds the id and that it must not run; only a yes is one, and Ctrl-D is a no."""
    scripted.known = [[WEB]]
    types(answer)
    ended = aiocosid("machines", "evict", 3, "--namespace", "shop")
    assert ended.code == code
    assert scripted.reverted == ([("shop", 3)] if code == 0 else [])
    assert "held by web-3, which is stable" in ended.err
    assert "2023-11-14 22:13:20 UTC" in ended.err
    assert "must have ended" in ended.err
    assert scripted.closed[-1] == "store"


def test_revert_looks_again_after_the_answer(
    aiocosid: Command, scripted: ScriptedStore, types: Types
) -> None:
    """Whoever took the id while somebody was thinking is not the one who was meant."""
    other = Machine(namespace="shop", machine_id=3, instance_id="web-9", last_timestamp_ms=1)
    scripted.known = [[WEB], [other]]
    types("y\n")
    ended = aiocosid("machines", "evict", 3, "--namespace", "shop")
    assert (ended.code, ended.out, scripted.reverted) == (2, "", [])


@pytest.mark.parametrize("machine_id", [4, 5, -1, "three"])
def test_revert_of_an_id_that_nobody_holds(
    aiocosid: Command, scripted: ScriptedStore, machine_id: object
) -> None:
    """It is a mistake of the caller, and says so."""
    scripted.known = [[WEB, FREE]]
    ended = aiocosid("machines", "evict", machine_id, "--namespace", "shop", "--yes")
    assert (ended.code, ended.out, scripted.reverted) == (2, "", [])
    assert ended.err.startswith("aiocosid: error: ")


ID_2021 = 266300479548424192  # of cosid-ms, 2021-12-28 12:23:01.948 UTC


def test_a_floor_is_raised_and_never_lowered(aiocosid: Command, namespace: str) -> None:
    """Of all machine ids that the store knows, and of others up to a number."""
    of = ("--store", "memory:", "--namespace", namespace)
    taken = MemoryStore.from_url().machine_id_distributor(namespace=namespace, instance_id="web-3")
    asyncio.run(taken.distribute(2, now_ms=1, latest_ms=2**53))
    told = f"of namespace {namespace} will start above"
    for words, said in (
        (("--above-id", ID_2021), f"1 machine id {told} 2021-12-28 12:23:01.948 UTC; 1 raised"),
        (("--above-time", "2021-12-28T12:00Z"), f"1 machine id {told} 2021-12-28 12:00:00.000"),
        (("--above-time", "2021-12-28T21:00+08:00", "--up-to", 3), f"4 machine ids {told} 2021"),
    ):
        ended = aiocosid("machines", "floor", *words, *of)
        assert (ended.code, ended.err) == (0, "aiocosid: written to memory:\n")
        assert ended.out.startswith(said)
    found = aiocosid.json("machines", "list", *of)
    assert [each["last_timestamp_ms"] for each in found] == [1640696400000] * 4
    assert [each["instance_id"] for each in found] == ["web-3", "", "", ""]
    again = aiocosid("machines", "floor", "--above-time", 1640696400000, *of, "--format", "json")
    document = {"namespace": namespace, "above_ms": 1640696400000, "raised": []}
    assert json.loads(again.out) == document


def test_the_floor_of_an_id_is_the_end_of_its_tick(aiocosid: Command, namespace: str) -> None:
    """Of a layout in seconds a later id may be of the same second."""
    of = ("--store", "memory:", "--namespace", namespace, "--up-to", 0, "--format", "json")
    layout = ("--bits", "31/10/12", "--unit", "s", "--epoch", "2020-01-01T00:00:00Z")
    ended = aiocosid("machines", "floor", "--above-id", 60 << 22, *layout, *of)
    assert json.loads(ended.out)["above_ms"] == 1577836860999


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--above-time or --above-id"),
        (("--above-time", 1, "--above-id", 1), "--above-time or --above-id"),
        (("--above-time", "2021-12-28T12:00"), "has no UTC offset"),
        (("--above-time", "noon"), "a time such as"),
        (("--above-time", "2062-01-01T00:00Z"), "no id is made until then"),
        (("--above-time", "1062-01-01T00:00Z"), "not -2865"),
        (("--above-time", 1, "--layout", "leaf"), "they belong to --above-id"),
        (("--above-id", "x"), "digits or friendly text"),
        (("--above-id", 1, "--layout", "x"), "one of 'cosid-ms'"),
        (("--above-time", 1, "--up-to", 4), "at most 3, not 4: namespace"),
        (("--above-time", 1, "--up-to", -1), "--up-to"),
        (("--above-time", 1, "--namespace", "misspelt"), "has no machine ids"),
    ],
)
def test_a_floor_that_is_a_mistake(
    aiocosid: Command, namespace: str, words: tuple[object, ...], said: str
) -> None:
    """Nothing is raised: it could not be lowered again."""
    of = ("--store", "memory:", "--namespace", namespace)
    taken = MemoryStore.from_url().machine_id_distributor(namespace=namespace, instance_id="web-3")
    asyncio.run(taken.distribute(2, now_ms=0, latest_ms=2**53))
    assert said in aiocosid.refuses("machines", "floor", *of, *words)
    [only] = aiocosid.json("machines", "list", *of)
    assert only["last_timestamp_ms"] is None


def test_a_store_without_machine_ids_has_no_floor(aiocosid: Command) -> None:
    words = ("--above-time", 1, "--up-to", 1, "--store", "leaf+sqlite:///leaf.db")
    assert "no machine ids" in aiocosid.refuses("machines", "floor", *words, code=4)


def test_bits(aiocosid: Command, namespace: str) -> None:
    """They are noted by the first lease, and changed by --set alone, while nobody holds an id."""
    of = ("--store", "memory:", "--namespace", namespace)
    told = f"machine ids of namespace {namespace} have"
    assert aiocosid("machines", "bits", *of).out == f"{told} no recorded width\n"
    assert aiocosid("snowflake", *of).code == 0
    assert aiocosid("machines", "bits", *of).out == f"{told} 10 bits\n"
    refused = aiocosid("snowflake", *of, "--layout", "javascript-safe-ms")
    assert (refused.code, refused.out) == (4, "")
    way_out = f"machines bits --namespace {namespace} --set 3"
    assert way_out in refused.err
    assert aiocosid(*way_out.split(), "--store", "memory:").out == f"{told} 3 bits\n"
    assert aiocosid("snowflake", *of, "--layout", "javascript-safe-ms").code == 0


def test_bits_with_a_region(aiocosid: Command, namespace: str) -> None:
    """The command that the error names puts it right."""
    of = ("--store", "memory:", "--namespace", namespace)
    split = ("--region", 1, "--region-bits", 2)
    assert aiocosid("machines", "bits", *of, "--set", 10, *split).code == 0
    refused = aiocosid("snowflake", *of)
    assert (refused.code, refused.out) == (4, "")
    assert "10 bits with region=1, region_bits=2 in this store" in refused.err
    way_out = f"machines bits --namespace {namespace} --set 10 --store"
    assert f"'aiocosid {way_out} URL'" in refused.err
    assert aiocosid(*way_out.split(), "memory:").code == 0
    assert aiocosid("snowflake", *of).code == 0
    for wrong in (("--region", 1), ("--region-bits", 2), ("--region", 1, "--region-bits", 10)):
        assert "region" in aiocosid.refuses("machines", "bits", *of, "--set", 10, *wrong)


def test_bits_while_somebody_holds_an_id(aiocosid: Command, namespace: str) -> None:
    """It says who, and how to free what a dead one holds; nothing is changed."""
    of = ("--store", "memory:", "--namespace", namespace)
    held = MemoryStore.from_url().machine_id_distributor(namespace=namespace, instance_id="web-3")
    asyncio.run(held.distribute(10, now_ms=1, latest_ms=1))
    refused = aiocosid("machines", "bits", *of, "--set", 3)
    assert (refused.code, refused.out) == (4, "")
    assert "10 bits, is in use by web-3; close these instances" in refused.err
    assert aiocosid("machines", "bits", *of).out.endswith("have 10 bits\n")
    assert aiocosid("machines", "bits", *of, "--set", 32).code == 2


def test_repair(aiocosid: Command, namespace: str) -> None:
    """It says what it did, and what has to be done first."""
    of = ("--store", "memory:", "--namespace", namespace)
    micro = MemoryStore.from_url().machine_id_distributor(namespace=namespace, instance_id="micro")

    async def spoil() -> None:
        await micro.distribute(10, now_ms=1, latest_ms=1)
        await micro.renew(0, now_ms=2, fence_ms=4_102_444_800_000)

    asyncio.run(spoil())
    told = "machine id 0 with the fence 2100-01-01 00:00:00 UTC:"
    count = f"machine ids of namespace {namespace} repaired\n"
    held = f"{told} not repaired, because micro holds it\n0 {count}"
    assert aiocosid("machines", "repair", *of).out == held
    assert aiocosid("machines", "evict", 0, *of, "--yes").code == 0
    [found] = aiocosid.json("machines", "repair", *of)
    assert (found["machine_id"], found["repaired"]) == (0, True)
    assert aiocosid("machines", "repair", *of).out == f"0 {count}"


def test_a_quarantine_is_told(aiocosid: Command, scripted: ScriptedStore) -> None:
    """By `init`, which asks first, and beside what is listed; a person ends it."""
    scripted.memory = MemoryStore(clock=ManualClock())
    scripted.memory.forget_machines(namespace="shop", everything=False)
    for _ in range(2):
        assert "--yes" in aiocosid.refuses("init", "--namespace", "shop")
    scripted.known = [[WEB]]
    told = "aiocosid: namespace shop is in quarantine: no machine ids for 305 s\n"
    for command in (("machines", "list"), ("inspect",)):
        assert aiocosid(*command, "--namespace", "shop").err == told
        assert aiocosid(*command).err == told
        assert aiocosid(*command, "--namespace", "other").err == ""
    assert aiocosid.json("machines", "list")
    ready = "redis://host is ready, initialised for the machine ids of namespace shop\n"
    assert aiocosid("init", "--namespace", "shop", "--confirm-no-holders").out == ready
    assert aiocosid("init", "--namespace", "shop").out == "redis://host is ready\n"
    assert aiocosid("machines", "list").err == ""


def test_a_quarantine_lasts_as_long_as_the_fleets_leases(
    aiocosid: Command, scripted: ScriptedStore
) -> None:
    """`init` notes the safe guard of a namespace, also of one that is ready."""
    scripted.memory = MemoryStore(clock=ManualClock())
    for told, left in (("400", "405 s"), ("inf", "until an operator ends the quarantine")):
        assert aiocosid("init", "--namespace", "shop", "--safe-guard", told).code == 0
        scripted.memory.forget_machines(namespace="shop", everything=False)
        assert aiocosid("init", "--namespace", "shop").code == 2
        assert left in aiocosid("machines", "list").err
        assert aiocosid("init", "--namespace", "shop", "--yes").code == 0
    for told in ("0", "-1", "nan"):
        ended = aiocosid("init", "--namespace", "shop", "--safe-guard", told)
        assert (ended.code, "from 0.001 to inf" in ended.err) == (2, True)
