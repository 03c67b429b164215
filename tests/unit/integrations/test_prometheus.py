"""Metrics in a registry of prometheus_client; their page, their dashboard and their alerts."""

from __future__ import annotations

import gc
import os
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

import aiocosid
from aiocosid import MachineIdLease, SnowflakeId, StringIdGenerator
from aiocosid.abc import Statistics
from aiocosid.converter import ToStringIdConverter
from aiocosid.errors import InvalidArgumentError
from aiocosid.integrations.prometheus import PrometheusInstrument
from aiocosid.segment import SegmentStatistics
from aiocosid.snowflake import SnowflakeStatistics
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock
from tests.script import run_python

from ..machine._kit import Link, store_of
from ._told import EVENTS, Picture

ORDER = {"aiocosid_namespace": "shop", "aiocosid_name": "order"}
SHOP = {"aiocosid_namespace": "shop"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_what_events_add(registry: CollectorRegistry) -> None:
    metrics = PrometheusInstrument(registry)
    for event in (*EVENTS, *EVENTS):
        metrics.on_event(event)
    failed = {"error_type": "StoreUnavailableError"}
    for name, labels, value in [
        ("fetch_duration_seconds_count", ORDER, 2),
        ("fetch_duration_seconds_sum", ORDER, 0.008),
        ("fetch_duration_seconds_bucket", {**ORDER, "le": "0.0025"}, 0),
        ("fetch_duration_seconds_bucket", {**ORDER, "le": "0.005"}, 2),
        ("fetch_failures_total", {**ORDER, **failed}, 2),
        ("ids_fetched_total", ORDER, 4000),
        ("ids_discarded_total", {**ORDER, "aiocosid_reason": "cancelled"}, 14),
        ("starvations_total", ORDER, 2),
        ("wait_timeouts_total", ORDER, 2),
        ("clock_backwards_seconds_sum", ORDER, 0.06),
        ("machine_renewal_duration_seconds_sum", SHOP, 0.004),
        ("machine_renewal_failures_total", {**SHOP, **failed}, 2),
        ("machine_distributions_total", SHOP, 2),
        ("machine_losses_total", SHOP, 2),
    ]:
        assert registry.get_sample_value(f"aiocosid_{name}", labels) == value, name
    assert b"10.0.0.1" not in generate_latest(registry)  # another one in each process


def test_counters_for_alerts_begin_at_zero(registry: CollectorRegistry) -> None:
    """A server sees no increase in a series that begins at 1."""
    metrics = PrometheusInstrument(registry)
    for event in EVENTS:
        if type(event).__name__ in {"SegmentFetched", "MachineIdDistributed"}:
            metrics.on_event(event)
        if type(event).__name__ == "SnowflakeOpened":
            metrics.on_event(replace(event, name="event"))
    assert registry.get_sample_value("aiocosid_starvations_total", ORDER) == 0
    assert registry.get_sample_value("aiocosid_wait_timeouts_total", ORDER) == 0
    opened = {**ORDER, "aiocosid_name": "event"}
    assert registry.get_sample_value("aiocosid_wait_timeouts_total", opened) == 0
    assert registry.get_sample_value("aiocosid_machine_losses_total", SHOP) == 0


async def test_what_a_chain_and_a_snowflake_say(registry: CollectorRegistry) -> None:
    """Statistics are there while their provider is watched, and gone afterwards."""
    clock = ManualClock(wall_ms=1_770_000_000_000)
    metrics = PrometheusInstrument(registry)

    def read(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"aiocosid_{name}", {**SHOP, **labels})

    async with aiocosid.connect(MemoryStore(), namespace="shop", clock=clock) as ids:
        with metrics.watch(ids):
            orders = await ids.segment_chain("order", step=10)
            events = await ids.snowflake("event")
            await orders.next_ids(15)
            await events.next_ids(3)
            seen = orders.statistics()
            assert read("ids_handed_out_total", aiocosid_name="order") == 15
            assert read("ids_remaining", aiocosid_name="order") == seen.remaining
            assert read("prefetch_distance", aiocosid_name="order") == seen.prefetch_distance
            assert read("callers_waiting", aiocosid_name="order") == 0
            waited = {"aiocosid_name": "order", "aiocosid_cause": "segment"}
            assert read("waits_total", **waited) == seen.waits
            assert read("ids_time_left_seconds", aiocosid_name="order") is None  # nobody takes any
            assert read("ids_handed_out_total", aiocosid_name="event") == 3
            assert read("machine_id", aiocosid_name="event") == 0
            left = read("machine_lease_left_seconds", aiocosid_name="event")
            assert left is not None
            assert left > 60
            mark = read("machine_fence_timestamp_seconds", aiocosid_name="event")
            assert mark is not None
            assert 1_770_000_000 + 30 <= mark <= 1_770_000_000 + 90
            for cause in ("tick", "clock", "lease"):
                labels = {"aiocosid_name": "event", "aiocosid_cause": cause}
                assert read("waits_total", **labels) == 0
        assert read("ids_remaining", aiocosid_name="order") is None


async def chain_statistics() -> SegmentStatistics:
    async with aiocosid.connect(MemoryStore(), namespace="shop") as ids:
        return (await ids.segment_chain("order", step=10)).statistics()


async def snowflake_statistics() -> SnowflakeStatistics:
    async with aiocosid.connect(MemoryStore(), namespace="shop") as ids:
        return (await ids.snowflake("order")).statistics()


def of(*pictures: Any) -> dict[str, Any]:
    return {f"name {at}": picture for at, picture in enumerate(pictures)}


async def test_two_generators_of_one_name_are_one_series(registry: CollectorRegistry) -> None:
    """Two series with the same labels would spoil the scrape."""
    metrics = PrometheusInstrument(registry)
    one = replace(await chain_statistics(), ids_handed_out=3, remaining=5, seconds_left=2.0)
    two = replace(one, ids_handed_out=4, seconds_left=1.0, prefetch_distance=8)
    held = await snowflake_statistics()
    own = replace(held, machine=replace(held.machine, seconds_left=float("inf"), fence_ms=-1))
    with metrics.watch(of(Picture(one))), metrics.watch(of(Picture(two))):
        text = generate_latest(registry).decode()
        assert text.count("\naiocosid_ids_remaining{") == 1
        for name, value in (
            ("ids_handed_out_total", 7),
            ("ids_remaining", 10),
            ("ids_time_left_seconds", 1),
            ("prefetch_distance", 8),
        ):
            assert registry.get_sample_value(f"aiocosid_{name}", ORDER) == value
    with metrics.watch(of(Picture(replace(own, machine_id=None)))):
        text = generate_latest(registry).decode()
        assert "aiocosid_callers_waiting{" in text
        for name in ("machine_lease_left_seconds", "machine_fence_timestamp_seconds", "machine_id"):
            assert f"aiocosid_{name}{{" not in text


async def test_a_count_never_steps_back() -> None:
    """A thread may read in the middle of a step; the server would take a dip for a start at 0."""
    chain = replace(await chain_statistics(), fetches=4, ids_handed_out=900)
    flake = replace(await snowflake_statistics(), ids_handed_out=900)
    lost = replace(flake.machine, losses=1, machine_id=None)
    moved = replace(flake.machine, losses=1, term=flake.machine.term + 1)
    anew = replace(flake.machine, term=flake.machine.term + 1)
    for begun, *shown in (
        (
            chain,
            replace(chain, ids_handed_out=890),
            replace(chain, fetches=1, ids_handed_out=902),  # opened anew
            ZeroDivisionError(),
        ),
        (
            flake,
            replace(flake, ids_handed_out=0, machine_id=None),  # closed
            replace(flake, machine=anew, ids_handed_out=902),
            ZeroDivisionError(),
        ),
        (
            flake,
            replace(flake, ids_handed_out=900, machine=lost, machine_id=None),
            replace(flake, ids_handed_out=1802, machine=moved),  # another id, the same sequence
            replace(flake, ids_handed_out=1802, machine=moved),
        ),
    ):
        registry = CollectorRegistry()
        metrics = PrometheusInstrument(registry)
        picture, seen = Picture(begun), []
        with metrics.watch(of(picture)):
            for each in (begun, *shown):
                picture.shown = each
                seen.append(registry.get_sample_value("aiocosid_ids_handed_out_total", ORDER))
        assert seen == [900, 900, 1802, 1802]


async def test_a_count_goes_on_when_one_of_several_providers_ends(
    registry: CollectorRegistry,
) -> None:
    """As in a reload; and whatever is watched twice, or as text besides, is one generator."""
    metrics = PrometheusInstrument(registry)

    def handed_out() -> float | None:
        return registry.get_sample_value("aiocosid_ids_handed_out_total", ORDER)

    async with aiocosid.connect(MemoryStore(), namespace="shop", instrument=metrics) as new:
        async with aiocosid.connect(MemoryStore(), namespace="shop") as old:
            orders = await old.segment_chain("order")
            with metrics.watch(old):
                await orders.next_ids(1000)
                assert handed_out() == 1000
                await orders.next_ids(500)  # which nobody has read yet
            assert handed_out() is None
            with metrics.watch(old), metrics.watch(new):
                chain = await new.segment_chain("order")
                await chain.next_ids(20)
                assert handed_out() == 1520
                with metrics.watch(old):
                    pass
                assert handed_out() == 1520
                await (await old.snowflake("event")).next_ids(9)
            del orders
        text = StringIdGenerator(chain, ToStringIdConverter())
        with metrics.watch(new), metrics.watch({"text": text}), metrics.watch(new):
            assert handed_out() == 1520
            remaining = registry.get_sample_value("aiocosid_ids_remaining", ORDER)
            assert remaining == chain.statistics().remaining
            await chain.next_ids(3)
            await chain.aclose()
            await (await new.segment_chain("order")).next_ids(7)
            assert handed_out() == 1530
            await (await new.segment_chain("order")).next_id()
            del chain, text, old
            gc.collect()
        with metrics.watch(new):
            assert handed_out() == 1531
            await (await new.snowflake("event")).next_ids(2)
            event = {**ORDER, "aiocosid_name": "event"}
            assert registry.get_sample_value("aiocosid_ids_handed_out_total", event) == 11


async def test_a_closed_snowflake_has_no_lease_and_a_lapsed_one_has(
    registry: CollectorRegistry,
) -> None:
    """An alert on the mark rings while no renewal is taken, and not for ever after closing."""
    clock = ManualClock(wall_ms=1_770_000_000_000)
    metrics = PrometheusInstrument(registry)
    ends = ("machine_fence_timestamp_seconds", "machine_lease_left_seconds")

    def read() -> list[float | None]:
        return [registry.get_sample_value(f"aiocosid_{name}", ORDER) for name in ends]

    link = Link(store_of(clock), namespace="shop")
    async with (
        MachineIdLease(link, clock=clock) as lease,
        SnowflakeId(lease, name="order", clock=clock) as flake,
    ):
        with metrics.watch({"flake": flake}):
            await flake.next_id()
            assert all(read())
            link.cut()
            await clock.advance(300)
            mark, left = read()
            assert left == 0
            assert mark is not None
            assert mark < clock.now_ms() / 1000
            link.heal()
            await clock.advance(5)
            assert all(read())
            await flake.aclose()
            assert lease.machine_id == 0
            assert read() == [None, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_watches_nothing(registry: CollectorRegistry) -> None:
    """The ids that the parent has in hand are no ids that the child handed out."""
    metrics = PrometheusInstrument(registry)
    async with aiocosid.connect(MemoryStore(), namespace="shop") as ids:
        await (await ids.segment_chain("order")).next_ids(7)
        child = 0
        try:
            with metrics.watch(ids):
                child = os.fork()
                seen = registry.get_sample_value("aiocosid_ids_handed_out_total", ORDER)
            if child == 0:
                os._exit(0 if seen is None else 1)
        finally:
            if child == 0:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once
        assert seen == 7


async def test_a_generator_that_cannot_say_spoils_nothing(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is gone, one that fails, and one beneath a conversion."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TextStatistics(Statistics):
        actual: Statistics

    metrics = PrometheusInstrument(registry)
    inner = replace(await chain_statistics(), remaining=6)
    outer = Picture(TextStatistics(kind="Text", namespace="shop", name="order", actual=inner))
    gone, broken = Picture(KeyError("gone")), Picture(ZeroDivisionError())
    with metrics.watch(of(gone, broken, outer)):
        assert registry.get_sample_value("aiocosid_ids_remaining", ORDER) == 6
        assert registry.get_sample_value("aiocosid_ids_remaining", ORDER) == 6
        assert [record.getMessage() for record in caplog.records] == ["'name 1': no statistics"]
        for broken.shown in (inner, ZeroDivisionError()):
            generate_latest(registry)
    assert len(caplog.records) == 2  # once for each time that it begins to fail


async def test_groups_are_one_series(registry: CollectorRegistry) -> None:
    """Under the generator's own name; the counts of one group after another are no count."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class GroupedStatistics(Statistics):
        group: str
        actual: Statistics

    metrics = PrometheusInstrument(registry)
    inner = replace(await chain_statistics(), name="order@20260116", remaining=6)
    outer = GroupedStatistics(
        kind="Grouped", namespace="shop", name="order", group="20260116", actual=inner
    )
    with metrics.watch(of(Picture(outer))):
        text = generate_latest(registry).decode()
        assert registry.get_sample_value("aiocosid_ids_remaining", ORDER) == 6
    assert "20260116" not in text
    assert "aiocosid_ids_handed_out_total{" not in text
    assert "aiocosid_waits_total{" not in text


def test_one_registry_takes_them_once(registry: CollectorRegistry) -> None:
    """A second one leaves nothing behind, and closing makes room for it."""
    with closing(PrometheusInstrument(registry)) as first:
        before = generate_latest(registry)
        with pytest.raises(InvalidArgumentError, match="share its PrometheusInstrument"):
            PrometheusInstrument(registry)
        assert generate_latest(registry) == before
        first.close()
    assert generate_latest(registry) == b""
    PrometheusInstrument(registry)


def test_a_name_that_is_taken_is_seen_at_once(registry: CollectorRegistry) -> None:
    """Also one that is only shown at a scrape; the others are taken back."""
    Gauge("aiocosid_ids_remaining", "Somebody else's", registry=registry)
    before = generate_latest(registry)
    with pytest.raises(InvalidArgumentError):
        PrometheusInstrument(registry)
    assert generate_latest(registry) == before


@pytest.mark.parametrize(
    ("library", "module"), [("prometheus_client", "prometheus"), ("opentelemetry",) * 2]
)
def test_a_missing_library_names_the_extra(library: str, module: str) -> None:
    code = f"""
import json, sys; sys.modules[{library!r}] = None
try: import aiocosid.integrations.{module}
except ImportError as error: print(json.dumps([type(error).__name__, str(error)]))
"""
    kind, said = run_python(code)
    assert (kind, said.startswith(f"{library} is not installed")) == ("MissingExtraError", True)
    assert f"pip install 'aiocosid[{module}]'" in said


# prometheus_client decides for its multiprocess mode when it is imported.
IN_FILES = """
import asyncio
import os
import sys

import aiocosid
from aiocosid.generators import CounterId
from aiocosid.integrations.prometheus import PrometheusInstrument
from aiocosid.stores.memory import MemoryStore
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

metrics = PrometheusInstrument()
registry = CollectorRegistry()
MultiProcessCollector(registry)

def scraped(name):
    labels = {"aiocosid_namespace": "shop", "aiocosid_name": "order"}
    return registry.get_sample_value(f"aiocosid_{name}", labels)

async def written():
    # The timers of the loop: one while something is to be written, none in an idle process.
    while asyncio.get_running_loop()._scheduled:
        await asyncio.sleep(0.1)

async def main():
    async with aiocosid.connect(MemoryStore(), namespace="shop", instrument=metrics) as ids:
        with metrics.watch(ids):
            orders = await ids.segment_chain("order", step=100)
            for _ in range(7):
                await orders.next_id()
            while scraped("ids_handed_out_total") != 7:
                await asyncio.sleep(0.1)
            await orders.next_ids(5)  # without an event, but while it is busy
            await written()
            assert scraped("ids_handed_out_total") == 12
            assert scraped("ids_remaining") == orders.statistics().remaining
            assert scraped("prefetch_distance") > 0
            await orders.next_ids(30)  # without an event, after a pause
            if "fork" in sys.argv:
                if os.fork() == 0:
                    with metrics.watch({}):
                        os._exit(0)
                os.wait()  # a scrape fails while prometheus_client creates another process's file
        assert scraped("ids_handed_out_total") == 42
        assert scraped("ids_remaining") == 0
        assert scraped("ids_time_left_seconds") in {None, float("inf")}

asyncio.run(main())
print(int(scraped("ids_handed_out_total")))
"""


@pytest.mark.parametrize("options", [[], ["fork"]])
def test_statistics_in_multiprocess_mode(options: list[str], tmp_path: Path) -> None:
    """Another registry reads them from files; no timer stays, and no gauge of what is closed."""
    assert run_python(IN_FILES, *options, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)) == 42
