"""A durable store beneath a fast one, with all its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._clock import SYSTEM_CLOCK
from ...abc import (
    DEFAULT_NAMESPACE,
    DEFAULT_STEP,
    Store,
)
from ...abc._ids import check_integer, check_seconds
from ...errors import InvalidArgumentError
from .._arguments import check_above
from ..redis import RedisStore
from ..redis._span import Span
from ._distributor import CACHE_TIMEOUT, MAX_SPAN, PAUSE, SPAN, TieredIdSegmentDistributor
from ._machines import TieredMachineStore
from ._outage import Outage
from ._root_name import name_of_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import Clock, Counter
    from ...events import Instrument

__all__ = ("TieredStore",)


class TieredStore(TieredMachineStore):
    """Counters of a durable store, handed out by Redis or Valkey span by span.

    Machine ids, tables and the counters' values are the root's.
    """

    __slots__ = (
        *(
            "_cache",
            "_clock",
            "_instrument",
            "_outage",
            "_owns_stores",
            "_pause",
            "_root",
            "_root_name",
        ),
        *("cache_timeout", "span"),
    )

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
        """Put one store under another; nothing is sent yet.

        Args:
            root: the store that counts, and loses no writes; not Redis.
            cache: where spans are handed out.
            span: as for `TieredIdSegmentDistributor`, of each counter.
            cache_timeout: likewise.
            pause: likewise.
            root_name: likewise; of a server whose URL is given in ``tiered:`` or in settings all of
                the URL but passwords.
            owns_stores: whether `aclose` closes both.
            instrument: as for `TieredIdSegmentDistributor`.
            clock: likewise.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        _check_both(root, cache)
        check_integer("span", span, at_least=1, at_most=MAX_SPAN)
        check_seconds("cache_timeout", cache_timeout)
        check_seconds("pause", pause, or_zero=True)
        root_name = name_of_root(root.segment_distributor(name="root"), root_name)
        self.span, self.cache_timeout, self._pause = span, cache_timeout, pause
        self._root, self._cache, self._root_name = root, cache, root_name
        self._owns_stores = owns_stores
        self._instrument, self._clock, self._outage = instrument, clock, Outage(clock, pause)

    def __repr__(self) -> str:
        """Name both stores, without credentials."""
        return f"<{type(self).__name__} {self._cache!r} on {self._root!r}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> TieredIdSegmentDistributor:
        """Return a distributor on both stores' connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range, or ``step`` above the span.
        """
        made = TieredIdSegmentDistributor(
            self._root.segment_distributor(
                namespace=namespace, name=name, offset=offset, step=step
            ),
            self._cache.segment_distributor(namespace=namespace, name=name),
            span=self.span,
            cache_timeout=self.cache_timeout,
            pause=self._pause,
            root_name=self._root_name,
            instrument=self._instrument,
            clock=self._clock,
        )
        made._outage = self._outage  # what one finds out, all know
        return made

    async def create_schema(self) -> None:
        """Create what the root needs; Redis needs nothing.

        Raises:
            StoreError: the root refuses or cannot be reached.
        """
        await self._root.create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the root's counters; each is the last id of the span that was leased last.

        Raises:
            StoreError: the root refuses or cannot be reached.
        """
        return await self._root.counters(namespace=namespace)

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise the root's counter to ``above`` if it is lower or missing, and end the span.

        A cancelled or failed call may have taken effect in the root, while the span in Redis goes
        on; it is safe to repeat, and has to be.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            StoreError: the root or Redis refuses or cannot be reached.
            ForkedError: connections are the parent's.
        """
        check_above(above)
        cache = self._cache.segment_distributor(namespace=namespace, name=name)
        raised = await self._root.set_floor(namespace=namespace, name=name, above=above)
        await Span(cache, "").void()
        return raised

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: a client was passed in, and is the parent's.
        """
        await self._root.aopen()
        await self._cache.aopen()

    async def aclose(self) -> None:
        """Close both stores if they were given to it, as ``connect(url)`` does.

        Calls under way end with `StoreUnavailableError`.
        """
        if self._owns_stores:
            self._outage.closings += 1
            try:
                await self._root.aclose()
            finally:
                await self._cache.aclose()


def _check_both(root: object, cache: object) -> None:
    if not isinstance(root, Store) or isinstance(root, RedisStore | TieredStore):
        expected = "a durable store, no RedisStore, whose server may forget, and no TieredStore"
        raise InvalidArgumentError("root", root, expected=expected)
    if not isinstance(cache, RedisStore):
        raise InvalidArgumentError("cache", cache, expected="a RedisStore")
