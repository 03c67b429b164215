"""One application's sequences of Hibernate's, as a store."""

# ruff: noqa: S608 - put together from names that were checked

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter
from ...abc._ids import check_text
from ...errors import UnsupportedByStoreError
from .._examine import Examined
from .._table_store import TableStore
from ._convention import INCREMENT, Convention, check_dialect, read_url
from ._segments import (
    NAME,
    HibernateIdSegmentDistributor,
    HibernateSequenceIdSegmentDistributor,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...stores._engine import DialectName
    from .._table import CounterTable
    from ._convention import Optimizer, Source

__all__ = ("HibernateStore",)

_LIST: Final[dict[DialectName, str]] = {
    "postgresql": "SELECT sequencename, last_value, start_value, increment_by, cycle, cache_size "
    "FROM pg_sequences WHERE schemaname = ANY (current_schemas(false))",
    "mysql": "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_type = 'SEQUENCE'",
}


class HibernateStore(TableStore):
    """The sequences of one application: rows of ``hibernate_sequences``, or the database's own."""

    __slots__ = ("_convention",)

    distributor = HibernateIdSegmentDistributor

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        optimizer: Optimizer | None = None,
        increment: int = INCREMENT,
        store_last_used: bool = True,
        source: Source = "table",
    ) -> None:
        """Work on your own engine, which stays yours to close; nothing is sent yet.

        Args:
            engine: where they lie.
            optimizer: of the nodes; needed for ids, and None for looking alone.
            increment: of the nodes, their ``allocationSize``; 1 to 2^31-1.
            store_last_used: of the nodes (``hibernate.id.generator.stored_last_used``); of a table.
            source: a table, or sequences of the database's.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(engine)
        self._set(
            Convention(
                optimizer=optimizer,
                increment=increment,
                store_last_used=store_last_used,
                source=source,
            )
        )

    def _set(self, convention: Convention) -> None:
        if convention.source == "sequence":
            check_dialect(self._executor)
        self._convention = convention

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

        Args:
            url: the database's, such as ``mysql://user@host/shop?optimizer=pooled``, with or
                without ``hibernate+`` before it; the arguments of ``__init__`` may stand in its
                query.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: the driver is not installed.
        """
        made = cls.__new__(cls)
        made._executor, convention = read_url(url)
        made._set(convention)
        return made

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> HibernateIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: of the row (``sequence_name``), or of the sequence.
            offset: not used: it is there, or it is an error.
            step: ids per segment; of a sequence at most ``increment``, for which a higher one is
                taken.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the optimizer was not told.
        """
        kind = HibernateIdSegmentDistributor
        if self._convention.source == "sequence":
            kind = HibernateSequenceIdSegmentDistributor
        return kind._on(
            self._executor,
            convention=self._convention,
            namespace=namespace,
            name=name,
            offset=offset,
            step=step,
        )

    @property
    def _table(self) -> CounterTable:
        return self._convention.table

    async def create_schema(self) -> None:
        """Create ``hibernate_sequences`` as Hibernate does, if it is missing; no sequence.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        if self._convention.source == "table":
            await super().create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name; see `TableStore.counters`."""
        if self._convention.source == "table":
            return await super().counters(namespace=namespace)
        space = DEFAULT_NAMESPACE if namespace is None else namespace
        check_text("namespace", space)
        return [
            Counter(namespaced_name=f"{space}.{each.name}", last_max_id=each.next_id - 1)
            for each in await self.examine()
            if each.next_id is not None
        ]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a row; see `TableStore.set_floor`.

        Raises:
            UnsupportedByStoreError: it is a sequence, which cannot be raised while it is in use.
        """
        if self._convention.source == "sequence":
            reason = "stop all nodes, and then use ALTER SEQUENCE ... RESTART WITH"
            raise UnsupportedByStoreError(self._executor.label, reason)
        return await super().set_floor(namespace=namespace, name=name, above=above)

    async def examine(self) -> Sequence[Examined]:
        """Read all rows, or all sequences, and say what they mean; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        if self._convention.source == "table":
            found = await super().examine()
            return found if self._convention.optimizer else [_undecided(each) for each in found]
        dialect = self._executor.dialect_name
        rows = (await self._executor.run(_LIST[dialect])).rows
        if dialect == "mysql":
            told = "next_not_cached_value, start_value, increment, cycle_option, 1"
            names = [row[0] for row in rows if NAME.fullmatch(row[0])]
            rows = [
                (name, *(await self._executor.run(f"SELECT {told} FROM `{name}`")).rows[0])
                for name in names
            ]
        return sorted((self._examined_sequence(row) for row in rows), key=lambda each: each.name)

    def _examined_sequence(self, row: Sequence[Any]) -> Examined:
        name, stored, start, increment, cycles, cache = row
        number = start if stored is None else stored
        if stored is not None and self._executor.dialect_name == "postgresql":
            number = stored + increment
        problems: list[str] = []
        if increment != self._convention.increment:
            expected = self._convention.increment
            problems.append(f"its increment is {increment}, and the nodes' is taken for {expected}")
        if cycles:
            problems.append("it cycles: ids would repeat")
        if cache != 1:
            problems.append(f"its cache is {cache}: numbers would come out of order")
        optimizer = self._convention.optimizer
        first = number if optimizer == "pooled-lo" else max(1, number - increment + 1)
        return Examined(
            name=name,
            stored=number,
            meaning="the next number" + ("" if optimizer else "; the optimizer was not told"),
            next_id=None if problems or optimizer is None else first,
            problems=tuple(problems),
        )


def _undecided(found: Examined) -> Examined:
    if found.problems:
        return found
    meaning = "the last id with pooled-lo, or the end of the last range but one with pooled"
    return Examined(name=found.name, stored=found.stored, meaning=meaning, next_id=None)
