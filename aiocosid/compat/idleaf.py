"""idleaf's table ``id_segment``.  Needs the ``sqlalchemy`` extra.

idleaf keeps one row for each ``biz_tag``.  ``max_id`` is the last id handed out: a grant adds the
step, and owns ``(old, new]``.  Old idleaf nodes may run at the same time, but have a defect of
their own: several threads of one node may hand out ids beyond their segment.
"""

from __future__ import annotations

from typing import ClassVar

from ._table import CounterTable, create_table
from ._table_store import TableStore

__all__ = ("IdleafStore",)

_COLUMNS = """
  biz_tag varchar(50) NOT NULL PRIMARY KEY,
  max_id bigint NOT NULL DEFAULT 0,
  p_step bigint NOT NULL,
  last_update_time {moment} NULL, current_update_time {moment} NULL
"""


class IdleafStore(TableStore):
    """The tags of one idleaf, in the table ``id_segment``, on any SQLAlchemy engine."""

    scheme = "idleaf"
    table: ClassVar[CounterTable] = CounterTable(
        table="id_segment",
        key="biz_tag",
        value="max_id",
        width=50,
        step="p_step",
        touched="current_update_time",
        also="last_update_time = current_update_time",
        create=create_table("id_segment", _COLUMNS),
    )
