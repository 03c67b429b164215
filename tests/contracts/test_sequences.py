"""Sequences of a second on every store that grants them: the same rules on each."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, Final

import anyio
import pytest
import pytest_asyncio

from aiocosid.abc import SecondFenced, SecondSpent, SequenceDistributor, SequenceGrant
from aiocosid.errors import ClockSkewError, InvalidArgumentError
from aiocosid.testing._workers import fresh_namespace

from ._stores import STORES, Backend, Memory

LONG: Final[dict[str, Any]] = {"tolerance": 60, "ttl": 600}  # seconds, to stay in one second


@pytest.mark.asyncio
class TestSequences:
    @pytest.fixture(params=["memory", "sqlite", "valkey"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return STORES[request.param](request)

    @pytest_asyncio.fixture
    async def stores(self, backend: Backend) -> AsyncIterator[list[Any]]:
        """Several on the same counters, as of several processes."""
        async with backend.open() as one, backend.open() as two, backend.open() as three:
            await backend.prepare(one)
            yield [one, two, three]

    @pytest.fixture
    def name(self, backend: Backend, stores: list[Any]) -> dict[str, str]:
        """A name of which nothing was forgotten."""
        namespace = fresh_namespace()
        backend.open_fence(f"{namespace}.n")
        return {"namespace": namespace, "name": "n"}

    async def test_ranges_are_disjoint_until_the_second_is_full(
        self, stores: list[Any], name: dict[str, str]
    ) -> None:
        """The last grant is shorter, and then the second is spent for all."""
        most, ranges = 2000, list[SequenceGrant]()
        second = await now_of(stores[0], name) + 1

        async def take(distributor: SequenceDistributor, draw: random.Random) -> None:
            while True:
                reply = await distributor.grant(second, draw.randint(1, 200))
                if reply == SecondSpent(second):
                    return
                assert isinstance(reply, SequenceGrant)
                ranges.append(reply)

        async with anyio.create_task_group() as group:
            for number in range(12):
                asked = stores[number % 3].sequence_distributor(**name, max_sequence=most, **LONG)
                group.start_soon(take, asked, random.Random(number))  # noqa: S311 - sizes
        ranges.sort(key=lambda each: each.first)
        assert {each.second for each in ranges} == {second}
        assert all(one.last + 1 == other.first for one, other in pairwise(ranges))
        assert (ranges[0].first, ranges[-1].last) == (1, most)
        last = stores[1].sequence_distributor(**name, max_sequence=most, **LONG)
        assert await last.grant(second, 1) == SecondSpent(second)
        assert await last.grant(second + 1, 5) == SequenceGrant(second + 1, 1, 5)
        assert await last.grant(second - 1, 5) == SequenceGrant(second - 1, 1, 5)

    async def test_what_is_refused(self, stores: list[Any], name: dict[str, str]) -> None:
        """Nothing is written."""
        asked = stores[0].sequence_distributor(**name, max_sequence=100, **LONG)
        second = await now_of(stores[0], name)
        sizes: tuple[Any, ...] = (0, -5, "7", 1.0, 101, None, True)
        for size in sizes:
            with pytest.raises(InvalidArgumentError, match="size"):
                await asked.grant(second, size)
        seconds: tuple[Any, ...] = (-1, 1.5, "now", None, True)
        for wrong in seconds:
            with pytest.raises(InvalidArgumentError, match="second"):
                await asked.grant(wrong, 1)
        for off in (-62, 63):  # a second may pass meanwhile
            with pytest.raises(ClockSkewError) as caught:
                await asked.grant(second + off, 1)
            assert (caught.value.ahead > 60) == (off > 0)
            assert caught.value.retryable
        assert await asked.grant(second, 1) == SequenceGrant(second, 1, 1)

    async def test_options_that_are_refused(self, backend: Backend, stores: list[Any]) -> None:
        options: list[dict[str, Any]] = [
            *({"ttl": 63}, {"ttl": 600, "tolerance": 300}, {"tolerance": 0}, {"tolerance": 1.5}),
            *({"margin": -1}, {"max_sequence": 0}, {"name": ""}),
        ]
        if not isinstance(backend, Memory):  # which stands for a server in tests
            options += {"key": "order"}, {"key": ""}
        for each in options:
            with pytest.raises(InvalidArgumentError, match="|".join(each)):
                stores[0].sequence_distributor(**({"name": "n"} | each))
        stores[0].sequence_distributor(name="n", ttl=64, key=None)

    async def test_the_highest_sequences(self, stores: list[Any], name: dict[str, str]) -> None:
        most, second = 2**53 - 1, await now_of(stores[0], name)
        asked = stores[0].sequence_distributor(**name, max_sequence=most, **LONG)
        assert await asked.grant(second, most - 2) == SequenceGrant(second, 1, most - 2)
        assert await asked.grant(second, 10**15) == SequenceGrant(second, most - 1, most)
        assert await asked.grant(second, 1) == SecondSpent(second)

    async def test_names_are_apart(
        self, backend: Backend, stores: list[Any], name: dict[str, str]
    ) -> None:
        """Of other namespaces, too."""
        second = await now_of(stores[0], name)
        for about in ({**name, "name": "m"}, {**name, "namespace": fresh_namespace()}, name):
            if about is not name:
                backend.open_fence(f"{about['namespace']}.{about['name']}")
            asked = stores[0].sequence_distributor(**about, **LONG)
            assert await asked.grant(second, 5) == SequenceGrant(second, 1, 5)

    async def test_a_store_that_was_emptied(
        self, backend: Backend, stores: list[Any], name: dict[str, str]
    ) -> None:
        """It grants nothing of what it may have granted, and says what it grants next."""
        asked = stores[0].sequence_distributor(**name, **LONG, margin=1)
        second = await now_of(stores[0], name)
        assert isinstance(await asked.grant(second + 60, 5), SequenceGrant)
        backend.lose_sequences(**name)
        reply = await asked.grant(second + 60, 5)
        assert isinstance(reply, SecondFenced)
        assert reply.opens == reply.now + 62


async def now_of(store: Any, name: dict[str, str]) -> int:
    """The store's second, as it tells one who is far off."""
    asked = store.sequence_distributor(**name)
    with pytest.raises(ClockSkewError) as caught:
        await asked.grant(1, 1)
    return 1 - caught.value.ahead
