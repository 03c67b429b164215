"""Statistics and health behind a plain uvicorn, without any framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import aiocosid
from aiocosid.integrations.asgi import HealthApp, StatisticsApp

from ._web import serve

pytestmark = [pytest.mark.integration]


class Bare:
    """An ASGI application written by hand: a lifespan, and one path for health."""

    def __init__(self, ids: aiocosid.IdProvider) -> None:
        self._ids = ids
        self._health, self._statistics = HealthApp(ids), StatisticsApp(ids)

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]
    ) -> None:
        if scope["type"] == "lifespan":
            await receive()
            async with self._ids:
                await self._ids.segment_chain("order/2026 ä")
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        app = self._health if scope["path"].endswith("/health") else self._statistics
        await app(scope, receive, send)


def test_it_serves_below_a_root_path(namespace: str) -> None:
    ids = aiocosid.connect("memory://", namespace=namespace)
    with serve(Bare(ids), root_path="/api") as client:
        assert set(client.get("/").json()) == {"order/2026 ä"}
        for path in ("/order%2F2026%20%C3%A4", "/order/2026%20%C3%A4"):
            assert client.get(path).json()["namespace"] == namespace
        head = client.head("/")
        assert (head.status_code, head.content) == (200, b"")
        assert client.get("/gone").status_code == 404
        assert client.delete("/order%2F2026%20%C3%A4").headers["allow"] == "GET, HEAD"
        assert client.get("/health").json()["status"] == "up"
