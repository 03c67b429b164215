"""The id service as CosId's proxy, for clients that do not know whose server it is."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Self

import uvicorn

from aiocosid.abc import MAX_ID
from aiocosid.provider import IdProvider
from aiocosid.server import App, Limits
from aiocosid.server.dialects import cosid
from aiocosid.stores.memory import MemoryStore

from ._process import HOST, free_port, wait_until

START = 30.0  # seconds


class CosIdService:
    """A server on a store in memory; a context manager.

    Attributes:
        url: where it is.
        store: its store.
    """

    def __init__(self) -> None:
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        self.store = MemoryStore()
        asyncio.run(self.store.initialize())
        self._app = App(
            lambda: IdProvider(self.store),
            limits=Limits(step=MAX_ID, safe_guard=0),
            dialects=[cosid.routes],
        )
        config = uvicorn.Config(
            self._app, host=HOST, port=port, lifespan="on", ws="none", log_config=None
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="cosid service")

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started, "the service starts", deadline=START)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(START)

    def set_counter(self, name: str, to: int) -> None:
        """Write a counter in the store, and let the server forget what it has seen."""
        self.store._backend._counters[name] = to
        self._app.service._counters.clear()

    def age(self, namespace: str, seconds: float) -> None:
        """Make the last renewal of all machine ids of a namespace older."""
        age(self.store, namespace, seconds)


def age(store: MemoryStore, namespace: str, seconds: float) -> None:
    """Make the last renewal of all machine ids of a namespace older, and a quarantine."""
    cells, older = store._backend.cells[namespace], int(seconds * 1000)
    for number, slot in cells.slots.items():
        owners = tuple(replace(each, stamp_ms=each.stamp_ms - older) for each in slot.owners)
        cells.slots[number] = replace(slot, owners=owners, seen_ms=slot.seen_ms - older)
    if cells.space is not None and cells.space.quarantine:
        cells.space = replace(cells.space, since_ms=cells.space.since_ms - older)
