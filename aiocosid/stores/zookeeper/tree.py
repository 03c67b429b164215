"""ZooKeeper's nodes and connections: for the store, and for `aiocosid.compat`.

Requires the ``zookeeper`` extra.  Every call has a timeout.
"""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from ..._life.clock import SYSTEM_CLOCK
from ..._life.fork import NotCopyable
from ...errors import InvalidArgumentError, StoreError, StoreUnavailableError
from .._connection import CALL_TIMEOUT as _CALL_TIMEOUT
from .._connection import BorrowedConnection, Connection, OwnedConnection
from .._url import address_of, read_url
from .._url_specs import ZOOKEEPER
from ._paths import OURS as OURS
from ._paths import node_of as node_of
from ._wire import STORE as STORE
from ._wire import KazooClient, NodeExistsError, NoNodeError, Wire, as_store_error, wire_of
from ._wire import NoAuthError as NoAuthError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = (
    "ANY",
    "OURS",
    "STORE",
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
    "node_of",
    "write",
)

ANY: Final = -1  # the version that every node has

_BATCH: Final = 500  # requests under way at once
_FIRST_PAUSE: Final = 0.02  # seconds at most, after the first conflict; doubled by each further one
_LAST_PAUSE: Final = 0.5  # seconds at most

_CONFLICTS: Final = {"BadVersionError", "NoNodeError", "NodeExistsError", "NotEmptyError"}
# They follow from the failure of another change.
_FOLLOWERS: Final = {"RolledBackError", "RuntimeInconsistency"}

_T = TypeVar("_T")

Change = tuple[str, str, tuple[Any, ...]]
"""An operation of the driver's transaction: its name, the path, and further arguments."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    Attributes:
        data: its content.
        version: counts its changes; a node that was removed and created again begins at 0.
        created: the transaction that created it; unique among all nodes of all paths.
        changed: the transaction that wrote it last.
        changed_ms: the time of that, by the server's clock, in milliseconds since 1970.
        children: how many nodes there are below it.
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
        """Read an answer of the driver."""
        data, stat = answer
        when = stat.version, stat.czxid, stat.mzxid, stat.mtime
        return cls(data or b"", *when, stat.numChildren, stat.ephemeralOwner)


def expect(path: str, node: Node) -> Change:
    """Make a transaction fail if a node has changed since it was read."""
    return "check", path, (node.version,)


def create(path: str, data: bytes) -> Change:
    """Create a node; fails if it exists."""
    return "create", path, (data,)


def create_ephemeral(path: str, data: bytes) -> Change:
    """Create an ephemeral node of this session; fails if it exists."""
    return "create", path, (data, None, True)  # with the client's default ACL, and ephemeral


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
        """Read nodes, in this order; None for a missing one."""
        return _read(await self._ask(*map(self._getting, paths)))

    async def sync_and_read(self, clock: str, *paths: str) -> tuple[int, list[Node | None]]:
        """Read nodes as they are now, and the server's clock, in milliseconds since 1970.

        It begins with a write: after that a server that lagged behind reads the current state.

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
        """Return the names of a node's children, in order; none if it is missing."""
        (names,) = await self._ask(methodcaller("get_children_async", self._root + path))
        return sorted(names or ())

    async def walk(
        self, path: str, *, skip: Callable[[str], bool] = lambda _: False
    ) -> dict[str, Node]:
        """Return all nodes below one by their paths, without the node itself.

        Args:
            path: the top node.
            skip: returns for a name whether to leave out the node, and all below it.
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

        They are plain nodes.  CosId's Curator creates containers, which the driver cannot; both
        accept either kind.
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
            The driver's result of each change; None if a node was not as it was read, and nothing
            was changed.
        """
        transaction = self._wire.client.transaction()
        for what, path, arguments in changes:
            getattr(transaction, what)(self._root + path, *arguments)
        (results,) = await self._ask(lambda _: transaction.commit_async())
        done = zip(changes, results, strict=True)
        created = [(path, result) for (what, path, _), result in done if what == "create"]
        # A parent is missing: it was removed by hand, for example.
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
        """Create a sequential node, whose name ends with the parent's next number; return its name.

        A cancelled call may have created one.

        Raises:
            StoreError: the server refuses or cannot be reached, as for `ZookeeperLink.call`.
        """
        making = methodcaller("create_async", self._root + path, data, sequence=True)
        (created,) = await self._ask(making, passed=())
        return str(created)

    async def _ask(
        self, *requests: Callable[[Any], Any], passed: type[Exception] | tuple[()] = NoNodeError
    ) -> list[Any]:
        """Send requests; an ignored failure, as a missing node, is None."""
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
        """Always False: it is bound to no loop."""
        return False


class ZookeeperLink(NotCopyable):
    """Connections that stores and distributors share, on the user's client.

    Attributes:
        label: the deployment in messages, without credentials.
        address: the deployment in a URL, without credentials; empty on a user's client.
    """

    __slots__ = ("__weakref__", "_connection", "_root", "_timeout", "_wire", "address", "label")

    _connection: Connection[Wire]

    def __init__(self, client: object) -> None:
        """Take a client, which is never closed here, nor used after a fork.

        Raises:
            InvalidArgumentError: it is a client of another kind.
        """
        if not all(callable(getattr(client, name, None)) for name in ("get_async", "add_listener")):
            raise InvalidArgumentError("client", type(client), expected="a kazoo KazooClient")
        kazoo: Any = client  # the driver has no types
        self.label: str = (
            f"{','.join(f'{host}:{port}' for host, port in kazoo.hosts)}{kazoo.chroot}"
        )
        self.address: str = ""
        self._root, self._timeout = "", 0.0
        self._wire: Wire | None = wire_of(client)
        self._connection = _OnAnyLoop("the ZooKeeper client", wire_of(client))

    async def call(self, work: Callable[[Nodes], Coroutine[object, object, _T]]) -> _T:
        """Run ``work(nodes)``.

        Raises:
            StoreUnavailableError: it took longer than `_CALL_TIMEOUT`, or the server is
                unavailable.
            StoreError: the server refuses.
            ForkedError: the session is the parent's.
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

        In each conflict another client has succeeded.

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
        """Seconds that a session lives without a message: as requested, later as granted."""
        return self._wire.session_timeout if self._wire is not None else self._timeout

    async def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""
        await self._connection.aopen()

    async def aclose(self) -> None:
        """End the session, if it was begun here; the next call begins a new one."""
        await self._connection.aclose()


class OwnedLink(ZookeeperLink):
    """On a client created from a URL: started on first use, and again after closing or a fork."""

    __slots__ = ()

    def __init__(self, url: str) -> None:
        """Read a URL; nothing is sent yet.

        Raises:
            InvalidArgumentError: it is malformed.
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
                # The driver's own pauses grow to an hour.
                connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5},
            )
            self._wire = Wire(client, is_own=True)
            client.start_async()  # connects in threads of its own, which outlive a loop
            return self._wire

        self._connection = OwnedConnection(
            "the ZooKeeper session",
            connect=connect,
            disconnect=Wire.aclose,
            salvage=lambda wire: wire,
            silence=Wire.forget,
        )


def as_link(client: object) -> ZookeeperLink:
    """Return a link unchanged, or a new one on a user's client."""
    return client if isinstance(client, ZookeeperLink) else ZookeeperLink(client)
