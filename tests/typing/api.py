"""The public names, used as a user would.

mypy and basedpyright read this file in strict mode and nothing runs it: a change of a signature
that would break a user's checker shows here first.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, assert_type

import anyio

import aiocosid
import aiocosid.sync
from aiocosid import (
    ConfiguredProvider,
    CosIdGenerator,
    GroupBy,
    GroupedSegmentId,
    IdSegment,
    MachineIdLease,
    SegmentChainId,
    SegmentId,
    SnowflakeId,
    StringIdGenerator,
)
from aiocosid.abc import (
    AnyGenerator,
    Clock,
    Counter,
    GroupedId,
    IdGenerator,
    IdSegmentDistributor,
    InstanceId,
    Machine,
    MachineGrant,
    MachineIdDistributor,
    SequenceReply,
    Statistics,
    Store,
)
from aiocosid.abc.events import Event, MachineIdDistributed, MachineIdGuardFailed, MachineIdLost
from aiocosid.converter import (
    Int64Text,
    PrefixIdConverter,
    Radix62IdConverter,
    ShardedTextConverter,
    TypedId,
)
from aiocosid.errors import WouldBlock
from aiocosid.generators import (
    CounterId,
    IntegerIdGenerator,
    UncertaintyIdGenerator,
    Uuid4Id,
    Uuid7Id,
)
from aiocosid.machine import (
    MachineIdStatistics,
    ManualMachineIdDistributor,
    StatefulSetMachineIdDistributor,
    host_port_instance_id,
)
from aiocosid.segment import LeafSegmentId, RemoteId
from aiocosid.sharding import ModCycle, ShardRange
from aiocosid.snowflake import (
    COSID_MS,
    LAYOUTS,
    RADIX36,
    RADIX62,
    CachedSnowflakeId,
    CosIdFriendlyText,
    CosIdState,
    CosIdText,
    FriendlyText,
    LayoutExpiryWarning,
    ShardedId,
    ShardedLayout,
    ShardedParts,
    SnowflakeLayout,
    SnowflakeParts,
    SnowflakeStatistics,
    sharded,
)
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.stores.striped import StripedStore
from aiocosid.sync import SyncIdGenerator, SyncShardedId
from aiocosid.testing import (
    IdGeneratorContract,
    IdSegmentDistributorContract,
    MachineIdDistributorContract,
    ManualClock,
)

if TYPE_CHECKING:
    import asyncpg
    from redis.asyncio import Redis, RedisCluster


class OrderId(TypedId, prefix="ord"):
    """A class for each kind of id is what checkers understand."""


class CustomerId(TypedId, prefix="cus"):
    """Another one."""


def typed(order: OrderId, text: str, number: int) -> list[OrderId]:
    """One kind of id is no other kind, nor is a text or a number one."""
    assert_type(OrderId(number), OrderId)
    assert_type(OrderId.parse(text), OrderId)
    assert_type(int(order), int)
    assert_type(Int64Text(number), Int64Text)
    shown: str = order
    other: CustomerId = order  # type: ignore[assignment]
    plain: OrderId = text  # type: ignore[assignment]
    return [OrderId(shown), OrderId(other), plain]


class OwnDistributor(IdSegmentDistributor):
    """A stranger's store: one method."""

    async def next_max_id(self, step: int) -> int:
        """Count on from nowhere."""
        return step


class TestOwnDistributor(IdSegmentDistributorContract):
    """The kit is inherited, nothing more."""


class OwnMachineIdDistributor(MachineIdDistributor):
    """A stranger's machine ids: three methods."""

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Hand out one and the same."""
        return MachineGrant(machine_id=min(bits, 1), floor_ms=min(now_ms, latest_ms))

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Take note of nothing."""

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """As above."""


class TestOwnMachineIdDistributor(MachineIdDistributorContract):
    """The kit is inherited, nothing more."""


class TestOwnGenerator(IdGeneratorContract):
    """As above."""


class OwnInstrument:
    """It needs no base class."""

    def on_event(self, event: Event) -> None:
        """Take what is common to all events."""
        assert_type(event.namespace, str)
        assert_type(event.name, str)
        match event:
            case MachineIdDistributed(wait=wait):
                assert_type(wait, float)
            case MachineIdGuardFailed(error=error) | MachineIdLost(error=error):
                assert_type(error, Exception)
            case _:
                pass


async def by_url() -> None:
    """Named generators from a URL."""
    async with aiocosid.connect("sqlite:///ids.db") as ids:
        chain = await ids.segment_chain("order", step=100, safe_distance=3)
        assert_type(chain, SegmentChainId)
        assert_type(await chain.next_id(), int)
        assert_type(await ids.segment("invoice"), SegmentId)
        snowflake = await ids.snowflake("event", layout=COSID_MS, wait_timeout=1)
        assert_type(snowflake, SnowflakeId)
        assert_type(await snowflake.next_id(), int)
        texts = await ids.leaf_segment("bill", converter=Radix62IdConverter())
        assert_type(texts, StringIdGenerator)
        assert_type(await ids.counter("turn"), CounterId)
        assert_type(await ids.uuid4("token"), Uuid4Id)
        assert_type(await ids.int32("short", kind="segment", step=1), IntegerIdGenerator)
        blurred = await ids.uncertainty("blurred", bits=8, safe_distance=3)
        assert_type(blurred, UncertaintyIdGenerator)
        numbers = Radix62IdConverter()
        assert_type(await ids.uncertainty("t", bits=8, converter=numbers), StringIdGenerator)
        assert_type(ids["order"], AnyGenerator)
        assert_type(await ids["order", int].next_id(), int)
        assert_type(await ids["bill", str].next_ids(2), list[str])
        assert_type(await ids.add("own", chain), SegmentChainId)
        await ids.remove("own")
    manual = ManualMachineIdDistributor(7)
    async with aiocosid.connect("sqlite:///ids.db", machine=manual, lead=5) as ids:
        assert_type(await ids.remote("other", block=10), RemoteId)
        assert_type(
            await ids.cached_snowflake("event", boost=4, on_lost="raise"), CachedSnowflakeId
        )
    async with aiocosid.store_from_url("sqlite:///ids.db") as store:
        assert_type(store.machine_id_distributor(instance_id="web:80"), MachineIdDistributor)
        held: list[Machine] = [*await store.machines(namespace="shop")]
        await store.evict_machine(namespace="shop", machine_id=held[0].machine_id)


async def by_hand(client: Redis, cluster: RedisCluster, pool: asyncpg.Pool) -> None:
    """Distributors on the user's own clients, and by URL."""
    distributors: list[IdSegmentDistributor] = [
        OwnDistributor(name="order"),
        MemoryStore().segment_distributor(name="order"),
        RedisStore(client).segment_distributor(namespace="shop", name="order", offset=5, step=1000),
        RedisStore(cluster).segment_distributor(name="order"),
        RedisStore.from_url("redis://localhost").segment_distributor(name="order"),
        PostgresStore(pool).segment_distributor(name="order"),
        PostgresStore.from_url("postgresql://localhost/shop").segment_distributor(name="order"),
        SqliteStore.from_url("sqlite:///ids.db").segment_distributor(name="order"),
    ]
    for distributor in distributors:
        assert_type(await distributor.next_max_id(10), int)


async def generators(clock: Clock) -> None:
    """What every generator offers, in every way to open one."""
    distributor = MemoryStore().segment_distributor(name="order")
    async with SegmentChainId(
        distributor,
        safe_distance=2,
        ttl=60.0,
        wait_timeout=1,
        max_id=2**53 - 1,
        instrument=OwnInstrument(),
        clock=clock,
    ) as chain:
        assert_type(chain, SegmentChainId)
        assert_type(await chain.next_ids(500), list[int])
        try:
            assert_type(chain.next_id_nowait(), int)
        except WouldBlock as error:
            assert_type(error.retryable, bool)
        statistics: Statistics = chain.statistics()
        assert_type(statistics.namespace, str)
        assert_type(chain.statistics().starvations, int)

    generator: IdGenerator = SegmentId(distributor, clock=ManualClock())
    async with anyio.create_task_group() as group:
        await group.start(generator.run)
        await generator.aclose()


async def machines(client: Redis, cluster: RedisCluster, pool: asyncpg.Pool) -> None:
    """Machine ids on the user's own clients, by URL and by hand."""
    stable = InstanceId("web-1:8080", stable=True)
    assert_type(host_port_instance_id("10.0.0.1", 8080), InstanceId)
    distributors: list[MachineIdDistributor] = [
        OwnMachineIdDistributor(instance_id=stable),
        MemoryStore().machine_id_distributor(namespace="shop", instance_id="web-1"),
        RedisStore(client).machine_id_distributor(instance_id=stable, safe_guard=120, interval=10),
        RedisStore(cluster).machine_id_distributor(),
        RedisStore.from_url("redis://localhost").machine_id_distributor(),
        PostgresStore(pool).machine_id_distributor(),
        PostgresStore.from_url("postgresql://localhost/shop").machine_id_distributor(),
        SqliteStore.from_url("sqlite:///ids.db").machine_id_distributor(),
        ManualMachineIdDistributor(7, worker=1, worker_bits=2, state_dir="state"),
        StatefulSetMachineIdDistributor(pod_name="web-3"),
    ]
    for distributor in distributors:
        grant = await distributor.distribute(10, now_ms=0, latest_ms=0)
        assert_type(grant.machine_id, int)


async def snowflakes(clock: Clock) -> None:
    """Generators that share a lease, and what they tell."""
    lease = MachineIdLease(
        MemoryStore().machine_id_distributor(),
        bits=COSID_MS.machine_bits,
        on_lost="raise",
        clock=clock,
    )
    async with (
        lease,
        SnowflakeId(lease, name="order", broken_threshold=None, instrument=OwnInstrument()) as ids,
    ):
        assert_type(ids, SnowflakeId)
        assert_type(ids.layout, SnowflakeLayout)
        assert_type(await ids.next_ids(500), list[int])
        assert_type(ids.next_id_nowait(), int)
        assert_type(ids.statistics(), SnowflakeStatistics)
        assert_type(ids.statistics().machine, MachineIdStatistics)
        assert_type(lease.statistics().machine_id, int | None)
        assert_type(lease.statistics().last_error, Exception | None)
    generator: IdGenerator = SnowflakeId(
        MemoryStore().machine_id_distributor(), layout=LAYOUTS["leaf"]
    )
    async with anyio.create_task_group() as group:
        await group.start(generator.run)
        await generator.aclose()

    text: CosIdText = CosIdFriendlyText(zone="UTC", pad=True)
    async with CosIdGenerator(MemoryStore().machine_id_distributor(), text=text) as texts:
        assert_type(texts, CosIdGenerator)
        assert_type(await texts.next_id(), str)
        assert_type(await texts.next_ids(2), list[str])
        assert_type(texts.next_id_nowait(), str)
        assert_type(await texts.next_state(), CosIdState)


def layouts(snowflake_id: int) -> type[Warning]:
    """Bits of one's own, and what an id says."""
    own = SnowflakeLayout(41, 10, 12, "ms", datetime(2026, 1, 1, tzinfo=UTC), region_bits=5)
    assert_type(own.machine_of(region=1, worker=2), int)
    assert_type(SnowflakeLayout(39, 8, 16, timedelta(seconds=1), 0), SnowflakeLayout)
    assert_type(sharded(0), SnowflakeLayout)
    assert_type(own.last_instant, datetime | None)
    parts = own.parse(snowflake_id)
    assert_type(parts, SnowflakeParts)
    assert_type(parts.timestamp, datetime)
    assert_type(parts.region, int | None)
    friendly = FriendlyText(own, zone="Asia/Shanghai")
    assert_type(friendly.as_id(friendly.as_text(snowflake_id)), int)
    assert_type(RADIX36.as_state(RADIX62.as_text(CosIdState(0, 1, 2))), CosIdState)
    return LayoutExpiryWarning


async def applications(chain: SegmentChainId, days: GroupedSegmentId) -> None:
    """Text, groups, settings, threads, shards."""
    text = StringIdGenerator(chain, PrefixIdConverter("O-", Radix62IdConverter()))
    assert_type(await text.next_id(), str)
    assert_type(text.converter.as_int("O-1"), int)
    assert_type(GroupBy.day(zone="UTC"), GroupBy)
    assert_type(await days.next_id(), int)
    assert_type(await days.with_group.next_ids(2), list[GroupedId])
    assert_type((await days.with_group.next_id()).group, str)
    async with aiocosid.configure({"store": "memory://"}) as ids:
        assert_type(ids, ConfiguredProvider)
        assert_type(ids.share, AnyGenerator)
    assert_type(await aiocosid.ensure_ids([object()]), int)
    threads = SyncIdGenerator(lambda: chain)
    assert_type(threads.next_id(), int)
    assert_type(SyncIdGenerator(lambda: text).next_ids(2), list[str])
    assert_type(ModCycle(4, "order_").exact(5), str)
    assert_type(ModCycle(4, "order_").range(ShardRange.closed(1, 2)), tuple[str, ...])


async def others(counter: IdSegmentDistributor, stores: list[Store], redis: Redis) -> None:
    """What other systems do."""
    async with LeafSegmentId(counter, prefetch_at=0.2) as leaf:
        assert_type(leaf, LeafSegmentId)
        assert_type(await leaf.next_ids(3), list[int])
    async with CachedSnowflakeId(ManualMachineIdDistributor(7), boost=4) as cached:
        assert_type(await cached.next_id(), int)
    layout = ShardedLayout(datetime(2019, 1, 1, tzinfo=UTC))
    assert_type(layout.compose(1_700_000_000, 7, 42), int)
    assert_type(layout.parse(1), ShardedParts)
    sequences = RedisStore(redis).sequence_distributor(name="order")
    async with ShardedId(sequences, layout=layout, on_unavailable="wait") as orders:
        assert_type(await orders.next_id(7), int)
        assert_type(await orders.next_str(7, prefix="O"), str)
    async with ShardedId(MemoryStore().sequence_distributor(name="order")) as tested:
        assert_type(tested.layout, ShardedLayout)
    in_file = SqliteStore.from_url("sqlite:///ids.db").sequence_distributor(name="order", margin=1)
    assert_type(await in_file.grant(1_700_000_000, 5), SequenceReply)
    async with aiocosid.connect("memory://") as ids:
        assert_type(await ids.sharded("order", tolerance=3), ShardedId)
        texts = await ids.sharded("bill", converter=ShardedTextConverter(layout, "B"))
        assert_type(await texts.next_id(), str)
    assert_type(await StripedStore(stores).set_floor(name="order", above=1), Counter)


def for_threads(provider: aiocosid.sync.SyncProvider[ConfiguredProvider]) -> None:
    """The kinds of `by_url`."""
    assert_type(provider["order", int], SyncIdGenerator[int])
    with aiocosid.sync.connect("sqlite:///ids.db", interval=10) as ids:
        assert_type(ids.segment_chain("order", step=10).next_id(), int)
        assert_type(ids.segment_chain("bill", converter=Radix62IdConverter()).next_id(), str)
        assert_type(ids.uuid7("token"), SyncIdGenerator[str])
        assert_type(ids.uuid4("random", batch=2), SyncIdGenerator[str])
        assert_type(ids.int32("short", batch=10), SyncIdGenerator[int])
        assert_type(ids.uncertainty("t", bits=8, converter=Radix62IdConverter()).next_id(), str)
        assert_type(ids["bill", str].next_id(), str)
        assert_type(ids.add("own", CounterId), SyncIdGenerator[int])
        assert_type(ids.add("text", Uuid7Id), SyncIdGenerator[str])
        orders = ids.sharded("order", sharding_id=7)
        assert_type(orders, SyncShardedId)
        assert_type(orders.next_id(7), int)
        assert_type(orders.next_ids(2, sharding_id=7), list[int])
        assert_type(orders.next_str(7, prefix="O"), str)
        written = ids.sharded("note", converter=Radix62IdConverter())
        assert_type(written, SyncIdGenerator[str])
    assert_type(provider["order", SyncShardedId], SyncShardedId)
    own = SyncShardedId(lambda: ShardedId(MemoryStore().sequence_distributor(name="order")))
    assert_type(own.next_id(), int)


def segment(of: IdSegment) -> None:
    """A range of ids."""
    assert_type(of.max_id, int)
    assert_type(of.step, int)


def errors(error: aiocosid.CosIdError) -> bool:
    """One root, with a fact that all of them have."""
    return error.retryable


def errors_of_snowflakes(error: aiocosid.CosIdError) -> None:
    """What each of them knows."""
    match error:
        case aiocosid.errors.ClockTooManyBackwardsError(backwards=seconds, threshold=_):
            assert_type(seconds, float)
        case aiocosid.errors.ClockTooFarForwardError(forward=seconds, limit=_):
            assert_type(seconds, float)
        case aiocosid.errors.LayoutExpiredError(last_instant=last_instant):
            assert_type(last_instant, str)
        case aiocosid.errors.MachineIdOverflowError(size=_, holders=holders):
            assert_type(holders, tuple[str, ...])
        case aiocosid.errors.MachineIdLostError(namespace=_, machine_id=machine_id):
            assert_type(machine_id, int)
        case aiocosid.errors.MachineIdInUseError(what=what):
            assert_type(what, str)
        case aiocosid.errors.MachineIdUnavailableError(waited=seconds):
            assert_type(seconds, float)
        case aiocosid.errors.CorruptMachineStateError(place=place):
            assert_type(place, str)
        case _:
            pass
