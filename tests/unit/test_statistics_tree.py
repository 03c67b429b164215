"""What a generator says about itself, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

import aiocosid
from aiocosid.abc import Statistics
from aiocosid.segment import IdSegment
from aiocosid.snowflake import COSID_S, RADIX62, CosIdFriendlyText, CosIdGenerator, SnowflakeId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

AT_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    last_error: Exception | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Statistics):
    seconds_left: float
    pair: tuple[int, ...]
    inner: Inner


def test_what_json_has_no_word_for_becomes_text_or_nothing() -> None:
    seen = Outer(
        kind="Outer",
        namespace="shop",
        name="order",
        seconds_left=float("inf"),
        pair=(1, 2),
        inner=Inner(last_error=ValueError("no")),
    )
    assert seen.as_tree() == {
        "kind": "Outer",
        "namespace": "shop",
        "name": "order",
        "secondsLeft": None,
        "pair": [1, 2],
        "inner": {"lastError": "no"},
    }


def cosid_part(tree: dict[str, object]) -> dict[str, object]:
    """What CosId's actuator has of a segment."""
    keys = ("fetchTime", "maxId", "offset", "sequence", "step")
    return {key: tree[key] for key in (*keys, "expired", "overflow", "available")}


NO_SEGMENT = {
    "fetchTime": 0,
    "maxId": -1,
    "offset": -1,
    "sequence": -1,
    "step": 0,
    "expired": False,
    "overflow": True,
    "available": False,
}


async def test_a_chain_shows_the_segment_in_use() -> None:
    """Before the first fetch, in the middle, at its end, expired, and after closing."""
    clock = ManualClock(wall_ms=AT_MS)
    store = MemoryStore().segment_distributor(namespace="shop", name="order", step=10, offset=100)
    chain = aiocosid.SegmentChainId(store, ttl=60, clock=clock, safe_distance=1)
    assert cosid_part(json.loads(json.dumps(chain.statistics().as_tree()))) == NO_SEGMENT
    async with chain:
        await chain.next_ids(4)
        seen = {
            "fetchTime": AT_MS // 1000,
            "maxId": 110,
            "offset": 100,
            "sequence": 104,
            "step": 10,
            "expired": False,
            "overflow": False,
            "available": True,
        }
        tree = json.loads(json.dumps(chain.statistics().as_tree()))
        assert cosid_part(tree) == seen
        assert (tree["kind"], tree["actual"], tree["converter"]) == ("SegmentChainId", None, None)
        assert (tree["name"], tree["remaining"], tree["lastMaxId"]) == ("order", 6, 110)
        await clock.advance(60.5)
        tree = chain.statistics().as_tree()
        assert (tree["expired"], tree["available"]) == (True, False)
        assert tree["fetchTime"] == AT_MS // 1000  # then, not now
        await chain.next_ids(10)  # a whole segment; the next one is there already
        tree = chain.statistics().as_tree()
        assert (tree["fetchTime"], tree["offset"], tree["maxId"]) == (AT_MS // 1000 + 60, 120, 130)
        assert (tree["sequence"], tree["overflow"]) == (120, False)
        await chain.next_id()
    tree = json.loads(json.dumps(chain.statistics().as_tree()))
    assert (tree["offset"], tree["sequence"], tree["available"]) == (120, 130, False)


def test_between_two_segments_it_is_the_next_one() -> None:
    """The first is used up, and the second waits for the loop's turn to be put in hand."""
    store = MemoryStore().segment_distributor(namespace="shop", name="order", step=10)
    chain = aiocosid.SegmentChainId(store)
    for max_id in (10, 20):
        chain._opening.hand.chain.link(IdSegment(max_id, 10))
    chain._opening.hand.chain.cut(10)
    tree = chain.statistics().as_tree()
    assert (tree["offset"], tree["sequence"], tree["available"]) == (10, 10, True)


async def test_a_snowflake_shows_what_cosid_shows() -> None:
    """Epoch and last timestamp in ticks, seconds here, as in CosId's SecondSnowflakeId."""
    clock = ManualClock(wall_ms=AT_MS)
    machine = MemoryStore().machine_id_distributor(namespace="shop")
    generator = SnowflakeId(machine, layout=COSID_S, clock=clock)
    tree = json.loads(json.dumps(generator.statistics().as_tree()))
    assert (tree["machineId"], tree["lastTimestamp"], tree["safeJavascript"]) == (None, -1, False)
    async with generator:
        await generator.next_id()
        tree = json.loads(json.dumps(generator.statistics().as_tree()))
    assert {key: tree[key] for key in list(tree)[:10]} == {
        "kind": "SnowflakeId",
        "epoch": 1_577_203_200,
        "timestampBit": 31,
        "machineBit": 10,
        "sequenceBit": 22,
        "safeJavascript": False,
        "machineId": 0,
        "lastTimestamp": AT_MS // 1000,
        "actual": None,
        "converter": None,
    }
    assert tree["machine"]["lastError"] is None
    json.dumps(generator.statistics().as_tree())


async def test_a_cosid_generator_shows_its_text() -> None:
    """The kind is its own, not that of the generator inside."""
    clock = ManualClock(wall_ms=AT_MS)
    friendly = CosIdFriendlyText(zone="UTC")
    for text, converter in (
        (RADIX62, {"kind": "CosIdRadixText", "radix": 62, "charSize": 15}),
        (friendly, {"kind": "CosIdFriendlyText", "zone": "UTC", "padStart": True}),
    ):
        machine = MemoryStore().machine_id_distributor(namespace="shop")
        async with CosIdGenerator(machine, text=text, clock=clock) as generator:
            tree = json.loads(json.dumps(generator.statistics().as_tree()))
        assert (tree["kind"], tree["machineBit"]) == ("CosIdGenerator", 20)
        assert tree["converter"] == converter
