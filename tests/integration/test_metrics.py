"""A chain on a real store that hangs, seen by who scrapes it over HTTP from a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import aiocosid
from aiocosid.integrations.prometheus import PrometheusInstrument
from tests.servers import HOST, ValkeyServer, eventually

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def url(registry: CollectorRegistry) -> Iterator[str]:
    """Where prometheus_client's own server shows the registry."""
    server, thread = start_http_server(0, HOST, registry)
    yield f"http://{HOST}:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


async def scrape(client: httpx.AsyncClient, url: str) -> dict[str, float]:
    """All samples, summed over their labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families((await client.get(url)).text):
        for sample in family.samples:
            name = sample.name.removeprefix("aiocosid_")
            found[name] = found.get(name, 0) + sample.value
    return found


async def test_a_store_that_hangs_is_seen(
    valkey_factory: Callable[..., ValkeyServer],
    registry: CollectorRegistry,
    url: str,
    namespace: str,
) -> None:
    """Dry, waiting and failing while it hangs; the latency and the distance when it is back."""
    server, metrics = valkey_factory(), PrometheusInstrument(registry)
    async with (
        httpx.AsyncClient() as client,
        aiocosid.connect(server.url, namespace=namespace, instrument=metrics) as ids,
    ):
        with metrics.watch(ids):
            orders = await ids.segment_chain("order", step=100, fetch_timeout=0.3, wait_timeout=20)

            await until(lambda: orders.statistics().remaining >= 200)
            server.pause()
            taken = 0
            with suppress(aiocosid.WouldBlock):
                while orders.next_id_nowait():
                    taken += 1
            waiting = [asyncio.create_task(orders.next_id()) for _ in range(3)]

            async def is_seen() -> None:
                seen = await scrape(client, url)
                assert seen["callers_waiting"] == 3
                assert seen["starvations_total"] == 1
                assert seen["ids_remaining"] == 0
                assert seen["ids_handed_out_total"] == taken
                assert seen["fetch_failures_total"] > 0

            await eventually(is_seen, KeyError)
            server.resume()
            assert len(set(await asyncio.gather(*waiting))) == 3
            seen = await scrape(client, url)
            assert (seen["callers_waiting"], seen["waits_total"]) == (0, 3)
            assert seen["ids_handed_out_total"] == taken + 3
            assert seen["fetch_duration_seconds_count"] == orders.statistics().fetches
            assert seen["ids_fetched_total"] == orders.statistics().ids_fetched
        assert "callers_waiting" not in await scrape(client, url)
