"""What the SQL stores share: a distributor and a store over one `Executor`."""

from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from ..abc import (
    DEFAULT_NAMESPACE,
    DEFAULT_STEP,
    MAX_ID,
    Counter,
    IdSegmentDistributor,
)
from ..abc._ids import check_text
from ..errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    NameTooLongError,
    SchemaMissingError,
    StoreUnavailableError,
)
from ._arguments import check_above, check_step
from ._executor import OutOfRangeError
from ._give_back import GrantRun
from ._sql_dialect import GRANT_TABLE, NAME_WIDTH
from ._sql_machine_store import SqlMachineStore
from ._watermark import HighWater

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._executor import Executor, Row, Value
    from ._give_back import Note
    from ._sql_dialect import Dialect

__all__ = ("SqlIdSegmentDistributor", "SqlStore")

SHOWN: Final = 40  # characters of a damaged value that an error repeats


class SqlIdSegmentDistributor(IdSegmentDistributor):
    """A row of the table ``cosid``, advanced by one statement for each segment."""

    __slots__ = ("_executor", "_owns_executor", "_run", "_water", "store")

    dialect: Dialect

    def __init__(
        self,
        executor: Executor,
        *,
        namespace: str,
        name: str,
        offset: int,
        step: int,
        owns_executor: bool = False,
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            executor: runs the statements.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            owns_executor: whether `aclose` closes it.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            NameTooLongError: ``{namespace}.{name}`` is longer than 100 characters.
        """
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        _check_name(self.namespaced_name)
        self.store = executor.label
        self._executor = executor
        self._owns_executor = owns_executor
        self._water = HighWater()
        self._run = GrantRun()

    @classmethod
    def _on(cls, executor: Executor, **described: Any) -> Self:  # noqa: ANN401 - as for __init__
        """Make one that shares an executor, past the subclass's own ``__init__``."""
        made = cls.__new__(cls)
        SqlIdSegmentDistributor.__init__(made, executor, **described)
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
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
            NameTooLongError: ``{namespace}.{name}`` is longer than 100 characters.
        """
        described = {"namespace": namespace, "name": name, "offset": offset, "step": step}
        return cls._on(cls._own(url), owns_executor=True, **described)

    @classmethod
    @abstractmethod
    def _own(cls, url: str) -> Executor:
        """Return an executor that opens what it needs; nothing is opened yet."""

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect; its range is a gap then, and no later call gets to
        see its reply.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: the row holds no integer; nothing was written.
            SchemaMissingError: the table ``cosid`` does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            StoreRolledBackError: the counter is lower than it was.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        check_step(step)
        first = self.offset + step
        if first > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(repr(self))
        sent = self._water.sent()
        try:
            max_id = await (self._noted if self._run.is_noted else self._advanced)(first, step)
        except CosIdError:
            self._water.ensure_own(repr(self))
            raise
        # Suspended across a fork: the range is the parent's.
        self._water.ensure_own(repr(self))
        return self._water.check(self, max_id, step=step, sent=sent)

    async def _advanced(self, first: int, step: int) -> int:
        name, statement = self.namespaced_name, self.dialect.next_max_id
        try:
            row = await self._executor.fetch_row(statement, name=name, first=first, step=step)
        except OutOfRangeError as error:
            raise IdOverflowError(name, limit=MAX_ID) from error.__cause__
        if row is None:
            await _refused(self._executor, self.dialect, name, step)
        return _sound(self._executor, name, row[0])

    async def _noted(self, first: int, step: int) -> int:
        with self._run.call() as note:
            max_id, base = await self._granted(first, step, note)
        self._run.granted(note, max_id, max_id - step if base is None else base)
        return max_id

    async def _granted(self, first: int, step: int, note: Note) -> tuple[int, int | None]:
        name = self.namespaced_name
        about: dict[str, Value] = {"name": name, "first": first, "step": step}
        about |= {"nonce": note.nonce, "previous": note.previous}
        try:
            row = await self._fetch_noted(self.dialect.grant, **about)
        except OutOfRangeError as error:
            raise IdOverflowError(name, limit=MAX_ID) from error.__cause__
        if row is None:
            await _refused(self._executor, self.dialect, name, step)
        return _sound(self._executor, name, row[0]), row[1]

    async def _fetch_noted(self, statement: str, **values: Value) -> Row | None:
        try:
            return await self._executor.fetch_row(statement, **values)
        except SchemaMissingError as error:
            if error.table != GRANT_TABLE or not self.dialect.is_created_on_use:
                raise
        await self._executor.fetch_rows(self.dialect.create_grants)
        return await self._executor.fetch_row(statement, **values)

    def allow_give_back(self) -> bool:
        """Have every grant from now on noted, in the table ``aiocosid_grant``."""
        self._run.is_noted = True
        return True

    async def give_back(self, max_id: int, unused: int) -> int:
        """Lower the counter; see `aiocosid.abc.IdSegmentDistributor.give_back`.

        Raises:
            StoreError: the store refuses or cannot be reached.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        self._water.ensure_own(repr(self))
        offer = self._run.offer(max_id, unused)
        if offer is None:
            return 0
        self._water.lower(offer.lower)
        name, statement = self.namespaced_name, self.dialect.give_back
        row = await self._executor.fetch_row(
            statement, name=name, top=max_id, lower=offer.lower, nonce=offer.nonce
        )
        self._water.ensure_own(repr(self))
        return 0 if row is None else max_id - offer.lower

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        await self._executor.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        if self._owns_executor:
            await self._executor.aclose()


class SqlStore(SqlMachineStore):
    """The tables ``cosid`` and ``cosid_machine`` of one database."""

    __slots__ = ("_executor",)

    distributor: ClassVar[type[SqlIdSegmentDistributor]]

    def __init__(self, executor: Executor) -> None:
        """Work on an executor."""
        self._executor = executor

    @classmethod
    def _on(cls, executor: Executor) -> Self:
        """Make one past the subclass's own ``__init__``."""
        made = cls.__new__(cls)
        SqlStore.__init__(made, executor)
        return made

    def __repr__(self) -> str:
        """Name the database, without credentials."""
        return f"<{type(self).__name__} {self._executor.label}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> SqlIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            NameTooLongError: ``{namespace}.{name}`` is longer than 100 characters.
        """
        return self.distributor._on(
            self._executor, namespace=namespace, name=name, offset=offset, step=step
        )

    async def create_schema(self) -> None:
        """Create the tables ``cosid`` and ``cosid_machine``, and our own, if they are missing.

        Many processes may do so at once.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._executor.fetch_rows(self._dialect.create_table)
        await self._executor.fetch_rows(self._dialect.create_grants)
        await self._machine_tables.create()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name.

        Rows that hold something else than an integer are left out.

        Args:
            namespace: only the ones whose name begins with it and a dot; None for all.

        Raises:
            InvalidArgumentError: ``namespace`` is no text that a store can hold.
            StoreError: the store refuses or cannot be reached.
        """
        if namespace:  # nobody has the empty one
            check_text("namespace", namespace)
        prefix = "" if namespace is None else f"{namespace}."
        rows = await self._executor.fetch_rows(self._dialect.counters, prefix=prefix)
        found = [
            Counter(namespaced_name=name, last_max_id=max_id, last_fetch_time=_integer(fetch_time))
            for name, value, fetch_time in rows
            if (max_id := _integer(value)) is not None
        ]
        # Here, because every database has an order of its own.
        return sorted(found, key=lambda each: each.namespaced_name)

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter to ``above`` if it is lower or missing.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            IdOverflowError: somebody's narrower column cannot hold it; nothing was written.
            CorruptCounterError: the row holds no integer; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """
        check_above(above)
        described = self.segment_distributor(namespace=namespace, name=name)
        key, dialect = described.namespaced_name, described.dialect
        try:
            row = await self._raised(dialect, key, above)
        except OutOfRangeError as error:
            raise IdOverflowError(key, limit=MAX_ID) from error.__cause__
        if row is None:
            await _refused(self._executor, dialect, key, 0)
        max_id, fetch_time = row
        return Counter(
            namespaced_name=key,
            last_max_id=_sound(self._executor, key, max_id),
            last_fetch_time=_integer(fetch_time),
        )

    async def _raised(self, dialect: Dialect, key: str, above: int) -> Row | None:
        row = None
        for statement in (dialect.set_floor_noted, dialect.set_floor, dialect.set_floor_noted):
            # Without the table nobody has been granted what could be given back; but it may be made
            # and written just before the plain statement.
            try:
                row = await self._executor.fetch_row(statement, name=key, above=above)
            except SchemaMissingError as error:
                if error.table != GRANT_TABLE:
                    raise
            else:
                if statement is dialect.set_floor_noted:
                    break
        return row

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        await self._executor.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        await self._executor.aclose()

    @property
    def _dialect(self) -> Dialect:
        return self.distributor.dialect


def _check_name(name: str) -> None:
    if len(name) > NAME_WIDTH:
        raise NameTooLongError(name, limit=NAME_WIDTH)


def _integer(value: object) -> int | None:
    """Return what a column holds, or None if that is no integer."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)  # of a numeric column
    return value if type(value) is int else None


def _sound(executor: Executor, name: str, value: object) -> int:
    if (found := _integer(value)) is None:
        raise CorruptCounterError(executor.label, counter=name, found=f"{value!r:.{SHOWN}}")
    return found


async def _refused(executor: Executor, dialect: Dialect, name: str, step: int) -> NoReturn:
    """Find out why a counter could not be advanced; nothing was written."""
    row = await executor.fetch_row(dialect.counter, name=name)
    if row is not None and _sound(executor, name, row[0]) > MAX_ID - step:
        raise IdOverflowError(name, limit=MAX_ID)
    raise StoreUnavailableError(executor.label, f"{name!r} is being repaired by somebody else")
