"""StringIdGenerator: what it adds to the generator inside; the contract is in tests/contracts."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid._life import fork
from aiocosid.converter import (
    PrefixIdConverter,
    Radix36IdConverter,
    Radix62IdConverter,
    ToStringIdConverter,
)
from aiocosid.errors import ForkedError, InvalidArgumentError, InvalidIdError
from aiocosid.generators.text import StringIdGenerator
from aiocosid.segment import SegmentChainId
from aiocosid.stores.memory import MemoryStore


def chain(store: MemoryStore | None = None, step: int = 1000, offset: int = 0) -> SegmentChainId:
    store = store or MemoryStore()
    distributor = store.segment_distributor(name="order", offset=offset, step=step)
    return SegmentChainId(distributor)


@pytest.mark.anyio
async def test_ids_are_text() -> None:
    """On asyncio, uvloop and trio."""
    converter = PrefixIdConverter("no-", ToStringIdConverter())
    async with StringIdGenerator(chain(), converter) as gen:
        assert await gen.next_id() == "no-1"
        assert gen.next_id_nowait() == "no-2"
        assert await gen.next_ids(3) == ["no-3", "no-4", "no-5"]
        assert gen.converter.as_int("no-3") == 3
        assert "PrefixIdConverter" in repr(gen)
        assert "order" in repr(gen)


async def test_statistics_are_the_actuators() -> None:
    """Kind, the generator inside, and the converter; the name is the one inside."""
    async with StringIdGenerator(chain(), Radix62IdConverter()) as gen:
        await gen.next_id()
        seen = gen.statistics()
        assert (seen.kind, seen.name) == ("StringIdGenerator", "order")
        tree = json.loads(json.dumps(seen.as_tree()))
    assert tree.keys() == {"kind", "actual", "converter"}
    assert tree["kind"] == "StringIdGenerator"
    assert tree["actual"]["kind"] == "SegmentChainId"
    assert tree["converter"] == Radix62IdConverter().as_tree()


async def test_an_id_without_a_text_is_a_gap() -> None:
    """Alone and in a batch; what comes later is above it."""
    limit = 36**4 - 3
    inner = chain(offset=limit, step=10)
    async with StringIdGenerator(inner, Radix36IdConverter(char_size=4)) as gen:
        assert await gen.next_id() == "ZZZY"
        with pytest.raises(InvalidIdError, match=f"{36**4 - 1}"):
            await gen.next_ids(3)
        with pytest.raises(InvalidIdError):
            gen.next_id_nowait()
        with pytest.raises(InvalidIdError):
            await gen.next_id()
        assert await inner.next_id() == limit + 7


async def test_the_loop_has_turns_while_a_batch_is_written() -> None:
    """After every 500 texts at the latest; each is there once and in order."""
    sizes = list[int]()

    class Sized(ToStringIdConverter):
        __slots__ = ()

        def convert_many(self, ids: Any, /) -> list[str]:
            ids = list(ids)
            sizes.append(len(ids))
            return super(ToStringIdConverter, self).convert_many(ids)

    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with (
        StringIdGenerator(chain(), Sized()) as gen,
        anyio.create_task_group() as group,
    ):
        await gen.next_ids(1)
        group.start_soon(turn)
        ids = await gen.next_ids(2001)
        assert sizes == [1, 500, 500, 500, 500, 1]
        assert turns >= 3
        group.cancel_scope.cancel()
    assert ids == [str(each) for each in range(2, 2003)]


async def test_a_batch_written_across_a_fork_is_the_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child has the same texts half done, and gets ForkedError instead."""

    def after(turns: int, act: Callable[[], None]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            for _ in range(turns):
                await checkpoint()
            act()

        return run

    async with (
        StringIdGenerator(chain(step=10_000), ToStringIdConverter()) as gen,
        anyio.create_task_group() as group,
    ):
        forking = after(3, lambda: monkeypatch.setattr(fork, "generation", fork.generation + 1))
        group.start_soon(forking)
        with pytest.raises(ForkedError, match="StringIdGenerator"):
            await gen.next_ids(5000)
        monkeypatch.undo()


def test_what_is_no_generator_or_converter_is_refused() -> None:
    wrong: Any = "no"
    with pytest.raises(InvalidArgumentError, match="an IdGenerator"):
        StringIdGenerator(wrong, ToStringIdConverter())
    with pytest.raises(InvalidArgumentError, match="an IdConverter"):
        StringIdGenerator(chain(), wrong)
    with pytest.raises(InvalidArgumentError, match="an IdGenerator"):
        StringIdGenerator(StringIdGenerator(chain(), ToStringIdConverter()), wrong)  # type: ignore[arg-type]
