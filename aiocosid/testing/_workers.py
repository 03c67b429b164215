"""Checks of both contracts for ids that many tasks take at once."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from ..abc import GroupedId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ..abc import IdGenerator

__all__ = ("assert_rising", "assert_unique", "storm", "take_at_once")


def assert_rising(ids: Sequence[int], of: str) -> None:
    """Every id is a positive int above the one before."""
    assert all(type(each) in {int, GroupedId} for each in ids), f"{of}: an id is no int"
    assert not ids or ids[0] > 0, f"{of}: the first id is {ids[0]}, not positive"
    for before, after in pairwise(ids):
        assert before < after, f"{of}: {after} came after {before}"


def assert_unique(ids: Iterable[int], of: str) -> None:
    """No id is there twice."""
    twice = [each for each, times in Counter(ids).items() if times > 1]
    assert not twice, (
        f"{of}: handed out more than once: {sorted(twice)[:5]} and {len(twice)} in all"
    )


async def take_at_once(generators: Sequence[IdGenerator], *, workers: int, ids: int) -> list[int]:
    """Have ``workers`` tasks take ``ids`` ids each, round robin over the generators; return all."""
    taken: list[list[int]] = [[] for _ in range(workers)]

    async def work(mine: list[int], generator: IdGenerator) -> None:
        for _ in range(ids):
            mine.append(await generator.next_id())  # noqa: PERF401 - kept if it fails later

    async with anyio.create_task_group() as group:
        for number, mine in enumerate(taken):
            group.start_soon(work, mine, generators[number % len(generators)])
    for number, mine in enumerate(taken):
        assert_rising(mine, f"worker {number}")
    every = [each for mine in taken for each in mine]
    assert_unique(every, f"{workers} workers")
    return every


async def storm(calls: Iterable[Callable[[], Awaitable[object]]], seed: int) -> None:
    """Start all calls, and cancel about half of them after a few turns of the loop each."""
    chance = random.Random(seed)  # noqa: S311 - the same storm every time

    async def call(function: Callable[[], Awaitable[object]], turns: int | None) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                if turns is not None:
                    group.start_soon(cancel, scope, turns)
                await function()
                group.cancel_scope.cancel()

    async def cancel(scope: anyio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as group:
        for function in calls:
            group.start_soon(call, function, chance.choice((None, chance.randrange(30))))
