"""The tree of a simulated ZooKeeper: what a request is answered, and what it changes.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("EMPTY", "Changing", "Nodes", "RefusedError", "Znode", "is_reading", "read")

ANY: Final = -1  # the version that every node has
EPHEMERAL: Final = 1  # among the flags
SEQUENTIAL: Final = 2


class RefusedError(Exception):
    """A request is answered with an error.  Its text is the name of the driver's."""


class Znode(NamedTuple):
    """A node.

    Attributes:
        data: what it holds.
        version: counts its changes.
        czxid: the transaction that made it.
        mzxid: the last one that has written it.
        ctime: when it was made, by the leader's clock, in milliseconds since 1970.
        mtime: when it was written last.
        owner: the session with which it goes; 0 for none.
        children: how many nodes there are below it.
        made: how many there were ever.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    children: int = 0
    made: int = 0


Nodes: TypeAlias = dict[str, Znode]
"""By their paths; never changed, so that one of earlier stays what it was."""

EMPTY: Final[Nodes] = {"/": Znode(b"", 0, 0, 0, 0, 0)}


def is_reading(request: Any) -> bool:  # noqa: ANN401 - the driver's
    """Tell whether a request changes nothing."""
    return type(request).__name__ in {"GetData", "GetChildren"}


def read(nodes: Nodes, request: Any) -> object:  # noqa: ANN401 - the driver's
    """Return what there is.

    Raises:
        RefusedError: the answer is an error.
    """
    node = _found(nodes, request.path)
    if type(request).__name__ == "GetData":
        return node.data, node
    prefix = request.path.rstrip("/") + "/"
    names = (path.removeprefix(prefix) for path in nodes if path.startswith(prefix))
    return [name for name in names if name and "/" not in name]


def _found(nodes: Nodes, path: str) -> Znode:
    if path not in nodes:
        raise RefusedError("NoNodeError")
    return nodes[path]


class Changing:
    """A transaction: what it was given is left as it was.

    Attributes:
        nodes: what there is after it.
    """

    def __init__(self, nodes: Nodes, *, zxid: int, now_ms: int, session: int) -> None:
        """Begin a transaction of a session, with a number, at a time."""
        self.nodes = dict(nodes)
        self._zxid = zxid
        self._now_ms = now_ms
        self._session = session

    def run(self, request: Any) -> object:  # noqa: ANN401 - the driver's
        """Do one thing, and return the answer.

        Raises:
            RefusedError: the answer is an error; the transaction is void.
        """
        match type(request).__name__:
            case "Create":
                return self._create(request.path, request.data, request.flags)
            case "Delete":
                return self.delete(request.path, request.version)
            case "SetData":
                node = self._expected(request.path, request.version)
                node = node._replace(data=request.data, version=node.version + 1)
                node = node._replace(mzxid=self._zxid, mtime=self._now_ms)
                self.nodes[request.path] = node
                return node
            case "CheckVersion":
                self._expected(request.path, request.version)
                return True
            case _:
                raise RefusedError("UnimplementedError")

    def run_all(self, requests: Sequence[Any]) -> tuple[list[object], bool]:
        """Do several things, or none; returns an answer for each, and whether it was done."""
        answers: list[object] = []
        for request in requests:
            try:
                answers.append(self.run(request))
            except RefusedError as refusal:
                rest = len(requests) - len(answers) - 1
                before = [RefusedError("RolledBackError") for _ in answers]
                return [*before, refusal, *[RefusedError("RuntimeInconsistency")] * rest], False
        return answers, True

    def _expected(self, path: str, version: int) -> Znode:
        node = _found(self.nodes, path)
        if version not in {ANY, node.version}:
            raise RefusedError("BadVersionError")
        return node

    def _create(self, path: str, data: bytes, flags: int) -> str:
        above = path.rpartition("/")[0] or "/"
        parent = _found(self.nodes, above)
        if flags & SEQUENTIAL:
            path = f"{path}{parent.made:010d}"
        if path in self.nodes:
            raise RefusedError("NodeExistsError")
        if parent.owner:
            raise RefusedError("NoChildrenForEphemeralsError")
        owner = self._session if flags & EPHEMERAL else 0
        times = self._zxid, self._zxid, self._now_ms, self._now_ms
        self.nodes[path] = Znode(data, 0, *times, owner)
        more = parent._replace(children=parent.children + 1, made=parent.made + 1)
        self.nodes[above] = more
        return path

    def delete(self, path: str, version: int = ANY) -> bool:
        """Remove a node.

        Raises:
            RefusedError: the answer is an error; the transaction is void.
        """
        if self._expected(path, version).children:
            raise RefusedError("NotEmptyError")
        del self.nodes[path]
        above = path.rpartition("/")[0] or "/"
        parent = self.nodes[above]
        self.nodes[above] = parent._replace(children=parent.children - 1)
        return True
