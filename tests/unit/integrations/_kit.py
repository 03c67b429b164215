"""What these tests share: a provider made of any generators, and requests without a server."""

from __future__ import annotations

from typing import Any

import httpx

from aiocosid.abc import AnyGenerator


class Shelf(dict[str, AnyGenerator]):
    """A provider of generators that somebody else opens."""

    def statistics(self) -> dict[str, dict[str, Any]]:
        return {name: each.statistics().as_tree() for name, each in self.items()}


def client(app: Any, **options: Any) -> httpx.AsyncClient:
    """Ask an application in this process; its lifespan is not run."""
    transport = httpx.ASGITransport(app, **options)
    return httpx.AsyncClient(transport=transport, base_url="http://test")
