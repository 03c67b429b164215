"""TDDL's sequences in several databases, as a store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl

from ..._clock import SYSTEM_CLOCK
from ..._uncopied import Uncopied
from ...abc import DEFAULT_NAMESPACE, Counter, Store
from ...errors import CounterMissingError, InvalidArgumentError
from ...stores.striped._health import Health
from .._group import STORE_TIMEOUT
from .._table import as_integer
from ._group import TddlGroupIdSegmentDistributor
from ._segments import INNER_STEP, TddlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...abc import Clock
    from .._examine import Examined

__all__ = ("TddlGroupStore",)

_FORM: Final = "tddl-group+striped:?store=URL&store=URL, percent-encoded"
_OFF: Final = "-OFF"
_SHARED: Final = ("inner_step", "schema_name", "table")


class TddlGroupStore(Uncopied, Store):
    """TDDL's sequences in several databases, of which any one is enough."""

    __slots__ = ("_clock", "_healths", "_stores", "store_timeout")

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
        stores = [
            TddlStore(
                engine,
                inner_step=inner_step,
                schema_name=schema_name,
                table=table,
                index=index,
                count=len(engines),
            )
            for index, engine in enumerate(engines)
            if engine is not None
        ]
        self._gather(stores, store_timeout, clock)

    def _gather(self, stores: Sequence[TddlStore], store_timeout: float, clock: Clock) -> None:
        if not stores:
            expected = "one database at least that is not off"
            raise InvalidArgumentError("engines", stores, expected=expected)
        self._stores = tuple(stores)
        self._healths = [Health(clock) for _ in stores]
        self.store_timeout, self._clock = store_timeout, clock

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

        Args:
            url: ``tddl-group+striped:?store=URL&store=URL``, with a ``store`` for each of TDDL's
                groups in their order, percent-encoded; one that ends with ``-OFF`` is off and keeps
                its place.  ``inner_step``, ``schema_name`` and ``table`` may follow.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: a driver is not installed.
        """
        scheme, _, query = url.removeprefix("tddl-group+").partition(":?")
        given = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
        urls = [text for name, text in given if name == "store"]
        shared = {name: text for name, text in given if name != "store"}
        if scheme != "striped" or not urls or not shared.keys() <= {*_SHARED}:
            # Not the URL itself, which may hold passwords.
            raise InvalidArgumentError("url", f"{scheme}:...", expected=_FORM)
        count, stores = len(urls), list[TddlStore]()
        for index, each in enumerate(urls):
            if not each.endswith(_OFF):
                told = "&".join(f"{name}={text}" for name, text in shared.items())
                joined = f"{each}{'&' if '?' in each else '?'}{told}" if told else each
                stores.append(TddlStore.from_url(joined, index=index, count=count))
        made = cls.__new__(cls)
        made._gather(stores, STORE_TIMEOUT, SYSTEM_CLOCK)
        return made

    def __repr__(self) -> str:
        """Name the databases, without credentials."""
        return f"<{type(self).__name__} {' '.join(repr(store) for store in self._stores)}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = INNER_STEP,
    ) -> TddlGroupIdSegmentDistributor:
        """Return a distributor on all databases' connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the sequence's.
            offset: not used: the rows are there, or it is an error.
            step: ids per segment; at most ``inner_step``, for which a higher one is taken.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        made = TddlGroupIdSegmentDistributor(
            [
                store.segment_distributor(namespace=namespace, name=name, offset=offset, step=step)
                for store in self._stores
            ],
            namespace=namespace,
            store_timeout=self.store_timeout,
            clock=self._clock,
        )
        made._share_health(self._healths)
        return made

    async def create_schema(self) -> None:
        """Create the table in each database, if it is missing there; no rows.

        Raises:
            StoreError: a database refuses or cannot be reached.
        """
        for store in self._stores:
            await store.create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the sequences, each with the highest id of all databases, ordered by name.

        Raises:
            StoreError: a database refuses or cannot be reached.
        """
        found: dict[str, Counter] = {}
        for store in self._stores:
            for each in await store.counters(namespace=namespace):
                known = found.get(each.namespaced_name, each)
                found[each.namespaced_name] = max(known, each, key=lambda one: one.last_max_id)
        return [found[name] for name in sorted(found)]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a sequence in each database that is lower; see `TddlStore.set_floor`.

        A cancelled or failed call may have taken effect in some; it is safe to repeat, and has to
        be.

        Raises:
            StoreError: as for `TddlStore.set_floor`, of any database.
        """
        raised = [
            await store.set_floor(namespace=namespace, name=name, above=above)
            for store in self._stores
        ]
        return max(raised, key=lambda each: each.last_max_id)

    async def adjust(self, name: str) -> None:
        """Add the row of a database that has none, and raise one with another database's numbers.

        TDDL's ``adjust``, by hand alone: stop all nodes first.  Every number that is written is
        above all ids of the sequence, and none is lowered.  Safe to repeat.

        Raises:
            CorruptCounterError: a row holds no number; nothing was written.
            IdOverflowError: there is no number left above all ids; nothing was written.
            StoreError: a database refuses or cannot be reached.
        """
        highest = 0
        for store in self._stores:
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
        above = highest + self._stores[0]._at.outer_step
        if any(store._at.least(above) > store._at.limit for store in self._stores):
            raise self._stores[0].segment_distributor(name=name)._used_up()
        for store in self._stores:
            executor = store._executor
            least = store._at.least(above)
            given: dict[str, Any] = {"name": name, "least": least}
            for statement in (store._at.insert, store._at.repair):
                await executor.run(statement(executor.dialect_name), **given, **store._scope())

    async def examine(self) -> Sequence[Examined]:
        """Read all rows of all databases and say what they mean; nothing is written.

        Names have the database's index behind them, as ``order@1``.

        Raises:
            StoreError: a database refuses or cannot be reached, or a table is missing.
        """
        return [
            replace(each, name=f"{each.name}@{store._at.index}")
            for store in self._stores
            for each in await store.examine()
        ]

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: an engine was passed in, and is the parent's.
        """
        for store in self._stores:
            await store.aopen()

    async def aclose(self) -> None:
        """Close connections made from URLs; engines that were passed in stay open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        async with AsyncExitStack() as stack:
            for store in self._stores:
                stack.push_async_callback(store.aclose)
