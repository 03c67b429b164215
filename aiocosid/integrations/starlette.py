"""Ids in Starlette: a lifespan, the provider of a request, and an answer to errors.

FastAPI has a module of its own, which adds dependencies.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from .. import default_provider, generator_named
from ..abc import SHARE
from ..errors import CosIdError, NotOpenError
from ._source import RETRY_AFTER, STATE_KEY, opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from ..abc import AnyGenerator, Provider
    from ._source import Source

__all__ = ("generator_of", "handle_errors", "lifespan", "provider_of")


def lifespan(
    source: Source,
) -> Callable[[object], AbstractAsyncContextManager[dict[str, object]]]:
    """Return a lifespan that keeps the provider open while the application serves.

    Requests find the provider by `provider_of`, other code as the process's default one.  If it
    cannot be opened, the application does not start.  In a lifespan of your own, enter this one and
    pass on the state that it yields::

        ids = lifespan(aiocosid.configure("ids.toml"))

        @asynccontextmanager
        async def both(app):
            async with ids(app) as state, open_database() as db:
                yield {**state, "db": db}

    Args:
        source: a provider that is not open yet; or a function that returns one, or any asynchronous
            context manager of one, and is called at each start.
    """

    @asynccontextmanager
    async def entered(_app: object) -> AsyncGenerator[dict[str, object]]:
        async with opened(source) as provider:
            yield {STATE_KEY: provider}

    return entered


def provider_of(connection: HTTPConnection) -> Provider:
    """Return the provider that the lifespan has opened; without one, the process's default.

    Args:
        connection: the request or the web socket.

    Raises:
        NotOpenError: there is none.
    """
    found: Provider | None = connection.scope.get("state", {}).get(STATE_KEY)
    if found is not None:
        return found
    try:
        return default_provider()
    except NotOpenError:
        # A test client runs the lifespan only inside of its ``with`` block, some never do.
        what = "the application's provider (is lifespan=lifespan(...) set, and does it run?)"
        raise NotOpenError(what) from None


def generator_of(connection: HTTPConnection, name: str = SHARE) -> AnyGenerator:
    """Return a generator of the provider that the lifespan has opened.

    Args:
        connection: the request or the web socket.
        name: the generator's; ``__share__`` by default.

    Raises:
        InvalidArgumentError: the provider has no generator of that name.
        NotOpenError: there is no provider.
    """
    return generator_named(name, provider_of(connection))


def handle_errors(app: Starlette) -> None:
    """Answer requests that cannot get an id now with 503 and ``Retry-After``.

    It handles each ``retryable`` `CosIdError`.  The others are mistakes or need an operator: they
    are raised on, to the server's log and a 500.

    Args:
        app: a Starlette or FastAPI application.
    """
    app.add_exception_handler(CosIdError, _no_id)


async def _no_id(connection: HTTPConnection, error: Exception) -> Response:
    if connection.scope["type"] != "http" or not getattr(error, "retryable", False):
        raise error
    return JSONResponse({"detail": "no id just now"}, 503, {"Retry-After": RETRY_AFTER})
