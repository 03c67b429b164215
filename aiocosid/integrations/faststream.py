"""Ids in FastStream: a lifespan, and dependencies of handlers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from faststream import Context, ContextRepo, Depends

from .. import generator_named
from ..abc import SHARE, AnyGenerator, Provider
from ..errors import NotOpenError
from ._source import STATE_KEY, opened
from ._worker import NAMES, check_names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from ._source import Source

__all__ = ("Ids", "generator", "lifespan", "provider")


def lifespan(source: Source) -> Callable[[ContextRepo], AbstractAsyncContextManager[None]]:
    """Return a lifespan that keeps the provider open while the application runs.

    Handlers find it by `generator` and `Ids`, other code as the process's default provider.  If it
    cannot be opened, or lacks a generator that a handler depends on, the application does not
    start.

    Args:
        source: a provider that is not open yet; or a function that returns one, or any asynchronous
            context manager of one, and is called at each start.
    """

    @asynccontextmanager
    async def entered(context: ContextRepo) -> AsyncGenerator[None]:
        async with opened(source) as ids:
            check_names(_handlers(context.get("app")), ids)
            context.set_global(STATE_KEY, ids)
            try:
                yield
            finally:
                context.reset_global(STATE_KEY)

    return entered


def _handlers(app: Any) -> Iterator[Callable[..., object]]:  # noqa: ANN401 - FastStream of any broker
    for broker in app.brokers:
        for subscriber in broker.subscribers:
            for call in subscriber.calls:
                yield call.handler._original_call


async def provider(
    found: Annotated[object, Context(STATE_KEY, default=None, cast=False)],
) -> Provider:
    """Return the provider that the lifespan has opened; a dependency.

    Raises:
        NotOpenError: there is none.
    """
    if not isinstance(found, Provider):
        raise NotOpenError("the application's provider (is lifespan=lifespan(...) set?)")
    return found


@cache
def generator(name: str = SHARE) -> Callable[..., Awaitable[AnyGenerator]]:
    """Return a dependency that gives a generator by its name.

    It is the same one for the same name, so that a test can put another generator in its place::

        OrderIds = Annotated[IdGenerator, Depends(generator("order"))]

        with app.config.provider.scope(generator("order"), lambda: counted):
            ...

    Args:
        name: the generator's; ``__share__`` by default.
    """

    async def dependency(ids: Annotated[Provider, Depends(provider, cast=False)]) -> AnyGenerator:
        return generator_named(name, ids)

    NAMES[dependency] = name
    return dependency


Ids: TypeAlias = Annotated[Provider, Depends(provider)]
"""The provider that the lifespan has opened, as the annotation of a parameter."""
