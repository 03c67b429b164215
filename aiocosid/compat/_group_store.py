"""Another system's tables in several databases, as a store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, Self, Unpack, cast

from .._checks import check_seconds
from .._life.not_copyable import NotCopyable
from ..abc import DEFAULT_NAMESPACE, Counter, Store
from ..errors import InvalidArgumentError
from ..stores.counters import StoreHealth
from ..stores.sql import executor_of
from ._group import GroupIdSegmentDistributor
from ._table import share_ids
from ._url import split_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..abc import Clock
    from ._examine import Examined
    from ._table import Class
    from ._table_distributor import CounterOptions
    from ._table_store import TableStore
    from ._url import Options

__all__ = ("STORE_TIMEOUT", "GroupStore")

# Three of these are below the default 2 s timeout of a generator's call.
STORE_TIMEOUT: Final = 0.6  # seconds

_LAST_MAX_ID: Final = attrgetter("last_max_id")


class GroupStore(NotCopyable, Store):
    """Another system's counters in several databases, of which any one is enough.

    Attributes:
        one: the store of one of the databases.
        options: the options of a URL for all of them, and how their texts are read.
        off: the suffix of the URL of a database that is off.
        healths: the health of each database, shared by all distributors.
        store_timeout: seconds that one database has to answer, before the next is asked.
        clock: time.
    """

    one: ClassVar[type[TableStore]]
    options: ClassVar[Options] = {}
    off: ClassVar[tuple[str, ...]] = ()

    def _gather(self, stores: Mapping[int, TableStore], store_timeout: float, clock: Clock) -> None:
        """Combine databases, each with its number."""
        if not stores:
            expected = "at least one database that is not off"
            raise InvalidArgumentError("engines", [], expected=expected)
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
                percent-encoded; ``store_timeout``, in seconds, may follow.  Likewise
                ``tddl-group+``, with one for each of TDDL's groups in their order; one that ends
                with ``-OFF`` is off and keeps its place, and ``inner_step``, ``schema_name`` and
                ``table`` may follow as well.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: a driver is not installed.
        """
        system = cls.one.scheme
        urls, options = split_group(url, system, {**cls.options, "store_timeout": float})
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
            **more: as for the one database's store.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        stores = self._stores.values()
        counters = [store.segment_distributor(name=name, **more) for store in stores]
        return GroupIdSegmentDistributor(counters, self)

    async def create_schema(self) -> None:
        """Create the table in each database, if it is missing there; no rows.

        Raises:
            StoreError: a database refuses or cannot be reached.
        """
        for store in self._stores.values():
            await store.create_schema()

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
        """Raise a counter in each database that is lower; see the one database's store.

        A cancelled or failed call may have taken effect in some databases: repeat it, which is
        safe.

        Raises:
            StoreError: as for the store of any one database.
        """
        raised = [
            await store.set_floor(namespace=namespace, name=name, above=above)
            for store in self._stores.values()
        ]
        return max(raised, key=_LAST_MAX_ID)

    async def examine(self) -> Sequence[Examined]:
        """Read and explain all rows of all databases; nothing is written.

        Names end with the database's number, as ``order@1``.  If two databases have ids in common,
        it is a problem of the later one.

        Raises:
            StoreError: a database refuses or cannot be reached, or a table is missing.
        """
        found: list[Examined] = []
        classes: list[tuple[str, int, Class]] = []
        for index, store in self._stores.items():
            for row in await store._rows():
                examined = store._examined(row)
                own = store._table.class_of(row) if store._table.classes else None
                shared = tuple(
                    f"database {other} has ids of {theirs[1]} modulo {theirs[0]}: some are the same"
                    for name, other, theirs in classes
                    if own and name == row.name and share_ids(own, theirs)
                )
                classes += [(row.name, index, own)] if own else []
                problems, name = examined.problems + shared, f"{row.name}@{index}"
                next_id = None if problems else examined.next_id
                found.append(replace(examined, name=name, next_id=next_id, problems=problems))
        return found

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: an engine was passed in, and is the parent's.
        """
        for store in self._stores.values():
            await store.aopen()

    async def aclose(self) -> None:
        """Close connections made from URLs; engines that were passed in stay open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        async with AsyncExitStack() as stack:
            for store in self._stores.values():
                stack.push_async_callback(store.aclose)
