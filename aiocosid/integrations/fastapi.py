"""Ids in FastAPI: a lifespan that checks names, dependencies, and answers to errors.

The types for ids in paths, queries and models are `TypedId` and `Int64Text` in
`aiocosid.converter`.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import asynccontextmanager
from functools import cache
from inspect import unwrap
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from fastapi import Depends, routing
from fastapi.requests import HTTPConnection  # noqa: TC002 - FastAPI reads the annotations

from ..abc import SHARE, Provider
from ..provider.default import generator_named
from . import starlette
from .source import STATE_KEY
from .starlette import generator_of, provider_of
from .starlette import handle_errors as handle_errors  # noqa: PLC0414 - a re-export

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from ..abc import AnyGenerator
    from .source import Source

__all__ = ("Ids", "check_generators", "generator", "handle_errors", "lifespan", "provider")

# The names of generators by their dependencies, which live as long as the process.
_NAMES: Final[dict[int, str]] = {}


def lifespan(
    source: Source,
) -> Callable[[object], AbstractAsyncContextManager[dict[str, object]]]:
    """Return a lifespan that keeps the provider open while the application serves.

    It works like `aiocosid.integrations.starlette.lifespan`; in addition, the application does not
    start if the provider lacks a generator that one of its dependencies names, see
    `check_generators`.  In your own lifespan, which may open more generators after this one, call
    `check_generators` yourself.

    Args:
        source: a provider that is not open yet; or a function, called at each start, that returns a
            provider or an asynchronous context manager of one.
    """
    enter = starlette.lifespan(source)

    @asynccontextmanager
    async def entered(app: Any) -> AsyncGenerator[dict[str, object]]:  # noqa: ANN401 - as in Starlette
        async with enter(app) as state:
            router = getattr(app, "router", None)
            if _holds(getattr(router, "lifespan_context", None), entered):
                found: Any = state[STATE_KEY]
                check_generators(app, found)
            yield state

    return entered


def _holds(found: Any, own: object) -> bool:  # noqa: ANN401 - a function of any kind
    """Whether an application's lifespan is ours; FastAPI merges it with the routers' lifespans."""
    if found is own:
        return True
    if not getattr(found, "__module__", "").startswith("fastapi."):
        return False
    cells = getattr(unwrap(found), "__closure__", None) or ()
    return any(_holds(cell.cell_contents, own) for cell in cells)


def check_generators(app: object, provider: Provider) -> None:
    """Raise unless the provider has each generator that an application's dependencies name.

    It checks the dependencies of all routes, including routers, web sockets and mounted
    applications, and the dependencies of dependencies.  Dependencies that ``dependency_overrides``
    replaces are left out.

    Args:
        app: the FastAPI application.
        provider: the provider that must have the generators.

    Raises:
        GeneratorMissingError: a name is unknown; the error names similar ones.
    """
    for name in sorted({*_names_in(app, {})}):
        generator_named(name, provider)


def _names_in(app: Any, overrides: Mapping[Any, object]) -> Iterator[str]:  # noqa: ANN401 - ASGI
    """Iterate over the names that an application's routes need."""
    while not hasattr(app, "routes") and hasattr(app, "app"):
        app = app.app  # a middleware around it
    overrides = getattr(app, "dependency_overrides", overrides)
    routes = getattr(app, "routes", None) or ()
    # Later versions of FastAPI keep an included router separate; this function returns its routes.
    flat: Any = getattr(routing, "iter_route_contexts", iter)
    for route in flat(routes):
        dependant = getattr(route, "dependant", None)
        if dependant is not None:
            yield from _names_of(dependant, overrides)
        elif hasattr(route, "app"):
            yield from _names_in(route.app, overrides)


def _names_of(dependant: Any, overrides: Mapping[Any, object]) -> Iterator[str]:  # noqa: ANN401 - FastAPI's
    for each in dependant.dependencies:
        if isinstance(each.call, Hashable) and each.call in overrides:
            continue
        if id(each.call) in _NAMES:
            yield _NAMES[id(each.call)]
        yield from _names_of(each, overrides)


# All dependencies are coroutine functions: FastAPI runs others in a thread, at ten times the cost.


async def provider(connection: HTTPConnection) -> Provider:
    """Return the provider that the lifespan opened; a dependency.

    Raises:
        NotOpenError: there is no open provider.
    """
    return provider_of(connection)


@cache
def generator(name: str = SHARE) -> Callable[[HTTPConnection], Awaitable[AnyGenerator]]:
    """Return a dependency that provides a generator by its name.

    With `lifespan`, an application that names a missing generator does not start.

    The same name gives the same dependency, so a test can replace it::

        OrderIds = Annotated[IdGenerator, Depends(generator("order"))]

        async with CounterId() as counted:
            app.dependency_overrides[generator("order")] = lambda: counted
            ...  # requests: 1, 2, 3

    Args:
        name: the generator's name; ``__share__`` by default.
    """

    async def dependency(connection: HTTPConnection) -> AnyGenerator:
        return generator_of(connection, name)

    _NAMES[id(dependency)] = name
    return dependency


Ids: TypeAlias = Annotated[Provider, Depends(provider)]
"""The provider that the lifespan opened, as the annotation of a parameter."""
