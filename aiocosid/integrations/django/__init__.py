"""Django: ids as primary keys of models and as field defaults, in synchronous and async code.

The settings define the source of the ids::

    import aiocosid.sync

    AIOCOSID = aiocosid.sync.connect("redis://localhost:6379/0", namespace="shop")
    DEFAULT_AUTO_FIELD = "aiocosid.integrations.django.CosIdField"

``AIOCOSID`` is a provider from `aiocosid.sync`, or a mapping from names to its generators.  A key
of the mapping may be a model's label, for example ``shop.order``.
"""

from __future__ import annotations

from . import _checks as _checks
from ._default import CosIdDefault as CosIdDefault
from ._fields import CosIdField as CosIdField
from ._fields import CosIdQuerySet as CosIdQuerySet
from ._fields import ShardedField as ShardedField
from ._fields import SnowflakeField as SnowflakeField
from ._gapless import gapless as gapless
from ._gapless import gapless_batch as gapless_batch
from ._operations import CreateIdTables as CreateIdTables

__all__ = (
    "CosIdDefault",
    "CosIdField",
    "CosIdQuerySet",
    "CreateIdTables",
    "ShardedField",
    "SnowflakeField",
    "gapless",
    "gapless_batch",
)
