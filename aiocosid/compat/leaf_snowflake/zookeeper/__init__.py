"""Leaf's registries in ZooKeeper: its own, ``zk_normal``, and the fork's ``zk_recycle``.

Requires the ``zookeeper`` extra.
"""

from __future__ import annotations

from .._zk_normal import LeafZkNormalStore as LeafZkNormalStore
from .._zk_recycle import LeafZkRecycleStore as LeafZkRecycleStore

__all__ = ("LeafZkNormalStore", "LeafZkRecycleStore")
