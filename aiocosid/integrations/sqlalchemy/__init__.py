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
from ._gapless import begin_immediate as begin_immediate
from ._gapless import gapless as gapless
from ._gapless import gapless_batch as gapless_batch
from ._gapless import gapless_batch_sync as gapless_batch_sync
from ._gapless import gapless_sync as gapless_sync
from ._times import made_between as made_between
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
    "begin_immediate",
    "cosid_default",
    "gapless",
    "gapless_batch",
    "gapless_batch_sync",
    "gapless_sync",
    "made_between",
)
