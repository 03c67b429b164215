"""ZooKeeper's paths, nodes and connections: for the store, and for `aiocosid.compat`.

Requires the ``zookeeper`` extra.  The driver has its own threads and no types; `Wire` is the bridge
between those threads and an event loop.  Every call has a timeout.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import random
import re
from dataclasses import dataclass
from itertools import accumulate, count
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

import anyio

from ..._life.clock import SYSTEM_CLOCK
from ...errors import (
    InvalidArgumentError,
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from .._connection import CALL_TIMEOUT as _CALL_TIMEOUT
from .._connection import (
    BorrowedConnection,
    Link,
    OwnedConnection,
    closed,
    fail_if_forked,
    translate_errors,
)
from .._url import ZOOKEEPER, address_of, read_url

try:
    from kazoo import client as _client  # type: ignore[import-untyped]
    from kazoo import exceptions as _exceptions
except ModuleNotFoundError as _exc:
    raise MissingExtraError("kazoo", extra="zookeeper") from _exc

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = (
    "ANY",
    "COSID",
    "OURS",
    "STORE",
    "STORES_OWN",
    "Change",
    "NoAuthError",
    "Node",
    "Nodes",
    "OwnedLink",
    "ZookeeperLink",
    "as_link",
    "create",
    "create_ephemeral",
    "delete",
    "expect",
    "name_of",
    "node_of",
    "own_node_of",
    "path_of",
    "text_of",
    "write",
)

COSID: Final = "/cosid"
"""The root of CosId's nodes."""

OURS: Final = "/aiocosid"
"""The root of aiocosid's own nodes."""

STORES_OWN: Final = frozenset(("clock", "counts", "leaf", "marker", "namespaces", "twitter"))
"""Nodes below `OURS` that do not belong to a namespace."""

# Characters that a server refuses in a path, so no Java process can have used them.
_REFUSED: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\uffff\U00010000-\U0010ffff]"
)
_NO_PATH: Final = re.compile(r"/{2,}|^/|/$|(?:^|/)\.{1,2}(?=/|$)")
_RESERVED: Final = re.compile(r"(?:^|/)_(?=_(?:counter|itc_idx|revert)(?:-locker)?(?:/|$))")
_LOOKS_ESCAPED: Final = re.compile(r"%(?=[0-9A-Fa-f]{2})")


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def path_of(text: str) -> str:
    """Return the path of a counter or a namespace below `COSID`, without the first slash.

    As in CosId, a slash begins a child node.  Invalid names are escaped as in a URL.  Another text
    may have the same path; two counters that share a node do not repeat ids.
    """
    text = _RESERVED.sub(lambda match: match[0].replace("_", "%5F"), text)
    if _NO_PATH.search(text):
        text = text.replace("/", "%2F")
        if set(text) == {"."}:
            text = text.replace(".", "%2E")
    return _REFUSED.sub(_escaped, text)


def text_of(path: str) -> str:
    """Return the text of a path."""
    text = unquote(path, errors="replace")
    return text if path_of(text) == path else path


def node_of(text: str) -> str:
    """Return the node name of an instance or a namespace; each text has a different one.

    It is the plain text where CosId would accept that, so both systems find each other's nodes.
    """
    text = _LOOKS_ESCAPED.sub("%25", text).replace("/", "%2F")
    if text in {".", ".."}:
        return text.replace(".", "%2E")
    return _REFUSED.sub(_escaped, text)


def own_node_of(namespace: str) -> str:
    """Return the name of a namespace's node below `OURS`."""
    name = node_of(namespace)
    return f"%{ord(name[0]):02X}{name[1:]}" if name in STORES_OWN else name


def name_of(node: str, node_of: Callable[[str], str] = node_of) -> str:
    """Return the text of a node's name; another system's name is returned unchanged."""
    text = unquote(node, errors="replace")
    return text if node_of(text) == node else node


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

# This is below the default 2 s timeout of a generator's call, so that the generator gets the
# reason.
REPLY_TIMEOUT: Final = 1.5  # seconds to wait for a session, and for each reply

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
    session, because the driver would keep the request and send it after its caller has gone.

    Attributes:
        client: a KazooClient.
        session: a number that changes each time the session is suspended, expires or is closed.
        session_timeout: seconds without a message after which the server ends the session, as the
            client requested; for a client that aiocosid created, as the server agreed, once known.
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
        """Record the timeout that the server agrees to, which the driver does not expose."""
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
                # client has seen a later transaction.  An old read does no harm, because all writes
                # compare a version.
                self.client.last_zxid = 0
        for future in tuple(self._waiting):
            _tell(future)

    async def ask(self, *requests: Callable[[Any], Any]) -> list[Any]:
        """Send requests in order, and return an answer or the driver's error for each.

        A cancelled call may have taken effect; no other call receives its answers.

        Args:
            *requests: functions that take the client, and return the driver's asynchronous result.

        Raises:
            StoreUnavailableError: there is no session, or not all answers came in time.
            StoreAuthenticationError: the user was refused.
            ForkedError: the session belongs to the parent process.
        """
        with fail_if_forked():  # in a child nothing is sent: the session is the parent's
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

        def came(reply: Any) -> None:  # noqa: ANN401 - the driver's, called in its own thread
            _tell(answer, reply.exception or reply.value)

        self._pending.add(answer)
        request(self.client).rawlink(came)
        return answer

    async def _connected(self) -> None:
        with anyio.move_on_after(REPLY_TIMEOUT):
            while True:
                changed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._waiting.add(changed)  # before the check, so that no change is missed
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
        # This does not use the loop's thread pool, because a loop that ends waits for its threads.
        self.client.handler.spawn(self._stop, done)
        await done

    def _stop(self, done: asyncio.Future[Any]) -> None:
        with contextlib.suppress(Exception):  # the client's writer hangs; its thread is a daemon
            self.client.stop()
            self.client.close()
        _tell(done)

    def forget(self) -> None:
        """Keep the driver from waiting for its threads in a forked child, which has none.

        The driver sends nothing in the child by itself: the connection stays the parent's.
        """
        atexit.unregister(self.client.handler.stop)


def wire_of(client: object) -> Wire:
    """Return the wire of a user's client, shared by all users of that client."""
    kazoo: Any = client  # the driver has no types
    known = (each for each in kazoo.state_listeners if isinstance(each, Wire))
    return next(known, None) or Wire(kazoo, is_own=False)


def _tell(future: asyncio.Future[Any], value: object = None) -> None:
    """Resolve a future of any loop, from any thread."""

    def tell() -> None:
        if not future.done():
            future.set_result(value)

    with contextlib.suppress(RuntimeError):  # the future's loop has ended
        future.get_loop().call_soon_threadsafe(tell)


ANY: Final = -1  # a version that matches every node

_BATCH: Final = 500  # concurrent requests
_FIRST_PAUSE: Final = 0.02  # maximum seconds after the first conflict; each further one doubles it
_LAST_PAUSE: Final = 0.5  # seconds at most

_CONFLICTS: Final = {"BadVersionError", "NoNodeError", "NodeExistsError", "NotEmptyError"}
# These errors follow from the failure of another change.
_FOLLOWERS: Final = {"RolledBackError", "RuntimeInconsistency"}

_T = TypeVar("_T")

Change = tuple[str, str, tuple[Any, ...]]
"""An operation of the driver's transaction: its name, the path, and further arguments."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    Attributes:
        data: its content.
        version: the number of its changes; a node that was removed and created again begins at 0.
        created: the transaction that created it; unique among all nodes of all paths.
        changed: the transaction that last wrote the node.
        changed_ms: the time of that write on the server's clock, in milliseconds since 1970.
        children: how many children the node has.
        owner: the session of an ephemeral node; 0 for a persistent one.
    """

    data: bytes
    version: int
    created: int
    changed: int
    changed_ms: int
    children: int
    owner: int

    @classmethod
    def of(cls, answer: Any) -> Node:  # noqa: ANN401 - the driver's
        """Return the node in an answer of the driver."""
        data, stat = answer
        when = stat.version, stat.czxid, stat.mzxid, stat.mtime
        return cls(data or b"", *when, stat.numChildren, stat.ephemeralOwner)


def expect(path: str, node: Node) -> Change:
    """Make a transaction fail if a node has changed since it was read."""
    return "check", path, (node.version,)


def create(path: str, data: bytes) -> Change:
    """Create a node; the transaction fails if it exists."""
    return "create", path, (data,)


def create_ephemeral(path: str, data: bytes) -> Change:
    """Create an ephemeral node of this session; the transaction fails if it exists."""
    return "create", path, (data, None, True)  # with the client's default ACL, as an ephemeral node


def write(path: str, data: bytes, node: Node | None) -> Change:
    """Write a node if it is unchanged since it was read; create it if there was none."""
    return create(path, data) if node is None else ("set_data", path, (data, node.version))


def delete(path: str, node: Node) -> Change:
    """Remove a node if it is unchanged since it was read."""
    return "delete", path, (node.version,)


class Nodes:
    """The tree below a root, through one client."""

    __slots__ = ("_root", "_wire")

    def __init__(self, wire: Wire, root: str) -> None:
        self._wire = wire
        self._root = root

    async def get(self, *paths: str) -> list[Node | None]:
        """Read nodes, in this order; None for a missing node."""
        return _read(await self._ask(*map(self._getting, paths)))

    async def sync_and_read(self, clock: str, *paths: str) -> tuple[int, list[Node | None]]:
        """Read nodes as they are now, and the server's clock, in milliseconds since 1970.

        It begins with a write, after which even a server that lagged behind reads the current
        state.

        Args:
            clock: the path of a node to write; it is created if it is missing.
            *paths: the nodes to read.
        """
        tick = methodcaller("set_async", self._root + clock, b"")
        while True:
            ticked, *found = await self._ask(tick, *map(self._getting, paths))
            if ticked is not None:
                return ticked.mtime, _read(found)
            await self.ensure(clock)

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children, in order; empty if the node is missing."""
        (names,) = await self._ask(methodcaller("get_children_async", self._root + path))
        return sorted(names or ())

    async def walk(
        self, path: str, *, skip: Callable[[str], bool] = lambda _: False
    ) -> dict[str, Node]:
        """Return all nodes below one by their paths, without the node itself.

        Args:
            path: the top node.
            skip: returns for a name whether to leave out the node and everything below it.
        """
        found: dict[str, Node] = {}
        above = [path]
        while above:
            paths = [
                f"{parent}/{name}"
                for parent in above
                for name in await self.children(parent)
                if not skip(name)
            ]
            level = zip(paths, await self.get(*paths), strict=True)
            here = {each: node for each, node in level if node is not None}
            found |= here
            above = [each for each, node in here.items() if node.children]
        return found

    async def ensure(self, *paths: str) -> None:
        """Create missing nodes without data, and missing nodes above them.

        The nodes are plain nodes.  CosId's Curator creates container nodes, which the driver
        cannot; both systems accept either kind.
        """
        steps = (accumulate((self._root + path).split("/"), "{}/{}".format) for path in paths)
        missing = dict.fromkeys(each for step in steps for each in step if each)  # in order
        try:
            making = (methodcaller("create_async", each, b"") for each in missing)
            await self._ask(*making, passed=NodeExistsError)
        except NoNodeError as exc:
            reason = "the client's chroot does not exist"
            raise StoreError(STORE, reason, remedy="create it first") from exc

    async def commit(self, *changes: Change) -> list[object] | None:
        """Commit all changes or none.

        Returns:
            The driver's result of each change; None if a node had changed since it was read, and
            nothing was written.
        """
        transaction = self._wire.client.transaction()
        for what, path, arguments in changes:
            getattr(transaction, what)(self._root + path, *arguments)
        (results,) = await self._ask(lambda _: transaction.commit_async())
        done = zip(changes, results, strict=True)
        created = [(path, result) for (what, path, _), result in done if what == "create"]
        # A parent is missing, for example because it was removed by hand.
        if any(isinstance(result, NoNodeError) for _, result in created):
            await self.ensure(*(path.rpartition("/")[0] for path, _ in created))
            return await self.commit(*changes)
        failed = {type(each).__name__: each for each in results if isinstance(each, Exception)}
        if failed.keys() & _CONFLICTS:
            return None
        for name in failed.keys() - _FOLLOWERS:
            raise failed[name]
        return list(results)

    @property
    def owner(self) -> int:
        """The current session, as in `Node.owner`.

        Raises:
            StoreUnavailableError: there is no session now.
        """
        found = self._wire.client.client_id
        if found is None:
            raise StoreUnavailableError(STORE, "the session was interrupted")
        session: int = found[0]
        return session

    async def create_numbered(self, path: str, data: bytes) -> str:
        """Create a sequential node, and return its name, which ends with the parent's next number.

        A cancelled call may have created a node.

        Raises:
            StoreError: the server refuses or cannot be reached, as for `ZookeeperLink.call`.
        """
        making = methodcaller("create_async", self._root + path, data, sequence=True)
        (created,) = await self._ask(making, passed=())
        return str(created)

    async def _ask(
        self, *requests: Callable[[Any], Any], passed: type[Exception] | tuple[()] = NoNodeError
    ) -> list[Any]:
        """Send requests; an ignored failure, for example a missing node, is returned as None."""
        answers: list[Any] = []
        for start in range(0, len(requests), _BATCH):
            answers += await self._wire.ask(*requests[start : start + _BATCH])
        for each in answers:
            if isinstance(each, Exception) and not isinstance(each, passed):
                raise each
        return [None if isinstance(each, Exception) else each for each in answers]

    def _getting(self, path: str) -> Callable[[Any], Any]:
        return methodcaller("get_async", self._root + path)


def _read(answers: list[Any]) -> list[Node | None]:
    return [None if each is None else Node.of(each) for each in answers]


class _OnAnyLoop(BorrowedConnection[Wire]):
    """The user's client: its threads belong to no event loop, so several loops may share it."""

    __slots__ = ()

    @property
    def _is_in_use(self) -> bool:
        """Always False, because the client is not bound to a loop."""
        return False


class ZookeeperLink(Link[Wire]):
    """Connections that stores and distributors share, on the user's client.

    Attributes:
        label: the deployment in messages, without credentials.
        address: the deployment as a URL without credentials; empty for a user's client.
    """

    __slots__ = ("_root", "_timeout", "_wire", "address", "label")

    def __init__(self, client: object) -> None:
        """Use a client, which is never closed, and never used after a fork.

        Raises:
            InvalidArgumentError: ``client`` is not a kazoo client.
        """
        if not all(callable(getattr(client, name, None)) for name in ("get_async", "add_listener")):
            raise InvalidArgumentError("client", type(client), "must be a kazoo KazooClient")
        kazoo: Any = client  # the driver has no types
        self.label: str = (
            f"{','.join(f'{host}:{port}' for host, port in kazoo.hosts)}{kazoo.chroot}"
        )
        self.address: str = ""
        self._root, self._timeout = "", 0.0
        self._wire: Wire | None = wire_of(client)
        super().__init__(_OnAnyLoop("the ZooKeeper client", wire_of(client)))

    async def call(self, work: Callable[[Nodes], Coroutine[object, object, _T]]) -> _T:
        """Run ``work(nodes)``.

        Raises:
            StoreUnavailableError: the call took longer than `_CALL_TIMEOUT`, or the server is
                unavailable.
            StoreError: the server refuses.
            ForkedError: the session belongs to the parent process.
            WrongLoopError: the session is in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        with as_store_error(), anyio.move_on_after(_CALL_TIMEOUT):
            return await work(Nodes(await self._connection.ready(), self._root))
        raise StoreUnavailableError(STORE, f"not done within {_CALL_TIMEOUT:g} s")

    async def until_done(
        self, attempt: Callable[[Nodes], Coroutine[object, object, _T | None]]
    ) -> _T:
        """Run ``attempt(nodes)`` until it returns a result: None means a conflict.

        Each conflict means that another client succeeded.

        Raises:
            CosIdError: as for `call`.
        """

        async def work(nodes: Nodes) -> _T:
            longest = 0.0
            while (found := await attempt(nodes)) is None:
                await SYSTEM_CLOCK.sleep(random.uniform(0, longest))  # noqa: S311 - it spreads load
                longest = min(max(2 * longest, _FIRST_PAUSE), _LAST_PAUSE)
            return found

        return await self.call(work)

    @property
    def session(self) -> int:
        """A number that changes at each interruption of the session; any thread may read it."""
        return self._wire.session if self._wire is not None else 0

    @property
    def session_timeout(self) -> float:
        """Seconds that a session lives without a message, as requested, and later as granted."""
        return self._wire.session_timeout if self._wire is not None else self._timeout


class OwnedLink(ZookeeperLink):
    """A link whose client comes from a URL; it starts on first use and after closing or a fork."""

    __slots__ = ()

    def __init__(self, url: str) -> None:
        """Read a URL; nothing is sent yet.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        found = read_url(url, ZOOKEEPER)
        self.label: str = str(found)
        self.address: str = address_of(url)
        self._root = found.path
        self._wire = None
        self._timeout = found.options["session_timeout"]

        async def connect() -> Wire:
            client = KazooClient(
                hosts=",".join(map(str, found.hosts)),
                timeout=self._timeout,
                auth_data=[("digest", ":".join(found.login))] if found.login else None,
                # The driver's default pauses grow to an hour.
                connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5},
            )
            self._wire = Wire(client, is_own=True)
            client.start_async()  # connects in its own threads, which outlive a loop
            return self._wire

        connection = OwnedConnection(
            "the ZooKeeper session",
            connect=connect,
            disconnect=Wire.aclose,
            salvage=lambda wire: wire,
            silence=Wire.forget,
        )
        super(ZookeeperLink, self).__init__(connection)


def as_link(client: object) -> ZookeeperLink:
    """Return a link unchanged, or a new one on a user's client."""
    return client if isinstance(client, ZookeeperLink) else ZookeeperLink(client)
