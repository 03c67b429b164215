"""Ids in FastAPI: a lifespan, dependencies, and an answer to errors.

The types for ids in paths, queries and models are in `aiocosid.integrations.pydantic`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Depends
from fastapi.requests import HTTPConnection  # noqa: TC002 - FastAPI reads the annotations

from ..abc import SHARE, Provider
from .starlette import generator_of, provider_of
from .starlette import handle_errors as handle_errors  # noqa: PLC0414 - a re-export
from .starlette import lifespan as lifespan  # noqa: PLC0414 - a re-export

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..abc import AnyGenerator

__all__ = ("Ids", "generator", "handle_errors", "lifespan", "provider")


# Coroutine functions, all of them: FastAPI runs others in a thread, at ten times the cost.


async def provider(connection: HTTPConnection) -> Provider:
    """Return the provider that the lifespan has opened; a dependency.

    Raises:
        NotOpenError: there is none.
    """
    return provider_of(connection)


@cache
def generator(name: str = SHARE) -> Callable[[HTTPConnection], Awaitable[AnyGenerator]]:
    """Return a dependency that gives a generator by its name.

    It is the same one for the same name, so that a test can put another generator in its place::

        OrderIds = Annotated[IdGenerator, Depends(generator("order"))]

        async with CounterId() as counted:
            app.dependency_overrides[generator("order")] = lambda: counted
            ...  # requests: 1, 2, 3

    Args:
        name: the generator's; ``__share__`` by default.
    """

    async def dependency(connection: HTTPConnection) -> AnyGenerator:
        return generator_of(connection, name)

    return dependency


Ids: TypeAlias = Annotated[Provider, Depends(provider)]
"""The provider that the lifespan has opened, as the annotation of a parameter."""
