"""The application on the servers that it is configured for."""

import asyncio

import httpx
import pytest
from app import app


@pytest.mark.asyncio
async def test_orders_at_the_same_time_have_different_ids() -> None:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        made = [client.post("/orders", json={"title": "tea"}) for _ in range(50)]
        orders = [answer.json() for answer in await asyncio.gather(*made)]
        assert len({order["id"] for order in orders}) == 50
        assert (await client.get(f"/orders/{orders[7]['id']}")).json() == orders[7]
        assert (await client.get("/orders/7000000")).status_code == 404
        assert (await client.get("/health")).json()["status"] == "up"
