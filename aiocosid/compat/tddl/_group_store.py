"""TDDL's sequences in several databases, as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..._clock import SYSTEM_CLOCK
from ...abc import DEFAULT_NAMESPACE
from ...errors import CounterMissingError
from .._group import STORE_TIMEOUT
from .._group_store import GroupStore
from .._table import as_integer
from ._group import TddlGroupIdSegmentDistributor
from ._segments import INNER_STEP, TddlStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...abc import Clock
    from .._group import GroupIdSegmentDistributor

__all__ = ("TddlGroupStore",)

_OFF: Final = "-OFF"


class TddlGroupStore(GroupStore[TddlStore]):
    """TDDL's sequences in several databases, of which any one is enough."""

    __slots__ = ()

    scheme = "tddl"
    options = ("inner_step", "schema_name", "table")
    group = TddlGroupIdSegmentDistributor

    def __init__(
        self,
        engines: Sequence[AsyncEngine | None],
        *,
        inner_step: int = INNER_STEP,
        schema_name: str | None = None,
        table: str = "sequence",
        store_timeout: float = STORE_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Work on your own engines, which stay yours to close; nothing is sent yet.

        Args:
            engines: one for each of TDDL's groups, in their order; None for one that is off
                (``-OFF``), which keeps its place.
            inner_step: as for `TddlIdSegmentDistributor`, and so are the next two.
            schema_name: likewise.
            table: likewise.
            store_timeout: seconds that one database has to answer, before the next is asked.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        stores = {
            index: TddlStore(
                engine,
                inner_step=inner_step,
                schema_name=schema_name,
                table=table,
                index=index,
                count=len(engines),
            )
            for index, engine in enumerate(engines)
            if engine is not None
        }
        self._gather(stores, store_timeout, clock)

    @classmethod
    def _open_at(cls, urls: Sequence[str], told: Mapping[str, str]) -> Mapping[int, TddlStore]:
        query = "&".join(f"{name}={text}" for name, text in told.items())
        return {
            index: TddlStore.from_url(
                f"{url}{'&' if '?' in url else '?'}{query}" if query else url,
                index=index,
                count=len(urls),
            )
            for index, url in enumerate(urls)
            if not url.endswith(_OFF)
        }

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = INNER_STEP,
    ) -> GroupIdSegmentDistributor[Any]:
        """Return a distributor on all databases' connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the sequence's.
            offset: not used: the rows are there, or it is an error.
            step: ids per segment; at most ``inner_step``, for which a higher one is taken.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        return super().segment_distributor(namespace=namespace, name=name, offset=offset, step=step)

    async def adjust(self, name: str) -> None:
        """Add the row of a database that has none, and raise one with another database's numbers.

        TDDL's ``adjust``, by hand alone: stop all nodes first.  Every number that is written is
        above all ids of the sequence, and none is lowered.  Safe to repeat.

        Raises:
            CorruptCounterError: a row holds no number; nothing was written.
            IdOverflowError: there is no number left above all ids; nothing was written.
            StoreError: a database refuses or cannot be reached.
        """
        stores, highest = [*self._stores.values()], 0
        for store in stores:
            asking = store.segment_distributor(name=name)
            try:
                row = await asking.row()
            except CounterMissingError:
                continue
            stored = as_integer(row.stored)
            if stored is None or not 0 <= stored <= store._at.limit:
                raise asking._corrupt("; ".join(store._at.problems(row)))
            highest = max(highest, stored + store._at.inner_step)
        # Not below any number either.
        above = highest + stores[0]._at.outer_step
        if any(store._at.least(above) > store._at.limit for store in stores):
            raise stores[0].segment_distributor(name=name)._used_up()
        for store in stores:
            executor = store._executor
            least = store._at.least(above)
            given: dict[str, Any] = {"name": name, "least": least}
            for statement in (store._at.insert, store._at.repair):
                await executor.run(statement(executor.dialect_name), **given, **store._scope())
