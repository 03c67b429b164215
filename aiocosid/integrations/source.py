"""Common to the web frameworks: the source of the provider, and its place for requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias

from ..abc import Provider
from ..errors import InvalidArgumentError
from ..provider import ConfiguredProvider, IdProvider
from ..provider.default import use_provider

__all__ = ("STATE_KEY", "Source", "opened")

Source: TypeAlias = (
    AbstractAsyncContextManager[Provider] | Callable[[], AbstractAsyncContextManager[Provider]]
)
"""A provider from `connect` or `configure` that is not open yet, or a function that creates one."""

STATE_KEY: Final = "aiocosid"  # the provider's key in the state of an application


@asynccontextmanager
async def opened(source: Source, *, default: bool = True) -> AsyncGenerator[Provider]:
    """Keep a provider open, by default also as the process's default provider.

    A request that cannot get an id is answered soon: see `IdProvider.fail_fast`.

    Raises:
        InvalidArgumentError: the source is not a provider and returns none.
    """
    # The result of `asynccontextmanager` can also be called, because it is a decorator.
    given: Any = source
    entered: Any = given
    if not _can_be_entered(given) and callable(given):
        entered = given()
    if not _can_be_entered(entered):
        if isinstance(entered, Coroutine):
            entered.close()  # otherwise Python would warn that it was never awaited
        rule = "must be a provider from `connect`, or an @asynccontextmanager that yields one"
        raise InvalidArgumentError("source", given, rule)
    async with entered as provider:
        if not isinstance(provider, Provider):
            raise InvalidArgumentError("source", given, f"must yield a provider, not {provider!r}")
        if isinstance(provider, IdProvider | ConfiguredProvider):
            provider.fail_fast()
        with use_provider(provider) if default else nullcontext():
            yield provider


def _can_be_entered(source: object) -> bool:
    return isinstance(source, AbstractAsyncContextManager)
