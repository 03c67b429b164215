"""Leaf's table ``leaf_alloc``.

Leaf (Meituan) keeps one row for each ``biz_tag``.  ``max_id`` is the *first id of the next
segment*: a grant adds the step and owns ``[old, new)``.  Old Leaf nodes can run at the same time.
"""

# ruff: noqa: PLC0414 - names are re-exported

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio

from .._life.component import Component, root_of, why_unusable
from ..abc import DEFAULT_NAMESPACE, MAX_ID, IdGenerator
from ..abc.checks import check_above, check_integer, check_seconds, check_text
from ..errors import (
    ClosedError,
    CosIdError,
    ForkedError,
    IdOverflowError,
    InvalidArgumentError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from ..stores.counters import reached_by
from ._table import CounterTable, create_table, unless_there
from ._table_distributor import TableDistributor as TableDistributor
from ._table_store import TableStore, of_row, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._life.loop import TaskRoot
    from ..abc import Clock
    from ._table import TableRow

__all__ = ("REFRESH_INTERVAL", "LeafStore", "LeafTags", "TableDistributor")

_MAX_ROW_STEP: Final = 2**31 - 1  # the maximum of the column step, an int(11)

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

# Leaf's [old, new) corresponds to (new - 1 - step, new - 1] here, so the answer is max_id - 1.  A
# row with a max_id of 0, from which Leaf would issue 0, begins at 1.
_LEAF_ALLOC: Final = CounterTable(
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
    table = _LEAF_ALLOC

    async def tag(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> TableDistributor:
        """Return a distributor with the current step of the tag's row.

        Args:
            name: the ``biz_tag``.
            namespace: the counter's namespace, used only in messages and statistics.

        Raises:
            CounterMissingError: there is no such tag.
            CorruptCounterError: the row's step or ``max_id`` cannot be used.
            StoreError: the store refuses or cannot be reached.
        """
        asking = self.segment_distributor(namespace=namespace, name=name)
        return of_row(self, await asking.row(), namespace)

    async def create_tag(
        self, name: str, *, step: int, above: int = 0, description: str | None = None
    ) -> None:
        """Add a tag, like a manual INSERT; an existing tag is not changed.

        This is one atomic step and safe to repeat.  Old Leaf nodes read the tag within a minute.

        Args:
            name: the ``biz_tag``, at most 128 characters.
            step: ids per segment for nodes that use the row's step, 1 to 2^31-1.
            above: the first id is above this.
            description: a text for people, at most 256 characters.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            IdOverflowError: ``above`` leaves no ids for a step.
            StoreError: the store refuses or cannot be reached.
        """
        asking = self.segment_distributor(name=name)
        check_integer("step", step, at_least=1, at_most=_MAX_ROW_STEP)
        check_above(above)
        start = _LEAF_ALLOC.least(above)
        if start + step > MAX_ID:
            raise IdOverflowError(asking.namespaced_name, limit=MAX_ID - _LEAF_ALLOC.ahead)
        if description is not None:
            check_text("description", description, at_most=256)
        unless = unless_there("biz_tag", self._rows.executor.dialect_name, "(biz_tag)")
        values = {"name": name, "start": start, "step": step, "about": description}
        await self._rows.executor.run(_INSERT + unless, **values)


_logger = logging.getLogger("aiocosid")

REFRESH_INTERVAL: Final = 60.0
"""Seconds between two readings of the tags, as in Leaf."""

_ROW_TIMEOUT: Final = 5.0  # seconds for reading a tag's row when it is opened

_G = TypeVar("_G", bound=IdGenerator)


@dataclass(slots=True)
class _Opening:
    """A tag that is being opened.

    Attributes:
        is_over: set when opening has ended, with or without an error.
        error: the error; None if the tag is open, or the opening task was cancelled.
    """

    is_over: anyio.Event
    error: CosIdError | None = None


@dataclass(frozen=True, slots=True)
class _Tag(Generic[_G]):
    """A tag with an open generator.

    Attributes:
        name: the name in the tag's row; on MySQL a name that differs in case finds the same row.
        distributor: the generator's distributor.
        generator: issues the tag's ids.
    """

    name: str
    distributor: TableDistributor
    generator: _G

    @property
    def has_ended(self) -> bool:
        """Whether the generator was closed or has ended; always False for a user's own class."""
        generator: object = self.generator
        return isinstance(generator, Component) and why_unusable(generator) is not None

    def is_in(self, rows: Mapping[str, TableRow], reached: int | None) -> bool:
        """Return whether the tag's row is among these and is not a new row with lower ids.

        Args:
            rows: all rows.
            reached: the generator's last max id before the rows were read.
        """
        row = rows.get(self.name)
        last = None if row is None else _LEAF_ALLOC.last_id(row)
        return row is not None and (last is None or reached is None or last >= reached)


class LeafTags(Component, Generic[_G]):
    """The tags of one Leaf, and a generator for each requested one.

    Open it with ``async with``, or with ``await task_group.start(tags.run)``.  A tag can be used as
    soon as it is added.  When a tag is removed, its generator is closed at the next reading of the
    table; the same happens if its number was lowered, for example by removing and adding the tag
    again.  No ids are reserved for a tag before it is requested, and no tag waits for another.
    """

    def __init__(
        self,
        store: LeafStore,
        make: Callable[[TableDistributor], _G],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        interval: float = REFRESH_INTERVAL,
        close_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        """Describe the tags; the table is not read before opening.

        Args:
            store: the store of the tags; this object does not close it.
            make: creates a tag's generator, not yet open: `LeafSegmentId`, `SegmentChainId`, or a
                function with your own settings.  The distributor that it receives has the row's
                step.
            namespace: the generators' namespace, used only in messages and statistics.
            interval: seconds between two readings of the table.
            close_timeout: seconds that closing waits for running calls; each generator also has its
                own.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        given: object = make
        if not callable(given):
            rule = "must be a function that makes a generator from a distributor"
            raise InvalidArgumentError("make", make, rule)
        check_seconds("interval", interval)
        check_seconds("close_timeout", close_timeout)
        self._store, self._make, self._namespace = store, make, namespace
        self._interval, self._close_timeout = interval, close_timeout
        # The last max ids of generators that have ended, by the names of their rows.
        self._floors: dict[str, int] = {}
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._tags: dict[str, _Tag[_G]] = {}
        self._opening: dict[str, _Opening] = {}
        self._ending: set[_G] = set()
        self._is_failing = False  # the last reading of the table failed

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self._store!r}"

    # Public methods.

    def fail_fast(self) -> None:
        """Make calls fail soon while the store is down, as `IdProvider.fail_fast` does.

        It sets ``fail_fast`` for all generators that leave it at None, until this object is closed.

        Raises:
            ClosedError: the object is not open; another `CosIdError` if there is a more specific
                reason.
        """
        self._check_usable()
        if self._root is not None:
            self._root.fail_fast = True
        for tag in self._tags.values():
            _hasten(tag.generator, self._root)

    @property
    def names(self) -> frozenset[str]:
        """The tags at the last reading of the table; newer tags can be requested too."""
        return self._names

    @property
    def generators(self) -> Mapping[str, _G]:
        """The open generators, by the requested names."""
        return {name: tag.generator for name, tag in self._tags.items()}

    async def next_id(self, tag: str) -> int:
        """Return the next id of a tag, like Leaf's ``get(key)``.

        Raises:
            CosIdError: as for `get`, and as for the generator's own ``next_id``.
        """
        return await (await self.get(tag)).next_id()

    async def get(self, tag: str) -> _G:
        """Return the open generator of a tag; the first call opens it.

        A call while another task opens the tag waits for that task, and fails with it.  Reading the
        row has a timeout of 5 s; fetching the first segment has the generator's own timeout.

        Do not close the generator.  Call `get` again instead of keeping it, because it is closed
        when the tag is removed.

        Args:
            tag: the ``biz_tag``.

        Raises:
            CounterMissingError: there is no such tag.
            CorruptCounterError: the tag's row does not hold a counter, or has a step below 1.
            StoreRolledBackError: the tag's number is lower than this process has seen; raise it
                with `LeafStore.set_floor`, or remove the tag for one ``interval``.
            StoreError: the store refuses or cannot be reached.
            SegmentUnavailableError: the first segment could not be fetched.
            ClosedError: this object was closed.
        """
        self._check_usable()
        while (opening := self._opening.get(tag)) is not None:
            await opening.is_over.wait()  # another task is opening it, and has a deadline
            self._check_usable()
            if opening.error is not None:
                raise opening.error.again()  # otherwise the callers would wait one after the other
        found = self._tags.get(tag)
        if found is not None and not found.has_ended:
            return found.generator
        return await self._opened(tag)

    async def _opened(self, tag: str) -> _G:
        self._end_tag(tag)
        opening, tags = self._opening, self._tags
        this = opening[tag] = _Opening(anyio.Event())
        try:
            tag_row = await self._described(tag)
            await tag_row.generator.__aenter__()
            if self._tags is not tags or self._unusable is not None:
                await tag_row.generator.aclose()
                raise ClosedError(self._label())
            _hasten(tag_row.generator, self._root)
            tags[tag] = tag_row
            return tag_row.generator
        except CosIdError as error:
            this.error = error
            raise
        finally:
            del opening[tag]
            this.is_over.set()

    async def _described(self, tag: str) -> _Tag[_G]:
        asking = self._store.segment_distributor(namespace=self._namespace, name=tag)
        row = await _row_of(asking, self._clock)
        distributor = of_row(self._store, row, self._namespace)
        reached, last = self._floors.get(row.name), _LEAF_ALLOC.last_id(row)
        if reached is not None and last is not None:
            if last < reached:
                # This must precede any grant, because this process would otherwise raise the number
                # above other nodes' ids.
                labels = {"namespace": self._namespace, "name": tag}
                raise StoreRolledBackError(distributor.store, **labels, seen=last, expected=reached)
            distributor.resume_above(reached)
        return _Tag(row.name, distributor, self._make(distributor))

    # Reading the table.

    async def _start(self) -> None:
        await self._store.aopen()
        self._names = frozenset(row.name for row in await rows_of(self._store).read())
        if (root := self._root) is not None:
            root.start_soon(self._watch, name=f"aiocosid tags {self._label()}")

    async def _watch(self) -> None:
        while self._unusable is None:
            await self._sleep(self._interval)
            if self._unusable is None:
                await self._refresh()

    async def _refresh(self) -> None:
        """Read the table; close generators whose tag is missing, or was replaced by a new one."""
        # This is the state before the call; the next call handles changes made during this one.
        known = {name: (tag, reached_by(tag.distributor)) for name, tag in self._tags.items()}
        names = {*self._floors, *(tag.name for tag, _ in known.values())}
        try:
            rows = {row.name: row for row in await rows_of(self._store).read()}
        except CosIdError as error:
            if not self._is_failing:
                _logger.warning("%s: cannot read the tags: %s", self._label(), error)
            self._is_failing = True
            return
        self._is_failing = False
        if self._unusable is not None:
            return
        self._names = frozenset(rows)
        for name, (tag, reached) in known.items():
            if self._tags.get(name) is tag and not tag.is_in(rows, reached):
                self._end_tag(name)
        for name in names - rows.keys():
            self._floors.pop(name, None)  # removed on purpose

    def _end_tag(self, name: str) -> None:
        tag, root = self._drop(name), self._root
        if tag is not None and root is not None:
            self._ending.add(tag.generator)
            root.start_soon(self._close, tag.generator, name=f"aiocosid drop {name}")

    def _drop(self, name: str) -> _Tag[_G] | None:
        """Drop a generator, and keep its last max id."""
        tag = self._tags.pop(name, None)
        if tag is not None and (reached := reached_by(tag.distributor)) is not None:
            self._floors[tag.name] = reached
        return tag

    async def _close(self, generator: _G) -> None:
        try:
            await generator.aclose()
        except Exception:  # a user's own class; the others continue
            _logger.exception("%s: cannot close %r", self._label(), generator)
        finally:
            self._ending.discard(generator)

    # Closing.

    def _stop(self, reason: CosIdError) -> None:
        tags = [self._drop(name) for name in tuple(self._tags)]
        if not isinstance(reason, ForkedError):
            self._ending.update(tag.generator for tag in tags if tag is not None)
            self._wake()

    async def _drain(self) -> None:
        async with anyio.create_task_group() as group:
            for generator in tuple(self._ending):
                group.start_soon(self._close, generator)

    async def _release(self) -> None:
        """Leave the store open, because it belongs to the user."""


def _hasten(generator: object, tags: TaskRoot | None) -> None:
    """Make a generator's calls fail soon, if all tags' calls do; ignore a user's own class."""
    root = root_of(generator) if isinstance(generator, Component) else None
    if root is not None and tags is not None and tags.fail_fast:
        root.fail_fast = True


async def _row_of(asking: TableDistributor, clock: Clock) -> TableRow:
    with clock.move_on_after(_ROW_TIMEOUT):
        return await asking.row()
    raise StoreUnavailableError(asking.store, f"no answer within {_ROW_TIMEOUT:g} s")
