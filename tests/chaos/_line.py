"""A FaultProxy for a driver that is not asynchronous: in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from tests.servers import FaultProxy

T = TypeVar("T")


class Line:
    """The line to a server; a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._proxy = FaultProxy(host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy")
        self._server_port = port

    def url(self, url: str) -> str:
        """Return the URL of the server by way of this line."""
        return url.replace(f":{self._server_port}", f":{self._proxy.port}")

    def do(self, act: Callable[[FaultProxy], T]) -> T:
        """Do something with the proxy, in its loop."""

        async def acting() -> T:
            return act(self._proxy)

        return self._wait(acting())

    def accept(self) -> None:
        """Take connections again."""
        self._wait(self._proxy.accept())

    @property
    def swallowed(self) -> int:
        """How many replies were lost so far."""
        return self._proxy.swallowed

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._proxy.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._proxy.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
