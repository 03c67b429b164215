"""Metrics on the OpenTelemetry SDK, read by its own reader."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import aiocosid
from aiocosid.abc import Statistics
from aiocosid.integrations.metrics import MEASURED, READ
from aiocosid.integrations.opentelemetry import OpenTelemetryInstrument
from aiocosid.stores.memory import MemoryStore

from ._told import EVENTS, Picture, starved

ORDER = {"aiocosid.namespace": "shop", "aiocosid.name": "order"}


class Meters:
    """A meter provider, and what it collects."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def collected(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        scopes = [s for r in data.resource_metrics for s in r.scope_metrics] if data else []
        assert {s.scope.name for s in scopes} <= {"aiocosid"}
        return {metric.name: metric for s in scopes for metric in s.metrics}

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        found = self.collected().get(name)
        return [(dict(p.attributes or {}), p) for p in found.data.data_points] if found else []


def test_what_events_measure() -> None:
    """All of them, with the name, unit and attributes of the list."""
    meters = Meters()
    instrument = OpenTelemetryInstrument(meters.provider)
    for event in EVENTS:
        instrument.on_event(event)
    found = meters.collected()
    assert set(found) == {metric.name for metric in MEASURED}
    for metric in MEASURED:
        shown = found[metric.name]
        assert (shown.unit, shown.description) == (metric.unit, metric.description)
        assert all({*p.attributes} == {*metric.attributes} for p in shown.data.data_points)
    ((attributes, fetched),) = meters.points("aiocosid.fetch.duration")
    assert (attributes, fetched.count, fetched.sum) == (ORDER, 1, 0.004)
    assert fetched.explicit_bounds[0] == 0.0005
    ((attributes, failures),) = meters.points("aiocosid.fetch.failures")
    assert (attributes, failures.value) == ({**ORDER, "error.type": "StoreUnavailableError"}, 1)
    assert [p.value for _, p in meters.points("aiocosid.starvations")] == [1]


async def test_what_generators_say() -> None:
    meters = Meters()
    instrument = OpenTelemetryInstrument(meters.provider)
    async with (
        starved(instrument) as chain,
        aiocosid.connect(MemoryStore(), namespace="shop") as ids,
    ):
        with instrument.watch(ids), instrument.watch({"mine": chain}):
            await (await ids.snowflake("event")).next_ids(3)
            found = meters.collected()
            missing = {metric.name for metric in READ} - set(found)
            assert missing <= {"aiocosid.ids.time_left"}  # nobody takes any
            for metric in READ:
                shown = found.get(metric.name, metric)
                assert (shown.unit, shown.description) == (metric.unit, metric.description)
            handed_out = {
                a["aiocosid.name"]: p.value for a, p in meters.points("aiocosid.ids.handed_out")
            }
            assert handed_out == {"order": 21, "event": 3}
            assert [(a, p.value) for a, p in meters.points("aiocosid.prefetch.distance")] == [
                (ORDER, 4)
            ]
            causes = {a["aiocosid.cause"]: p.value for a, p in meters.points("aiocosid.waits")}
            assert causes == {"segment": 1, "tick": 0, "clock": 0, "lease": 0}
        assert meters.points("aiocosid.ids.handed_out") == []


async def test_a_collection_reads_each_generator_once() -> None:
    meters, reads = Meters(), 0
    instrument = OpenTelemetryInstrument(meters.provider)
    async with starved(instrument) as chain:

        class Counted(Picture):
            def statistics(self) -> Statistics:
                nonlocal reads
                reads += 1
                return chain.statistics()

        watched: dict[str, Any] = {"mine": Counted(chain.statistics())}
        with instrument.watch(watched):
            for collections in (1, 2, 3):
                remaining = chain.statistics().remaining
                found = [p.value for _, p in meters.points("aiocosid.ids.remaining")]
                assert (found, reads) == ([remaining], collections)
                await chain.next_ids(1)


async def test_without_an_sdk_nothing_happens() -> None:
    """The API alone has meters that do nothing."""
    async with starved(OpenTelemetryInstrument()) as chain:
        assert chain.statistics().starvations == 1
