"""Leaf's snowflakes: its registries of worker ids, its keys, and what it prints of an id.

Here is its mode ``local``; `zookeeper` has ``zk_normal`` and ``zk_recycle``, `mysql` the table
``leaf_workerid_alloc``.  The ids are made by `SnowflakeId` with ``layout=LEAF`` and
``random_start=100``; for another ``twepoch``, with a layout of 41, 10 and 12 bits from it.
"""

from __future__ import annotations

from ._local import LeafLocalStore as LeafLocalStore
from ._settings import decode as decode
from ._settings import settings_from_leaf as settings_from_leaf

__all__ = ("LeafLocalStore", "decode", "settings_from_leaf")
