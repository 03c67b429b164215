"""Time that passes when nobody has anything to do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import count
from random import Random as Draws
from typing import Any

import anyio
import pytest

from tests.simulation import NothingLeftError, VirtualTimeLoop


def run(main: Coroutine[Any, Any, object], *, rng: Draws | None = None) -> object:
    loop = VirtualTimeLoop(rng)
    try:
        return loop.run_until_complete(main)
    finally:
        for task in loop.tasks():
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def draws(seed: int) -> Draws:
    return Draws(seed)  # noqa: S311 - it has to be repeatable


async def order_of(delays: list[float]) -> list[int]:
    woken: list[int] = []
    loop = asyncio.get_running_loop()
    for number, delay in enumerate(delays):
        loop.call_later(delay, woken.append, number)
    await asyncio.sleep(max(delays) + 1)
    return woken


def test_a_year_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86400)
        return asyncio.get_running_loop().time()

    assert run(main()) == 365 * 86400


def test_timers_run_in_order_of_time_then_of_setting() -> None:
    assert run(order_of([2.0, 1.0, 1.0, 1.0])) == [1, 2, 3, 0]


def test_a_seed_draws_the_order_of_one_moment() -> None:
    orders = {str(run(order_of([1.0] * 4), rng=draws(seed))) for seed in range(20)}
    assert len(orders) > 5
    again = [run(order_of([1.0] * 9), rng=draws(3)) for _ in range(2)]
    assert again[0] == again[1]


def test_scopes_and_groups_of_anyio_work() -> None:
    async def main() -> list[float]:
        ends: list[float] = []
        async with anyio.create_task_group() as group:
            for seconds in (3.0, 1.0):
                group.start_soon(anyio.sleep, seconds)
            with anyio.move_on_after(0.5) as scope:
                await anyio.sleep_forever()
            ends.append(anyio.current_time())
            assert scope.cancelled_caught
        ends.append(anyio.current_time())
        return ends

    assert run(main()) == [0.5, 3.0]


def test_nothing_left_to_happen_names_who_waits() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(asyncio.Event().wait(), name="the one that waits")
        await waiting

    with pytest.raises(NothingLeftError, match="the one that waits") as caught:
        run(main())
    assert len(caught.value.waiting) == 2


def test_a_task_that_spins_is_found() -> None:
    async def main() -> None:
        for _ in count():
            await asyncio.sleep(0)

    with pytest.raises(NothingLeftError, match="somebody spins"):
        run(main())


def test_threads_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="no threads"):
        run(asyncio.to_thread(print))
