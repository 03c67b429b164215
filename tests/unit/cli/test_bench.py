from __future__ import annotations

import itertools
import json

import pytest

from aiocosid.abc import IdGenerator
from aiocosid.cli import _bench
from aiocosid.cli._bench import measure
from tests.command import Command


class Watch:
    """A timer on which everything takes as long as it is told.

    Attributes:
        costs: seconds of an empty call, of `next_id` and of `next_ids`, by the method's name.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.costs = {"method": 1.0, "next_id": 1.5, "next_ids": 4.0}

    def __call__(self) -> float:
        return self.now

    def passes(self, method: str) -> None:
        self.now += self.costs[method]


class TimedGenerator(IdGenerator):
    """Its methods take their time on a `Watch`."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.ids = itertools.count(1)

    async def next_id(self) -> int:
        self.watch.passes("next_id")
        return next(self.ids)

    async def next_ids(self, n: int) -> list[int]:
        self.watch.passes("next_ids")
        return [next(self.ids) for _ in range(n)]

    def next_id_nowait(self) -> int:
        raise NotImplementedError

    def statistics(self) -> None:  # type: ignore[override]
        raise NotImplementedError

    async def run(self, *, task_status: object = None) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()

    async def method(self: object) -> None:
        watch.passes("method")

    monkeypatch.setattr(_bench._Empty, "method", method)
    return watch


ROUND = _bench.CALLS * (1.0 + 1.5) + _bench.BATCHES * 4.0  # seconds on the watch


async def test_rates_and_ratio(watch: Watch) -> None:
    """A rate counts ids a second, the ratio compares one call with one call."""
    found = await measure(TimedGenerator(watch), seconds=ROUND * 2.5, timer=watch)
    assert found.rounds == 3
    assert found.empty_calls_per_second == pytest.approx(1.0)
    assert found.next_id_per_second == pytest.approx(1 / 1.5)
    assert found.next_ids_per_second == pytest.approx(250.0)
    assert found.next_id_ratio == pytest.approx(1.5)


async def test_at_least_one_round(watch: Watch) -> None:
    """However short the time: a result is there, and no division by zero."""
    found = await measure(TimedGenerator(watch), seconds=1e-9, timer=watch)
    assert found.rounds == 1


async def test_progress_rises_to_the_whole(watch: Watch) -> None:
    """The bar is told the share of the time, never more than all of it."""
    shares: list[float] = []
    await measure(
        TimedGenerator(watch), seconds=ROUND * 1.5, timer=watch, on_progress=shares.append
    )
    assert shares == pytest.approx([2 / 3, 1.0])


def test_bench_as_json(aiocosid: Command) -> None:
    """A script gets numbers, and nothing else on either stream."""
    ended = aiocosid("bench", "--store", "memory:", "--seconds", 0.01, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert set(found) == {
        "rounds",
        "empty_calls_per_second",
        "next_id_per_second",
        "next_ids_per_second",
        "next_id_ratio",
    }
    assert all(value > 0 for value in found.values())


def test_bench_as_a_table(aiocosid: Command) -> None:
    """A person gets a row for each call and the ratio in words."""
    ended = aiocosid("bench", "--store", "memory:", "--seconds", 0.01)
    assert (ended.code, ended.err) == (0, "")
    for words in ("empty coroutine method", "next_id()", "next_ids(1000)", "times as long"):
        assert words in ended.out


def test_bench_leaves_real_counters_alone(aiocosid: Command) -> None:
    """Its ids come from a namespace of its own."""
    aiocosid("init")
    aiocosid("next", "order")
    aiocosid("bench", "--seconds", 0.01)
    found = aiocosid.json("inspect")
    counters = {each["namespaced_name"]: each["last_max_id"] for each in found}
    assert counters.pop("aiocosid-bench.bench") > 100_000
    assert counters == {"cosid.order": 1}
