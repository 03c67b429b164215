"""A durable store beneath a fast one, with all its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..._checks import check_above, check_integer, check_seconds
from ..._life.clock import SYSTEM_CLOCK
from ...abc import DEFAULT_NAMESPACE, Store
from ...errors import InvalidArgumentError
from ...events import Instruments
from .._over import StoreOverStores
from ..redis import RedisStore
from ..redis._span import Span
from ._distributor import Outage, TieredIdSegmentDistributor
from ._root_name import name_of_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import Clock, Counter
    from ...events import Instrument

__all__ = ("TieredStore",)

SPAN: Final = 1_000_000  # ids
MAX_SPAN: Final = 2**40  # ids; 8 million of them until the last id
# Twice this and a call to the root are below the 2 s timeout of a generator's call.
CACHE_TIMEOUT: Final = 0.75  # seconds
PAUSE: Final = 1.0  # seconds


class TieredStore(StoreOverStores[TieredIdSegmentDistributor]):
    """Counters of a durable store, handed out by Redis or Valkey span by span.

    Machine ids, tables and the counters' values are the root's.

    Attributes:
        root: the durable store.
        cache: the Redis or Valkey that hands out spans.
        span: ids per span.
        cache_timeout: seconds that the cache has to answer.
        clock: time.
        instrument: receives events about spans and outages.
        outage: whether the cache answers; shared by all distributors.
    """

    __slots__ = (
        *("_root_name", "cache", "cache_timeout", "clock", "instrument", "outage", "root", "span"),
    )

    _counter = TieredIdSegmentDistributor

    def __init__(
        self,
        root: Store,
        cache: RedisStore,
        *,
        span: int = SPAN,
        cache_timeout: float = CACHE_TIMEOUT,
        pause: float = PAUSE,
        root_name: str | None = None,
        owns_stores: bool = False,
        instrument: Instrument | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Combine two stores; nothing is sent yet.

        Args:
            root: the durable store, which loses no writes; not Redis.
            cache: the Redis or Valkey that hands out spans, under the root's name.
            span: ids per span of each counter, from its step to 2^40: each span is one call to the
                root, and the most that is lost when Redis loses data.  A larger request goes to the
                root.
            cache_timeout: seconds after which the root is asked instead.
            pause: seconds for which Redis is not asked after it did not answer.
            root_name: distinguishes roots whose counters have equal names on one Redis.  It is the
                same in all processes, and never the same for two databases: their ids would repeat.
                Not needed for a SQLite file that was opened by its URL (host and path by default),
                nor for a server whose URL is given in ``tiered:`` or in settings (the URL without
                passwords by default).
            owns_stores: whether `aclose` closes both.
            instrument: receives the events ``SpanLeased``, ``CacheLost`` and ``CacheFound``.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range, or ``root_name`` is missing.
        """
        _check_both(root, cache)
        check_integer("span", span, at_least=1, at_most=MAX_SPAN)
        check_seconds("cache_timeout", cache_timeout)
        check_seconds("pause", pause, or_zero=True)
        super().__init__((root, cache), owns_stores=owns_stores)
        self.root: Store = root
        self.cache: RedisStore = cache
        self._root_name = name_of_root(root, root_name)
        self.span: int = span
        self.cache_timeout: float = cache_timeout
        self.clock: Clock = clock
        self.outage: Outage = Outage(clock, pause)
        self.instrument: Instruments = Instruments(*(() if instrument is None else (instrument,)))

    def __repr__(self) -> str:
        """Show both stores, without credentials."""
        return f"<{type(self).__name__} {self.cache!r} on {self.root!r}>"

    def _span_of(self, name: str) -> Span:
        """Return the span of a counter by its ``{namespace}.{name}``."""
        return Span(self.cache._backend.link, name, self._root_name)

    async def create_schema(self) -> None:
        """Create what the root needs; Redis needs nothing.

        Raises:
            StoreError: the root refuses or cannot be reached.
        """
        await self.root.create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the root's counters; each is the last id of the span that was leased last.

        Raises:
            StoreError: the root refuses or cannot be reached.
        """
        return await self.root.counters(namespace=namespace)

    async def set_floor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        above: int,
        create: bool = True,
    ) -> Counter:
        """Raise the root's counter to ``above`` if it is lower or missing, and end the span.

        A cancelled or failed call may have taken effect in the root while the span in Redis is
        still used: repeat it, which is safe.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: there is no such counter, and ``create`` is False.
            StoreError: the root or Redis refuses or cannot be reached.
            ForkedError: connections are the parent's.
        """
        check_above(above)
        raised = await self.root.set_floor(
            namespace=namespace, name=name, above=above, create=create
        )
        await self._span_of(raised.namespaced_name).void()
        return raised

    def _holder(self) -> Store:
        return self.root


def _check_both(root: object, cache: object) -> None:
    if not isinstance(root, Store) or isinstance(root, RedisStore | TieredStore):
        expected = "a durable store, no RedisStore, whose server may lose data, and no TieredStore"
        raise InvalidArgumentError("root", root, expected=expected)
    if not isinstance(cache, RedisStore):
        raise InvalidArgumentError("cache", cache, expected="a RedisStore")
