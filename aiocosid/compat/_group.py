"""One counter in several databases, each of which grants its own ids."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from math import gcd
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, Self, Unpack, cast

from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE, Counter, Store
from ..abc.checks import check_seconds
from ..errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    StoreRolledBackError,
)
from ..stores.counters import WatchedDistributor
from ..stores.over import FailOver, StoreHealth, no_answer, read_parts
from ..stores.sql import executor_of
from ._table_store import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..abc import Clock
    from ..stores.counters import CounterOptions
    from ._table import Class, Examined
    from ._table_distributor import TableDistributor
    from ._table_rows import TableRows
    from ._table_store import TableStore
    from ._url import Options

__all__ = ("STORE_TIMEOUT", "GroupIdSegmentDistributor", "GroupStore")


@dataclass(slots=True, eq=False)
class _Member:
    """One of the databases.

    Attributes:
        counter: the row in this database.
        rows: all rows in this database.
        health: whether the database answers.
        place: its position among the databases that are not off.
        ended: the error after which the database is no longer called, or None.
        is_bound: whether the row was read, and is valid.
    """

    counter: TableDistributor
    rows: TableRows
    health: StoreHealth
    place: int
    ended: StoreRolledBackError | None = None
    is_bound: bool = False

    def __str__(self) -> str:
        """Return the database's name for messages."""
        return f"database {self.place}"


class GroupIdSegmentDistributor(WatchedDistributor):
    """A counter in several databases, of which any one is enough.

    Each object has a random order of the databases, and calls the first one that answers, so that
    objects spread over the databases.  A database that fails or does not answer in time gets a
    cooldown, which grows each time, and the same request goes to another one.  A database that is
    behind the ids that this object has issued is first raised to them, so ids rise, whichever
    database grants them.

    An object stops calling a database whose number went backwards.

    The rows of all databases that answer are read before the first grant, and the row of one that
    could not be reached before it is first called.  An invalid row is an error of the whole group,
    because the cause may be a wrong option here, which the other rows need not show.  Two rows that
    share an id, for example tinyid rows with equal remainders, are invalid too.  After such an
    error all rows are read again, and once they are valid, the next call or the one after it grants
    ids.

    A database that cannot be reached is not checked, so two processes that each reach only one
    database do not detect such an error.  TDDL's numbers must belong to their database.  This check
    detects a wrong order in the first number, and a wrong ``inner_step`` in most cases, but not if
    it is, for example, a third of the right one.
    """

    def __init__(
        self,
        counters: Sequence[TableDistributor],
        rows: Sequence[TableRows],
        group: GroupStore,
    ) -> None:
        """Combine counters, which are not closed here; nothing is sent yet.

        Args:
            counters: one counter for each database, all with one name and step.
            rows: the table of each database.
            group: the store of the group.
        """
        one = counters[0]
        super().__init__(namespace=one.namespace, name=one.name, offset=one.offset, step=one.step)
        self.store: str = f"{one.store} x{len(counters)}"
        self.stride: int = one.stride
        self.step_limit: int | None = one.step_limit
        self._members = tuple(map(_Member, counters, rows, group.healths, count()))
        self._fail_over = FailOver(
            self._members, group, self._water, of=repr(self), judge=self._judge
        )

    async def _grant(self, step: int) -> int:
        """Reserve a segment in one of the databases.

        A cancelled call, or one that reached several databases, may leave gaps in each of them.

        Raises:
            StoreUnavailableError: no database answers; the last one's error is the cause.
            CorruptCounterError: a row is invalid, or shares ids with another one; nothing was
                written, but if a row has changed since it was read, a range may be lost.
            StoreError: none answers, and a retry cannot help.
            StoreRolledBackError: the numbers of all databases went backwards.
        """
        failed = await self._bind()
        above = self._water.baseline() or 0
        errors = [*failed.values()]
        for member in (each for each in self._fail_over.candidates() if each not in failed):
            call = partial(self._granted, member, step, above)
            answer = await self._fail_over.ask(member, call)
            if not isinstance(answer, CosIdError):
                self.stride = member.counter.stride
                return answer
            errors.append(answer)
        raise self._no_answer(errors)

    async def _bind(self) -> dict[_Member, CosIdError]:
        """Check the rows that were not read yet, before an id is granted; return the failures.

        Raises:
            CosIdError: a row is invalid, or the error is not a failure of a database.
        """
        unbound = [
            each
            for each in self._fail_over.candidates()
            if not (each.is_bound or each.health.is_resting)
        ]
        calls = {each: partial(self._look_at, each) for each in unbound}
        return await self._fail_over.ask_at_once(calls)

    async def _look_at(self, member: _Member) -> None:
        """Raise if a row is invalid."""
        await member.counter._read_row()
        member.is_bound = True

    async def _granted(self, member: _Member, step: int, above: int) -> int:
        """Reserve ``step`` ids that are all above ``above``.

        A database that is behind is called twice, because lost writes show only in a grant that
        does not raise the number.
        """
        counter = member.counter
        if not member.is_bound:  # it is in a cooldown, and the last resort
            await self._look_at(member)
        self._check_disjoint()
        max_id = await counter.next_max_id(step)
        if max_id - (step - 1) * counter.stride <= above:
            max_id = await counter._next_above(step, above)
        self._check_disjoint()  # the row may have changed
        return max_id

    def _check_disjoint(self) -> None:
        """Raise if two databases may have common ids, as far as their rows were read."""
        known = [each for each in self._members if each.rows.table.classes]
        for (index, member), (_, later) in combinations(enumerate(known), 2):
            one, other = member.counter, later.counter
            if not (one.stride and other.stride):
                continue  # it could not be reached since this object was created
            if _share_ids((one.stride, one.remainder), (other.stride, other.remainder)):
                ids = f"the ids that are {other.remainder} modulo {other.stride}"
                found = f"{ids}, and database {index} has some of them, too"
                raise later.rows.corrupt(self.name, found)

    def _judge(self, error: CosIdError) -> bool:
        """Raise the error of an invalid row, because the other databases may share its ids."""
        if isinstance(error, CorruptCounterError):
            for each in self._members:  # any row may be corrected
                each.is_bound = False
            raise error
        return False

    def _no_answer(self, errors: list[CosIdError]) -> CosIdError:
        """Return the error for a call that no database has answered."""
        if not errors:
            ended = [member.ended for member in self._members if member.ended is not None]
            return ended[-1].again()
        if len(errors) == 1 or all(isinstance(error, IdOverflowError) for error in errors):
            return errors[-1]
        return no_answer(self.store, "no database answers", errors)

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: an engine was passed in and belongs to the parent process.
        """
        for member in self._members:
            await member.counter.aopen()
        await super().aopen()


# Three times this fits into the default 2 s timeout of a generator's call.
STORE_TIMEOUT: Final = 0.6  # seconds

_LAST_MAX_ID: Final = attrgetter("last_max_id")


class GroupStore(NotCopyable, Store):
    """Another system's counters in several databases, of which any one is enough.

    Attributes:
        one: the store of one of the databases.
        options: the URL options for all databases, and the functions that read their texts.
        off: the suffix of the URL of a database that is off.
        healths: the health of each database, shared by all distributors.
        store_timeout: seconds within which a database must answer before the next one is called.
        clock: the time source.
    """

    one: ClassVar[type[TableStore]]
    options: ClassVar[Options] = {}
    off: ClassVar[tuple[str, ...]] = ()

    def _gather(self, stores: Mapping[int, TableStore], store_timeout: float, clock: Clock) -> None:
        """Combine databases, each with its number."""
        if not stores:
            rule = "must have at least one database that is not off"
            raise InvalidArgumentError("engines", [], rule)
        check_seconds("store_timeout", store_timeout)
        self._stores = stores
        self.healths: list[StoreHealth] = [StoreHealth(clock) for _ in stores]
        self.store_timeout: float = store_timeout
        self.clock: Clock = clock

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store with its own connections, opened on first use; nothing is opened yet.

        Args:
            url: ``tinyid-group+striped:?store=URL&store=URL``, with a ``store`` for each database,
                percent-encoded; ``store_timeout``, in seconds, may follow.  A ``tddl-group+`` URL
                is similar, with a ``store`` for each of TDDL's groups in their order; a store that
                ends with ``-OFF`` is off and keeps its place.  ``inner_step``, ``schema_name`` and
                ``table`` may follow too.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: a driver is not installed.
        """
        system = cls.one.scheme
        urls, options = read_parts(
            url.removeprefix(f"{system}-group+"),
            "striped",
            {**cls.options, "store_timeout": float},
            needs={"store"},
            form=f"{system}-group+striped:?store=URL&store=URL, percent-encoded",
        )
        servers = [each.removeprefix(f"{system}+") for each in urls]
        engines = [None if url.endswith(cls.off) else executor_of(url) for url in servers]
        return cast("Callable[..., Self]", cls)(engines, **options)

    def __repr__(self) -> str:
        """Name the databases, without credentials."""
        return f"<{type(self).__name__} {' '.join(map(repr, self._stores.values()))}>"

    def segment_distributor(
        self, *, name: str, **more: Unpack[CounterOptions]
    ) -> GroupIdSegmentDistributor:
        """Return a distributor on all databases' connections; nothing is sent yet.

        Args:
            name: the counter's name in that system.
            **more: as for the store of a single database.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        stores = self._stores.values()
        counters = [store.segment_distributor(name=name, **more) for store in stores]
        return GroupIdSegmentDistributor(counters, [*map(rows_of, stores)], self)

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create the table in each database, if it is missing there; no rows.

        Raises:
            StoreError: a database refuses or cannot be reached.
        """
        for store in self._stores.values():
            await store.create_schema(disposable=disposable, after_loss=after_loss)

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, each with the highest id of all databases, ordered by name.

        Raises:
            StoreError: a database refuses or cannot be reached.
        """
        stores = self._stores.values()
        found = [each for store in stores for each in await store.counters(namespace=namespace)]
        highest = {each.namespaced_name: each for each in sorted(found, key=_LAST_MAX_ID)}
        return [highest[name] for name in sorted(highest)]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, **_: bool
    ) -> Counter:
        """Raise a counter in each database where it is lower; see the single database's store.

        A cancelled or failed call may have taken effect in some databases.  Repeat it; this is
        safe.

        Raises:
            StoreError: as for the store of a single database.
        """
        raised = [
            await store.set_floor(namespace=namespace, name=name, above=above)
            for store in self._stores.values()
        ]
        return max(raised, key=_LAST_MAX_ID)

    async def examine(self) -> Sequence[Examined]:
        """Read and explain all rows of all databases; nothing is written.

        Names end with the database's number, for example ``order@1``.  If two databases have common
        ids, the problem is reported for the later one.

        Raises:
            StoreError: a database refuses or cannot be reached, or a table is missing.
        """
        found: list[Examined] = []
        classes: list[tuple[str, int, Class]] = []
        for index, store in self._stores.items():
            rows = rows_of(store)
            for row in await rows.read():
                examined = rows.examined(row)
                own = rows.table.class_of(row) if rows.table.classes else None
                shared = tuple(
                    f"database {other} has ids that are {theirs[1]} modulo {theirs[0]}: "
                    "some are the same"
                    for name, other, theirs in classes
                    if own and name == row.name and _share_ids(own, theirs)
                )
                classes += [(row.name, index, own)] if own else []
                problems, name = examined.problems + shared, f"{row.name}@{index}"
                next_id = None if problems else examined.next_id
                found.append(replace(examined, name=name, next_id=next_id, problems=problems))
        return found

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: an engine was passed in and belongs to the parent process.
        """
        for store in self._stores.values():
            await store.aopen()

    async def aclose(self) -> None:
        """Close connections that were created from URLs; engines that were passed in stay open.

        Raises:
            WrongLoopError: the connections are in use on another event loop.
        """
        async with AsyncExitStack() as stack:
            for store in self._stores.values():
                stack.push_async_callback(store.aclose)


def _share_ids(one: Class, other: Class) -> bool:
    """Return whether two residue classes share ids."""
    return (other[1] - one[1]) % gcd(one[0], other[0]) == 0
