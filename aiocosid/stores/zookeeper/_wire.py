"""The bridge between an event loop and the driver, which has its own threads and no types."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...errors import MissingExtraError, StoreAuthenticationError, StoreError, StoreUnavailableError
from .._connection import closed, fail_if_forked, translate_errors

try:
    from kazoo import client as _client  # type: ignore[import-untyped]
    from kazoo import exceptions as _exceptions
except ModuleNotFoundError as _exc:
    raise MissingExtraError("kazoo", extra="zookeeper") from _exc

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("REPLY_TIMEOUT", "STORE", "KazooClient", "Wire", "as_store_error", "wire_of")

KazooClient: Any = _client.KazooClient
NoAuthError: type[Exception] = _exceptions.NoAuthError
NoNodeError: type[Exception] = _exceptions.NoNodeError
NodeExistsError: type[Exception] = _exceptions.NodeExistsError

STORE: Final = "zookeeper"

_REFUSALS: Final = {"AuthFailedError", "NoAuthError", "InvalidACLError"}
_OUTAGES: Final = {
    *("ConnectionLoss", "ConnectionClosedError", "SessionExpiredError", "SessionMovedError"),
    *("OperationTimeoutError", "NotReadOnlyCallError", "ReconfigInProcessError"),
    *("NewConfigNoQuorumError", "ThrottledOpError", "RequestTimeoutError"),
}

# Below the default 2 s timeout of a generator's call, so that the generator gets the reason.
REPLY_TIMEOUT: Final = 1.5  # seconds for a session, and for each reply

READ_SHARE: Final = 1.5  # the driver waits for two thirds of a session's time
CONNECTED: Final = "CONNECTED"  # a KazooState

_sessions = count(1)


def as_store_error() -> contextlib.AbstractContextManager[None]:
    """Translate the driver's errors; let all others pass."""
    return translate_errors(_meaning, kind=_exceptions.KazooException)


def _meaning(exc: Exception) -> StoreError:
    name = type(exc).__name__
    text = f"{name}: {exc}" if str(exc) else name
    if name in _REFUSALS:
        return StoreAuthenticationError(STORE, f"the user may not do this ({text})")
    return (StoreUnavailableError if name in _OUTAGES else StoreError)(STORE, text)


class Wire:
    """One client of the driver, with the state that its threads report.

    Any event loop may use it: an answer arrives on the loop of its call.  Nothing is sent without a
    session: the driver would keep it, and send it after its caller has gone.

    Attributes:
        client: a KazooClient.
        session: a number that changes each time that the session was suspended, expired or closed.
        session_timeout: seconds without a message after which the server ends the session: as the
            client requests it; for our own client, once known, as the server has agreed.
    """

    __slots__ = ("_is_own", "_pending", "_waiting", "client", "session", "session_timeout")

    def __init__(self, client: Any, *, is_own: bool) -> None:  # noqa: ANN401 - the driver's
        self.client: Any = client
        self.session: int = next(_sessions)
        self._is_own = is_own
        self._waiting: set[asyncio.Future[Any]] = set()
        self._pending: set[asyncio.Future[Any]] = set()
        self.session_timeout: float = client._session_timeout / 1000
        if is_own:
            self._watch_timeout(client._connection)
        client.add_listener(self)

    def _watch_timeout(self, connection: Any) -> None:  # noqa: ANN401 - the driver's
        """Read the timeout that the server agrees to, which the driver does not expose."""
        connect = connection._connect

        def watched(*address: Any) -> tuple[float, float]:  # noqa: ANN401 - the driver's
            read_ms, connect_ms = connect(*address)
            self.session_timeout = read_ms * READ_SHARE / 1000
            return read_ms, connect_ms

        connection._connect = watched

    def __call__(self, state: str) -> None:
        """Record the session's new state; runs in one of the driver's threads."""
        if state != CONNECTED:
            self.session = next(_sessions)
            if self._is_own:
                # Otherwise a server that was emptied would refuse the client for ever, because the
                # client has seen a later transaction.  All writes here compare a version, so an old
                # read does no harm.
                self.client.last_zxid = 0
        for future in tuple(self._waiting):
            _tell(future)

    async def ask(self, *requests: Callable[[Any], Any]) -> list[Any]:
        """Send requests in order, and return an answer or the driver's error for each.

        A cancelled call may have taken effect; no other call gets its answers.

        Args:
            *requests: functions that take the client, and return the driver's asynchronous result.

        Raises:
            StoreUnavailableError: there is no session, or not all answers came in time.
            StoreAuthenticationError: the user was refused.
            ForkedError: the session is the parent's.
        """
        with fail_if_forked():  # then nothing is sent: the session is the parent's
            await self._connected()
        answers = [self._send(request) for request in requests]
        with fail_if_forked():
            try:
                await asyncio.wait(answers, timeout=REPLY_TIMEOUT)
            finally:
                for answer in answers:
                    self._pending.discard(answer)
                    answer.cancel()
        if any(answer.cancelled() for answer in answers):
            raise StoreUnavailableError(STORE, f"no answer within {REPLY_TIMEOUT:g} s")
        return [answer.result() for answer in answers]

    def _send(self, request: Callable[[Any], Any]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def came(reply: Any) -> None:  # noqa: ANN401 - the driver's, in a thread of its own
            _tell(answer, reply.exception or reply.value)

        self._pending.add(answer)
        request(self.client).rawlink(came)
        return answer

    async def _connected(self) -> None:
        with anyio.move_on_after(REPLY_TIMEOUT):
            while True:
                changed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._waiting.add(changed)  # before the check, to miss no change in between
                try:
                    if self.client.connected:
                        return
                    if self.client.client_state == "AUTH_FAILED":
                        break
                    await changed
                finally:
                    self._waiting.discard(changed)
        state = self.client.client_state
        if state == "AUTH_FAILED":
            raise StoreAuthenticationError(STORE, "the server rejects the user or the password")
        hosts = ",".join(f"{host}:{port}" for host, port in self.client.hosts)
        why, remedy = f"no session with {hosts} within {REPLY_TIMEOUT:g} s", ""
        if state == "CLOSED" and not self._is_own:
            remedy = "start the client, which was not started or was stopped"
        raise StoreUnavailableError(STORE, why, remedy=remedy)

    async def aclose(self) -> None:
        """End the session and the driver's threads; after a cancellation they end by themselves."""
        for answer in tuple(self._pending):
            _tell(answer, closed(STORE))
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Not in the loop's thread pool: a loop that ends waits for those threads.
        self.client.handler.spawn(self._stop, done)
        await done

    def _stop(self, done: asyncio.Future[Any]) -> None:
        with contextlib.suppress(Exception):  # its writer hangs; the thread is a daemon
            self.client.stop()
            self.client.close()
        _tell(done)

    def forget(self) -> None:
        """Keep the driver from waiting for its threads in a forked child, which has none.

        It sends nothing there by itself: the connection stays the parent's.
        """
        atexit.unregister(self.client.handler.stop)


def wire_of(client: object) -> Wire:
    """Return the wire of a user's client, shared by all that use the client."""
    kazoo: Any = client  # the driver has no types
    known = (each for each in kazoo.state_listeners if isinstance(each, Wire))
    return next(known, None) or Wire(kazoo, is_own=False)


def _tell(future: asyncio.Future[Any], value: object = None) -> None:
    """Resolve a future of any loop, from any thread."""

    def tell() -> None:
        if not future.done():
            future.set_result(value)

    with contextlib.suppress(RuntimeError):  # its loop has ended
        future.get_loop().call_soon_threadsafe(tell)
