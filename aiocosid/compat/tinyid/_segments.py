"""A ``biz_type`` of tinyid's as a distributor, and all of them as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...abc import DEFAULT_NAMESPACE
from .._table_distributor import TableIdSegmentDistributor
from .._table_store import TableStore
from ._table import TINY_ID_INFO, class_of

if TYPE_CHECKING:
    from ...stores._engine import SqlExecutor
    from .._table import TableRow

__all__ = ("TinyidIdSegmentDistributor", "TinyidStore")


class TinyidIdSegmentDistributor(TableIdSegmentDistributor):
    """A ``biz_type`` of tinyid's, in the table ``tiny_id_info``.

    The row's ``delta`` is the `stride`: a call for ``step`` ids gets as many that are ``remainder``
    modulo ``delta``, and ``max_id`` rises by ``step * delta``.  Where tinyid reads the row and then
    compares ``max_id`` and ``version``, here it is one statement, which raises both: so neither can
    come between the other's two halves.  A row whose delta or remainder is changed is followed from
    the next segment on.

    A row whose own ``step`` is below 1 is refused too: a tinyid server beside would stop there, or
    go back.
    """

    __slots__ = ("remainder", "stride")

    table = TINY_ID_INFO
    scheme = "tinyid"

    remainder: int
    """Of each id divided by `stride`; 0 while that is not known."""

    def _describe(self, executor: SqlExecutor, **described: Any) -> None:  # noqa: ANN401 - the base's
        super()._describe(executor, **described)
        self.stride = self.remainder = 0

    async def _get_ready(self) -> None:
        if not self.stride:
            await self._look()

    async def _added(self, amount: int, above: int) -> int | None:
        known = self.stride, self.remainder
        stored = await super()._added(amount, above)
        # Another call of this object may have found another class meanwhile: then it is a gap.
        return stored if known == (self.stride, self.remainder) else None

    def _amount(self, step: int) -> int:
        return step * self.stride

    def _given(self) -> dict[str, object]:
        return {"delta": self.stride, "remainder": self.remainder}

    def _last_of(self, stored: int) -> int:
        # Of delta numbers in a row exactly one is of the class, wherever they begin.
        return stored - (stored - self.remainder) % self.stride

    def _outdated(self, row: TableRow) -> bool:
        found, known = class_of(row), (self.stride, self.remainder)
        self.stride, self.remainder = found or known
        return found != known

    def step_of(self, row: TableRow) -> int:
        """Return how many ids of its own a step of the row holds, at least 1.

        Raises:
            CorruptCounterError: the row holds no counter, or a step below 1.
        """
        own, found = super().step_of(row), class_of(row)
        return max(1, own // found[0]) if found else own

    def _remedy(self) -> str:
        return "create it by an INSERT, as tinyid's own are, or correct the name"


class TinyidStore(TableStore):
    """The ``biz_type`` rows of one of tinyid's databases, on any SQLAlchemy engine."""

    __slots__ = ()

    distributor = TinyidIdSegmentDistributor

    async def biz_type(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE
    ) -> TinyidIdSegmentDistributor:
        """Return a distributor with as many ids a segment as a tinyid server takes.

        Args:
            name: the ``biz_type``.
            namespace: names the counter in messages and statistics, and nowhere else.

        Raises:
            CounterMissingError: there is no such row.
            CorruptCounterError: the row cannot be used.
            StoreError: the store refuses or cannot be reached.
        """
        asking = TinyidIdSegmentDistributor._on(self._executor, namespace=namespace, name=name)
        step = asking.step_of(await asking.row())
        return TinyidIdSegmentDistributor._on(
            self._executor, namespace=namespace, name=name, step=step
        )
