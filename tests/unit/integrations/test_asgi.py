"""Statistics and health: what they say, and to which requests."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import anyio
import pytest

import aiocosid
from aiocosid.converter import GroupedPrefixIdConverter, Radix62IdConverter, ToStringIdConverter
from aiocosid.errors import (
    NotOpenError,
    SegmentUnavailableError,
    StoreAuthenticationError,
    StoreRolledBackError,
    WrongLoopError,
)
from aiocosid.generators.text import StringIdGenerator
from aiocosid.integrations.asgi import HealthApp, StatisticsApp, check_health
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.segment import GroupBy, GroupedSegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    FailingDistributor,
    FailingStore,
    ManualClock,
    RolledBackDistributor,
    settle,
)

from ._kit import Shelf, client


def counter(step: int = 10) -> Any:
    return MemoryStore().segment_distributor(name="order", step=step)


async def test_all_generators_and_each_by_its_name() -> None:
    async with aiocosid.connect("memory://", namespace="shop") as ids:
        for name in ("order", "order/2026 ä", "100%25"):
            await ids.segment_chain(name)
        await ids.snowflake()
        async with client(StatisticsApp(ids)) as http:
            everything = await http.get("/")
            assert set(everything.json()) == set(ids)
            assert everything.json()["order"] == json.loads(json.dumps(ids.statistics()["order"]))
            assert everything.headers["content-type"] == "application/json"
            assert everything.headers["cache-control"] == "no-store"
            for path, name in {
                "/order": "order",
                "/order/": "order",
                "/order%2F2026%20%C3%A4": "order/2026 ä",
                "/order/2026 ä": "order/2026 ä",
                "/100%2525": "100%25",  # decoded once
                "/__share__": "__share__",
            }.items():
                assert (await http.get(path)).json()["name"] == name, path


async def test_whoever_asks_for_something_else_is_told() -> None:
    async with aiocosid.connect("memory://") as ids, client(StatisticsApp(ids)) as http:
        missing = await http.get("/invoice")
        assert (missing.status_code, missing.json()["detail"]) == (
            404,
            "no generator is named 'invoice'",
        )
        for method in ("POST", "DELETE", "OPTIONS"):
            refused = await http.request(method, "/")
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        whole, head = await http.get("/"), await http.head("/")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))


async def test_it_works_below_a_root_path() -> None:
    async with aiocosid.connect("memory://") as ids:
        await ids.segment_chain("order")
        await ids.segment_chain("s")
        async with client(StatisticsApp(ids), root_path="/api") as http:
            for path in ("/api/order", "/order"):  # some servers cut the root path off, some don't
                assert (await http.get(path)).json()["name"] == "order"
            assert (await http.get("/apis")).status_code == 404
            assert set((await http.get("/api")).json()) == {"order", "s"}


async def test_without_a_provider_it_is_the_default_one() -> None:
    async with client(StatisticsApp()) as statistics, client(HealthApp()) as health:
        assert (await statistics.get("/")).status_code == 503
        nobody = await health.get("/")
        assert nobody.status_code == 503
        assert nobody.json() == {"status": "down", "error": "NotOpenError", "generators": {}}
        async with aiocosid.connect("memory://") as ids:
            with aiocosid.use_provider(ids):
                assert (await statistics.get("/")).json() == {}
                assert (await health.get("/")).json() == {"status": "up", "generators": {}}


async def test_the_protocol_itself() -> None:
    """A client may hide a body after HEAD, and a server cut it off."""
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await HealthApp()({"type": "http", "method": "HEAD", "path": "/"}, receive, send)
    assert sent.pop() == {"type": "http.response.body", "body": b""}
    sent.clear()
    await HealthApp()({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]
    with pytest.raises(NotImplementedError, match="lifespan"):
        await HealthApp()({"type": "lifespan"}, receive, send)


async def test_a_failing_store_degrades_and_then_stops() -> None:
    store, clock = FailingDistributor(counter()), ManualClock()
    async with aiocosid.SegmentChainId(store, safe_distance=1, clock=clock) as chain:
        assert check_health(Shelf(order=chain)).as_tree() == {
            "status": "up",
            "generators": {
                "order": {"status": "up", "error": None, "remaining": 10, "secondsLeft": None}
            },
        }
        store.fail()
        for _ in range(9):
            chain.next_id_nowait()
        await clock.advance(1)
        async with client(HealthApp(Shelf(order=chain))) as http:
            one_left = await http.get("/")
            assert one_left.status_code == 200
            assert one_left.json()["degraded"] == ["order"]
            assert one_left.json()["generators"]["order"] == {
                "status": "degraded",
                "error": "StoreUnavailableError",
                "remaining": 1,
                "secondsLeft": 0.111,
            }
            assert chain.statistics().remaining == 1, "a probe took an id"
            chain.next_id_nowait()
            none_left = await http.get("/")
        assert (none_left.status_code, none_left.json()["status"]) == (503, "down")
        assert "degraded" not in none_left.json()


async def test_a_text_generator_is_as_well_as_what_is_inside() -> None:
    store, clock = FailingDistributor(counter()), ManualClock()
    chain = aiocosid.SegmentChainId(store, safe_distance=1, clock=clock)
    async with StringIdGenerator(chain, Radix62IdConverter()) as texts:
        store.fail()
        await texts.next_ids(9)
        await clock.advance(1)
        assert check_health(Shelf(order=texts)).generators["order"] == {
            "status": "degraded",
            "error": "StoreUnavailableError",
            "remaining": 1,
            "secondsLeft": 0.111,
        }


async def test_an_outage_that_the_reserve_outlasts_is_not_degraded() -> None:
    """Until half of its ``endurance`` is used up."""
    store, clock = FailingDistributor(counter()), ManualClock()
    async with aiocosid.SegmentChainId(store, endurance=20, clock=clock) as chain:

        async def work(seconds: int) -> None:
            for _ in range(10 * seconds):
                await chain.next_ids(10)
                await clock.advance(0.1)

        await work(30)
        store.fail()
        await work(15)
        seen = check_health(Shelf(order=chain)).generators["order"]
        assert (seen["status"], seen["error"]) == ("up", "StoreUnavailableError")
        while (left := chain.statistics().seconds_left or 0) >= 10:
            await work(1)
        assert left > 5
        assert check_health(Shelf(order=chain)).degraded == ["order"]


async def test_a_dry_generator_whose_store_answers_is_well() -> None:
    async with aiocosid.SegmentId(counter(step=1)) as one_by_one:
        assert check_health(Shelf(order=one_by_one)).healthy


async def test_a_probe_takes_no_number_of_a_segment() -> None:
    """Also where none is in hand and the store is in this process."""
    for step in (1, 3):
        async with aiocosid.SegmentId(counter(step)) as plain:
            for due in range(1, 8):
                assert check_health(Shelf(order=plain)).healthy
                assert await plain.next_id() == due
    days = GroupedSegmentId(
        MemoryStore(), name="order", group_by=GroupBy.day(zone="UTC"), step=3, group_kind="segment"
    )
    async with StringIdGenerator(days, GroupedPrefixIdConverter(ToStringIdConverter())) as texts:
        for due in range(1, 8):
            assert check_health(Shelf(order=texts)).healthy
            assert (await texts.next_id()).endswith(f"-{due}")


@pytest.mark.parametrize("kind", ["chain", "segment", "strict", "grouped", "text"])
async def test_without_callers_it_sees_that_the_store_is_back(kind: str) -> None:
    """As behind a balancer, which sends none while the answer is 503."""
    store, clock = FailingStore(), ManualClock()
    given: Any = store.segment_distributor(name="order", step=1)
    made: Any = {
        "chain": lambda: aiocosid.SegmentChainId(given, clock=clock),
        "segment": lambda: aiocosid.SegmentId(given, clock=clock),
        "strict": lambda: aiocosid.SegmentId(given, strict=True, clock=clock),
        "grouped": lambda: GroupedSegmentId(
            store,
            name="order",
            group_by=GroupBy.day(zone="UTC"),
            group_kind="segment",
            step=1,
            clock=clock,
        ),
        "text": lambda: StringIdGenerator(
            aiocosid.SegmentChainId(given, clock=clock), Radix62IdConverter()
        ),
    }
    async with made[kind]() as ids:
        taken = [await ids.next_id()]
        store.fail(StoreAuthenticationError("memory", "refused"))  # its callers do not wait
        with suppress(SegmentUnavailableError):
            while True:
                taken.append(await ids.next_id())
        for _ in range(3):
            assert not check_health(Shelf(order=ids)).healthy
            await clock.advance(30)
        store.recover()
        await clock.advance(30)
        assert not check_health(Shelf(order=ids)).healthy, "nobody has asked since"
        await settle()
        assert check_health(Shelf(order=ids)).healthy
        assert await ids.next_id() not in taken


async def test_a_group_that_has_ended_is_down_for_its_day() -> None:
    clock = ManualClock()
    days = GroupedSegmentId(
        MemoryStore(), name="order", group_by=GroupBy.day(zone="UTC"), max_id=3, clock=clock
    )
    async with days:
        await days.next_ids(3)
        assert check_health(Shelf(order=days)).generators["order"]["error"] == "IdOverflowError"
        await clock.advance(86_400)
        assert check_health(Shelf(order=days)).healthy
    assert check_health(Shelf(order=days)).generators["order"]["error"] == "ClosedError"


async def test_from_another_thread_it_is_the_callers_mistake() -> None:
    async with aiocosid.connect("memory://") as ids:
        await ids.snowflake("order")
        with pytest.raises(WrongLoopError):
            await anyio.to_thread.run_sync(check_health, ids)


async def test_a_generator_that_has_ended_is_down() -> None:
    store = RolledBackDistributor(counter())
    async with aiocosid.SegmentChainId(store, safe_distance=1) as chain:
        store.set_back(1000)
        with pytest.raises(StoreRolledBackError):
            await chain.next_ids(15)
        health = check_health(Shelf(order=chain))
        assert not health.healthy
        assert health.generators["order"]["error"] == "StoreRolledBackError"
    async with aiocosid.SegmentChainId(counter(), max_id=20) as short:
        await short.next_ids(20)
        assert check_health(Shelf(order=short)).generators["order"]["error"] == "IdOverflowError"
    async with aiocosid.SegmentChainId(counter()) as closed:
        pass
    assert check_health(Shelf(order=closed)).generators["order"]["error"] == "ClosedError"


async def test_a_lease_that_ran_out_is_down_and_tells_its_machine_id() -> None:
    clock = ManualClock()
    async with aiocosid.connect("memory://", clock=clock, namespace="lease") as ids:
        await ids.snowflake()
        good = check_health(ids)
        assert good.healthy
        share: dict[str, Any] = good.generators["__share__"]
        assert share["machineId"] == 0
        assert 0 < share["secondsLeft"] <= 300
        clock.stall(301)
        lapsed = check_health(ids)
        assert not lapsed.healthy
        assert lapsed.generators["__share__"]["secondsLeft"] == 0


async def test_an_id_held_by_a_lock_has_no_end(tmp_path: Any) -> None:
    machine = ManualMachineIdDistributor(3, state_dir=tmp_path)
    async with aiocosid.SnowflakeId(machine) as gen:
        tree: dict[str, Any] = check_health(Shelf(order=gen)).as_tree()
        assert tree["generators"]["order"] == {
            "status": "up",
            "error": None,
            "machineId": 3,
            "secondsLeft": None,
        }


async def test_the_report_names_no_host_and_no_user() -> None:
    store, clock = FailingDistributor(counter()), ManualClock()
    async with aiocosid.SegmentChainId(store, safe_distance=1, clock=clock) as chain:
        store.fail(StoreAuthenticationError("postgres", "no password for user app at 10.0.0.7"))
        await chain.next_ids(9)
        await settle()
        report = json.dumps(check_health(Shelf(order=chain)).as_tree())
    assert "StoreAuthenticationError" in report
    assert "app" not in report
    assert "10.0.0.7" not in report


async def test_a_provider_that_was_never_opened() -> None:
    with pytest.raises(NotOpenError):
        aiocosid.default_provider()
    assert check_health(aiocosid.connect("memory://")).generators == {}
