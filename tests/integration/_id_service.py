"""The id service for tests: one on a thread of this process, with a store of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from aiocosid import connect, open_store
from aiocosid.abc import MAX_ID
from aiocosid.server import App, Limits, Token
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import resp

from ._web import serve

__all__ = ("EVERYTHING", "app_on", "serve_store")

EVERYTHING = Limits(step=MAX_ID, name=1 << 20)


def app_on(
    url: str, *, tokens: Iterable[Token] = (), limits: Limits | None = None
) -> tuple[App, dict[str, object]]:
    """Return a server on a store, and the options of uvicorn that it needs."""
    store = open_store(url)
    app = App(
        connect("memory://"),
        store=store,
        tokens=tokens,
        limits=limits or EVERYTHING,
        resp=resp.commands(),
    )
    return app, {"http": EitherProtocol, "proxy_headers": False}


@contextmanager
def serve_store(
    url: str,
    *,
    is_unix: bool = False,
    tokens: Iterable[Token] = (),
    limits: Limits | None = None,
) -> Generator[str]:
    """Serve a store on a thread of this process; give the URL that clients open."""
    app, options = app_on(url, tokens=tokens, limits=limits)
    if not is_unix:
        with serve(app, **options) as client:
            yield f"aiocosid+http://{client.base_url.host}:{client.base_url.port}"
        return
    # Short: a socket's path has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="ids") as folder:
        path = Path(folder) / "s"
        with serve(app, uds=str(path), **options):
            yield f"aiocosid+unix://{path}"
