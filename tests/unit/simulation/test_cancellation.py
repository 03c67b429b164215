"""Cancelling at the k-th suspension, for every k."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from tests.simulation import World, cancel_at, cancel_everywhere


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def with_world(_: World) -> None:
        await scenario()

    World(0).run(with_world)


async def three_steps(log: list[str]) -> str:
    for step in "abc":
        log.append(step)
        await asyncio.sleep(1 if step == "b" else 0)
    return "done"


@pytest.mark.parametrize("how", ["task", "scope", "reply"])
def test_each_suspension_is_hit(how: str) -> None:
    async def scenario() -> None:
        for at, expected in ((1, "a"), (2, "ab"), (3, "abc")):
            log: list[str] = []
            done = await cancel_at(three_steps(log), at, how=how)  # type: ignore[arg-type]  # a parameter
            assert (done.was_cancelled, done.result, done.suspensions) == (True, None, at)
            assert "".join(log) == expected
        done = await cancel_at(three_steps([]), 4, how=how)  # type: ignore[arg-type]  # a parameter
        assert (done.was_cancelled, done.result, done.suspensions) == (False, "done", 3)

    run(scenario)


def test_everywhere_is_everywhere() -> None:
    async def scenario() -> None:
        logs: list[list[str]] = []

        def make() -> asyncio.Future[str] | object:
            logs.append([])
            return three_steps(logs[-1])

        assert await cancel_everywhere(make) == 3  # type: ignore[arg-type]  # a coroutine
        assert ["".join(log) for log in logs] == ["a", "ab", "abc", "abc"]

    run(scenario)


def test_a_scope_cancels_what_follows_as_well() -> None:
    """As anyio does it; a task is cancelled once."""

    async def stubborn() -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await anyio.sleep(1)
        return "finished"

    async def scenario() -> None:
        assert (await cancel_at(stubborn(), 1)).result == "finished"
        assert (await cancel_at(stubborn(), 1, how="scope")).was_cancelled

    run(scenario)


def test_the_turn_of_the_reply_is_hit() -> None:
    """The reply is there, and the task is cancelled before it can look."""
    loop_time: list[float] = []

    async def call() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            loop_time.append(asyncio.get_running_loop().time())
            raise

    async def scenario() -> None:
        assert (await cancel_at(call(), 1, how="reply")).was_cancelled
        assert (await cancel_at(call(), 1, how="task")).was_cancelled
        assert loop_time == [1.0, 1.0]

    run(scenario)


def test_what_a_call_raises_comes_through() -> None:
    async def call() -> None:
        await asyncio.sleep(0)
        raise LookupError

    async def scenario() -> None:
        with pytest.raises(LookupError):
            await cancel_at(call(), 9)

    run(scenario)
