"""Ids taken by what Python runs between two lines: signal handlers and finalizers.

A trace function stands in for them: it runs at every line, or at every call, of the generator's own
code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

import aiocosid.snowflake
from aiocosid.errors import WouldBlock
from aiocosid.snowflake import ShardedId, SnowflakeId, SnowflakeLayout
from aiocosid.testing import ManualClock

from .. import _interrupted
from ._kit import machines
from ._sequences import LAYOUT as SHARDED_LAYOUT
from ._sequences import Sequences

interrupted = partial(_interrupted.interrupted, aiocosid.snowflake)
Open = Callable[[str, int], SnowflakeId | ShardedId]
LAYOUT = SnowflakeLayout(41, 10, 12, "ms", 1_577_203_200_000)


@pytest.fixture(params=["snowflake", "sharded"])
def is_sharded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "sharded")


@pytest.fixture
def make(clock: ManualClock, *, is_sharded: bool) -> Open:
    """Make a generator; sharded ones take from one store."""
    if not is_sharded:
        return lambda name, _: SnowflakeId(machines(), layout=LAYOUT, name=name, clock=clock)
    store = Sequences(clock)
    return lambda _, batch: ShardedId(store, layout=SHARDED_LAYOUT, clock=clock, batch=batch)


@pytest.mark.parametrize("every", [1, 2, 3, 7])
async def test_no_id_is_there_twice(
    clock: ManualClock, make: Open, every: int, *, is_sharded: bool
) -> None:
    """And the generator goes on, whatever the place at which it was interrupted."""
    ids: list[int] = []
    lines = 0
    async with make("first", 5) as gen:

        def handler() -> None:
            nonlocal lines
            lines += 1
            if lines % every == 0:
                with suppress(WouldBlock):
                    ids.append(gen.next_id_nowait())

        for turn in range(60):
            with interrupted("line", handler), suppress(WouldBlock):
                ids.append(gen.next_id_nowait())
            if turn % 3 == 0:
                await clock.advance(0.3 if is_sharded else 0.001)
        with interrupted("line", handler):
            ids += await gen.next_ids(8)
        await clock.advance(1 if is_sharded else 0.001)
        ids.append(await gen.next_id())
    assert len(ids) > 60
    assert len(set(ids)) == len(ids)


async def test_a_handler_that_raises(clock: ManualClock, make: Open, *, is_sharded: bool) -> None:
    """Ids may be lost in it, and none comes again.  Python lets it run where there is a call."""
    for line in range(1, 60):
        left = line

        def handler() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        async with make(str(line), 9) as gen:
            ids = [gen.next_id_nowait(), gen.next_id_nowait()]
            if not is_sharded:
                await clock.advance(0.001)
            with suppress(KeyboardInterrupt), interrupted("call", handler):
                ids += [gen.next_id_nowait(), gen.next_id_nowait()]
                ids += await gen.next_ids(3)
            await clock.advance(1 if is_sharded else 0.001)
            ids.append(await gen.next_id() if is_sharded else gen.next_id_nowait())
            ids += [*await gen.next_ids(3), gen.next_id_nowait()]
        assert len(set(ids)) == len(ids), line
