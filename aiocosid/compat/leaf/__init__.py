"""Leaf's segments and tags, in its table ``leaf_alloc``."""

from __future__ import annotations

from .._table_distributor import TableDistributor as TableDistributor
from ._segments import LeafStore as LeafStore
from ._tags import REFRESH_INTERVAL as REFRESH_INTERVAL
from ._tags import LeafTags as LeafTags

__all__ = ("REFRESH_INTERVAL", "LeafStore", "LeafTags", "TableDistributor")
