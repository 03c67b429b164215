"""A provider's kinds of generators, those of the user's own, and where machine ids come from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import anyio
import pytest
from anyio.lowlevel import checkpoint

import aiocosid
from aiocosid import MachineIdLease, SegmentChainId, SegmentId, StringIdGenerator
from aiocosid.abc import IdGenerator, Statistics
from aiocosid.converter import (
    GroupedPrefixIdConverter,
    PrefixIdConverter,
    Radix62IdConverter,
    ToStringIdConverter,
)
from aiocosid.errors import (
    BusyError,
    ClosedError,
    InvalidArgumentError,
    MachineIdLostError,
    SegmentUnavailableError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from aiocosid.generators import (
    CounterId,
    IntegerIdGenerator,
    UncertaintyIdGenerator,
    Uuid4Id,
    Uuid7Id,
)
from aiocosid.machine import ManualMachineIdDistributor, StatefulSetMachineIdDistributor
from aiocosid.segment import GroupBy, LeafSegmentId, RemoteId
from aiocosid.segment.blocks import Block
from aiocosid.snowflake import (
    COSID_S,
    JAVASCRIPT_SAFE_MS,
    CachedSnowflakeId,
    ShardedId,
    ShardedLayout,
)
from aiocosid.stores.memory import MemorySequenceDistributor, MemoryStore
from aiocosid.stores.striped import StripedStore
from aiocosid.testing import ManualClock

from ._kit import tasks

LAYOUT = ShardedLayout(datetime(2019, 1, 1, tzinfo=UTC))


class Granting(MemoryStore):
    """A memory store that grants sequences of a second, as Redis does."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, Any] = {}
        self.taken: dict[str, int] = {}

    def sequence_distributor(self, *, margin: int = 1, **about: Any) -> MemorySequenceDistributor:
        self.asked = {"margin": margin, **about}
        return MemorySequenceDistributor(**about)

    async def take_block(self, name: str, count: int) -> Block:
        """Grant ids of a generator, as a server does."""
        first = 1 + self.taken.get(name, 0)
        self.taken[name] = first + count - 1
        return Block([range(first, first + count)], None)


class Strange(IdGenerator):
    """A generator that shares nothing with ours but the contract."""

    def __init__(self, *, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.told: list[str] = []

    async def __aenter__(self) -> Self:
        self.told.append("opened")
        if self.refusal is not None:
            raise self.refusal
        return self

    async def next_id(self) -> int:
        return 7

    async def next_ids(self, n: int) -> list[int]:
        return [7] * n

    def next_id_nowait(self) -> int:
        return 7

    def statistics(self) -> Statistics:
        return Statistics(kind="Strange", namespace="", name="")

    async def run(self, *, task_status: Any = None) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.told.append("closed")


# Kinds.


async def test_each_kind_is_one_generator_under_its_name() -> None:
    async with aiocosid.connect(Granting(), namespace="shop") as ids:
        made: dict[str, tuple[Any, type[Any]]] = {
            "leaf": (await ids.leaf_segment("leaf", step=10, prefetch_at=0.5), LeafSegmentId),
            "cached": (await ids.cached_snowflake("cached", boost=4), CachedSnowflakeId),
            "sharded": (await ids.sharded("sharded", layout=LAYOUT), ShardedId),
            "remote": (await ids.remote("remote", block=50), RemoteId),
            "uuid7": (await ids.uuid7("uuid7"), Uuid7Id),
            "counter": (await ids.counter("counter"), CounterId),
        }
        for name, (generator, kind) in made.items():
            assert type(generator) is kind
            assert ids[name] is generator
            assert generator.statistics().namespace == "shop"
            assert generator.statistics().name == name
            first: Any = await generator.next_id()
            assert first < await generator.next_id()
        assert await ids.leaf_segment("leaf", step=10) is made["leaf"][0]
        assert made["cached"][0].statistics().capacity == 8192 << 4
        for ask in (
            ids.leaf_segment("leaf", step=20),
            ids.segment("leaf", step=10),
            ids.snowflake("cached"),
            ids.cached_snowflake("cached", layout=COSID_S),
            ids.sharded("sharded", layout=LAYOUT, sharding_id=1),
            ids.counter("uuid7"),
            ids.counter("remote"),
            ids.remote("uuid7"),
            ids.uuid7("leaf"),
        ):
            with pytest.raises(BusyError, match="take another name for"):
                await ask
    for generator, _ in made.values():
        with pytest.raises(ClosedError):
            await generator.next_id()
    assert tasks() == []


async def test_kinds_around_a_counter(namespace: str) -> None:
    """They count on where another of that name has ended, and close what is inside."""
    text = ToStringIdConverter()
    async with aiocosid.connect("memory://", namespace=namespace) as ids:
        short = await ids.int32("order", step=10, kind="segment")
        assert (type(short), type(short.inner)) == (IntegerIdGenerator, SegmentId)
        assert await short.next_ids(3) == [1, 2, 3]
        assert await ids.int32("order", step=10, kind="segment") is short
        assert short.statistics().actual.name == "order"
        blurred = await ids.uncertainty("token", bits=8, step=10)
        assert (type(blurred), type(blurred.inner)) == (UncertaintyIdGenerator, SegmentChainId)
        assert [each >> 8 for each in await blurred.next_ids(2)] == [1, 2]
        for clash in (
            ids.int32("order", step=10),
            ids.int32("order", step=20, kind="segment"),
            ids.segment("order", step=10),
            ids.uncertainty("token", bits=9, step=10),
            ids.int32("order", step=10, kind="segment", converter=text),
        ):
            with pytest.raises(BusyError, match="take another name for"):
                await clash
        with pytest.raises(InvalidArgumentError, match="'chain', 'segment'"):
            await ids.int32("ring", kind="ring")  # type: ignore[call-overload]
        with pytest.raises(InvalidArgumentError, match="1 to 62"):
            await ids.uncertainty("other", bits=63)
        assert await (await ids.int32("text", converter=text)).next_id() == "1"
        await ids.remove("order")
        assert await (await ids.segment("order", step=10)).next_id() == 11
    with pytest.raises(ClosedError):
        await blurred.next_id()
    assert tasks() == []


async def test_random_bits_are_frozen_in_the_store() -> None:
    """Those of another process too, by whatever door: 1 with 2 bits may be 2 with one."""
    async with MemoryStore() as store:
        async with aiocosid.connect(store, namespace="shop") as ids:
            await (await ids.uncertainty("token", bits=8)).next_id()
            await (await ids.uncertainty("other", bits=9)).next_id()
        for _ in range(2):
            async with aiocosid.connect(store, namespace="shop") as ids:
                with pytest.raises(
                    InvalidArgumentError, match="must be 8, not 9: the store records"
                ):
                    await ids.uncertainty("token", bits=9)
        inner = SegmentChainId(store.segment_distributor(namespace="shop", name="token"))
        blurred = UncertaintyIdGenerator(inner, 4, store=store)
        with pytest.raises(InvalidArgumentError, match="must be 8, not 4"):
            await blurred.run()
        async with aiocosid.connect(store, namespace="shop") as ids:
            assert await (await ids.uncertainty("token", bits=8)).next_id() >> 8 > 1
    assert tasks() == []


async def test_random_uuids() -> None:
    async with aiocosid.connect("memory://", namespace="shop") as ids:
        tokens = await ids.uuid4("token")
        assert type(tokens) is Uuid4Id
        assert tokens.statistics().namespace == "shop"
        assert UUID(await ids["token", str].next_id()).version == 4
        assert await ids.uuid4("token") is tokens
        with pytest.raises(BusyError, match="take another name for"):
            await ids.uuid7("token")


async def test_only_threads_take_a_batch() -> None:
    async with aiocosid.connect("memory://") as ids:
        with pytest.raises(TypeError, match="batch"):
            await ids.segment("order", batch=10)  # type: ignore[call-overload]


async def test_the_arguments_of_a_kind_are_its_own() -> None:
    async with aiocosid.connect("memory://") as ids:
        make: Any = ids.counter
        for given in (("a", Radix62IdConverter()), ("a", None), ()):
            with pytest.raises(TypeError, match=r"counter\(\) .*name"):
                await make(*given)
        with pytest.raises(TypeError, match="converter"):
            await make("a", converter=Radix62IdConverter())
        with pytest.raises(TypeError, match="name"):
            await make("a", name="b")


async def test_ids_with_a_shard_take_what_the_store_is_told() -> None:
    """And their lane, if they are to have one, from machine ids of the store."""
    store = Granting()
    options: dict[str, Any] = {"on_unavailable": "lane", "max_sequence": 400_000, "margin": 3}
    async with aiocosid.connect(store, namespace="shop", instance_id="me") as ids:
        orders = await ids.sharded("order", layout=LAYOUT, sharding_id=7, **options)
        assert LAYOUT.parse(await orders.next_id()).sharding_id == 7
        assert store.asked == {
            "namespace": "shop",
            "name": "order",
            "max_sequence": 400_000,
            "margin": 3,
        }
        [lane] = await store.machines()
        assert (lane.namespace, lane.instance_id) == ("shop.lane", "me")
    async with aiocosid.connect(StripedStore([MemoryStore(), MemoryStore()])) as ids:
        with pytest.raises(UnsupportedByStoreError, match=r"not grant sequences.*SQLite"):
            await ids.sharded("order", layout=LAYOUT)


async def test_ids_with_a_shard_need_no_server_and_no_layout() -> None:
    """The layout is 32, 12 and 19 bits from CosId's epoch."""
    layout = ShardedLayout()
    assert repr(layout) == "<ShardedLayout 32/12/19 from 2019-12-24T16:00:00Z UTC>"
    options: dict[str, Any] = {"margin": 1, "tolerance": 2, "ttl": 600, "key": None}
    async with aiocosid.connect(MemoryStore()) as ids:
        orders = await ids.sharded("order", **options)
        assert orders is await ids.sharded("order", layout=layout)
        assert layout.parse(await orders.next_id(4095)).sharding_id == 4095
        shared = await ids.sharded("shared", key="order<second>")  # what only a server has
        assert layout.parse(await shared.next_id()).sequence == 1
        refused: list[Any] = [4096, -1, True, "7", 1.0]
        for wrong in refused:
            with pytest.raises(InvalidArgumentError, match=r"sharding_id.*0 to 4095"):
                await orders.next_id(wrong)


async def test_a_counter_goes_on_as_long_as_its_provider() -> None:
    """Closed alone or with the provider: its numbers are unique within it."""
    provider = aiocosid.connect("memory://")
    for first in (1, 3):
        async with provider as ids:
            counter = await ids.counter("n")
            assert await counter.next_id() == first
            await counter.aclose()
            assert await (await ids.counter("n")).next_id() == first + 1


# Converters.


async def test_a_converter_writes_the_ids_of_a_name() -> None:
    orders, bills = (
        PrefixIdConverter("O-", Radix62IdConverter()),
        PrefixIdConverter("B-", ToStringIdConverter()),
    )
    day = GroupBy.key(lambda: "20260116")
    async with aiocosid.connect(Granting()) as ids:
        chain = await ids.segment_chain("order", step=10, converter=orders)
        assert type(chain) is StringIdGenerator
        assert await chain.next_id() == "O-00000000001"
        assert await ids.segment_chain("order", step=10, converter=orders) is chain is ids["order"]
        for other in (
            ids.segment_chain("order", step=10),
            ids.segment_chain("order", step=10, converter=bills),
            ids.segment_chain("order", step=20, converter=orders),
        ):
            with pytest.raises(BusyError, match="in use as SegmentChainId with step 10 and Prefix"):
                await other
        daily = GroupedPrefixIdConverter(Radix62IdConverter(char_size=3))
        texts = [
            await ids.segment("a", converter=bills),
            await ids.leaf_segment("b", converter=bills),
            await ids.grouped("c", group_by=day, converter=daily),
            await ids.snowflake("d", converter=bills),
            await ids.cached_snowflake("e", converter=bills),
            await ids.sharded("f", layout=LAYOUT, converter=bills),
            await ids.remote("g", converter=bills),
        ]
        found = [await each.next_id() for each in texts]
        assert found[:3] == ["B-1", "B-1", "20260116-001"]
        assert all(each.startswith("B-") for each in found[3:])


async def test_texts_asked_for_again_repeat_no_id() -> None:
    """The counter beneath is remembered as without a converter."""
    store, bills = MemoryStore(), PrefixIdConverter("B-", ToStringIdConverter())
    async with aiocosid.connect(store) as ids:
        orders = await ids.segment("order", step=10, converter=bills)
        assert len(await orders.next_ids(90)) == 90
        await orders.aclose()
        store._backend._counters.clear()
        with pytest.raises(StoreRolledBackError):
            await (await ids.segment("order", step=10, converter=bills)).next_id()


async def test_groups_as_text_that_went_backwards_are_opened_anew() -> None:
    store, day = MemoryStore(), GroupBy.key(lambda: "20260116")
    daily = GroupedPrefixIdConverter(Radix62IdConverter(char_size=3))
    async with aiocosid.connect(store) as ids:
        orders = await ids.grouped("order", group_by=day, step=10, converter=daily)
        await orders.next_ids(95)
        store._backend._counters.clear()
        with pytest.raises(StoreRolledBackError):
            await orders.next_ids(950)
        await store.set_floor(name="order@20260116", above=1000)
        assert await ids.grouped("order", group_by=day, step=10, converter=daily) is orders
        assert await orders.next_id() == "20260116-0G9"


async def test_a_name_says_which_ids_it_gives() -> None:
    async with aiocosid.connect("memory://", namespace="types") as ids:
        assert await ids.segment_chain("order") is ids["order", int]
        assert await ids.uuid7("token") is ids["token", str]
        for name, kind, said in (
            ("order", str, "a generator whose ids are str"),
            ("token", int, "ids are int"),
            ("token", float, "int or str"),
        ):
            with pytest.raises(InvalidArgumentError, match=said):
                ids[name, kind]  # type: ignore[index]  # the point
        with pytest.raises(KeyError):
            ids["bill", int]


# The user's own.


async def test_a_generator_of_ones_own_lives_as_long_as_the_provider() -> None:
    distributor = MemoryStore().segment_distributor(name="bill")
    bills, strange = SegmentChainId(distributor), Strange()
    provider = aiocosid.connect("memory://", namespace="own")
    for _ in range(2):
        async with provider as ids:
            assert await ids.add("bill", bills) is bills is ids["bill"]
            assert await ids.add("seven", strange) is strange
            assert await ids.add("bill", bills) is bills
            assert await bills.next_id() > 0
            assert [*ids] == ["bill", "seven"]
            assert ids.statistics()["seven"]["kind"] == "Strange"
        with pytest.raises(ClosedError):
            await bills.next_id()
        assert [*ids] == []
    assert strange.told == ["opened", "closed"] * 2
    assert tasks() == []


async def test_a_name_has_one_generator_whosever_it_is() -> None:
    async with aiocosid.connect("memory://", namespace="own-names") as ids:
        token = await ids.add("token", Uuid4Id())
        with pytest.raises(BusyError, match="'token' is in use as a generator of your own"):
            await ids.add("token", Uuid4Id())
        with pytest.raises(BusyError, match="take another name for Uuid7Id with no settings"):
            await ids.uuid7("token")
        await ids.uuid7("seven")
        with pytest.raises(BusyError, match="in use as Uuid7Id"):
            await ids.add("seven", Uuid4Id())
        with pytest.raises(BusyError, match="open already"):
            await ids.add("again", token)
        with pytest.raises(InvalidArgumentError, match=r"generator must be .*, not 7"):
            await ids.add("none", 7)  # type: ignore[type-var]  # the point
        assert [*ids] == ["token", "seven"]
        assert len(await token.next_id()) == 36


async def test_one_that_does_not_open_is_not_added() -> None:
    """Nor does one that does not close keep the others open."""
    broken = StoreUnavailableError("store", "no")
    refusing, failing, store = Strange(refusal=broken), Strange(), MemoryStore()

    async def fail() -> None:
        raise broken

    failing.aclose = fail  # type: ignore[method-assign]  # the point
    ids = aiocosid.connect(store)
    await ids.__aenter__()
    with pytest.raises(StoreUnavailableError):
        await ids.add("bill", refusing)
    assert ([*ids], refusing.told) == ([], ["opened"])
    other = await ids.add("other", Strange())
    chain = await ids.segment_chain("order")
    await ids.add("bill", failing)
    with pytest.raises(StoreUnavailableError):
        await ids.aclose()
    assert other.told == ["opened", "closed"]
    with pytest.raises(ClosedError):
        await chain.next_id()
    assert tasks() == []


async def test_removing_closes_and_frees_the_name() -> None:
    """Of any kind, and while others go on; what comes next is above."""
    async with aiocosid.connect("memory://", namespace="own-removed") as ids:
        orders, strange = await ids.segment_chain("order", step=10), Strange()
        other = await ids.segment_chain("other")
        first = await orders.next_id()
        await ids.add("seven", strange)
        for name in ("order", "seven"):
            await ids.remove(name)
            with pytest.raises(InvalidArgumentError, match="there are 'o"):
                await ids.remove(name)
        assert ([*ids], strange.told) == (["other"], ["opened", "closed"])
        with pytest.raises(ClosedError):
            await orders.next_id()
        assert await (await ids.segment("order", step=5)).next_id() > first
        assert await other.next_id() == 1
    with pytest.raises(ClosedError):
        await ids.remove("other")


class Slow(Strange):
    """One that is open when its gate is."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def __aenter__(self) -> Self:
        await self.gate.wait()
        return await super().__aenter__()


async def test_removing_waits_for_who_is_opening() -> None:
    slow = Slow()
    async with aiocosid.connect("memory://") as ids, anyio.create_task_group() as group:
        group.start_soon(ids.add, "slow", slow)
        await checkpoint()
        group.start_soon(ids.remove, "slow")
        await checkpoint()
        slow.gate.set()
    assert slow.told == ["opened", "closed"]


async def test_closing_leaves_nothing_open_that_was_just_being_added() -> None:
    slow, ids = Slow(), aiocosid.connect("memory://")
    await ids.__aenter__()
    async with anyio.create_task_group() as group:

        async def add() -> None:
            with pytest.raises(ClosedError):
                await ids.add("slow", slow)

        group.start_soon(add)
        await checkpoint()
        await ids.aclose()
        slow.gate.set()
    assert slow.told == ["opened", "closed"]


# Machine ids.


async def test_machine_ids_that_somebody_has_chosen(tmp_path: Path) -> None:
    """For all generators of a provider, or for one of them; the store is asked for none."""
    store = MemoryStore()
    manual = ManualMachineIdDistributor(3, namespace="chosen", state_dir=tmp_path)
    pod = StatefulSetMachineIdDistributor(pod_name="web-5", namespace="pod", state_dir=tmp_path)
    async with aiocosid.connect(store, machine=manual) as ids:
        orders, users = await ids.snowflake("order"), await ids.snowflake("user")
        events = await ids.snowflake("event", machine=pod, layout=JAVASCRIPT_SAFE_MS)
        assert orders.layout.parse(await orders.next_id()).machine_id == 3
        assert users.layout.parse(await users.next_id()).machine_id == 3
        assert events.layout.parse(await events.next_id()).machine_id == 5
        assert list(await store.machines()) == []
        leased = await ids.snowflake("leased", machine=None)
        assert leased.layout.parse(await leased.next_id()).machine_id == 0
        with pytest.raises(
            InvalidArgumentError, match="interval 9 cannot be combined with machine"
        ):
            await ids.snowflake("other", interval=9)
    async with MachineIdLease(ManualMachineIdDistributor(7, state_dir=tmp_path)) as lease:
        async with aiocosid.connect(store, machine=lease) as ids:
            await (await ids.snowflake()).next_id()
            with pytest.raises(InvalidArgumentError, match="on_lost"):
                await ids.snowflake("other", on_lost="raise")
        assert lease.statistics().seconds_left > 0, "it is whose it was before"
    assert tasks() == []


async def test_a_lease_has_the_terms_that_it_is_given() -> None:
    """By the provider, or by its first generator; others have to agree."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    provider = aiocosid.connect(
        store, instance_id="me", safe_guard=120, interval=10, lead=30, on_lost="raise", clock=clock
    )
    async with provider as ids:
        orders = await ids.snowflake("order")
        await ids.snowflake("user", interval=10, lead=30.0, instance_id="me")
        wrong: tuple[dict[str, Any], ...] = (
            {"safe_guard": 300},
            {"interval": 20},
            {"lead": 40},
            {"on_lost": "redistribute"},
            {"peer_safe_guard": 60},
            {"instance_id": "you"},
        )
        for terms in wrong:
            [(name, value)] = terms.items()
            with pytest.raises(
                InvalidArgumentError,
                match=r"must be .*, not .*: the machine id of 'cosid' is leased with it",
            ):
                await ids.snowflake("other", **terms)
            assert name not in ids, value
        [machine] = await store.machines()
        assert machine.instance_id == "me"
        await store.evict_machine(machine_id=0)
        await clock.advance(60)
        with pytest.raises(MachineIdLostError):
            await orders.next_id()
    async with aiocosid.connect(store, namespace="other", clock=clock) as ids:
        await ids.snowflake("order", interval=20)
        with pytest.raises(InvalidArgumentError, match="interval must be 20, not 30"):
            await ids.snowflake("user", interval=30)


async def test_what_does_not_go_with_a_chosen_machine_id_is_refused(tmp_path: Path) -> None:
    manual = ManualMachineIdDistributor(3, state_dir=tmp_path)
    with pytest.raises(InvalidArgumentError, match="safe_guard"):
        aiocosid.connect("memory://", machine=manual, safe_guard=60)
    with pytest.raises(TypeError, match="machine_bits"):
        aiocosid.connect("memory://", machine_bits=7)  # type: ignore[call-arg]  # the point
    async with aiocosid.connect("memory://", machine=7) as ids:  # type: ignore[arg-type]  # likewise
        with pytest.raises(InvalidArgumentError, match=r"machine must be .*, not 7"):
            await ids.snowflake()


async def test_the_successor_of_a_remote_generator_goes_on_above_it() -> None:
    """Whatever the server answers."""
    store = Granting()
    store.taken["event"] = 10**6
    async with aiocosid.connect(store) as ids:
        last = (await (await ids.remote("event")).next_ids(500))[-1]
        await ids.remove("event")
        store.taken["event"] = 0
        with pytest.raises(SegmentUnavailableError, match="must be above"):
            await ids.remote("event", wait_timeout=0.1)
        store.taken["event"] = last + 10**6
        assert await (await ids.remote("event")).next_id() > last
