"""The store that a command uses, on an event loop that runs only during calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

import typer

from ..errors import StoreUnavailableError
from ._exit import PROGRAM
from ._stores import ChosenStore, chosen_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from ..abc import Store

__all__ = ("StoreSession",)

CLOSE_TIMEOUT: Final = 5.0  # seconds that a server may delay the end of a command

_P = ParamSpec("_P")
_T = TypeVar("_T")


class StoreSession:
    """A store on an event loop that runs only during a call to the store.

    Between calls a command runs blocking code, for example writing to a pipe that is not read,
    which Ctrl-C interrupts at once.  Ctrl-C during a call cancels it.  The store is closed in both
    cases.

    Attributes:
        store: the store; use it through `call`.
        chosen: how the store was chosen.
        timeout: seconds for one call to the store.
    """

    def __init__(self, chosen: ChosenStore, *, timeout: float) -> None:
        """Create the store, without sending anything.

        Args:
            chosen: the store to create.
            timeout: seconds for one call to the store.

        Raises:
            InvalidArgumentError: the URL names no store, or is malformed.
            MissingExtraError: the store's driver is not installed.
        """
        self.chosen = chosen
        self.timeout: float = timeout
        self._runner = asyncio.Runner()
        try:
            # Inside the loop: a driver may need the running loop.
            self.store: Store = self._runner.run(_opened(chosen))
        except BaseException:
            self._runner.close()
            raise

    @classmethod
    def on(cls, store: str | None, config: str | None, *, timeout: float) -> Self:
        """Create the store that ``--store`` and ``--config`` choose; raises as `chosen_store`."""
        return cls(chosen_store(store, config), timeout=timeout)

    def namespace(self, given: str | None) -> str:
        """Return the given namespace, or the default of the store."""
        return self.chosen.namespace if given is None else given

    def tell_written(self) -> None:
        """Report on standard error which store the command has written to."""
        typer.echo(f"{PROGRAM}: written to {self.chosen.where}", err=True)

    def call(
        self, function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Await a call to the store.

        Raises:
            StoreUnavailableError: it took longer than the timeout.
            CosIdError: the function's error.
            KeyboardInterrupt: Ctrl-C; the call may have taken effect.
        """

        async def bounded() -> _T:
            try:
                async with asyncio.timeout(self.timeout):
                    return await function(*args, **kwargs)
            except TimeoutError as error:
                reason = f"no answer within {self.timeout:g} s; the call may have taken effect"
                remedy = "try again, with a longer --timeout if the error persists"
                kind = self.chosen.where.partition(":")[0].lower()
                raise StoreUnavailableError(kind, reason, remedy=remedy) from error

        return self._await(bounded())

    def run(
        self, function: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Await a function that has its own deadlines.

        Raises:
            CosIdError: the function's error.
            KeyboardInterrupt: Ctrl-C.
        """
        return self._await(function(*args, **kwargs))

    def pause(
        self, seconds: float, *, on_progress: Callable[[float], object] = lambda _share: None
    ) -> None:
        """Wait, and report the elapsed share of the time, 0 to 1, every second."""

        async def wait() -> None:
            for passed in range(ceil(seconds)):
                on_progress(passed / seconds)
                await asyncio.sleep(min(1.0, seconds - passed))

        self._await(wait())

    def _await(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._runner.run(work)
        finally:
            work.close()  # Python warns if Ctrl-C came before it began

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
        with suppress(TimeoutError):  # the end of the process closes its sockets
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.store.aclose()


async def _opened(chosen: ChosenStore) -> Store:
    return chosen.make()
