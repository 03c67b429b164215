"""CosId's own segment primitives and chains, as its Java classes answered (tests/vectors).

Where Java's behaviour is a defect ours differs, and the test says in what:

* a counter that went backwards: Java repeats ids, or skips the answer and goes on; ours ends
  (``StoreRolledBackError``);
* prefetching: Java doubles on every run of its worker for five seconds; ours once a starvation.

Java counts whole seconds: a ttl of 5 ends with the sixth, which is 5.5 here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from aiocosid.errors import InvalidArgumentError, StoreRolledBackError
from aiocosid.segment import FOREVER, IdSegment, SegmentChainId, SegmentId
from aiocosid.segment.chain import IdSegmentChain
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, WrappedDistributor, settle

from .._vectors import load, params, unread
from ._kit import Generator

JAVA_FOREVER = 2**63 - 1

LATER = {
    "string_segment_id.sequence",  # ids as text
    "integer_id.sequence",  # 32 bits: tests/unit/generators
}
JAVAS_OWN = {
    "id_segment.to_string",  # the text of a Java object
    "id_segment.overflow_constant",  # a sentinel that we have no need of
    "distributor.default_allow_reset",  # ours never allows it
}


def test_every_operation_has_its_test() -> None:
    assert unread(__file__, "segment", "segment_chain") == []


# Segments.


def segment_of(state: dict[str, Any]) -> IdSegment:
    ttl = FOREVER if state["ttl"] == JAVA_FOREVER else state["ttl"]
    return IdSegment(state["max_id"], state["step"], state["fetch_time"], ttl)


@pytest.mark.parametrize("vector", params("segment", "id_segment.new", "id_segment.expiry"))
def test_a_segment(vector: Any) -> None:
    """Offset, expiry and whether there are ids, of any max id and step."""
    if "error" in vector:
        with pytest.raises(InvalidArgumentError, match="ttl"):
            SegmentId(MemoryStore().segment_distributor(name="x"), ttl=vector["args"]["ttl"])
        return
    due = vector["result"]
    segment = segment_of(due)
    assert segment.offset == due["offset"] == due["sequence"]
    assert segment.is_expired(vector["args"]["now_s"]) == due["is_expired"]
    assert (len(segment.ids) == 0) == due["is_overflow"]


@pytest.mark.parametrize("vector", params("segment", "id_segment.increment", "merged_segment"))
def test_the_ids_of_a_segment(vector: Any) -> None:
    """In Java's order; where they are used up Java answers -1 and ours ends."""
    args, due = vector["args"], vector["result"]
    segment = IdSegment(args["max_id"], args["step"])
    taken = [*segment.ids[: len(due["values"])]]
    assert [*taken, *[-1] * (len(due["values"]) - len(taken))] == due["values"]


@pytest.mark.parametrize("vector", params("segment", "segment_chain.set_next"))
def test_a_chain_of_segments(vector: Any) -> None:
    """Nodes in Java's order, which it numbers from 0; it begins with a sentinel of version -1."""
    due = [node for node in vector["result"]["chain"] if node["version"] >= 0]
    chain = IdSegmentChain()
    for node in due:
        chain.link(IdSegment(node["max_id"], node["step"]))
    seen: list[dict[str, int]] = []
    node = chain.head
    while node is not None:
        about = {"version": len(seen), "max_id": node.segment.max_id}
        offset = node.segment.offset
        seen.append(
            {**about, "offset": offset, "step": node.segment.step, "sequence": node.first - 1}
        )
        node = node.next
    assert seen == due


@pytest.mark.parametrize("vector", params("segment", "segment_chain.gap"))
def test_how_far_a_chain_reaches(vector: Any) -> None:
    """Whole steps between the next id and the chain's end."""
    args = vector["args"]
    head, tail, chain = args["head"], args["tail"], IdSegmentChain()
    chain.link(IdSegment(head["max_id"], head["step"]))
    if tail["max_id"] > head["max_id"]:
        between = tail["max_id"] - head["max_id"]
        chain.link(IdSegment(tail["max_id"], between))
    chain.take(head["taken"])
    assert chain.remaining // args["step"] == vector["result"]


# Distributors.


@pytest.mark.parametrize("vector", params("segment", "distributor.namespaced_name"))
def test_a_counters_name(vector: Any) -> None:
    """``{namespace}.{name}``; Java takes empty ones too."""
    args = vector["args"]
    if not args["name"]:
        with pytest.raises(InvalidArgumentError):
            MemoryStore().segment_distributor(**args)
        return
    assert MemoryStore().segment_distributor(**args).namespaced_name == vector["result"]


@pytest.mark.parametrize(
    "vector", params("segment", "distributor.next_segments", "distributor.next_merged")
)
async def test_one_call_for_each_segment_or_for_several_merged(vector: Any) -> None:
    """The answers and the step of each call; merging is one call with the step so many times."""
    args, due = vector["args"], vector["result"]
    segments = due.get("segments") or [due["first"], due["second"]]
    inner = MemoryStore().segment_distributor(name="x", offset=args["offset"], step=args["step"])
    distributor = WrappedDistributor(inner)
    for segment in segments:
        assert await distributor.next_max_id(segment["step"]) == segment["max_id"]
    assert distributor.steps == due["calls"]


@pytest.mark.parametrize("vector", params("segment", "distributor.ensure_step"))
async def test_a_bad_step(vector: Any) -> None:
    """Below 1 it is refused."""
    with pytest.raises(InvalidArgumentError, match="step"):
        await MemoryStore().segment_distributor(name="x").next_max_id(vector["args"]["step"])


# Generators.


class Scripted(CounterDistributor):
    """Answers a script first, and then counts on from a start of its own, as Java's double did."""

    __slots__ = ("script", "steps", "value")

    def __init__(self, *, step: int, script: list[int], then: int = 1000) -> None:
        super().__init__(MemoryStore()._backend, name="x", step=step)
        self.script = [*script]
        self.value = then
        self.steps: list[int] = []

    def next_max_id_nowait(self, step: int) -> int:
        self.steps.append(step)
        if self.script:
            return self.script.pop(0)
        self.value += step
        return self.value


def ids_before_the_loss(script: list[int], step: int) -> int | None:
    """How many ids come before the first answer that a sound store could not give."""
    for n, (before, after) in enumerate(pairwise(script), start=1):
        if after < before + step:
            return n * step
    return None


@pytest.mark.parametrize("vector", params("segment", "id_segment.compare"))
async def test_the_next_segment_is_above(vector: Any) -> None:
    """What Java refuses ours refuses too, and overlapping ranges, which Java lets through."""
    a, b = vector["args"]["a"], vector["args"]["b"]
    store = Scripted(step=a["step"], script=[a["max_id"], b["max_id"]])
    async with SegmentId(store) as generator:
        await generator.next_ids(a["step"])
        java_refuses = vector["result"]["ensure_next"] != "ok"
        overlaps = b["max_id"] - b["step"] < a["max_id"]
        assert overlaps or not java_refuses
        if overlaps:
            with pytest.raises(StoreRolledBackError):
                await generator.next_ids(b["step"])
        else:
            assert await generator.next_id() == b["max_id"] - b["step"] + 1


@pytest.mark.parametrize("vector", params("segment", "segment_id.sequence"))
async def test_a_segment_id(vector: Any) -> None:
    """The ids, and as many calls to the store, each of one step."""
    args, due = vector["args"], vector["result"]
    inner = MemoryStore().segment_distributor(name="x", offset=args["offset"], step=args["step"])
    store = WrappedDistributor(inner)
    async with SegmentId(store) as generator:
        assert [await generator.next_id() for _ in range(args["count"])] == due["ids"]
    assert store.steps == due["calls"]


@pytest.mark.parametrize(
    "vector",
    params("segment", "segment_id.scripted") + params("segment_chain", "segment_chain_id.scripted"),
)
async def test_a_store_that_jumps(vector: Any) -> None:
    """Forward it is followed like Java; backward ours ends, where Java repeats or goes on."""
    args, due = vector["args"], vector["result"]
    kind: type[Generator] = SegmentChainId if "safe_distance" in args else SegmentId
    store = Scripted(step=args["step"], script=args["script"])
    trip = args["step"] * args.get("safe_distance", 1)
    sound = ids_before_the_loss(args["script"], trip)
    async with kind(store) as generator:
        count = args["count"] if sound is None else sound
        assert [await generator.next_id() for _ in range(count)] == due["ids"][:count]
        if sound is None:
            assert store.steps == due["calls"]
        else:
            with pytest.raises(StoreRolledBackError):
                await generator.next_id()
            if args["allow_reset"] is not False:
                assert due["ids"][sound] <= due["ids"][sound - 1]  # Java's defect


@pytest.mark.parametrize(
    "vector", params("segment", "segment_id.ttl") + params("segment_chain", "segment_chain_id.ttl")
)
async def test_a_ttl(vector: Any, clock: ManualClock) -> None:
    """The same ids at the same moments, from as many calls."""
    args, due = vector["args"], vector["result"]
    kind: type[Generator] = SegmentChainId if "safe_distance" in args else SegmentId
    start = args["now_s"][0]
    store = Scripted(step=args["step"], script=[], then=args["offset"])
    ids: list[int] = []
    async with kind(store, ttl=args["ttl"] + 0.5, clock=clock) as generator:
        for now in args["now_s"]:
            await clock.advance(now - start - clock.monotonic())
            ids.append(await generator.next_id())
    assert ids == due["ids"]
    assert store.steps == due["calls"]


@pytest.mark.parametrize(
    "vector", params("segment", "segment_id.new") + params("segment_chain", "segment_chain_id.new")
)
async def test_bad_settings(vector: Any) -> None:
    """What Java refuses on creation ours refuses too."""
    args = dict(vector["args"])
    kind: Any = SegmentChainId if "safe_distance" in args else SegmentId
    with pytest.raises(InvalidArgumentError):
        kind(MemoryStore().segment_distributor(name="x"), **args)


@pytest.mark.parametrize("vector", params("segment_chain", "segment_chain_id.run"))
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "awaited"])
async def test_a_chain(vector: Any, at_once: bool, clock: ManualClock) -> None:
    """The ids of each step are Java's, and the first trip is the safe distance, merged.

    Ours is never further ahead than Java's chain, or than twice the longest distance that it had:
    Java buys on every run for five seconds after a starvation, whoever takes ids or not.
    """
    args = vector["args"]
    safe, step = args["safe_distance"], args["step"]
    inner = MemoryStore().segment_distributor(name="x", offset=args["offset"], step=step)
    store = WrappedDistributor(inner)
    chain = SegmentChainId(
        inner if at_once else store, safe_distance=safe, endurance=0, clock=clock
    )
    longest = safe
    async with chain:
        assert at_once or store.steps == [safe * step]
        assert chain.statistics().ids_fetched == safe * step
        for planned, due in zip([["new"], *args["steps"]], vector["result"], strict=True):
            match planned:
                case ["generate", int(count)]:
                    assert [await chain.next_id() for _ in range(count)] == due["ids"]
                case ["clock", int(now)]:
                    await clock.advance(now - clock.monotonic())
                case _:
                    await settle()
            seen = chain.statistics()
            longest = max(longest, seen.prefetch_distance)
            java_ahead = due["state"]["adder"] - args["offset"] - seen.ids_handed_out
            assert seen.remaining <= max(java_ahead, 2 * longest * step)


def test_java_buys_what_nobody_asked_for() -> None:
    """The difference that the test above allows for is there: see the trace of one blip."""
    vectors = load("segment_chain", "segment_chain_id.run")
    ahead = []
    for vector in vectors:
        args: Any = vector["args"]
        state: Any = vector["result"][-1]["state"]
        used = sum(step[1] for step in args["steps"] if step[0] == "generate")
        ahead.append(
            (state["adder"] - args["offset"] - used) / args["step"] / args["safe_distance"]
        )
    assert max(ahead) > 5  # times the safe distance, at rest
