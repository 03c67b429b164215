"""The generator contract for every kind of generator on every store.

On the memory store a generator is served at once; behind a wrapper that has to be awaited it goes
the way of a server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiocosid.abc import IdSegmentDistributor, Store
from aiocosid.converter import PrefixIdConverter, ToStringIdConverter
from aiocosid.generators import (
    CounterId,
    IntegerIdGenerator,
    UncertaintyIdGenerator,
    Uuid7Id,
)
from aiocosid.generators.text import StringIdGenerator
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    CachedSnowflakeId,
    CosIdGenerator,
    ShardedId,
    SnowflakeId,
    SnowflakeLayout,
)
from aiocosid.stores.memory import MemorySequenceDistributor, MemoryStore
from aiocosid.testing import (
    IdGeneratorContract,
    MakeGenerator,
    ManualClock,
    TextIdGeneratorContract,
    WrappedDistributor,
)

from ._stores import STORES, Backend

Kind = Callable[[IdSegmentDistributor], SegmentChainId | SegmentId]

KINDS: dict[str, tuple[Kind, int]] = {
    "chain-1": (SegmentChainId, 1),
    "chain-7": (SegmentChainId, 7),
    "chain-1000": (SegmentChainId, 1000),
    "far-chain-7": (partial(SegmentChainId, safe_distance=10), 7),
    "segment-1": (SegmentId, 1),
    "segment-7": (SegmentId, 7),
    "segment-1000": (SegmentId, 1000),
}

SERVERS = [name for name in STORES if name != "memory"]  # which has its own tests below


class Generators(IdGeneratorContract):
    """One kind with one step, on one store."""

    @pytest.fixture(params=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        kind, self.step = KINDS[request.param]
        return kind

    def maker(self, store: Store, kind: Kind, namespace: str) -> MakeGenerator:
        return lambda: kind(
            store.segment_distributor(namespace=namespace, name="order", step=self.step)
        )


@pytest.mark.asyncio
class TestGenerators(Generators):
    # One trip for each seven ids: some seconds on a server.
    ids_per_worker = 500

    @pytest.fixture(params=SERVERS)
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return STORES[request.param](request)

    @pytest.fixture(params=["chain-7", "chain-1000", "segment-7", "segment-1000"])
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        kind, self.step = KINDS[request.param]
        return kind

    @pytest.fixture
    def make_generator(self, store: Store, kind: Kind, namespace: str) -> MakeGenerator:
        return self.maker(store, kind, namespace)


class MemoryGenerators(Generators):
    ids_per_worker = 2000

    @pytest.fixture(params=["at once", "awaited"])
    def make_generator(
        self, request: pytest.FixtureRequest, kind: Kind, namespace: str
    ) -> MakeGenerator:
        store, awaited = MemoryStore(), request.param == "awaited"

        def make() -> SegmentChainId | SegmentId:
            made = store.segment_distributor(namespace=namespace, name="order", step=self.step)
            return kind(WrappedDistributor(made) if awaited else made)

        return make


@pytest.mark.asyncio
class TestMemoryGenerators(MemoryGenerators):
    pass


CONVERTER = PrefixIdConverter("no-", ToStringIdConverter())

LAYOUTS = {
    "cosid-ms": COSID_MS,
    "cosid-s": COSID_S,
    "narrow": SnowflakeLayout(41, 10, 8, "ms", COSID_MS.epoch_ms, name="narrow"),
}


class Snowflakes(IdGeneratorContract):
    """Each generator is an instance of its own, and has a machine id of its own."""

    def maker(self, store: Store, layout: SnowflakeLayout, namespace: str) -> MakeGenerator:
        return lambda: SnowflakeId(
            store.machine_id_distributor(namespace=namespace), name="order", layout=layout
        )


@pytest.mark.asyncio
class TestSnowflakes(Snowflakes):
    ids_per_worker = 1000

    @pytest.fixture(params=SERVERS)
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return STORES[request.param](request)

    @pytest.fixture
    def make_generator(self, backend: Backend, store: Store, namespace: str) -> MakeGenerator:
        backend.mark(namespace)
        return self.maker(store, COSID_MS, namespace)


class MemorySnowflakes(Snowflakes):
    @pytest.fixture(params=LAYOUTS)
    def make_generator(self, request: pytest.FixtureRequest, namespace: str) -> MakeGenerator:
        return self.maker(MemoryStore(), LAYOUTS[request.param], namespace)


@pytest.mark.asyncio
class TestMemorySnowflakes(MemorySnowflakes):
    pass


class Cached(IdGeneratorContract):
    """More ids than their seconds have: most of them are borrowed."""

    step = 700

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        store = MemoryStore()
        return lambda: CachedSnowflakeId(
            store.machine_id_distributor(namespace=namespace), name="order"
        )


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestCached(Cached):
    pass


class Sharded(IdGeneratorContract):
    """All share the sequences of a second."""

    ids_per_worker = 1000

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        distributor = MemorySequenceDistributor(namespace=namespace, name="order")
        return lambda: ShardedId(distributor, sharding_id=7)


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestSharded(Sharded):
    """Each generator has a distributor of its own, as in a process of its own."""

    ids_per_worker = 500

    @pytest.fixture(params=["memory", "sqlite", "valkey"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return STORES[request.param](request)

    @pytest.fixture
    def make_generator(self, backend: Backend, store: Any, namespace: str) -> MakeGenerator:
        backend.open_fence(f"{namespace}.order")
        return lambda: ShardedId(
            store.sequence_distributor(namespace=namespace, name="order"), sharding_id=7
        )


class Grouped(IdGeneratorContract):
    """On a day that does not end: the ids of two days rise each for themselves."""

    ids_per_worker = 1000

    def maker(self, store: Store, group_by: GroupBy, namespace: str) -> MakeGenerator:
        clock = ManualClock()
        return lambda: GroupedSegmentId(
            store,
            namespace=namespace,
            name="order",
            group_by=group_by,
            step=self.step,
            clock=clock,
        )


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestGrouped(Grouped):
    ids_per_worker = 500

    @pytest.fixture
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return STORES["sqlite"](request)

    @pytest.fixture
    def make_generator(self, store: Store, namespace: str) -> MakeGenerator:
        return self.maker(store, GroupBy.day(zone="UTC"), namespace)


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestStrings(TextIdGeneratorContract):
    """Ids of a chain, in decimal: such texts do not sort, but are read back."""

    step = 7
    ids_per_worker = 1000

    def number(self, text: str) -> int:
        return CONVERTER.as_int(text)

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        store = MemoryStore()
        described: dict[str, Any] = {"namespace": namespace, "name": "order", "step": self.step}
        return self.numbered(
            lambda: StringIdGenerator(
                SegmentChainId(store.segment_distributor(**described)), CONVERTER
            )
        )


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestCosIds(TextIdGeneratorContract):
    """Texts of 15 characters, which sort."""

    ids_per_worker = 500
    # Seconds of writing; tests/unit/snowflake/test_cosid_generator.py counts turns as well.
    test_a_greedy_consumer_lets_others_run = None  # type: ignore[assignment]

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        store = MemoryStore()
        return self.numbered(
            lambda: CosIdGenerator(store.machine_id_distributor(namespace=namespace), name="order")
        )


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestIntegers(IdGeneratorContract):
    step = 7
    ids_per_worker = 500

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        store = MemoryStore()
        described: dict[str, Any] = {"namespace": namespace, "name": "order", "step": self.step}
        return lambda: IntegerIdGenerator(SegmentChainId(store.segment_distributor(**described)))


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestUncertain(IdGeneratorContract):
    step = 7
    ids_per_worker = 500

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        store = MemoryStore()
        described: dict[str, Any] = {"namespace": namespace, "name": "order", "step": self.step}
        return lambda: UncertaintyIdGenerator(
            SegmentChainId(store.segment_distributor(**described)), 20
        )


class Counters(IdGeneratorContract):
    """Each one counts for itself."""

    ids_per_worker = 500
    test_two_generators_are_disjoint = None  # type: ignore[assignment]
    test_closing_in_any_order = None  # type: ignore[assignment]

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return CounterId


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestCounters(Counters):
    pass


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestUuids(TextIdGeneratorContract):
    """Of version 7, which sort."""

    ids_per_worker = 200
    # Seconds of writing; the counters count turns.
    test_a_greedy_consumer_lets_others_run = None  # type: ignore[assignment]

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return self.numbered(Uuid7Id)


# The last ones: anyio's plugin marks the functions, which all classes here share.


@pytest.mark.anyio
class TestMemoryGeneratorsOnTrio(MemoryGenerators):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}


@pytest.mark.anyio
class TestMemorySnowflakesOnTrio(MemorySnowflakes):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}


@pytest.mark.anyio
class TestCachedOnTrio(Cached):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}


@pytest.mark.anyio
class TestShardedOnTrio(Sharded):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}


@pytest.mark.anyio
class TestMemoryGroupedOnTrio(Grouped):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        return self.maker(MemoryStore(), GroupBy.key(lambda: "shop-7"), namespace)


@pytest.mark.anyio
class TestCountersOnTrio(Counters):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}
