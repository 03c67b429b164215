"""The bridge from an event loop to the driver, which lives in threads of its own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio

from ... import _fork
from ...errors import ForkedError, StoreAuthenticationError, StoreError, StoreUnavailableError
from ._errors import STORE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("REPLY_TIMEOUT", "Wire", "wire_of")

# Below the 2 s after which a generator gives a call up by default, so that it hears the reason.
REPLY_TIMEOUT: Final = 1.5  # seconds for a session, and for each reply
CLOSE_TIMEOUT: Final = 2.0  # seconds that a farewell may take

READ_SHARE: Final = 1.5  # the driver waits for two thirds of a session's time
CONNECTED: Final = "CONNECTED"  # of KazooState

_sessions = count(1)


class Wire:
    """One client of the driver's, and what its threads tell us.

    Any event loop may use it: a call's answer comes to the loop that has made it.  Nothing is sent
    while there is no session: the driver would keep it, and send it after its caller has gone.

    Attributes:
        client: a KazooClient.
        session: another one each time that the session was suspended, expired or closed.
        session_timeout: seconds without a sign of ours after which the server ends it: what the
            client asks for; of our own one, once it is known, what the server has agreed to.
    """

    __slots__ = ("_is_own", "_pending", "_waiting", "client", "session", "session_timeout")

    def __init__(self, client: Any, *, is_own: bool) -> None:  # noqa: ANN401 - the driver's
        self.client = client
        self.session = next(_sessions)
        self._is_own = is_own
        self._waiting: list[asyncio.Future[None]] = []
        self._pending: set[asyncio.Future[Any]] = set()
        self.session_timeout: float = client._session_timeout / 1000
        if is_own:
            self._watch_timeout(client._connection)
        client.add_listener(self)

    def _watch_timeout(self, connection: Any) -> None:  # noqa: ANN401 - the driver's
        """Learn what the server agrees to, which the driver keeps to itself."""
        connect = connection._connect

        def watched(*address: Any) -> tuple[float, float]:  # noqa: ANN401 - the driver's
            read_ms, connect_ms = connect(*address)
            self.session_timeout = read_ms * READ_SHARE / 1000
            return read_ms, connect_ms

        connection._connect = watched

    def __call__(self, state: str) -> None:
        """Take note of the session's new state; in one of the driver's threads."""
        if state != CONNECTED:
            self.session = next(_sessions)
            if self._is_own:
                # Else a server that was emptied refuses the client for ever, for it has seen more.
                # What is written here has a version, so that an old reading does no harm.
                self.client.last_zxid = 0
        for future in tuple(self._waiting):
            _tell(future, None, None)

    async def ask(self, *requests: Callable[[Any], Any]) -> list[Any]:
        """Send requests, one behind the other, and return an answer or the driver's error for each.

        A call that is given up may have taken effect; its answers are never seen by another.

        Args:
            *requests: each gets the client, and returns the driver's promise of an answer.

        Raises:
            StoreUnavailableError: there is no session, or not all answers came in time.
            StoreAuthenticationError: the user was refused.
            ForkedError: the session is the parent's.
        """
        generation = _fork.generation
        await self._connected()
        _ensure_own(generation)
        answers = [self._send(request) for request in requests]
        try:
            await asyncio.wait(answers, timeout=REPLY_TIMEOUT)
        finally:
            for answer in answers:
                self._pending.discard(answer)
                answer.cancel()
        _ensure_own(generation)  # the answers were, or will be, the parent's
        if any(answer.cancelled() for answer in answers):
            raise StoreUnavailableError(STORE, f"no answer within {REPLY_TIMEOUT:g} s")
        return [answer.exception() or answer.result() for answer in answers]

    def _send(self, request: Callable[[Any], Any]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def came(result: Any) -> None:  # noqa: ANN401 - the driver's, in a thread of its own
            error = result.exception
            _tell(answer, None if error else result.value, error)

        self._pending.add(answer)
        request(self.client).rawlink(came)
        return answer

    async def _connected(self) -> None:
        with anyio.move_on_after(REPLY_TIMEOUT):
            while not self.client.connected:
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(changed)
                try:
                    if self.client.client_state == "AUTH_FAILED":
                        break
                    if not self.client.connected:  # else it came in between
                        await changed
                finally:
                    self._waiting.remove(changed)
            else:
                return
        raise self._no_session()

    def _no_session(self) -> StoreError:
        state = self.client.client_state
        if state == "AUTH_FAILED":
            return StoreAuthenticationError(STORE, "the server rejects the user or the password")
        hosts = ",".join(f"{host}:{port}" for host, port in self.client.hosts)
        why = f"no session with {hosts} within {REPLY_TIMEOUT:g} s"
        if state == "CLOSED" and not self._is_own:
            why += "; the client was not started, or was stopped"
        return StoreUnavailableError(STORE, why)

    def start(self) -> None:
        """Have the driver connect, in its own threads; returns before it has."""
        self.client.start_async()

    async def aclose(self) -> None:
        """Say good-bye and end the driver's threads; bounded, also in a cancelled scope."""
        for answer in tuple(self._pending):
            _tell(answer, None, StoreUnavailableError(STORE, "closed while the call was under way"))
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await _in_a_thread(self._stop)

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # a writer that is stuck; its thread is a daemon
            self.client.stop()
            self.client.close()

    def forget(self) -> None:
        """Have the driver not wait for its threads at the end of a forked child, which has none.

        It says nothing there by itself: the connection stays the parent's.
        """
        atexit.unregister(self.client.handler.stop)


def wire_of(client: Any) -> Wire:  # noqa: ANN401 - a user's
    """Return the wire to a user's client: the same for all who use it."""
    known = (each for each in client.state_listeners if isinstance(each, Wire))
    return next(known, None) or Wire(client, is_own=False)


def _ensure_own(generation: int) -> None:
    if generation != _fork.generation:
        raise ForkedError("the call")


def _tell(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    """Resolve a future of whatever loop, from whatever thread."""

    def tell() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    with contextlib.suppress(RuntimeError):  # its loop has ended
        future.get_loop().call_soon_threadsafe(tell)


async def _in_a_thread(work: Callable[[], object]) -> None:
    """Run what may block in a thread of its own, which nobody has to wait for.

    Not in the loop's pool of threads: a loop that ends waits for those.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            work()
        except Exception as exc:  # noqa: BLE001 - for whoever waits
            _tell(done, None, exc)
        else:
            _tell(done, None, None)

    threading.Thread(target=run, name="aiocosid zookeeper", daemon=True).start()
    await done
