"""Ids in Starlette: a lifespan, the provider of a request, and answers to errors.

FastAPI has its own module, which adds dependencies.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from starlette.responses import Response
from starlette.websockets import WebSocketState

from ..abc import SHARE
from ..errors import CosIdError, NotOpenError
from ..provider.default import default_provider, generator_named
from .failures import PROBLEM_JSON, FailureLog, answer_to
from .source import STATE_KEY, opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection
    from starlette.websockets import WebSocket

    from ..abc import AnyGenerator, Provider
    from .source import Source

__all__ = ("generator_of", "handle_errors", "lifespan", "provider_of")


def lifespan(
    source: Source,
) -> Callable[[object], AbstractAsyncContextManager[dict[str, object]]]:
    """Return a lifespan that keeps the provider open while the application serves.

    Requests find the provider with `provider_of`, and other code finds it as the process's default
    provider.  If it cannot be opened, the application does not start.  In your own lifespan, enter
    this one and pass on the state that it yields::

        ids = lifespan(aiocosid.configure("ids.toml"))

        @asynccontextmanager
        async def both(app):
            async with ids(app) as state, open_database() as db:
                yield {**state, "db": db}

    Args:
        source: a provider that is not open yet; or a function, called at each start, that returns a
            provider or an asynchronous context manager of one.
    """

    @asynccontextmanager
    async def entered(_app: object) -> AsyncGenerator[dict[str, object]]:
        async with opened(source) as provider:
            yield {STATE_KEY: provider}

    return entered


def provider_of(connection: HTTPConnection) -> Provider:
    """Return the provider that the lifespan opened, or else the process's default provider.

    Args:
        connection: the request or the web socket.

    Raises:
        NotOpenError: there is no open provider.
    """
    found: Provider | None = connection.scope.get("state", {}).get(STATE_KEY)
    if found is not None:
        return found
    try:
        return default_provider()
    except NotOpenError:
        # A test client runs the lifespan only inside its ``with`` block, and some never run it.
        what = "the application's provider (is lifespan=lifespan(...) set, and does it run?)"
        raise NotOpenError(what) from None


def generator_of(connection: HTTPConnection, name: str = SHARE) -> AnyGenerator:
    """Return a generator of the provider that the lifespan opened.

    Args:
        connection: the request or the web socket.
        name: the generator's name; ``__share__`` by default.

    Raises:
        GeneratorMissingError: the provider has no generator with that name.
        NotOpenError: there is no open provider.
    """
    return generator_named(name, provider_of(connection))


def handle_errors(app: Starlette) -> None:
    """Answer requests that fail with a `CosIdError`, and limit their log lines.

    A ``retryable`` error is answered with 503 and ``Retry-After``.  Other errors are mistakes or
    need an operator: they are answered with 500, or raised again if the application is in debug
    mode.  A web socket is closed with code 1013 ("try again later") or 1011.

    The logger ``aiocosid.requests`` gets at most one line per second for each cause, which says how
    many were left out; at level ``DEBUG`` it has a traceback.  A mounted application answers its
    own errors, so call this for each application.

    Args:
        app: a Starlette or FastAPI application.
    """
    failures = FailureLog()

    async def answer(connection: Any, error: Any) -> Response | None:  # noqa: ANN401 - as in Starlette
        if app.debug and not error.retryable:
            raise error
        if connection.scope["type"] == "websocket":
            failures.note(error, "a web socket was closed")
            await _close(connection, 1013 if error.retryable else 1011)
            return None
        found = answer_to(error)
        failures.note(error, f"a request was answered with {found.status}")
        return Response(found.body, found.status, found.headers, PROBLEM_JSON)

    app.add_exception_handler(CosIdError, cast("Any", answer))


async def _close(socket: WebSocket, code: int) -> None:
    if WebSocketState.DISCONNECTED not in {socket.client_state, socket.application_state}:
        await socket.close(code)
