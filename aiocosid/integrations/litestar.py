"""Ids in Litestar: a plugin with lifespan, dependency, answers to errors, statistics and health."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Response, asgi
from litestar.datastructures import State  # noqa: TC002 - Litestar reads the annotations
from litestar.di import Provide
from litestar.exceptions import responses
from litestar.handlers import ASGIRouteHandler
from litestar.plugins import InitPlugin
from litestar.types import Receive, Scope, Send  # noqa: TC002 - as above

from ..abc import SHARE
from ..errors import CosIdError, NotOpenError
from ..provider.default import generator_named
from .asgi import HealthApp, StatisticsApp
from .failures import PROBLEM_JSON, FailureLog, answer_to
from .source import STATE_KEY, opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from litestar.config.app import AppConfig
    from litestar.connection import Request

    from .source import Source

__all__ = ("CosIdPlugin", "generator")


class CosIdPlugin(InitPlugin):
    """Keeps a provider open while a Litestar application serves.

    Handlers get it as the dependency ``ids``, and single generators with `generator`; the
    application does not start if a generator is missing that a handler's dependencies name.  A
    ``retryable`` `CosIdError` is answered with 503 and ``Retry-After``, any other `CosIdError` with
    500, or in debug mode with Litestar's page for unexpected errors.  The logger
    ``aiocosid.requests`` gets at most one line per second for each cause, which says how many were
    left out.

    Args:
        source: a provider that is not open yet; or a function, called at each start, that returns a
            provider or an asynchronous context manager of one.
        dependency: the name of the provider's dependency.
        statistics: the path of a `StatisticsApp`; none by default.
        health: the path of a `HealthApp`; none by default.
    """

    def __init__(
        self,
        source: Source,
        *,
        dependency: str = "ids",
        statistics: str | None = None,
        health: str | None = None,
    ) -> None:
        self._source = source
        self._dependency = dependency
        self._statistics = statistics
        self._health = health

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add everything to an application's configuration; called by Litestar."""
        config: Any = app_config  # its types are only partly known
        config.lifespan.append(self._opened)
        # Last, because other hooks may open more generators.
        config.on_startup.append(_check_generators)
        config.dependencies.setdefault(self._dependency, Provide(_provider))
        config.exception_handlers.setdefault(CosIdError, _answered(FailureLog()))
        if self._statistics is not None:
            config.route_handlers.append(_mounted(self._statistics, StatisticsApp()))
        if self._health is not None:
            config.route_handlers.append(_mounted(self._health, HealthApp()))
        return app_config

    @asynccontextmanager
    async def _opened(self, app: Litestar) -> AsyncGenerator[None]:
        async with opened(self._source) as provider:
            app.state[STATE_KEY] = provider
            try:
                yield
            finally:
                del app.state[STATE_KEY]


class _Named(Provide):
    """A dependency that provides a generator by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        async def dependency(state: State) -> Any:  # noqa: ANN401 - the handler's annotation says which kind
            return generator_named(name, await _provider(state))

        super().__init__(dependency)
        self.name = name


def generator(name: str = SHARE) -> Provide:
    """Return a dependency that provides a generator by its name.

    Put it into the ``dependencies`` of a handler, a router or the application::

        @post("/orders", dependencies={"orders": generator("order")})
        async def create_order(orders: NamedDependency[IdGenerator]) -> dict[str, int]: ...

    Args:
        name: the generator's name; ``__share__`` by default.
    """
    return _Named(name)


async def _check_generators(app: Litestar) -> None:
    provider = await _provider(app.state)
    routes: list[Any] = app.routes  # their types are only partly known
    found: set[str] = set()
    for route in routes:
        for handler in getattr(route, "route_handlers", None) or [route.route_handler]:
            if not isinstance(handler, ASGIRouteHandler):  # these have no dependencies
                found |= _names_of(handler, handler.resolve_dependencies())
    for name in sorted(found):
        generator_named(name, provider)


def _names_of(function: Any, given: dict[str, Any]) -> set[str]:  # noqa: ANN401 - Litestar's
    """Return the names of generators that a handler or one of its dependencies takes."""
    if isinstance(function, _Named):
        return {function.name}
    found: set[str] = set()
    for key in function.parsed_fn_signature.parameters:
        if key in given:  # Litestar has refused circular dependencies
            found |= _names_of(given[key], given)
    return found


async def _provider(state: State) -> Any:  # noqa: ANN401 - as above
    found = state.get(STATE_KEY)
    if found is None:
        raise NotOpenError("the provider of CosIdPlugin (does the application's lifespan run?)")
    return found


def _mounted(path: str, app: StatisticsApp | HealthApp) -> ASGIRouteHandler:
    @asgi(path, is_mount=True, copy_scope=True)
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # Litestar's state is not the ASGI state.
        own = {**scope, "state": dict(scope["litestar_app"].state)}
        await app(own, receive, send)  # type: ignore[arg-type]

    return serve


def _answered(
    failures: FailureLog,
) -> Callable[[Request[Any, Any, Any], CosIdError], Response[Any]]:
    def answer(request: Request[Any, Any, Any], error: CosIdError) -> Response[Any]:
        if request.app.debug and not error.retryable:  # as Litestar answers an unhandled error
            known: Any = responses  # its types are only partly known
            shown: Response[Any] = known.create_debug_response(request, error)
            return shown
        found = answer_to(error)
        failures.note(error, f"a request was answered with {found.status}")
        return Response(
            found.body, status_code=found.status, headers=found.headers, media_type=PROBLEM_JSON
        )

    return answer
