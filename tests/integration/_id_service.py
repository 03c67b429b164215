"""The id service for tests, on a store: on a thread of this process, or in one of its own.

``python -m tests.integration._id_service URL WHERE`` serves the store at a port or a socket.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import uvicorn

from aiocosid import connect, store_from_url
from aiocosid.abc import MAX_ID
from aiocosid.server import App, Limits, Token
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import resp
from tests.servers import HOST

from ._web import serve

__all__ = ("EVERYTHING", "ServerProcess", "app_on", "serve_store")

EVERYTHING = Limits(step=MAX_ID, name=1 << 20, safe_guard=0)


def app_on(
    url: str,
    *,
    tokens: Iterable[Token] = (),
    limits: Limits | None = None,
    receipt_key: str = "",
) -> tuple[App, dict[str, Any]]:
    """Return a server on a store, and the options of uvicorn that it needs."""
    store = store_from_url(url)
    app = App(
        connect("memory://"),
        store=store,
        tokens=tokens,
        unix_tokens=True,
        limits=limits or EVERYTHING,
        resp=resp.commands(),
        receipt_key=receipt_key,
    )
    return app, {"http": EitherProtocol, "proxy_headers": False}


@contextmanager
def serve_store(
    url: str,
    *,
    is_unix: bool = False,
    tokens: Iterable[Token] = (),
    limits: Limits | None = None,
    receipt_key: str = "",
) -> Generator[str]:
    """Serve a store on a thread of this process; give the URL that clients open."""
    app, options = app_on(url, tokens=tokens, limits=limits, receipt_key=receipt_key)
    if not is_unix:
        with serve(app, **options) as client:
            yield f"aiocosid+http://{client.base_url.host}:{client.base_url.port}"
        return
    # Short: a socket's path has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="ids") as folder:
        path = Path(folder) / "s"
        with serve(app, uds=str(path), **options):
            yield f"aiocosid+unix://{path}"


class ServerProcess:
    """A server in a process of its own, to be killed.

    Attributes:
        url: what clients open.
    """

    def __init__(self, store: str, where: int | Path) -> None:
        is_unix = isinstance(where, Path)
        self.url = f"aiocosid+unix://{where}" if is_unix else f"aiocosid+http://{HOST}:{where}"
        self._command = [sys.executable, "-m", __name__, store, str(where)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        process = self._process
        if process is not None:
            process.send_signal(how)
            process.communicate(timeout=20)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        sys.stdout.write("ready\n")
        sys.stdout.flush()


def _main(store: str, where: str) -> None:
    app, options = app_on(store)
    place: dict[str, Any] = {"uds": where} if "/" in where else {"host": HOST, "port": int(where)}
    _Server(uvicorn.Config(app, log_level="warning", **place, **options)).run()


if __name__ == "__main__":
    _main(*sys.argv[1:])
