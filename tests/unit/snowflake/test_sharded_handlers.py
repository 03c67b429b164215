"""Sharded ids taken by what Python runs between two lines; see test_handlers."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

import aiocosid.snowflake
from aiocosid.errors import WouldBlock
from aiocosid.snowflake import ShardedId
from aiocosid.testing import ManualClock

from .. import _interrupted
from ._sequences import LAYOUT, Sequences

pytestmark = pytest.mark.asyncio

interrupted = partial(_interrupted.interrupted, aiocosid.snowflake)


@pytest.mark.parametrize("every", [1, 3, 7])
async def test_no_id_is_there_twice(clock: ManualClock, every: int) -> None:
    """And the generator goes on, whatever the place at which it was interrupted."""
    ids: list[int] = []
    lines = 0
    async with ShardedId(Sequences(clock), layout=LAYOUT, clock=clock, batch=5) as gen:

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
                await clock.advance(0.3)
        with interrupted("line", handler):
            ids += await gen.next_ids(8)
        await clock.advance(1)
        ids.append(await gen.next_id())
    assert len(ids) > 60
    assert len(set(ids)) == len(ids)


async def test_a_handler_that_raises(clock: ManualClock) -> None:
    """Ids may be lost in it, and none comes again.  Python lets it run where there is a call."""
    store = Sequences(clock)
    for line in range(1, 60):
        left = line

        def handler() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        async with ShardedId(store, layout=LAYOUT, clock=clock, batch=9) as gen:
            ids = [gen.next_id_nowait(), gen.next_id_nowait()]
            with suppress(KeyboardInterrupt), interrupted("call", handler):
                ids += [gen.next_id_nowait(), gen.next_id_nowait()]
                ids += await gen.next_ids(3)
            await clock.advance(1)
            ids += [await gen.next_id(), *await gen.next_ids(3), gen.next_id_nowait()]
        assert len(set(ids)) == len(ids), line
