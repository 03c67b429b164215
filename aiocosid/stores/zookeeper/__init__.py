"""Counters and machine ids on ZooKeeper.

Requires the ``zookeeper`` extra.  The nodes are CosId's: ``/cosid/<namespace>.<name>`` holds the
last max id handed out, ``/cosid/<namespace>/__counter``, ``/__itc_idx`` and ``/__revert`` hold the
machine ids.  aiocosid's own nodes are below ``/aiocosid``.
"""

from __future__ import annotations

from ._store import ZookeeperStore as ZookeeperStore

__all__ = ("ZookeeperStore",)
