"""Leaf's table ``leaf_alloc``.

Leaf (Meituan) keeps one row for each ``biz_tag``.  ``max_id`` is the *first id of the next
segment*: a grant adds the step, and owns ``[old, new)``.  Old Leaf nodes may run at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..._checks import check_above, check_integer, check_text
from ...abc import DEFAULT_NAMESPACE, MAX_ID
from ...errors import IdOverflowError
from .._table import CounterTable, create_table
from .._table_store import TableStore

if TYPE_CHECKING:
    from .._table_distributor import TableDistributor

__all__ = ("LEAF_ALLOC", "LeafStore")

_MAX_ROW_STEP: Final = 2**31 - 1  # what the column step holds, an int(11)

_COLUMNS: Final = """
  biz_tag varchar(128) NOT NULL DEFAULT '' PRIMARY KEY,
  max_id bigint NOT NULL DEFAULT 1,
  step int NOT NULL,
  description varchar(256) DEFAULT NULL,
  update_time timestamp{zone} NOT NULL DEFAULT CURRENT_TIMESTAMP{itself}
"""

_INSERT: Final = """
INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES (:name, :start, :step, :about)
"""

# Leaf's [old, new) is ours (new - 1 - step, new - 1]: the answer is max_id - 1.  A row with a
# max_id of 0, from which Leaf would hand out 0, begins at 1.
LEAF_ALLOC: Final = CounterTable(
    table="leaf_alloc",
    key="biz_tag",
    value="max_id",
    ahead=1,
    width=128,
    step="step",
    touched="update_time",
    touches_itself=("mysql",),
    create=create_table("leaf_alloc", _COLUMNS),
    remedy="create it with 'await LeafStore.create_tag(...)' or an INSERT, or correct the name",
)


class LeafStore(TableStore):
    """The tags of one Leaf, in the table ``leaf_alloc``, on any SQLAlchemy engine."""

    scheme = "leaf"
    table = LEAF_ALLOC

    async def tag(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> TableDistributor:
        """Return a distributor with the current step of the tag's row.

        Args:
            name: the ``biz_tag``.
            namespace: the counter's namespace in messages and statistics only.

        Raises:
            CounterMissingError: there is no such tag.
            CorruptCounterError: the row's step or ``max_id`` cannot be used.
            StoreError: the store refuses or cannot be reached.
        """
        asking = self.segment_distributor(namespace=namespace, name=name)
        return self._of_row(await asking.row(), namespace)

    async def create_tag(
        self, name: str, *, step: int, above: int = 0, description: str | None = None
    ) -> None:
        """Add a tag, like an INSERT by hand; an existing one is not changed.

        One atomic step, safe to repeat.  Old Leaf nodes read it within a minute.

        Args:
            name: the ``biz_tag``, at most 128 characters.
            step: ids per segment of nodes that follow the row, 1 to 2^31-1.
            above: the first id is above this.
            description: for people, at most 256 characters.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            IdOverflowError: ``above`` leaves no room for a step.
            StoreError: the store refuses or cannot be reached.
        """
        asking = self.segment_distributor(name=name)
        check_integer("step", step, at_least=1, at_most=_MAX_ROW_STEP)
        check_above(above)
        start = LEAF_ALLOC.least(above)
        if start + step > MAX_ID:
            raise IdOverflowError(asking.namespaced_name, limit=MAX_ID - LEAF_ALLOC.ahead)
        if description is not None:
            check_text("description", description, at_most=256)
        unless = LEAF_ALLOC._unless_there(self._executor.dialect_name, "(biz_tag)")
        values = {"name": name, "start": start, "step": step, "about": description}
        await self._executor.run(_INSERT + unless, **values)
