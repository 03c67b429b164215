"""A counter in another system's table, as a distributor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor
from ..abc._ids import check_text
from ..errors import (
    CorruptCounterError,
    CosIdError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    StoreUnavailableError,
)
from ..stores._arguments import check_step
from ..stores._engine import EngineExecutor, OwnEngineExecutor
from ..stores._executor import OutOfRangeError
from ..stores._watermark import HighWater
from ._table import CounterTable, TableRow, as_integer

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..stores._engine import SqlExecutor

__all__ = ("TableIdSegmentDistributor", "url_of_engine")

_ATTEMPTS: Final = (
    3  # when a row is sound again, or another than it was, as soon as it is looked at
)


_TYPE: Final = """
SELECT data_type FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = :table AND column_name = :column"""


class TableIdSegmentDistributor(IdSegmentDistributor):
    """A row of another system's table, advanced by one statement for each segment.

    The row has to be there: nothing is created by the way.  The namespace is ours alone: the
    systems have none, and the name is their key.
    """

    __slots__ = ("_executor", "_may_be_cut", "_owns_executor", "_water", "store")

    table: CounterTable

    scheme: ClassVar[str]
    """What stands before the database's own scheme in a URL: ``leaf`` in ``leaf+mysql://``."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> None:
        """Describe a counter on your own engine; nothing is sent yet.

        Args:
            engine: stays yours to close.
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the counter's name in that system.
            offset: not used: the row is there, or it is an error.
            step: ids per segment.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        executor = EngineExecutor(engine)
        self._describe(executor, namespace=namespace, name=name, offset=offset, step=step)

    def _describe(
        self,
        executor: SqlExecutor,
        *,
        owns_executor: bool = False,
        **described: Any,  # noqa: ANN401 - as for __init__
    ) -> None:
        super().__init__(**described)
        check_text("name", self.name, at_most=self.table.width)
        self.store = executor.label
        self._executor = executor
        self._owns_executor = owns_executor
        self._may_be_cut: bool | None = None  # not known
        self._water = HighWater()

    @classmethod
    def _on(cls, executor: SqlExecutor, **described: Any) -> Self:  # noqa: ANN401 - as for __init__
        """Make one that shares an executor, past the subclass's own ``__init__``."""
        made = cls.__new__(cls)
        made._describe(executor, **described)
        return made

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> Self:
        """Describe a counter on connections of its own, opened on first use, closed by `aclose`.

        Args:
            url: as for the store's own ``from_url``.
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the counter's name in that system.
            offset: not used: the row is there, or it is an error.
            step: ids per segment.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        described = {"namespace": namespace, "name": name, "offset": offset, "step": step}
        executor = OwnEngineExecutor(url_of_engine(url, cls.scheme))
        return cls._on(executor, owns_executor=True, **described)

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect; its range is a gap then.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the number would pass 2^63-1, or does not fit its column.
            CounterMissingError: there is no such row; nothing was written.
            CorruptCounterError: the row holds something that is no counter, or a step below 1;
                nothing was written.
            SchemaMissingError: the table does not exist.
            StoreUnavailableError: the database cannot be reached, is busy, or does not answer.
            StoreRolledBackError: the counter is lower than it was.
            ForkedError: the distributor, or the engine beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        return await self._next_above(step, 0)

    async def _next_above(self, step: int, above: int) -> int:
        """Advance the counter so that all ids are above ``above``, as well as new ones."""
        check_step(step)
        if self.step_limit is not None and step > self.step_limit:
            expected = f"an integer from 1 to {self.step_limit}"
            raise InvalidArgumentError("step", step, expected=expected)
        self._water.ensure_own(repr(self))
        sent = self._water.sent()
        try:
            max_id = await self._advanced(step, above)
        except CosIdError:
            self._water.ensure_own(repr(self))
            raise
        # Suspended across a fork: the range is the parent's.
        self._water.ensure_own(repr(self))
        span = (step - 1) * self.stride + 1
        return self._water.check(self, max_id, step=span, sent=sent)

    async def _advanced(self, step: int, above: int) -> int:
        """Have the row granted so many ids; return the last one of them."""
        for _ in range(_ATTEMPTS):
            await self._get_ready()
            stored = await self._added(self._amount(step), above)
            if stored is not None:
                return self._last_of(stored)
            await self._refused(step)
        raise StoreUnavailableError(self.store, f"{self.name!r} is being changed by somebody else")

    async def _added(self, amount: int, above: int) -> int | None:
        """Have so much added to the number; return the new one, or None if the row refused."""
        least, most = self.table.least(above), self.table.limit - amount
        if least > most:
            raise self._used_up()
        may_be_cut = await self._is_cut_by_others()
        statement = self.table.grant(self._executor.dialect_name)
        given = {"step": amount, "least": least, "most": most, **self._given(), **self._scope()}
        try:
            done = await self._executor.run(statement, name=self.name, **given)
        except OutOfRangeError as error:  # a column that is narrower than 64 bits
            raise self._used_up() from error.__cause__
        answers = [row[0] for row in done.rows]
        if self._executor.dialect_name == "mysql":
            answers = [done.inserted_id] * done.matched
        if not answers:
            return None
        stored = as_integer(answers[0])
        if len(answers) > 1 or stored is None:
            # Home-made, without its primary key: whose range it is nobody knows.
            raise self._corrupt(f"{len(answers)} rows of that name")
        if may_be_cut and (as_integer((await self.row()).stored) or 0) < stored:
            raise self._used_up()  # what was answered is not what was stored
        return stored

    async def _is_cut_by_others(self) -> bool:
        """Tell whether a number may be cut to its column, in a session that is not strict.

        The statement answers it as it was before.  Only MySQL does so, on a user's engine.
        """
        executor = self._executor
        if executor.dialect_name != "mysql" or not isinstance(executor, EngineExecutor):
            return False
        if self._may_be_cut is None:
            place = {"table": self.table.table, "column": self.table.value}
            types = [row[0] for row in (await executor.run(_TYPE, **place)).rows]
            self._may_be_cut = types != ["bigint"]
        return self._may_be_cut

    # What differs from system to system.

    async def _get_ready(self) -> None:
        """Find out what has to be known before a grant."""

    def _amount(self, step: int) -> int:
        """Return what a grant of so many ids adds to the number."""
        return step

    def _given(self) -> dict[str, object]:
        """Return what the table's own guards ask for."""
        return {}

    def _scope(self) -> dict[str, object]:
        """Return what the table's `CounterTable.scope` asks for."""
        return {}

    def _last_of(self, stored: int) -> int:
        """Return the last id of the grant that left this number."""
        return stored - self.table.ahead

    def _outdated(self, row: TableRow) -> bool:  # noqa: ARG002 - of other tables
        """Take note of what changed in a sound row; tell whether anything did."""
        return False

    async def row(self) -> TableRow:
        """Read the row as it is now.

        Raises:
            CounterMissingError: there is none.
            StoreError: the store refuses or cannot be reached.
        """
        statement = self.table.row(self._executor.dialect_name)
        done = await self._executor.run(statement, name=self.name, **self._scope())
        if not done.rows:
            raise self._missing()
        return TableRow(*done.rows[0])

    async def row_step(self) -> int:
        """Return the step that the row names now; this object's own where the table has none.

        Raises:
            CounterMissingError: there is no such row.
            CorruptCounterError: the row's step is no integer of at least 1.
            StoreError: the store refuses or cannot be reached.
        """
        return self.step if self.table.step is None else self.step_of(await self.row())

    def step_of(self, row: TableRow) -> int:
        """Return the step of a row that was read.

        Raises:
            CorruptCounterError: the row holds no counter, or a step below 1.
        """
        if problems := self.table.problems(row):
            raise self._corrupt("; ".join(problems))
        return as_integer(row.step) or self.step

    async def _sound_row(self) -> TableRow:
        """Read the row; raise what is wrong with it."""
        row = await self.row()
        if problems := self.table.problems(row):
            raise self._corrupt("; ".join(problems))
        return row

    async def _look(self) -> None:
        """Raise what is wrong with the row, and take note of what has to be known."""
        self._outdated(await self._sound_row())

    async def _refused(self, step: int) -> None:
        """Raise what is wrong with the row, if anything is; nothing was written."""
        row = await self._sound_row()
        if not self._outdated(row) and self.table.is_used_up(row, self._amount(step)):
            raise self._used_up()

    def _used_up(self) -> IdOverflowError:
        return IdOverflowError(self.namespaced_name, limit=self.table.limit - self.table.ahead)

    def _corrupt(self, found: str) -> CorruptCounterError:
        counter = f"{self.table.table}.{self.name}"
        return CorruptCounterError(self.store, counter=counter, found=found)

    def _missing(self) -> CounterMissingError:
        return CounterMissingError(
            self.store,
            table=self.table.table,
            key=self.table.key,
            counter=self.name,
            remedy=self._remedy(),
        )

    def _remedy(self) -> str:
        """Say how a row is created."""
        return "create it as the other nodes' are, or correct the name"

    def resume_above(self, reached: int) -> None:
        """Expect no less than what a former object has seen."""
        self._water.raise_to(reached)

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the engine was passed in, and is the parent's.
        """
        await self._executor.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """Close connections made from a URL; an engine that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        if self._owns_executor:
            await self._executor.aclose()


def url_of_engine(url: str, scheme: str) -> str:
    """Return a URL without the system's name before it: ``leaf+mysql://`` is ``mysql://``."""
    return url.removeprefix(f"{scheme}+")
