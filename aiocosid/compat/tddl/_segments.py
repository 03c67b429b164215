"""A sequence of TDDL's in one database, as a distributor, and all of them as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, cast

from ...abc import DEFAULT_NAMESPACE
from ...stores._engine import EngineExecutor, OwnEngineExecutor
from .._table_distributor import TableIdSegmentDistributor, url_of_engine
from .._table_store import TableStore
from .._url import split_options
from ._table import sequence_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...stores._engine import SqlExecutor
    from ._table import Holds, SequenceTable

__all__ = ("INNER_STEP", "OPTIONS", "TddlIdSegmentDistributor", "TddlStore")

INNER_STEP: Final = 1000
"""TDDL's own ``innerStep``."""

OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "inner_step": int,
    "holds": str,
    "schema_name": str,
    "table": str,
    "index": int,
    "count": int,
}
"""What a URL may tell besides, and how its text is read."""


class TddlIdSegmentDistributor(TableIdSegmentDistributor):
    """A sequence of TDDL's, in one database; it may be one of several.

    A grant is one range: ``inner_step`` ids, of which a call for fewer gets the upper ones.  Where
    TDDL reads the value and then compares it, here it is one statement, so that neither can come
    between the other's two halves.
    """

    __slots__ = ("_schema_name", "step_limit", "table")

    table: SequenceTable
    scheme = "tddl"

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        step: int = INNER_STEP,
        inner_step: int = INNER_STEP,
        holds: Holds = "base",
        schema_name: str | None = None,
        table: str = "sequence",
        index: int = 0,
        count: int = 1,
    ) -> None:
        """Describe a sequence on your own engine, which stays yours to close; nothing is sent yet.

        Args:
            engine: where the table lies.
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the sequence's.
            step: ids per segment, 1 and up; of ``base`` at most ``inner_step``, for which a higher
                one is taken.
            inner_step: of every node, ours and theirs; 1 to 2^31-1.
            holds: what ``value`` means to the nodes: ``base``, that the last range lies above it
                (group sequences, TDDL 5, PolarDB-X), or ``last``, that it is the last id (the old
                ``DefaultSequenceDao`` and what was copied from it).  Whoever takes one for the
                other hands out ids twice.
            schema_name: of PolarDB-X, whose rows have it in their key.
            table: its name.
            index: the database's place among all, from 0.
            count: how many databases there are (``dscount``), with those that are off.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        described = {"namespace": namespace, "name": name, "step": step}
        at = sequence_table(
            inner_step=inner_step,
            holds=holds,
            schema_name=schema_name,
            table=table,
            index=index,
            count=count,
        )
        self._describe(EngineExecutor(engine), at=at, schema_name=schema_name, **described)

    def _describe(
        self,
        executor: SqlExecutor,
        *,
        at: SequenceTable | None = None,
        schema_name: str | None = None,
        **described: Any,  # noqa: ANN401 - the base's
    ) -> None:
        self.table = at or _table_of({})  # pyright: ignore[reportIncompatibleVariableOverride]
        self._schema_name = schema_name
        self.step_limit = None
        super()._describe(executor, **described)
        if self.table.holds == "base":
            self.step_limit = self.table.inner_step
            self.step = min(self.step, self.step_limit)

    @classmethod
    def from_url(cls, url: str, **described: Any) -> Self:  # noqa: ANN401 - the base's
        """Describe one on connections of its own; see `TableIdSegmentDistributor.from_url`.

        Args:
            url: as for `TddlStore.from_url`.
            **described: ``namespace``, ``name`` and ``step``, as for ``__init__``.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        executor, at, schema_name = _read(url)
        return cls._on(executor, owns_executor=True, at=at, schema_name=schema_name, **described)

    def _amount(self, step: int) -> int:
        return step if self.table.holds == "last" else self.table.outer_step

    def _scope(self) -> dict[str, object]:
        return {} if self._schema_name is None else {"schema_name": self._schema_name}


class TddlStore(TableStore):
    """The sequences in one of TDDL's databases, on any SQLAlchemy engine."""

    __slots__ = ("_at", "_schema_name")

    distributor = TddlIdSegmentDistributor

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        inner_step: int = INNER_STEP,
        holds: Holds = "base",
        schema_name: str | None = None,
        table: str = "sequence",
        index: int = 0,
        count: int = 1,
    ) -> None:
        """Work on your own engine, which stays yours to close; nothing is sent yet.

        Args:
            engine: where the table lies.
            inner_step: as for `TddlIdSegmentDistributor`, and so are the others.
            holds: likewise.
            schema_name: likewise.
            table: likewise.
            index: likewise.
            count: likewise.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(engine)
        self._schema_name = schema_name
        self._at = sequence_table(
            inner_step=inner_step,
            holds=holds,
            schema_name=schema_name,
            table=table,
            index=index,
            count=count,
        )

    @classmethod
    def from_url(cls, url: str, **placed: int) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

        Args:
            url: the database's, such as ``mysql://user@host/shop?inner_step=500``, with or without
                ``tddl+`` before it; the arguments of ``__init__`` may stand in its query.
            **placed: ``index`` and ``count``, if they do not.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: the driver is not installed.
        """
        made = cls.__new__(cls)
        made._executor, made._at, made._schema_name = _read(url, **placed)
        return made

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = INNER_STEP,
    ) -> TddlIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the sequence's.
            offset: not used: the row is there, or it is an error.
            step: ids per segment; at most ``inner_step``, for which a higher one is taken.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        return TddlIdSegmentDistributor._on(
            self._executor,
            at=self._at,
            schema_name=self._schema_name,
            namespace=namespace,
            name=name,
            offset=offset,
            step=step,
        )

    @property
    def _table(self) -> SequenceTable:
        return self._at

    def _scope(self) -> dict[str, object]:
        return {} if self._schema_name is None else {"schema_name": self._schema_name}


def _table_of(options: dict[str, Any]) -> SequenceTable:
    return sequence_table(
        inner_step=options.get("inner_step", INNER_STEP),
        holds=cast("Holds", options.get("holds", "base")),
        schema_name=options.get("schema_name"),
        table=options.get("table", "sequence"),
        index=options.get("index", 0),
        count=options.get("count", 1),
    )


def _read(url: str, **placed: int) -> tuple[SqlExecutor, SequenceTable, str | None]:
    place, options = split_options(url_of_engine(url, "tddl"), OPTIONS)
    at = _table_of({**options, **placed})
    return OwnEngineExecutor(place), at, options.get("schema_name")
