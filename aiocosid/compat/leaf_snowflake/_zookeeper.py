"""What Leaf's two registries in ZooKeeper have in common."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

from ...errors import CorruptMachineStateError
from ...stores._arguments import MAX_MS
from ...stores.zookeeper._errors import STORE
from ...stores.zookeeper._link import OwnedLink, as_link
from .._worker_store import WorkerIdStore
from ._place import WORKER_IDS_ALONE, Place, check_leaf_name, split_url
from ._stamped import StampedMachineIdDistributor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ...stores.zookeeper._link import Link
    from ...stores.zookeeper._nodes import Nodes

__all__ = (
    "ROOT",
    "ZookeeperMachineIdDistributor",
    "ZookeeperWorkerIdStore",
    "as_json",
    "payload",
    "time_of",
)

ROOT: Final = "/snowflake"
"""Leaf's PREFIX_ZK_PATH, without ``leaf.name``."""

T = TypeVar("T")


class ZookeeperMachineIdDistributor(StampedMachineIdDistributor["Nodes"]):
    """A worker id below ``/snowflake/{leaf.name}``."""

    __slots__ = ("_link", "_owns_link", "_root")

    store = STORE
    scheme: ClassVar[str]
    """Of URLs, before ZooKeeper's."""
    silence: ClassVar[float] = inf
    """Seconds after which a worker id may go to somebody else."""

    @classmethod
    def _on(cls, link: Link, name: str, place: Place, *, owns_link: bool = False) -> Self:
        made = cls.__new__(cls)
        made._describe_on(link, name, place, owns_link=owns_link)
        return made

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Describe who asks in a session of its own, begun on first use and ended by `aclose`.

        Args:
            url: as `LeafZkNormalStore.from_url` takes it.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no address.
        """
        return cls._on(*_read_url(url, cls.scheme), owns_link=True)

    def _describe_on(self, link: Link, name: str, place: Place, *, owns_link: bool = False) -> None:
        self._root = f"{ROOT}/{check_leaf_name(name)}"
        self._describe(place, namespace=self._root, safe_guard=self.silence)
        self._link, self._owns_link = link, owns_link

    async def _run(self, attempt: Callable[[Nodes], Coroutine[Any, Any, T | None]]) -> T:
        return await self._link.until_done(attempt)

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the address is the parent process's.
        """
        self._ensure_own()
        self._link.aopen()

    async def aclose(self) -> None:
        """End a session begun from a URL; a client passed in goes on."""
        if self._owns_link:
            await self._link.aclose()


class ZookeeperWorkerIdStore(WorkerIdStore):
    """A registry in ZooKeeper."""

    __slots__ = ("_link",)

    _why = WORKER_IDS_ALONE

    distributor: ClassVar[type[ZookeeperMachineIdDistributor]]

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - the driver has no types
        *,
        name: str,
        ip: str,
        port: int | str,
    ) -> None:
        """Work on your own client, which stays yours to stop; nothing is sent yet.

        Args:
            client: as for `LeafZkNormalMachineIdDistributor`, and so are the others.
            name: likewise.
            ip: likewise.
            port: likewise.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._begin(as_link(client), name, Place.of(ip, port))

    def _begin(self, link: Link, name: str, place: Place) -> None:
        self._link = link
        super().__init__(self.distributor._on(link, name, place))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one with a session of its own, begun when it is used; nothing is sent yet.

        Args:
            url: ZooKeeper's, with ``leaf.name`` and the address in its query:
                ``leaf-zk-normal+zookeeper://a,b,c/?name=shop&ip=10.0.0.1&port=8080``, or
                ``leaf-zk-recycle+`` for the fork's.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no address.
        """
        made = cls.__new__(cls)
        made._begin(*_read_url(url, cls.distributor.scheme))
        return made

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """End a session begun from a URL; a client passed in goes on."""
        await self._link.aclose()


def _read_url(url: str, scheme: str) -> tuple[OwnedLink, str, Place]:
    """Read a URL with ``name``, ``ip`` and ``port`` in its query."""
    server, told = split_url(url, scheme, ("name", "ip", "port"))
    return OwnedLink(server), check_leaf_name(told["name"]), Place.of(told["ip"], told["port"])


def as_json(**fields: str | int | None) -> bytes:
    """Write what a node holds, as Java's mapper does."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def payload(path: str, data: bytes) -> dict[str, Any]:
    """Read what a node holds.

    Raises:
        CorruptMachineStateError: it is no JSON object.
    """
    try:
        found: Any = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        expected = "a JSON object of Leaf's"
        raise CorruptMachineStateError(STORE, place=path, found=repr(data), expected=expected)
    return cast("dict[str, Any]", found)


def time_of(path: str, found: Any, *, or_none: bool = False) -> int:  # noqa: ANN401 - whatever lies there
    """Read a time in milliseconds since 1970; -1 for none, where that may be.

    Raises:
        CorruptMachineStateError: it is none.
    """
    if found is None and or_none:
        return -1
    if type(found) is not int or not 0 <= found < MAX_MS:
        expected = "a time in milliseconds since 1970"
        raise CorruptMachineStateError(STORE, place=path, found=repr(found), expected=expected)
    return found
