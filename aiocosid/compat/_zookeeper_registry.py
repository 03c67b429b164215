"""A registry of worker ids in ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..stores.zookeeper.tree import STORE, Nodes
from ._worker_ids import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..stores.zookeeper.tree import ZookeeperLink

__all__ = ("ZookeeperRegistry",)

T = TypeVar("T")


class ZookeeperRegistry(Registry[Nodes]):
    """Worker ids as nodes below a path, which is the namespace."""

    door: ZookeeperLink

    @property
    def store(self) -> str:
        return STORE

    async def run(self, attempt: Callable[[Nodes], Coroutine[Any, Any, T | None]]) -> T:
        return await self.door.until_done(attempt)
