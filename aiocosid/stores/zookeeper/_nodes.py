"""Nodes of a tree, read and written by a call that is bounded, whatever the server does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...errors import StoreError, StoreUnavailableError
from ._driver import NodeExistsError, NoNodeError
from ._errors import STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._wire import Wire

__all__ = (
    "ANY",
    "Change",
    "Node",
    "Nodes",
    "create",
    "create_ephemeral",
    "delete",
    "expect",
    "write",
)

ANY: Final = -1  # the version that every node has

BATCH: Final = 500  # requests under way at once

Change = tuple[str, str, Any, int]
"""What to do, to which path, with what data, if it has which version."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    Attributes:
        data: what it holds.
        version: counts its changes; one that was removed and made anew begins at 0.
        born: the transaction that made it: no other node, of whatever path, has the same.
        changed: the last transaction that has written it.
        changed_ms: when that was, by the server's clock, in milliseconds since 1970.
        children: how many nodes there are below it.
        owner: the session with which it will go; 0 for one that stays.
    """

    data: bytes
    version: int
    born: int
    changed: int
    changed_ms: int
    children: int
    owner: int

    @classmethod
    def of(cls, answer: Any) -> Node:  # noqa: ANN401 - the driver's
        """Read what the driver has answered."""
        data, stat = answer
        when = stat.version, stat.czxid, stat.mzxid, stat.mtime
        return cls(data or b"", *when, stat.numChildren, stat.ephemeralOwner)


def expect(path: str, node: Node) -> Change:
    """Have a transaction fail if a node has changed since it was read."""
    return "check", path, b"", node.version


def create(path: str, data: bytes) -> Change:
    """Make a node; fails if there is one."""
    return "create", path, data, ANY


def create_ephemeral(path: str, data: bytes) -> Change:
    """Make a node that goes with our session; fails if there is one."""
    return "ephemeral", path, data, ANY


def write(path: str, data: bytes, node: Node | None) -> Change:
    """Write a node as it was read; make it, if there was none."""
    return create(path, data) if node is None else ("set_data", path, data, node.version)


def delete(path: str, node: Node) -> Change:
    """Remove a node as it was read."""
    return "delete", path, b"", node.version


class Nodes:
    """The tree below a root, by way of one client."""

    __slots__ = ("_root", "_wire")

    def __init__(self, wire: Wire, root: str) -> None:
        self._wire = wire
        self._root = root

    async def get(self, *paths: str) -> list[Node | None]:
        """Read nodes, in this order; None for what is not there."""
        found: list[Node | None] = []
        for start in range(0, len(paths), BATCH):
            batch = paths[start : start + BATCH]
            answers = await self._wire.ask(*(self._getting(path) for path in batch))
            found += (None if _is_missing(each) else Node.of(_sound(each)) for each in answers)
        return found

    async def look(self, clock: str, *paths: str) -> tuple[int, list[Node | None]] | None:
        """Read nodes as they are now, and the server's clock, in milliseconds since 1970.

        It begins with a write: whatever a server that lags behind has missed, it reads after that.

        Args:
            clock: the path of a node to write to; None is returned if it is not there.
            *paths: what to read.
        """
        ticked, *answers = await self._wire.ask(
            lambda client: client.set_async(self._at(clock), b""),
            *(self._getting(path) for path in paths),
        )
        if _is_missing(ticked):
            return None
        found = [None if _is_missing(each) else Node.of(_sound(each)) for each in answers]
        return _sound(ticked).mtime, found

    async def children(self, path: str) -> list[str]:
        """Return the names of the nodes below one, in order; none if it is not there."""
        (answer,) = await self._wire.ask(lambda client: client.get_children_async(self._at(path)))
        return [] if _is_missing(answer) else sorted(_sound(answer))

    async def walk(self, path: str, *, skip: Callable[[str], bool]) -> dict[str, Node]:
        """Return all nodes below one by their paths, without that one.

        Args:
            path: where to begin.
            skip: tells of a name whether to leave the node out, and all below it.
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

    async def create(self, path: str, data: bytes) -> None:
        """Make a node, and those above it where they are missing.

        They are plain ones.  CosId's Curator makes them containers, which the driver cannot; both
        take what they find.

        Raises:
            NodeExistsError: there is one.
        """
        (answer,) = await self._wire.ask(lambda client: client.create_async(self._at(path), data))
        if not _is_missing(answer):
            _sound(answer)
            return
        await self.ensure(path.rpartition("/")[0])
        (answer,) = await self._wire.ask(lambda client: client.create_async(self._at(path), data))
        _sound(answer)

    async def ensure(self, *paths: str) -> None:
        """Make nodes without data, and those above them, where they are missing."""
        missing: dict[str, None] = {}  # in order, each once
        for path in paths:
            names = self._at(path).split("/")[1:]
            missing |= dict.fromkeys(
                "/" + "/".join(names[:depth]) for depth in range(1, len(names) + 1)
            )
        for answer in await self._wire.ask(*(self._creating(each) for each in missing)):
            if _is_missing(answer):
                raise StoreError(STORE, "the client's chroot does not exist; create it first")
            if not isinstance(answer, NodeExistsError):
                _sound(answer)

    async def write(self, path: str, data: bytes, version: int) -> Node:
        """Write a node if it has that version, or `ANY`.

        Raises:
            BadVersionError: it has another one.
            NoNodeError: it is not there.
        """
        (answer,) = await self._wire.ask(
            lambda client: client.set_async(self._at(path), data, version)
        )
        return Node.of((data, _sound(answer)))

    async def commit(self, *changes: Change) -> int | None:
        """Do all of it, or nothing.

        Returns:
            The number of the transaction, if a node was written that had been there, else 0; None
            if a node was not as it had been read, and nothing was done.
        """

        def send(client: Any) -> Any:  # noqa: ANN401 - the driver's
            transaction = client.transaction()
            for what, path, data, version in changes:
                _add(transaction, what, self._at(path), data, version)
            return transaction.commit_async()

        (answer,) = await self._wire.ask(send)
        results: Sequence[Any] = _sound(answer)
        failed = [each for each in results if isinstance(each, Exception)]
        if any(type(each).__name__ in _CONFLICTS for each in failed):
            for (what, path, *_), result in zip(changes, results, strict=True):
                if what == "create" and _is_missing(result):  # as by somebody's hand
                    await self.ensure(path.rpartition("/")[0])
            return None
        for each in failed:
            if type(each).__name__ not in _FOLLOWERS:
                raise each
        return max((getattr(each, "mzxid", 0) for each in results), default=0)

    @property
    def owner(self) -> int:
        """The session in which we are, as `Node.owner` names it.

        Raises:
            StoreUnavailableError: there is none now.
        """
        found = self._wire.client.client_id
        if found is None:
            raise StoreUnavailableError(STORE, "the session was interrupted")
        session: int = found[0]
        return session

    def _at(self, path: str) -> str:
        return self._root + path

    def _getting(self, path: str) -> Callable[[Any], Any]:
        return lambda client: client.get_async(self._at(path))

    def _creating(self, path: str) -> Callable[[Any], Any]:
        return lambda client: client.create_async(path, b"")


_CONFLICTS: Final = {"BadVersionError", "NoNodeError", "NodeExistsError", "NotEmptyError"}
_FOLLOWERS: Final = {"RolledBackError", "RuntimeInconsistency"}  # of another change's failure


def _add(transaction: Any, what: str, path: str, data: bytes, version: int) -> None:  # noqa: ANN401 - the driver's
    if what == "check":
        transaction.check(path, version)
    elif what in {"create", "ephemeral"}:
        transaction.create(path, data, ephemeral=what == "ephemeral")
    elif what == "delete":
        transaction.delete(path, version)
    else:
        transaction.set_data(path, data, version)


def _is_missing(answer: object) -> bool:
    return isinstance(answer, NoNodeError)


def _sound(answer: Any) -> Any:  # noqa: ANN401 - the driver's
    if isinstance(answer, Exception):
        raise answer
    return answer
