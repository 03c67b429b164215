"""Ids in Dramatiq: a middleware that keeps ids ready while a worker process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dramatiq.asyncio import get_event_loop_thread
from dramatiq.middleware import Middleware, MiddlewareError

from ..errors import NotOpenError
from ..sync import SyncProvider
from ._worker import KeptOpen

if TYPE_CHECKING:
    from dramatiq import Broker, Worker

    from ._source import Source

    _Threaded = SyncProvider[Any]

__all__ = ("CosIdMiddleware",)


class CosIdMiddleware(Middleware):
    """Opens ids when a worker process starts, and closes them when it ends.

    With a provider of `aiocosid.sync`, actors take ids from its generators; it is opened with those
    that modules have asked for.  With any other source, asynchronous actors find the provider as
    the process's default one.  It lives on the event loop of Dramatiq's ``AsyncIO`` middleware,
    which has to be added before this one.

    If the ids cannot be opened, the worker process ends, and Dramatiq with it.

    Args:
        source: a provider of `aiocosid.sync`; or an asynchronous one that is not open yet, or a
            function that returns one, or any asynchronous context manager of one.
    """

    def __init__(self, source: Source | _Threaded) -> None:
        self._source: Any = source
        self._threaded: SyncProvider[Any] | None = None
        if isinstance(source, SyncProvider):
            self._threaded = source
        self._kept: KeptOpen | None = None

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        """Open the ids; called by Dramatiq in each worker process."""
        del broker, worker
        try:
            self._open()
        except Exception as error:
            # Dramatiq only logs other errors, and each task would fail.
            raise MiddlewareError(f"no ids: {error}") from error

    def _open(self) -> None:
        if self._threaded is not None:
            self._threaded.open()
            for name in self._threaded:
                self._threaded[name].open()
            return
        thread: Any = get_event_loop_thread()  # its types are known in part only
        if thread is None:
            raise NotOpenError("Dramatiq's event loop (is AsyncIO added before CosIdMiddleware?)")
        self._kept = KeptOpen(self._source)
        try:
            thread.run_coroutine(self._kept.open())
        except BaseException:
            thread.stop()  # a thread that the process would wait for at its end
            raise

    def after_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        """Close the ids, after the last task; called by Dramatiq."""
        del broker, worker
        thread = get_event_loop_thread()
        if self._threaded is not None:
            self._threaded.close()
        elif self._kept is not None and thread is not None:
            thread.run_coroutine(self._kept.close())
