"""idleaf's table ``id_segment``.  Needs the ``sqlalchemy`` extra.

idleaf keeps one row for each ``biz_tag``.  ``max_id`` is the last id handed out: a grant adds the
step, and owns ``(old, new]``.  Old idleaf nodes may run beside, as far as each of them is sound by
itself: several threads of one may hand out ids beyond their segment.
"""

from __future__ import annotations

from typing import Final

from ._table import CounterTable
from ._table_distributor import TableIdSegmentDistributor
from ._table_store import TableStore

__all__ = ("IdleafIdSegmentDistributor", "IdleafStore")

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS id_segment (
  biz_tag varchar(50) NOT NULL,
  max_id bigint NOT NULL DEFAULT 0,
  p_step bigint NOT NULL,
  last_update_time {time},
  current_update_time {time},
  PRIMARY KEY (biz_tag)
)"""


class IdleafIdSegmentDistributor(TableIdSegmentDistributor):
    """A tag of idleaf's, in the table ``id_segment``."""

    __slots__ = ()

    table = CounterTable(
        table="id_segment",
        key="biz_tag",
        value="max_id",
        ahead=0,
        width=50,
        step="p_step",
        touched="current_update_time",
        also="last_update_time = current_update_time",
        create={
            "mysql": _CREATE.format(time="datetime NULL"),
            "postgresql": _CREATE.format(time="timestamp with time zone NULL"),
            "sqlite": _CREATE.format(time="timestamp NULL"),
        },
    )
    scheme = "idleaf"


class IdleafStore(TableStore):
    """The tags of one idleaf, in the table ``id_segment``, on any SQLAlchemy engine."""

    __slots__ = ()

    distributor = IdleafIdSegmentDistributor
