"""Counters in this process's memory: for tests, demos and ids that need not outlive the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .. import _fork
from ..abc import (
    DEFAULT_NAMESPACE,
    DEFAULT_STEP,
    MAX_ID,
    Counter,
    IdSegmentDistributor,
    Store,
)
from ..errors import ForkedError, IdOverflowError, InvalidArgumentError
from ._arguments import check_above, check_step

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("MemoryIdSegmentDistributor", "MemoryStore")


class MemoryIdSegmentDistributor(IdSegmentDistributor):
    """A counter in memory, shared by all distributors of the same store and name."""

    __slots__ = ("_counters", "_key", "_store")

    store = "memory"

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        memory: MemoryStore | None = None,
    ) -> None:
        """Describe a counter; see `aiocosid.abc.IdSegmentDistributor`.

        Args:
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            memory: where the counter lies; by default in the one store that all distributors of
                this process share.
        """
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        self._store = _SHARED if memory is None else memory
        self._counters = self._store._counters
        self._key = self.namespaced_name

    @classmethod
    def from_url(
        cls,
        url: str = "memory://",
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> Self:
        """Describe a counter in the process's shared store, as ``memory://`` names it.

        Raises:
            InvalidArgumentError: the URL names something else.
        """
        store = MemoryStore.from_url(url)
        return cls(namespace=namespace, name=name, offset=offset, step=step, memory=store)

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`."""
        return self.next_max_id_nowait(step)

    def next_max_id_nowait(self, step: int) -> int:
        """Advance the counter without a suspension: it is in this process.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1.
            IdOverflowError: the counter would pass 2^63-1.
            ForkedError: the counter is the parent's; another process counts on it.
        """
        check_step(step)
        if self._store._born != _fork.generation:
            self._store._refuse_child()
        key = self._key
        max_id = self._counters.get(key, self.offset) + step
        if max_id > MAX_ID:
            raise IdOverflowError(key, limit=MAX_ID)
        self._counters[key] = max_id
        return max_id

    async def aopen(self) -> None:
        """Refuse a forked child: it would count on from where the parent was.

        Raises:
            ForkedError: the counter is the parent's.
        """
        self._store._refuse_child()


class MemoryStore(Store):
    """Counters in memory, of which there may be several that know nothing of each other."""

    __slots__ = ("_born", "_counters")

    def __init__(self) -> None:
        """Make an empty store."""
        self._counters: dict[str, int] = {}
        self._born = _fork.generation

    @classmethod
    def from_url(cls, url: str) -> MemoryStore:
        """Return the store that all ``memory://`` URLs of this process share.

        Raises:
            InvalidArgumentError: the URL names something else.
        """
        if url not in {"memory:", "memory://"}:
            raise InvalidArgumentError("url", url, expected="memory://")
        return _SHARED

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> MemoryIdSegmentDistributor:
        """Return a distributor on this store's counter."""
        return MemoryIdSegmentDistributor(
            namespace=namespace, name=name, offset=offset, step=step, memory=self
        )

    async def create_schema(self) -> None:
        """Do nothing: there are no tables."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name."""
        prefix = "" if namespace is None else f"{namespace}."
        return [
            Counter(namespaced_name=name, last_max_id=max_id)
            for name, max_id in sorted(self._counters.items())
            if name.startswith(prefix)
        ]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter to ``above`` if it is lower.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            ForkedError: the counters are the parent's.
        """
        self._refuse_child()
        check_above(above)
        key = self.segment_distributor(namespace=namespace, name=name).namespaced_name
        self._counters[key] = max(self._counters.get(key, 0), above)
        return Counter(namespaced_name=key, last_max_id=self._counters[key])

    async def aclose(self) -> None:
        """Keep the counters: what shares this store goes on with them."""

    def _refuse_child(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(
                "the memory store", remedy="use a store that both processes can reach"
            )


_SHARED = MemoryStore()
