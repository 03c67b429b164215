"""Common to stores over other stores: their lifecycle, which ends calls under way."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor, Store
from ..errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("Closings", "StoreOverStores")

D = TypeVar("D", bound=IdSegmentDistributor)


class Closings:
    """Counts closings: a call that began before one must not open the stores again.

    Attributes:
        count: the number of closings of this and of the whole that it is a part of.
    """

    __slots__ = ("_own", "_whole")

    def __init__(self, whole: Closings | None = None) -> None:
        self._own = 0
        self._whole = whole

    @property
    def count(self) -> int:
        """How many were noted, of the whole too."""
        return self._own + (0 if self._whole is None else self._whole.count)

    def note(self) -> None:
        """Record a closing: all calls under way end."""
        self._own += 1

    def watch(self, store: str) -> Callable[[], None]:
        """Return a function that raises after a closing, before a call opens connections again."""
        before = self.count

        def go_on() -> None:
            if self.count != before:
                raise StoreUnavailableError(
                    store, "closed while the call was under way", remedy="open it anew to go on"
                )

        return go_on


class StoreOverStores(Store, Generic[D]):
    """Several stores as one; its distributors are of one class, and use its stores."""

    __slots__ = ("_closings", "_owns_stores", "_stores")

    begins_counters = True

    def __init__(self, stores: Sequence[Store], *, owns_stores: bool) -> None:
        self._stores, self._owns_stores = tuple(stores), owns_stores
        self._closings = Closings()

    @property
    def parts(self) -> Sequence[Store]:
        """The stores that it is made of, in their order."""
        return self._stores

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> D:
        """Return a distributor on all stores' connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return self._counter(namespace=namespace, name=name, offset=offset, step=step)

    @abstractmethod
    def _counter(self, **described: Any) -> D:  # noqa: ANN401 - a contract's
        """Return a distributor, and hand it what it needs of this store."""

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: a user's client is the parent's.
        """
        for store in self._stores:
            await store.aopen()

    async def aclose(self) -> None:
        """Close the stores if it owns them, as after ``connect(url)``.

        Calls under way end with `StoreUnavailableError`.
        """
        if self._owns_stores:
            self._closings.note()
            async with AsyncExitStack() as stack:
                for store in self._stores:
                    stack.push_async_callback(store.aclose)
