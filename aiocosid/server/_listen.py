"""Sockets, and the protocol that a connection speaks: HTTP, or RESP if it begins with ``*``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ._resp import RespProtocol

if TYPE_CHECKING:
    from ._app import App

__all__ = ("EitherProtocol",)

ARRAY: Final = b"*"
"""The first byte of each RESP command; no HTTP method begins with it."""


class EitherProtocol(asyncio.Protocol):
    """Becomes the protocol that the first byte belongs to; uvicorn makes one a connection."""

    def __init__(self, config: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        self._config = config
        self._options = options
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand the connection over."""
        app: App = self._config.loaded_app
        chosen: asyncio.Protocol
        if data.startswith(ARRAY) and app.resp is not None:
            chosen = RespProtocol(app.service, app.resp)
        else:
            chosen = HttpToolsProtocol(config=self._config, **self._options)
        self._transport.set_protocol(chosen)
        chosen.connection_made(self._transport)
        chosen.data_received(data)
