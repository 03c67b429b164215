"""Another system's tables in several databases, as a store."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from .._clock import SYSTEM_CLOCK
from .._uncopied import Uncopied
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter, Store
from ..abc._ids import check_seconds
from ..errors import InvalidArgumentError
from ..stores.striped._health import Health
from ._group import STORE_TIMEOUT, GroupIdSegmentDistributor
from ._table_store import TableStore
from ._url import split_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..abc import Clock
    from ._examine import Examined

__all__ = ("GroupStore",)

S = TypeVar("S", bound=TableStore)


class GroupStore(Uncopied, Store, Generic[S]):
    """Another system's counters in several databases, of which any one is enough."""

    __slots__ = ("_clock", "_healths", "_stores", "store_timeout")

    scheme: ClassVar[str]
    """The system's name, before ``-group+striped:``."""
    options: ClassVar[tuple[str, ...]] = ()
    """What all of the databases are told by the URL."""
    group: ClassVar[type[GroupIdSegmentDistributor[Any]]]

    def _gather(self, stores: Mapping[int, S], store_timeout: float, clock: Clock) -> None:
        """Put databases side by side, each with its number."""
        if not stores:
            expected = "one database at least that is not off"
            raise InvalidArgumentError("engines", [], expected=expected)
        check_seconds("store_timeout", store_timeout)
        self._stores = dict(stores)
        self._healths = [Health(clock) for _ in stores]
        self.store_timeout, self._clock = store_timeout, clock

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

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
        urls, told, store_timeout = split_group(url, cls.scheme, cls.options, STORE_TIMEOUT)
        made = cls.__new__(cls)
        made._gather(cls._open_at(urls, told), store_timeout, SYSTEM_CLOCK)
        return made

    @classmethod
    @abstractmethod
    def _open_at(cls, urls: Sequence[str], told: Mapping[str, str]) -> Mapping[int, S]:
        """Return the databases of a URL, by their numbers; see `from_url`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Name the databases, without credentials."""
        return f"<{type(self).__name__} {' '.join(map(repr, self._stores.values()))}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> GroupIdSegmentDistributor[Any]:
        """Return a distributor on all databases' connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the counter's name in that system.
            offset: not used: the rows are there, or it is an error.
            step: ids per segment.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        counters = [
            store.segment_distributor(namespace=namespace, name=name, offset=offset, step=step)
            for store in self._stores.values()
        ]
        made = self.group(
            counters, namespace=namespace, store_timeout=self.store_timeout, clock=self._clock
        )
        made._share_health(self._healths)
        return made

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
        found: dict[str, Counter] = {}
        for store in self._stores.values():
            for each in await store.counters(namespace=namespace):
                known = found.get(each.namespaced_name, each)
                found[each.namespaced_name] = max(known, each, key=lambda one: one.last_max_id)
        return [found[name] for name in sorted(found)]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter in each database that is lower; see the one database's store.

        A cancelled or failed call may have taken effect in some; it is safe to repeat, and has to
        be.

        Raises:
            StoreError: as for the store of any one database.
        """
        raised = [
            await store.set_floor(namespace=namespace, name=name, above=above)
            for store in self._stores.values()
        ]
        return max(raised, key=lambda each: each.last_max_id)

    async def examine(self) -> Sequence[Examined]:
        """Read all rows of all databases and say what they mean; nothing is written.

        Names have the database's number behind them, as ``order@1``.

        Raises:
            StoreError: a database refuses or cannot be reached, or a table is missing.
        """
        return [
            replace(each, name=f"{each.name}@{index}")
            for index, store in self._stores.items()
            for each in await store.examine()
        ]

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
