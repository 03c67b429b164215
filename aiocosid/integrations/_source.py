"""What the web frameworks share: where the provider comes from, and where requests find it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

from .. import use_provider
from ..abc import Provider

__all__ = ("RETRY_AFTER", "STATE_KEY", "Source", "opened")

Source: TypeAlias = (
    AbstractAsyncContextManager[Provider] | Callable[[], AbstractAsyncContextManager[Provider]]
)
"""A provider to be opened, as `connect` and `configure` return it, or what makes one."""

STATE_KEY: Final = "aiocosid"  # of the provider in the state of an application
RETRY_AFTER: Final = "1"  # seconds; a generator that starves asks its store again within them


@asynccontextmanager
async def opened(source: Source) -> AsyncGenerator[Provider]:
    """Have a provider open, as the process's default one too."""
    # What `asynccontextmanager` makes can be called as well: it is a decorator.
    made: AbstractAsyncContextManager[Provider]
    made = source if isinstance(source, AbstractAsyncContextManager) else source()  # pyright: ignore[reportUnknownVariableType]
    async with made as provider:
        with use_provider(provider):
            yield provider
