"""A registry of worker ids in ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..stores.zookeeper.tree import STORE, Nodes
from ._worker_ids import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..abc import InstanceId
    from ..stores.zookeeper.tree import Link

__all__ = ("ZookeeperRegistry",)

T = TypeVar("T")


class ZookeeperRegistry(Registry[Nodes]):
    """Worker ids as nodes below a path, which is the namespace."""

    def __init__(self, link: Link, path: str, instance_id: InstanceId, **times: float) -> None:
        super().__init__(path, instance_id, **times)
        self._link, self.store = link, STORE

    async def run(self, attempt: Callable[[Nodes], Coroutine[Any, Any, T | None]]) -> T:
        return await self._link.until_done(attempt)

    async def aopen(self) -> None:
        self._link.aopen()

    async def aclose(self) -> None:
        await self._link.aclose()
