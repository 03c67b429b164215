"""What `configure` builds: opened together, closed together, and the default in between."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from aiocosid import StringIdGenerator, default_provider, generator_named
from aiocosid.abc import AnyGenerator, Provider, Store
from aiocosid.converter import Radix62IdConverter
from aiocosid.errors import (
    ClosedError,
    GeneratorMissingError,
    InvalidArgumentError,
    NotOpenError,
    SchemaMissingError,
    SegmentUnavailableError,
    StoreUnavailableError,
)
from aiocosid.generators import CounterId, IntegerIdGenerator, Uuid7Id
from aiocosid.provider import ConfiguredProvider, configure
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import FailingDistributor, GatedDistributor, ManualClock, settle

from ._kit import Ear, tasks
from .test_provider import Wrapping

SETTINGS: dict[str, Any] = {
    "namespace": "shop",
    "store": "main",
    "stores": {"main": "memory://", "own": "memory:"},
    "share": {"kind": "snowflake", "converter": "radix62"},
    "generators": {
        "order": {"kind": "chain", "step": 10, "offset": 100},
        "bill": {
            "kind": "grouped",
            "group_by": "day",
            "zone": "UTC",
            "group_kind": "segment",
            "converter": {
                "type": "to-string",
                "pad_start": True,
                "char_size": 6,
                "prefix": "B-",
                "group_prefix": {},
            },
        },
        "ticket": {"kind": "segment", "store": "own", "name": "other", "limit": "int32"},
        "token": {"kind": "cosid_text", "namespace": "token", "text": "friendly", "zone": "UTC"},
        "event": {"kind": "snowflake", "layout": "cosid-s"},
    },
    "sharding": {
        "half": {"type": "mod", "mod": 2, "logic-name-prefix": "t_"},
        "monthly": {
            "type": "interval-snowflake",
            "generator": "__share__",
            "logic-name-prefix": "t_",
            "datetime-lower": "2020-01-01 00:00:00",
            "datetime-upper": "2030-01-01 00:00:00",
            "sharding-suffix-pattern": "yyyyMM",
            "datetime-interval-unit": "MONTHS",
            "zone-id": "UTC",
        },
    },
}
NUMBERS = itertools.count()


@pytest.fixture
def settings() -> dict[str, Any]:
    """The settings in a namespace of the test's own: memory is the process's."""
    own = f"shop{next(NUMBERS)}"
    token = {**SETTINGS["generators"]["token"], "namespace": f"{own}.token"}
    generators = {**SETTINGS["generators"], "token": token}
    return {**SETTINGS, "namespace": own, "generators": generators}


AT_MS = 1_768_521_600_000  # 2026-01-16T00:00:00Z


async def test_every_kind_as_it_is_set(settings: dict[str, Any]) -> None:
    """Each generator with its own namespace, store, layout, converter and options."""
    clock, ear = ManualClock(wall_ms=AT_MS), Ear()
    provider = configure(settings, clock=clock, instrument=ear)
    assert isinstance(provider, Provider)
    assert (len(provider), list(provider)[:2]) == (6, ["__share__", "order"])
    with pytest.raises(NotOpenError):
        await provider["order"].next_id()
    json.dumps(provider.statistics())
    async with provider as ids:
        assert ids is provider
        assert await ids["order"].next_id() == 101
        assert await ids["bill"].next_id() == "B-20260116-000001"
        assert await ids["token"].next_id() == "20260116000000000-0000000-00001"
        shared = await ids.share.next_id()
        assert (len(str(shared)), ids.sharding["monthly"].exact(shared)) == (11, "t_202601")
        assert ids.sharding["half"].exact(3) == "t_1"
        assert ids["ticket"].statistics().name == "other"
        tree = json.loads(json.dumps(ids.statistics()))
        with pytest.raises(GeneratorMissingError, match="similar are 'order'; there are "):
            ids["ordr"]
    assert tree["order"]["offset"] == 100
    assert tree["order"]["step"] == 20  # what a chain buys at first
    assert [tree["__share__"][key]["kind"] for key in ("actual", "converter")] == [
        "SnowflakeId",
        "Radix62IdConverter",
    ]
    assert tree["bill"]["converter"]["actual"]["kind"] == "GroupedPrefixIdConverter"
    assert tree["event"]["machine"]["namespace"] == settings["namespace"]
    assert tree["event"]["machineId"] == tree["__share__"]["actual"]["machineId"] == 0
    assert tree["token"]["machine"]["namespace"] == f"{settings['namespace']}.token"
    assert settings["namespace"] in {each.namespace for each in ear.events}
    json.dumps(provider.statistics())
    assert tasks() == []


async def test_it_is_the_default_while_it_is_open(settings: dict[str, Any]) -> None:
    """For what is written before any provider is there; unless that is switched off."""
    provider = configure(settings)
    with pytest.raises(NotOpenError):
        default_provider()
    async with provider:
        assert default_provider() is provider
        assert generator_named("order") is provider["order"]
        assert generator_named() is provider.share
        async with configure(settings, default=False):
            assert default_provider() is provider
        async with configure(settings) as inner:
            assert default_provider() is inner
        assert default_provider() is provider
    with pytest.raises(NotOpenError):
        default_provider()


async def test_its_generators_are_the_same_in_every_life(settings: dict[str, Any]) -> None:
    """Closed, they say so; opened anew, they go on above."""
    provider = configure(settings)
    seen: list[Any] = []
    before = {name: provider[name] for name in provider}
    for _ in range(3):
        async with provider as ids:
            seen += await ids["order"].next_ids(3)
        with pytest.raises(ClosedError, match=r"SegmentChainId shop\d+\.order"):
            await before["order"].next_id()
        assert {name: provider[name] for name in provider} == before
    assert seen == sorted(set(seen))
    await provider.aclose()


async def test_all_of_it_runs_in_one_root(settings: dict[str, Any]) -> None:
    """Generators and leases start no root of their own."""
    async with configure(settings):
        names = [each.get_name() for each in asyncio.all_tasks()]
    assert [each for each in names if each.startswith("aiocosid ") and " guard " not in each] == [
        "aiocosid ConfiguredProvider"
    ]


def chains(store: Store, *names: str, **options: Any) -> dict[str, SegmentChainId]:
    """Return chains on one store, by name."""
    return {
        name: SegmentChainId(store.segment_distributor(namespace="shop", name=name), **options)
        for name in names
    }


async def test_they_are_opened_at_once() -> None:
    """No generator waits for another one's store."""
    store = Wrapping(GatedDistributor)
    provider = ConfiguredProvider(chains(store, "a", "b", "c"))
    opening = asyncio.ensure_future(provider.__aenter__())
    await settle()
    assert [made[0].calls for made in store.made.values()] == [1, 1, 1]
    for [gate] in store.made.values():
        gate.open()
    await opening
    await provider.aclose()


@pytest.mark.parametrize("way", ["async with", "run"])
async def test_one_that_cannot_be_opened_is_named(way: str) -> None:
    """With the store's own error as before; the others are closed, and so is the store."""
    clock, store = ManualClock(), Wrapping(FailingDistributor)
    found = chains(store, "good", "bad", clock=clock, wait_timeout=1)
    store.made["bad"][0].fail(SchemaMissingError("PostgreSQL", table="cosid"))
    provider = ConfiguredProvider(found, stores=[store], clock=clock)
    with pytest.raises(SchemaMissingError) as caught:
        await (provider.__aenter__() if way == "async with" else provider.run())
    assert str(caught.value).startswith("generator 'bad' could not be opened: PostgreSQL: table")
    assert caught.value.table == "cosid"
    for each in found.values():
        with pytest.raises((ClosedError, NotOpenError)):
            await each.next_id()
    with pytest.raises(NotOpenError):
        default_provider()
    assert (store.closed, tasks()) == (1, [])


async def test_one_that_cannot_be_opened_keeps_nobody_waiting() -> None:
    """The others are not waited for, however long their stores take."""
    clock, store = ManualClock(), Wrapping(FailingDistributor)
    found = chains(store, "slow", "bad", clock=clock)
    store.made["slow"][0].fail()  # tried again and again, as time goes on
    store.made["bad"][0].fail(SchemaMissingError("PostgreSQL", table="cosid"))
    opening = asyncio.ensure_future(ConfiguredProvider(found, clock=clock).__aenter__())
    await settle()
    assert opening.done()
    assert isinstance(opening.exception(), SchemaMissingError)


async def test_the_cause_comes_along() -> None:
    """An outage: the wait's error, with the store's as its cause."""
    clock, store = ManualClock(), Wrapping(FailingDistributor)
    found = chains(store, "bad", clock=clock, wait_timeout=1)
    store.made["bad"][0].fail()
    provider = ConfiguredProvider(found, clock=clock)
    opening = asyncio.ensure_future(provider.__aenter__())
    await clock.advance(1.1)
    with pytest.raises(SegmentUnavailableError, match="generator 'bad'") as caught:
        await opening
    assert isinstance(caught.value.__cause__, StoreUnavailableError)


async def test_all_stores_are_closed_though_one_fails() -> None:
    """And whoever closes hears of it."""

    class Broken(Wrapping):
        async def aclose(self) -> None:
            await super().aclose()
            raise StoreUnavailableError("test", "gone")

    stores = [Broken(), Wrapping()]
    provider = ConfiguredProvider({}, stores=stores)
    await provider.__aenter__()
    with pytest.raises(StoreUnavailableError):
        await provider.aclose()
    assert [store.closed for store in stores] == [1, 1]


async def test_a_cancelled_opening_leaves_nothing() -> None:
    """Whoever starts the application gives up."""
    store = Wrapping(GatedDistributor)
    provider = ConfiguredProvider(chains(store, "a", "b"), stores=[store], close_timeout=0.01)
    opening = asyncio.ensure_future(provider.__aenter__())
    await settle()
    opening.cancel()
    for [gate] in store.made.values():
        gate.open()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert (store.closed, tasks()) == (1, [])
    with pytest.raises(NotOpenError):
        default_provider()


async def test_closed_while_it_opens() -> None:
    """At whatever moment: no generator is left open, no task, no default; the opener is told."""
    outcomes = set[str]()
    for turns in range(40):
        store = Wrapping(GatedDistributor)
        found = chains(store, "a", "b")
        provider = ConfiguredProvider(found)
        if turns % 2:
            for [gate] in store.made.values():
                gate.open()
        opening = asyncio.ensure_future(provider.__aenter__())
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(provider.aclose())
        await settle()
        for [gate] in store.made.values():
            gate.open()
        await closing
        try:
            await opening
            outcomes.add("open")
        except ClosedError as error:
            outcomes.add(str(error).partition(" ")[0])
        else:
            await provider.aclose()  # where nothing was there to close yet
        for each in found.values():
            with pytest.raises((ClosedError, NotOpenError)):
                await each.next_id()
        with pytest.raises(NotOpenError):
            default_provider()
        assert tasks() == [], turns
    assert outcomes == {"open", "ConfiguredProvider"}


async def test_closed_while_a_generators_own_life_ends() -> None:
    """One that has ended by itself is closed first; meanwhile its provider may be closed too."""
    outcomes = set[bool]()
    for turns in range(12):
        found = chains(MemoryStore(), "a")
        provider = ConfiguredProvider(found)
        await found["a"].__aenter__()
        found["a"]._retire(ClosedError("an earlier life"))  # as after a roll-back
        opening = asyncio.ensure_future(provider.__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        await provider.aclose()
        [told] = await asyncio.gather(opening, return_exceptions=True)
        outcomes.add(isinstance(told, ClosedError))
        if turns == 0:
            await provider.aclose()
        with pytest.raises(ClosedError):
            await found["a"].next_id()
        await found["a"].aclose()  # an earlier life that the provider had not come to
        assert tasks() == [], turns
    assert outcomes == {True, False}


class Owned(CounterDistributor):
    """A distributor that has something of its own to close."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        if self.name == "broken":
            raise StoreUnavailableError("test", "gone")


async def test_what_generators_own_is_closed_with_them() -> None:
    """A user's own distributors, as by closing each generator; the stores come after."""
    made: list[Owned] = []

    def own(**about: Any) -> Owned:
        made.append(Owned(MemoryStore()._backend, **about))
        return made[-1]

    store = Wrapping()
    grouped = GroupedSegmentId(own, name="g", group_by=GroupBy.day(zone="UTC"))
    found: dict[str, AnyGenerator] = {
        "c": SegmentChainId(own(name="c")),
        "b": SegmentId(own(name="broken")),
        "g": grouped,
    }
    provider = ConfiguredProvider(found, stores=[store])
    await provider.__aenter__()
    with pytest.raises(StoreUnavailableError):
        await provider.aclose()
    used = [each for each in made if each.name != "g"]
    assert (sorted(each.name for each in used), {each.closed for each in used}, store.closed) == (
        sorted({each.name for each in used}),
        {1},
        1,
    )


async def test_a_strangers_exception_is_its_own() -> None:
    """Not wrapped in a group; a note says which generator it was."""

    class Bad(MemoryStore):
        async def aopen(self) -> None:
            raise RuntimeError("boom")

    bad = GroupedSegmentId(Bad(), name="g", group_by=GroupBy.day(zone="UTC"))
    provider = ConfiguredProvider({"bad": bad, **chains(MemoryStore(), "good")})
    with pytest.raises(RuntimeError, match="boom") as caught:
        await provider.__aenter__()
    assert caught.value.__notes__ == ["generator 'bad' could not be opened"]
    assert tasks() == []
    with pytest.raises(NotOpenError):
        default_provider()


async def test_generators_that_need_no_store() -> None:
    """Alone and inside of another one: there is nothing to wait for when they are closed."""
    count, uuids = CounterId(), Uuid7Id()
    async with ConfiguredProvider(
        {
            "count": IntegerIdGenerator(count),
            "uuid": uuids,
            "text": StringIdGenerator(CounterId(), Radix62IdConverter()),
        }
    ) as ids:
        assert await ids["count"].next_id() == 1
        assert len(str(await ids["uuid"].next_id())) == 36
        await ids["text"].next_id()
    for closed in (count, uuids):
        with pytest.raises(ClosedError):
            await closed.next_id()


async def test_a_strangers_generator_is_refused() -> None:
    class Stranger:
        """Neither ours nor around one of ours."""

    with pytest.raises(InvalidArgumentError, match=r"generators\['order'\].*of this library"):
        ConfiguredProvider({"order": Stranger()})  # type: ignore[dict-item]


async def test_random_bits_are_frozen_in_the_store(tmp_path: Any) -> None:
    """Settings with other bits do not open."""

    def settings(bits: int) -> dict[str, Any]:
        token = {"kind": "uncertainty", "bits": bits, "inner": {"kind": "chain"}}
        return {"store": f"sqlite:///{tmp_path}/ids.db", "generators": {"token": token}}

    async with configure({**settings(8), "create": "disposable"}, default=False) as provider:
        assert await provider["token", int].next_id() >> 8 == 1
    with pytest.raises(
        InvalidArgumentError, match="must be 8, not 9: the store records that width"
    ):
        await configure(settings(9), default=False).__aenter__()
    async with configure(settings(8), default=False) as provider:
        assert await provider["token", int].next_id() >> 8 > 1
