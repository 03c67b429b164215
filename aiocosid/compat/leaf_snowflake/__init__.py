"""Leaf's snowflakes: its registries of worker ids, its configuration keys, and its decoded ids.

This package has the mode ``local``; `zookeeper` has ``zk_normal`` and ``zk_recycle``, and `mysql`
has the table ``leaf_workerid_alloc``.  Create ids with `SnowflakeId`, ``layout=LEAF`` and
``random_start=100``; for another ``twepoch``, use a layout of 41, 10 and 12 bits with that epoch.
"""

from __future__ import annotations

from ._local import LeafLocalStore as LeafLocalStore
from ._settings import decode as decode
from ._settings import settings_from_leaf as settings_from_leaf

__all__ = ("LeafLocalStore", "decode", "settings_from_leaf")
