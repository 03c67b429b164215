"""SQLAlchemy 2: ids as column defaults, before the flush, as primary keys and as text.

aiocosid's errors are raised unchanged by a flush or an execute, not wrapped in a
``StatementError``.
"""

from __future__ import annotations

from ...errors import MissingExtraError

try:
    import sqlalchemy.ext.asyncio as _needed
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc
else:
    del _needed

from . import _keys as _keys
from ._defaults import CosIdDefault as CosIdDefault
from ._defaults import NamedSyncIds as NamedSyncIds
from ._defaults import SegmentPrimaryKey as SegmentPrimaryKey
from ._defaults import SnowflakePrimaryKey as SnowflakePrimaryKey
from ._defaults import SyncIds as SyncIds
from ._defaults import TextPrimaryKey as TextPrimaryKey
from ._defaults import assign_ids as assign_ids
from ._defaults import assign_ids_before_flush as assign_ids_before_flush
from ._defaults import cosid_default as cosid_default
from ._typed import TypedIdType as TypedIdType

__all__ = (
    "CosIdDefault",
    "NamedSyncIds",
    "SegmentPrimaryKey",
    "SnowflakePrimaryKey",
    "SyncIds",
    "TextPrimaryKey",
    "TypedIdType",
    "assign_ids",
    "assign_ids_before_flush",
    "cosid_default",
)
