"""tinyid's tables ``tiny_id_info`` and ``tiny_id_token``.  Needs the ``sqlalchemy`` extra.

tinyid (Didi) keeps one row for each ``biz_type``.  ``max_id`` is the upper end of the last segment:
a grant owns ``(old, new]``, and of that only the ids that are ``remainder`` modulo ``delta``.  So
several databases can serve one ``biz_type``, each with a remainder of its own.  Old tinyid servers
may run beside.
"""

from __future__ import annotations

from ._group import TinyidGroupIdSegmentDistributor as TinyidGroupIdSegmentDistributor
from ._group_store import TinyidGroupStore as TinyidGroupStore
from ._segments import TinyidIdSegmentDistributor as TinyidIdSegmentDistributor
from ._segments import TinyidStore as TinyidStore
from ._tokens import TinyidTokens as TinyidTokens

__all__ = (
    "TinyidGroupIdSegmentDistributor",
    "TinyidGroupStore",
    "TinyidIdSegmentDistributor",
    "TinyidStore",
    "TinyidTokens",
)
