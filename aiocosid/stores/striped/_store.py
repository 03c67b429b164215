"""Several independent stores as one, with all their counters."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from ..._clock import SYSTEM_CLOCK
from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter, Store
from ...abc._ids import check_integer, check_seconds
from ...errors import UnsupportedByStoreError
from ._distributor import STORE_TIMEOUT, Closings, StripedIdSegmentDistributor, check_stores
from ._health import Health
from ._place import SUFFIX, Place, highest_id
from ._url import read_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...abc import Clock

__all__ = ("StripedStore",)


class StripedStore(Store):
    """Counters that lie in several independent stores, of which any one is enough.

    It hands out no machine ids: they need one store that decides.
    """

    __slots__ = ("_clock", "_closings", "_health", "_owns_stores", "_stores", "store_timeout")

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        store_timeout: float = STORE_TIMEOUT,
        owns_stores: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Put stores side by side; nothing is sent yet.

        Args:
            stores: as for `StripedIdSegmentDistributor`.
            store_timeout: likewise.
            owns_stores: whether `aclose` closes them.
            clock: as for `StripedIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_stores(stores)
        check_seconds("store_timeout", store_timeout)
        self._stores = tuple(stores)
        self._health = [Health(clock) for _ in stores]
        self.store_timeout, self._owns_stores = store_timeout, owns_stores
        self._clock, self._closings = clock, Closings()

    @classmethod
    def from_url(cls, url: str, *, open_store: Callable[[str], Store]) -> Self:
        """Put side by side the stores that a URL names, and close them with this one.

        Args:
            url: ``striped:?store=URL&store=URL``, each percent-encoded; ``store_timeout`` may
                follow, in seconds.
            open_store: opens each of them: `aiocosid.open_store`.

        Raises:
            InvalidArgumentError: the URL, or one within, is malformed.
            MissingExtraError: a store's driver is not installed.
        """
        urls, store_timeout = read_url(url)
        stores = [open_store(each) for each in urls]
        return cls(stores, store_timeout=store_timeout, owns_stores=True)

    def __repr__(self) -> str:
        """Name the stores, without credentials."""
        return f"<{type(self).__name__} {' '.join(repr(store) for store in self._stores)}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> StripedIdSegmentDistributor:
        """Return a distributor on all stores' connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        made = StripedIdSegmentDistributor(
            self._stores,
            namespace=namespace,
            name=name,
            offset=offset,
            step=step,
            store_timeout=self.store_timeout,
            clock=self._clock,
        )
        made._closings = self._closings
        for stripe, health in zip(made._stripes, self._health, strict=True):
            stripe.health = health  # what one finds out, all know
        return made

    async def create_schema(self) -> None:
        """Create what each store needs.

        Raises:
            StoreError: a store refuses or cannot be reached; those before it have what they need.
        """
        for store in self._stores:
            await store.create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters that lie in several stores, each with the highest id of all.

        Raises:
            StoreError: a store refuses or cannot be reached: another one cannot answer for it.
        """
        found: dict[str, int] = {}
        for number, store in enumerate(self._stores):
            place = Place(number, len(self._stores))
            for counter in await store.counters(namespace=namespace):
                name, is_ours = _outer(counter.namespaced_name)
                if is_ours and Place.noted_in(counter.last_max_id) == (place, False):
                    last = place.last_id(counter.last_max_id)
                    found[name] = max(found.get(name, 0), last)
        return [Counter(namespaced_name=name, last_max_id=found[name]) for name in sorted(found)]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter in each store that is lower, or has none yet; it costs an id in each.

        A cancelled or failed call may have taken effect in some; it is safe to repeat, and has to
        be.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            StoreError: a store refuses, cannot be reached, or has another place.
        """
        check_integer("above", above, at_least=0, at_most=highest_id(len(self._stores)))
        counter = self.segment_distributor(namespace=namespace, name=name)
        highest = above
        for stripe in counter._stripes:  # all, before any can grant
            await stripe.bind()
        for stripe in counter._stripes:
            highest = max(highest, await stripe.raise_to(above))
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=highest)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: a client was passed in, and is the parent's.
        """
        for store in self._stores:
            await store.aopen()

    async def aclose(self) -> None:
        """Close the stores if they were given to it, as ``connect(url)`` does.

        Calls under way end with `StoreUnavailableError`.
        """
        if self._owns_stores:
            self._closings.count += 1
            async with AsyncExitStack() as stack:
                for store in self._stores:
                    stack.push_async_callback(store.aclose)

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        reason = "it hands out no machine ids, which need one store that decides: take one of them"
        return UnsupportedByStoreError(StripedIdSegmentDistributor.store, reason)


def _outer(name: str) -> tuple[str, bool]:
    return name.removesuffix(SUFFIX), name.endswith(SUFFIX)
