"""A store in memory that fails on demand, and its use in place of any other store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .._life.clock import SYSTEM_CLOCK
from ..errors import StoreUnavailableError, WouldBlock
from ..provider import store_urls
from ..stores.memory import MemoryBackend
from ..stores.sequences import SequenceStore
from ._faults import UNPLUGGED, Failure

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ..abc import Clock, Counter, Store
    from ..machine.cells import Changes, ReadRequest, Snapshot

__all__ = ("FailingStore", "use_store")


class FailingBackend(MemoryBackend):
    """Fails before it reads or writes anything; it must be awaited, like a server."""

    __slots__ = ("failure",)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.failure = Failure()

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        self.failure.meet()
        return super().add_nowait(name, by, first=first)

    def add_nowait(self, *_: object, **_options: object) -> int:
        raise WouldBlock

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        self.failure.meet()
        return await super().raise_to(name, above, create=create)

    async def counters(self, prefix: str) -> Sequence[Counter]:
        self.failure.meet()
        return await super().counters(prefix)

    async def peek(self, name: str) -> int | None:
        self.failure.meet()
        return await super().peek(name)

    async def grant_sequences(self, name: str, request: Any) -> Any:  # noqa: ANN401 - as in the base class
        self.failure.meet()
        return await super().grant_sequences(name, request)

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        self.failure.meet()
        return await super().read(namespace, need)

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        self.failure.meet()
        return await super().commit(snapshot, changes)

    async def namespaces(self) -> Sequence[str]:
        self.failure.meet()
        return await super().namespaces()


class FailingStore(SequenceStore[FailingBackend]):
    """Counters, machine ids and sequences in memory, until `fail` is called.

    It must be awaited, so that a generator behaves as with a server.
    """

    __slots__ = ()

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Create an empty store.

        Args:
            clock: measures the time since an instance's last renewal; the system's clock by
                default.
        """
        self._backend = FailingBackend(clock or SYSTEM_CLOCK)
        self._backend.address = "memory:"

    def fail(self, error: Exception | None = None, *, times: int | None = None) -> None:
        """Let calls fail from now on, before anything is read or written.

        Args:
            error: the error that they raise; by default that the store cannot be reached.
            times: the number of calls; None for all until `recover`.
        """
        backend = self._backend
        error = error or StoreUnavailableError(backend.label, UNPLUGGED)
        backend.failure.begin(error, times)

    def recover(self) -> None:
        """Let calls through again."""
        self._backend.failure.end()


class _AnyStore:
    """Stands for the class of every store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def from_url(self, _url: str, **_options: Any) -> Store:  # noqa: ANN401 - another class's
        return self._store

    def __call__(self, _root: Store, _cache: Store, **_options: Any) -> Store:  # noqa: ANN401
        return self._store


@contextmanager
def use_store(store: Store) -> Generator[Store]:
    """Make every store URL open this store, whatever it names, until the block ends.

    It is for code that itself calls `aiocosid.connect` or `aiocosid.configure`.  A provider that
    was created before the block keeps its store.  Drivers need not be installed.

    Args:
        store: usually a `MemoryStore` or a `FailingStore`.
    """
    before = store_urls._class_at
    store_urls._class_at = lambda module, name: (
        _AnyStore(store) if name[0].isupper() else before(module, name)  # a class of a store
    )
    try:
        yield store
    finally:
        store_urls._class_at = before
