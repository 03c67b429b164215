"""A client of kazoo's whose connection leads to a simulated server, without a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import MissingExtraError
from ._loop import PROCESS
from ._zookeeper_tree import RefusedError, Znode

try:
    from kazoo import exceptions  # type: ignore[import-untyped]
    from kazoo.client import KazooClient  # type: ignore[import-untyped]
    from kazoo.protocol.states import KeeperState, ZnodeStat  # type: ignore[import-untyped]
except ModuleNotFoundError as _exc:
    raise MissingExtraError("kazoo", extra="zookeeper") from _exc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._link import Link
    from ._node import Node
    from ._zookeeper import Session, SimulatedZooKeeper

__all__ = ("Connection", "Direct", "Line", "kazoo")

BEHIND: Final = 1e-6  # seconds between two messages on one connection
REDIAL: Final = (0.02, 0.4)  # seconds between two attempts to connect
PINGS: Final = 3  # in a session's timeout; after one without an answer the driver gives up
WHOLE: Final = 0.7  # share of what is asked at once that also arrives at once
SHORT: Final = 16  # bytes of data that the trace shows: tokens are longer


def kazoo(session_timeout: float) -> Any:  # noqa: ANN401 - the driver's
    """Return a client of the driver's, to be given a connection."""
    return KazooClient(hosts="simulated:2181", timeout=session_timeout)


class Line:
    """One connection: what is sent on it arrives in order, up to where it breaks.

    Attributes:
        number: of the session; 0 before there is one.
        arrives: when the last request does.
        returns: when the last answer does.
        is_deaf: whether nothing more comes to the server.
        is_mute: whether nothing more comes back.
        is_pinged: whether the answer to a sign of life is to come.
    """

    __slots__ = ("arrives", "is_deaf", "is_mute", "is_pinged", "number", "returns")

    def __init__(self) -> None:
        self.number = 0
        self.arrives = self.returns = 0.0
        self.is_deaf = self.is_mute = self.is_pinged = False


class Connection:
    """Stands where the driver has its own, with the thread that reads and writes a socket.

    What the driver does runs in its process: stopped with it, and dead with it.  What is on its way
    is not: a request that was sent arrives.
    """

    def __init__(self, zookeeper: SimulatedZooKeeper, node: Node, link: Link, client: Any) -> None:  # noqa: ANN401 - the driver's
        """See `SimulatedZooKeeper.client`."""
        self._zookeeper = zookeeper
        self._node = node
        self._world = node.world
        self._link = link
        self._client = client
        self._timeout = client._session_timeout / 1000
        self._process = node._current()
        self._context = node.world.context.copy()
        self._context.run(PROCESS.set, self._process)
        self._line: Line | None = None
        self._is_awake = False
        self._write_sock = self  # which the driver wakes up

    def start(self) -> None:
        """Connect, and give signs of life from then on."""
        self._client._session_callback(KeeperState.CONNECTING)
        self._dial()
        self._tick()

    def hang_up(self) -> None:
        """Have the server close it."""
        if self._line is not None:
            self._line.is_deaf = self._line.is_mute = True
            self._later(self._link._latency(), self._break, self._line)

    # Time passes in the world, and the driver's steps are the process's.

    def _later(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        when = self._world.time + seconds
        self._world.loop.call_at(when, callback, *args, context=self._world.context)

    def _in_process(self, callback: Callable[..., object], *args: object) -> None:
        self._world.loop.call_soon(callback, *args, context=self._context)

    @property
    def _is_over(self) -> bool:
        return self._process.is_dead or self._world.is_over

    # A session.

    def _dial_later(self) -> None:
        self._later(self._world.rng.uniform(*REDIAL), self._dial)

    def _dial(self) -> None:
        if not self._is_over:
            go = self._ask_for_session if self._process.is_running else self._dial_later
            self._later(self._node._lead + self._link._latency(), go)

    def _ask_for_session(self) -> None:
        faults, line = self._link.faults, Line()
        if self._link._loses_requests or self._link._happens(faults.lose_request):
            self._dial_later()
            return
        try:
            number = self._client._session_id or 0
            session = self._zookeeper.connect(number, self._timeout, line)
        except ConnectionRefusedError:
            self._dial_later()
            return
        if self._link._loses_replies or self._link._happens(faults.lose_reply):
            self._dial_later()
            return
        self._later(self._link._latency(), self._in_process, self._connected, session, line)

    def _connected(self, session: Session | None, line: Line) -> None:
        if self._is_over:
            return
        if session is None:
            self._world.note(self._node.name, "hears", "that its session has ended")
            self._client._session_callback(KeeperState.EXPIRED_SESSION)
            self._client._session_callback(KeeperState.CONNECTING)
            self._dial_later()
            return
        self._world.note(self._node.name, "is connected", f"in session {session.number}")
        line.number = self._client._session_id = session.number
        self._line = line
        self._client._session_callback(KeeperState.CONNECTED)
        self.send(b"")

    def _tick(self) -> None:
        """Give a sign of life, unless the last one is not answered yet."""
        if self._is_over:
            return
        self._later(self._timeout / PINGS, self._tick)
        line = self._line
        if line is None or not self._process.is_running:
            return
        if line.is_pinged:
            self._break(line)
        else:
            line.is_pinged = True
            self._transmit(line, [None])

    def _break(self, line: Line) -> None:
        self._in_process(self._drop, line)

    def _drop(self, line: Line) -> None:
        """Give a connection up: whatever was asked may have been done."""
        if line is self._line and not self._is_over:
            self._line = None
            self._world.note(self._node.name, "is disconnected")
            self._client._session_callback(KeeperState.CONNECTING)
            self._world.ledger.interrupted(self._process, at=self._world.time)
            self._dial_later()

    # Requests.

    def send(self, _: bytes) -> None:
        """Have the driver's queue sent, if there is a connection, with what comes at once."""
        if not self._is_awake:
            self._is_awake = True
            self._in_process(self._flush)

    def _flush(self) -> None:
        self._is_awake = False
        queue, line, rng = self._client._queue, self._line, self._world.rng
        if line is None or self._is_over:
            return
        while queue:
            # Others may come in between two pieces.
            size = len(queue) if rng.random() < WHOLE else rng.randrange(1, len(queue) + 1)
            sent = [queue.popleft() for _ in range(size)]
            self._client._pending.extend((*each, 0) for each in sent)
            requests = [request for request, _ in sent]
            self._world.note(self._node.name, "calls", ", ".join(map(_shown, requests)))
            self._transmit(line, requests)

    def _transmit(self, line: Line, requests: list[Any]) -> None:
        # A stalled sender sends when its step comes to it.
        at = self._world.time + self._node._lead + self._link._latency()
        line.arrives = max(line.arrives + BEHIND, at)
        self._later(line.arrives - self._world.time, self._arrive, line, requests)

    def _arrive(self, line: Line, requests: list[Any]) -> None:
        faults = self._link.faults
        if line.is_deaf or self._link._loses_requests or self._link._happens(faults.lose_request):
            line.is_deaf = True
            self._lose(line, "request of", requests)
            return
        try:
            answers = [self._answer(line, request) for request in requests]
        except ConnectionRefusedError:
            self._later(self._link._latency(), self._break, line)
            return
        if self._link._happens(faults.lose_reply):
            line.is_mute = True
        line.returns = max(line.returns + BEHIND, self._world.time + self._link._latency())
        self._later(line.returns - self._world.time, self._return, line, requests, answers)

    def _answer(self, line: Line, request: Any) -> object:  # noqa: ANN401 - the driver's
        is_heard = line is self._line
        try:
            answer = self._zookeeper.serve(line, request, self._process, is_heard=is_heard)
        except RefusedError as refusal:
            answer = refusal
        if request is not None:
            told = f"{_shown(request)} of {self._node.name}: {_told(answer)}"
            self._world.note("store", "does", told)
        return answer

    def _return(self, line: Line, requests: list[Any], answers: list[object]) -> None:
        if line.is_mute or self._link._loses_replies:
            line.is_mute = True
            self._lose(line, "reply to", requests)
        else:
            self._in_process(self._read, line, requests, answers)

    def _lose(self, line: Line, what: str, requests: list[Any]) -> None:
        """Lose something; the driver learns of it at once, or when nothing more comes."""
        shown = ", ".join(map(_shown, requests))
        self._world.note(self._node.name, "loses", f"the {what} {shown}")
        if self._link._happens(self._link.faults.reset):
            self._later(self._link._latency(), self._break, line)

    def _read(self, line: Line, requests: list[Any], answers: list[object]) -> None:
        for request, answer in zip(requests, answers, strict=True):
            if line is not self._line:
                return
            if request is None:
                line.is_pinged = False
            else:
                _settle(self._client._pending.popleft()[1], answer)


class Direct:
    """A connection on which everything is answered at once."""

    def __init__(self, zookeeper: SimulatedZooKeeper, client: Any) -> None:  # noqa: ANN401 - the driver's
        """See `SimulatedZooKeeper.operator`."""
        self._zookeeper = zookeeper
        self._client = client
        self._write_sock = self
        self._line = Line()
        client._session_callback(KeeperState.CONNECTED)

    def send(self, _: bytes) -> None:
        """Answer what the driver has in its queue."""
        line = self._line
        while self._client._queue:
            request, promise = self._client._queue.popleft()
            try:
                if not line.number:
                    session = self._zookeeper.connect(0, 1e6, line)
                    assert session is not None
                    line.number = session.number
                answer = self._zookeeper.serve(line, request, None, is_heard=True)
            except RefusedError as refusal:
                answer = refusal
            except ConnectionRefusedError:
                line.number = 0  # another session, the next time
                promise.set_exception(exceptions.ConnectionLoss())
                continue
            _settle(promise, answer)


def _settle(promise: Any, answer: object) -> None:  # noqa: ANN401 - the driver's
    if isinstance(answer, RefusedError):
        promise.set_exception(_as_driver(answer))
    else:
        promise.set(_as_driver(answer))


def _as_driver(answer: object) -> object:
    """Return an answer as the driver reads it."""
    if isinstance(answer, RefusedError):
        return getattr(exceptions, str(answer))()
    if isinstance(answer, Znode):
        a = answer
        counts = a.version, 2 * a.made - a.children, 0, a.owner, len(a.data), a.children
        return ZnodeStat(a.czxid, a.mzxid, a.ctime, a.mtime, *counts, 0)
    if isinstance(answer, (list, tuple)):
        each = map(_as_driver, cast("Sequence[object]", answer))
        return tuple(each) if isinstance(answer, tuple) else list(each)
    return answer


def _shown(request: Any) -> str:  # noqa: ANN401 - the driver's
    if request is None:
        return "a sign of life"
    first, *rest = getattr(request, "operations", (request,))
    more = f" and {len(rest)} more" if rest else ""
    return f"{type(first).__name__} {first.path}{more}"


def _told(answer: object) -> str:
    """Return an answer without what is drawn by the operating system."""
    match answer:
        case (bytes(data), Znode(version=version)):
            return f"{data!r} v{version}" if len(data) <= SHORT else f"v{version}"
        case Znode(version=version):
            return f"v{version}"
        case list():
            return ", ".join(map(_told, cast("list[object]", answer)))
        case _:
            return str(answer)
