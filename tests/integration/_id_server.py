"""The id service in processes of its own, as ``aiocosid serve`` runs it."""

from __future__ import annotations

import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tests.servers._process import Server

__all__ = ("IdServer", "connected", "reply_of")

ORDER: Final = '[generators.order]\nkind = "chain"\n'
END: Final = 20.0  # seconds


class IdServer(Server):
    """One server: keeps its port, its settings and its store over stop, kill -9 and start.

    Attributes:
        socket_path: its Unix socket.
        client: talks to it over TCP.
        url: of the store.
    """

    name = "serve"

    def __init__(
        self,
        *options: str,
        settings: str = "",
        server: str = "",
        store: str | None = None,
        generators: str = ORDER,
        listen: Sequence[str] | None = None,
        tls: Path | None = None,
        create: bool = True,
    ) -> None:
        super().__init__()
        self.options = options
        self.tls = tls
        self.socket_path = self.directory / "ids.sock"
        self.url = f"sqlite:///{self.directory}/ids.db" if store is None else store
        addresses = [f"{self.host}:{self.port}", f"unix:{self.socket_path}"]
        text = f"listen = {addresses if listen is None else [*listen]}\n"
        self.config = self.directory / "ids.toml"
        top = f'store = "{self.url}"\n{"create = true" if create else ""}\n{settings}\n'
        self.config.write_text(f"{top}[server]\n{text}{server}\n{generators}")
        scheme = "http" if tls is None else "https"
        verify: Any = True if tls is None else ssl.create_default_context(cafile=str(tls))
        self.client = httpx.Client(
            base_url=f"{scheme}://{self.host}:{self.port}", timeout=20, verify=verify
        )

    def argv(self) -> Sequence[str | Path]:
        """Any warning is an error: a socket that nobody closes, for one."""
        python = (sys.executable, "-W", "error", "-m", "aiocosid")
        return [*python, "serve", "--config", self.config, *self.options]

    def is_ready(self) -> bool:
        """Does the one that was started last listen?"""
        return self.log().count("listening on") > self._starts

    _starts = 0

    def spawn(self) -> None:
        """Start, and tell its readiness from that of the one before."""
        self._starts = self.log().count("listening on")
        super().spawn()

    def end(self, number: int = signal.SIGTERM, *, deadline: float = END) -> int:
        """Send a signal, and return the exit code."""
        assert self._popen is not None
        self._popen.send_signal(number)
        return self.wait(deadline=deadline)

    def wait(self, *, deadline: float = END) -> int:
        """Return the exit code."""
        assert self._popen is not None
        code = self._popen.wait(deadline)
        self._forget()
        return code

    def unix_client(self) -> httpx.Client:
        """A client of the Unix socket."""
        transport = httpx.HTTPTransport(uds=str(self.socket_path))
        return httpx.Client(base_url="http://ids", transport=transport, timeout=20)

    def ids(self, count: int = 1, name: str = "order", **options: Any) -> list[int]:
        """Take ids."""
        answer = self.client.post(f"/v1/ids/{name}", params={"count": count}, **options)
        answer.raise_for_status()
        return [int(each) for each in answer.json()["ids"]]

    def connect(self) -> socket.socket:
        """A connection of TCP that has said nothing."""
        return connected((self.host, self.port))

    def close(self) -> None:
        """Its clients, too."""
        self.client.close()
        super().close()

    def __enter__(self) -> Self:
        super().__enter__()
        return self


def connected(address: Any, *, timeout: float = 20.0) -> socket.socket:
    """Return a connection, to a pair or a path."""
    kind = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    found = socket.socket(kind, socket.SOCK_STREAM)
    found.settimeout(timeout)
    found.connect(address if isinstance(address, tuple) else str(address))
    return found


def reply_of(connection: socket.socket) -> bytes:
    """Return everything up to the end of a connection; a reset is an end."""
    found = bytearray()
    try:
        while data := connection.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return bytes(found)
