"""One store for the length of a command."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from .. import open_store
from ..errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from ..abc import Store

__all__ = ("StoreSession",)

CLOSE_TIMEOUT: Final = 5.0  # seconds that a server may hold up the end of a command

_P = ParamSpec("_P")
_T = TypeVar("_T")


class StoreSession:
    """A store on an event loop that runs only during a call to the store.

    What a command does in between, above all writing to a pipe that nobody empties, is plain
    blocking code, and ends at once by Ctrl-C.  Ctrl-C during a call cancels it; the store is closed
    either way.

    Attributes:
        store: the store; call it by `call`.
    """

    def __init__(self, url: str | Callable[[], Store], *, timeout: float, kind: str = "") -> None:
        """Open a store; nothing is sent yet.

        Args:
            url: as for `aiocosid.open_store`; or what makes the store.
            timeout: seconds that the store may take for one call.
            kind: names the store in messages; by default its URL's scheme.

        Raises:
            InvalidArgumentError: the URL names no store, or is malformed.
            MissingExtraError: the store's driver is not installed.
        """
        self._kind = kind or str(url).partition(":")[0].lower()
        self._timeout = timeout
        self._runner = asyncio.Runner()
        try:
            # Inside the loop: a driver may want to know the one it belongs to.
            self.store: Store = self._runner.run(_opened(url))
        except BaseException:
            self._runner.close()
            raise

    def call(
        self, function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Await a call to the store.

        Raises:
            StoreUnavailableError: it took longer than the timeout.
            CosIdError: as the function says.
            KeyboardInterrupt: Ctrl-C; the call may have taken effect.
        """

        async def bounded() -> _T:
            try:
                async with asyncio.timeout(self._timeout):
                    return await function(*args, **kwargs)
            except TimeoutError as error:
                reason = f"no answer within {self._timeout:g} s; the call may have taken effect"
                raise StoreUnavailableError(self._kind, reason) from error

        return self._runner.run(bounded())

    def run(
        self,
        function: Callable[_P, Coroutine[Any, Any, _T]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Await what calls the store with deadlines of its own.

        Raises:
            CosIdError: as the function says.
            KeyboardInterrupt: Ctrl-C.
        """
        return self._runner.run(function(*args, **kwargs))

    def pause(self, seconds: float, *, on_progress: Callable[[float], object]) -> None:
        """Wait, and say every second how much of it is over, 0 to 1."""

        async def wait() -> None:
            for passed in range(ceil(seconds)):
                on_progress(passed / seconds)
                await asyncio.sleep(min(1.0, seconds - passed))

        self._runner.run(wait())

    def __enter__(self) -> Self:
        """Return the session; it is open already."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store and the loop, within a few seconds."""
        try:
            self._runner.run(self._aclose())
        finally:
            self._runner.close()

    async def _aclose(self) -> None:
        with suppress(TimeoutError):  # the process ends, and its sockets with it
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.store.aclose()


async def _opened(url: str | Callable[[], Store]) -> Store:
    return open_store(url) if isinstance(url, str) else url()
