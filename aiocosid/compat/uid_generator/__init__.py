"""uid-generator: worker ids from its table ``WORKER_NODE``, its epochs and its output.

Its layouts are in `aiocosid.snowflake`: ``UID_GENERATOR`` and its kin.  Its DefaultUidGenerator is
a `SnowflakeId` with one of them and ``sequence_reset_threshold=None``, its CachedUidGenerator a
`CachedSnowflakeId`.  Needs the ``sqlalchemy`` extra.
"""

from __future__ import annotations

from ._reading import epoch_of as epoch_of
from ._reading import parse as parse
from ._worker_node import WORKER_NODE as WORKER_NODE
from ._worker_node import UidGeneratorStore as UidGeneratorStore

__all__ = ("WORKER_NODE", "UidGeneratorStore", "epoch_of", "parse")
