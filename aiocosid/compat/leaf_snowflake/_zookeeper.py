"""What Leaf's two registries in ZooKeeper have in common."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from ...errors import CorruptMachineStateError
from ...stores._arguments import MAX_MS
from ...stores.zookeeper._errors import STORE
from ...stores.zookeeper._link import OwnedLink
from ._place import Place, check_leaf_name, split_url
from ._stamped import StampedMachineIdDistributor
from ._worker_store import WorkerIdStore

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
    "read_url",
    "time_of",
)

ROOT: Final = "/snowflake"
"""Leaf's PREFIX_ZK_PATH, without ``leaf.name``."""

T = TypeVar("T")


class ZookeeperMachineIdDistributor(StampedMachineIdDistributor["Nodes"]):
    """A worker id below ``/snowflake/{leaf.name}``."""

    __slots__ = ("_link", "_owns_link", "_root")

    store = STORE
    silence: ClassVar[float] = inf
    """Seconds after which a worker id may go to somebody else."""

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

    def __init__(self, link: Link, machine: ZookeeperMachineIdDistributor) -> None:
        super().__init__(machine)
        self._link = link

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """End a session begun from a URL; a client passed in goes on."""
        await self._link.aclose()


def read_url(url: str, scheme: str) -> tuple[OwnedLink, str, Place]:
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
