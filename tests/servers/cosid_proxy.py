"""CosId's proxy server, played from its protocol alone: a small ASGI application on a real socket.

What it answers, and when, is what CosId 3.2 does with Redis behind it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qsl

import uvicorn

from tests.simulation._cosid_proxy import CosIdProxyModel

from ._process import HOST, free_port, wait_until

START: Final = 30.0  # seconds

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Planned:
    """What is answered instead, once.

    Attributes:
        status, body, headers: the answer; nothing is done.
        method: only to such a request; empty for any.
    """

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    method: str = ""


class CosIdProxy(CosIdProxyModel):
    """A proxy server; a context manager.

    Attributes:
        url: where it is.
        asked: method, path and query of each request so far.
        headers: of the last request.
        connections: those that requests came on, by their ports.
        plan: what is answered instead, in this order.
        ahead_ms: how far its clock is ahead.
    """

    def __init__(self) -> None:
        self.host, self.port = HOST, free_port()
        self.url = f"http://{self.host}:{self.port}"
        self.reset()
        config = uvicorn.Config(
            self._app,
            host=HOST,
            port=self.port,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="cosid proxy")

    def reset(self) -> None:
        """Be as new."""
        self.ahead_ms = 0
        super().__init__(lambda: time.time_ns() // 1_000_000 + self.ahead_ms)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.headers: dict[str, str] = {}
        self.connections: set[int] = set()
        self.plan: list[Planned] = []

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started, "the proxy starts", deadline=START)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(START)

    def answer(self, status: int, body: bytes | str = b"", **more: Any) -> None:
        """Plan what is answered instead, once."""
        encoded = body.encode() if isinstance(body, str) else body
        self.plan.append(Planned(status, encoded, **more))

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        method, raw = scope["method"], scope["raw_path"].decode()
        pairs = parse_qsl(scope["query_string"].decode(), keep_blank_values=True)
        self.asked.append((method, raw, dict(pairs)))
        self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.connections.add(scope["client"][1])
        planned = next((each for each in self.plan if each.method in {"", method}), None)
        if planned is not None:
            self.plan.remove(planned)
        headers: dict[str, str] = {"content-type": "application/json"}
        if planned is None:
            status, body = self.respond(method, raw, dict(pairs))
        else:
            status, body, headers = planned.status, planned.body, planned.headers
        listed = [(name.encode(), value.encode()) for name, value in headers.items()]
        listed.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": listed})
        await send({"type": "http.response.body", "body": body})
