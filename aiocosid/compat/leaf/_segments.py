"""Leaf's table ``leaf_alloc``.

Leaf (Meituan) keeps one row for each ``biz_tag``.  ``max_id`` is the *first id of the next
segment*: a grant adds the step, and owns ``[old, new)``.  Old Leaf nodes may run beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...abc import DEFAULT_NAMESPACE, MAX_ID
from ...abc._ids import check_integer, check_text
from ...errors import IdOverflowError
from ...stores._arguments import check_above
from .._table import CounterTable
from .._table_distributor import TableIdSegmentDistributor
from .._table_store import TableStore

if TYPE_CHECKING:
    from .._table import TableRow

__all__ = ("LeafIdSegmentDistributor", "LeafStore")

_MAX_ROW_STEP: Final = 2**31 - 1
"""What the column ``step`` holds, an ``int(11)``."""

_MYSQL: Final = """
CREATE TABLE IF NOT EXISTS leaf_alloc (
  biz_tag varchar(128) NOT NULL DEFAULT '',
  max_id bigint(20) NOT NULL DEFAULT '1',
  step int(11) NOT NULL,
  description varchar(256) DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB"""

_COLUMNS: Final = """
  biz_tag varchar(128) NOT NULL DEFAULT '' PRIMARY KEY,
  max_id bigint NOT NULL DEFAULT 1,
  step integer NOT NULL,
  description varchar(256) DEFAULT NULL,
  update_time timestamp{zone} NOT NULL DEFAULT CURRENT_TIMESTAMP
"""

# Bare CREATE TABLE IF NOT EXISTS fails for one of two that run it at once, and for a user who may
# not create tables even if there is nothing to create.
_POSTGRESQL: Final = f"""
DO $$
BEGIN
  IF to_regclass('leaf_alloc') IS NULL THEN
    PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
    CREATE TABLE IF NOT EXISTS leaf_alloc ({_COLUMNS.format(zone=" with time zone")});
  END IF;
END
$$"""

_INSERT: Final = """
INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES (:name, :start, :step, :about)
"""
_IF_MISSING: Final = f"{_INSERT} ON CONFLICT (biz_tag) DO NOTHING"
_CREATE_TAG: Final = {
    "mysql": f"{_INSERT} ON DUPLICATE KEY UPDATE biz_tag = biz_tag",
    "postgresql": _IF_MISSING,
    "sqlite": _IF_MISSING,
}

_LEAF_ALLOC: Final = CounterTable(
    table="leaf_alloc",
    key="biz_tag",
    value="max_id",
    ahead=1,
    width=128,
    step="step",
    touched="update_time",
    touches_itself=("mysql",),
    create={
        "mysql": _MYSQL,
        "postgresql": _POSTGRESQL,
        "sqlite": f"CREATE TABLE IF NOT EXISTS leaf_alloc ({_COLUMNS.format(zone='')})",
    },
)


class LeafIdSegmentDistributor(TableIdSegmentDistributor):
    """A tag of Leaf's, in the table ``leaf_alloc``.

    Leaf's ``[old, new)`` is ours ``(new - 1 - step, new - 1]``: the answer is ``max_id - 1``.  A
    row with a ``max_id`` of 0, from which Leaf would hand out 0, begins at 1.
    """

    __slots__ = ()

    table = _LEAF_ALLOC
    scheme = "leaf"

    def _remedy(self) -> str:
        return "create it with 'await LeafStore.create_tag(...)' or an INSERT, or correct the name"


class LeafStore(TableStore):
    """The tags of one Leaf, in the table ``leaf_alloc``, on any SQLAlchemy engine."""

    __slots__ = ()

    distributor = LeafIdSegmentDistributor

    async def tag(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE
    ) -> LeafIdSegmentDistributor:
        """Return a distributor with the step that the tag's row names now.

        Args:
            name: the ``biz_tag``.
            namespace: names the counter in messages and statistics, and nowhere else.

        Raises:
            CounterMissingError: there is no such tag.
            CorruptCounterError: the row's step or ``max_id`` cannot be used.
            StoreError: the store refuses or cannot be reached.
        """
        asking = self.segment_distributor(namespace=namespace, name=name)
        return self._of_row(await asking.row(), namespace)

    def _of_row(self, row: TableRow, namespace: str) -> LeafIdSegmentDistributor:
        asking = LeafIdSegmentDistributor._on(self._executor, namespace=namespace, name=row.name)
        return LeafIdSegmentDistributor._on(
            self._executor, namespace=namespace, name=row.name, step=asking.step_of(row)
        )

    async def create_tag(
        self, name: str, *, step: int, above: int = 0, description: str | None = None
    ) -> None:
        """Add a tag, as an INSERT by hand would; one that is there stays as it is.

        One atomic step, safe to repeat.  Old Leaf nodes take it up within a minute.

        Args:
            name: the ``biz_tag``, at most 128 characters.
            step: ids per segment of nodes that follow the row, 1 to 2^31-1.
            above: the first id is above it.
            description: for people, at most 256 characters.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            IdOverflowError: ``above`` leaves no room for a step.
            StoreError: the store refuses or cannot be reached.
        """
        asking = LeafIdSegmentDistributor._on(self._executor, name=name)
        check_integer("step", step, at_least=1, at_most=_MAX_ROW_STEP)
        check_above(above)
        if above + _LEAF_ALLOC.ahead + step > MAX_ID:
            raise IdOverflowError(asking.namespaced_name, limit=MAX_ID - _LEAF_ALLOC.ahead)
        if description is not None:
            check_text("description", description, at_most=256)
        statement = _CREATE_TAG[self._executor.dialect_name]
        await self._executor.run(
            statement, name=name, start=above + _LEAF_ALLOC.ahead, step=step, about=description
        )
