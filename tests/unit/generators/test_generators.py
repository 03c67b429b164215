"""Limits, random bits, and what UUIDs are made of; their lives are the contract's."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import aiocosid.generators
from aiocosid.abc import GroupedId
from aiocosid.errors import (
    ClosedError,
    IdOverflowError,
    InvalidArgumentError,
    NotOpenError,
    WouldBlock,
)
from aiocosid.generators import (
    MAX_INT32,
    CounterId,
    IntegerIdGenerator,
    UncertaintyIdGenerator,
    Uuid4Id,
    Uuid7Id,
)
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from .. import _interrupted
from .._vectors import load


def chain(offset: int = 0, step: int = 10) -> SegmentChainId:
    store = MemoryStore()
    return SegmentChainId(store.segment_distributor(name="order", offset=offset, step=step))


# 32 bits.


async def test_an_int32_is_never_exceeded() -> None:
    """The last one is handed out; above it every way of asking is refused, and nothing wraps."""
    async with IntegerIdGenerator(chain(MAX_INT32 - 3)) as gen:
        assert await gen.next_ids(2) == [MAX_INT32 - 2, MAX_INT32 - 1]
        assert await gen.next_id() == MAX_INT32
        for _ in range(3):
            with pytest.raises(IdOverflowError, match=r"cosid\.order .* 2147483647"):
                await gen.next_id()
            with pytest.raises(IdOverflowError):
                gen.next_id_nowait()
            with pytest.raises(IdOverflowError):
                await gen.next_ids(2)


async def test_the_loop_has_turns_while_a_large_batch_is_checked() -> None:
    """A list of a million ids takes many milliseconds to copy."""

    class AtOnce(CounterId):
        async def next_ids(self, n: int) -> list[int]:
            return list(range(1, n + 1))

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with IntegerIdGenerator(AtOnce()) as gen, anyio.create_task_group() as group:
        group.start_soon(count_turns)
        await checkpoint()
        before = turns
        assert await gen.next_ids(1_000_000) == list(range(1, 1_000_001))
        assert turns - before >= 9
        group.cancel_scope.cancel()


async def test_an_int32_generator_counts_as_cosids() -> None:
    """The vectors of CosId's own (tests/vectors/segment.json)."""
    for vector in load("segment", "integer_id.sequence"):
        args = vector["args"]
        async with IntegerIdGenerator(chain(args["offset"], args["step"])) as gen:
            for due in vector["result"]:
                if isinstance(due, int):
                    assert await gen.next_id() == due
                else:
                    with pytest.raises(IdOverflowError):
                        await gen.next_id()


async def test_a_batch_over_the_limit_is_refused_as_a_whole() -> None:
    """Its ids are a gap, those below the limit too."""
    async with IntegerIdGenerator(chain(MAX_INT32 - 3)) as gen:
        with pytest.raises(IdOverflowError) as caught:
            await gen.next_ids(4)
        assert caught.value.limit == MAX_INT32


async def test_a_group_survives() -> None:
    """Who asks for ids with their groups gets them."""
    inner = GroupedSegmentId(MemoryStore(), name="order", group_by=GroupBy.key(lambda: "a"))
    async with IntegerIdGenerator(inner) as gen:
        assert type(await gen.next_id()) is int
        new_id = await gen.with_group.next_id()
        assert isinstance(new_id, GroupedId)
        assert new_id.group == "a"


async def test_statistics_of_both() -> None:
    """The generator inside is the ``actual`` one, as in CosId's actuator."""
    gen = IntegerIdGenerator(chain())
    tree: dict[str, Any] = gen.statistics().as_tree()
    assert tree["kind"] == "IntegerIdGenerator"
    assert tree["actual"]["kind"] == "SegmentChainId"
    assert "IntegerIdGenerator on <SegmentChainId cosid.order" in repr(gen)
    with pytest.raises(InvalidArgumentError, match="generator"):
        IntegerIdGenerator("chain")  # type: ignore[arg-type]  # the mistake


# Random bits.


async def test_random_bits_stand_below_the_id() -> None:
    """All of them are used, and the ids stay those of the generator inside."""
    async with UncertaintyIdGenerator(chain(), 10) as gen:
        ids = [await gen.next_id(), gen.next_id_nowait(), *await gen.next_ids(9000)]
    assert [each >> 10 for each in ids] == list(range(1, 9003))
    assert len({each & 1023 for each in ids}) > 900


async def test_bits_and_their_limits() -> None:
    """1 to 62 of them; an id that leaves no room for them is refused."""
    for bad in (0, 63, -1, True, "8"):
        with pytest.raises(InvalidArgumentError, match="bits"):
            UncertaintyIdGenerator(chain(), bad)  # type: ignore[arg-type]  # the mistake
    for bits in (1, 8, 62):
        limit = 2 ** (63 - bits) - 1
        async with UncertaintyIdGenerator(chain(limit - 1, step=1), bits) as gen:
            last = await gen.next_id()
            assert last >> bits == limit
            assert last < 2**63
            with pytest.raises(IdOverflowError):
                await gen.next_id()


# UUIDs.


def parts(text: str) -> tuple[int, int]:
    """Milliseconds and counter of a UUID of version 7."""
    number = uuid.UUID(text).int
    counter = (number >> 64 & 0xFFF) << 30 | number >> 32 & (1 << 30) - 1
    return number >> 80, counter


async def test_uuids_are_of_their_version() -> None:
    """As the standard library reads them, in its own form, and none twice."""
    for kind, version in ((Uuid4Id, 4), (Uuid7Id, 7)):
        async with kind() as gen:
            texts = [await gen.next_id(), gen.next_id_nowait(), *await gen.next_ids(1500)]
        read = [uuid.UUID(text) for text in texts]
        assert {(each.version, each.variant) for each in read} == {(version, uuid.RFC_4122)}
        assert [str(each) for each in read] == texts
        assert len(set(texts)) == len(texts)
        bits = 0
        for _ in range(50):  # one generator of version 7 counts on within a millisecond
            async with kind() as gen:
                bits |= uuid.UUID(await gen.next_id()).int ^ read[0].int
        assert bits.bit_count() > 60  # all of the random ones vary


async def test_a_uuid7_holds_the_time_and_counts_within_it() -> None:
    """One millisecond after the other; a clock that steps back gives none below."""
    clock = ManualClock(wall_ms=1_768_550_400_123)
    async with Uuid7Id(clock=clock) as gen:
        first, second = parts(await gen.next_id()), parts(await gen.next_id())
        assert first[0] == second[0] == 1_768_550_400_123
        assert second[1] == first[1] + 1
        assert first[1] < 2**41  # room to count
        texts = await gen.next_ids(3)
        for step in (1, -5000, 1, 4999):
            clock.step_wall_ms(step)
            texts += [await gen.next_id(), *await gen.next_ids(2)]
        assert texts == sorted(set(texts))
        assert {parts(text)[0] for text in texts} == {1_768_550_400_123, 1_768_550_400_124}
        clock.step_wall_ms(10)
        assert parts(await gen.next_id())[0] == clock.now_ms()


async def test_a_full_counter_goes_on_with_the_next_millisecond() -> None:
    """It never begins anew in the same one."""
    clock = ManualClock()
    async with Uuid7Id(clock=clock) as gen:
        gen._last = clock.now_ms() << 42 | (1 << 42) - 1
        assert parts(await gen.next_id()) == (clock.now_ms() + 1, 0)
        assert parts(await gen.next_id()) == (clock.now_ms() + 1, 1)


async def test_a_handler_at_any_line_gets_no_number_that_another_gets() -> None:
    """Neither of a counter nor of a UUID's."""
    for gen in (CounterId(), Uuid7Id()):
        taken: list[Any] = []

        def handler(gen: Any = gen, taken: list[Any] = taken) -> None:
            try:
                taken.append(gen.next_id_nowait())
            except (WouldBlock, ClosedError, NotOpenError):
                return

        ids: list[Any] = []
        async with gen:
            with _interrupted.interrupted(aiocosid.generators, "line", handler):
                for _ in range(30):
                    ids += [await gen.next_id(), *await gen.next_ids(7)]
        numbers = [parts(each) if isinstance(each, str) else each for each in [*ids, *taken]]
        assert len(taken) > 100
        assert len(set(numbers)) == len(numbers)
        assert ids == sorted(ids)


async def test_what_ends_between_two_lines_has_ended() -> None:
    """As when a signal handler forks: no budget is renewed after that."""
    for nth in range(25):
        gen, left = CounterId(), nth

        def handler(gen: CounterId = gen) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                gen._retire(ClosedError("it"))

        async with gen:
            with (
                suppress(ClosedError),
                _interrupted.interrupted(aiocosid.generators, "line", handler),
            ):
                await gen.next_ids(10_000)
                gen.next_id_nowait()
                await gen.next_id()
            if left <= 0 < nth:
                with pytest.raises(ClosedError):
                    gen.next_id_nowait()
