"""Named generators for threads, opened and closed together."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    overload,
)

from .._life.clock import SYSTEM_CLOCK
from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE, Provider, Store
from ..abc.checks import check_text
from ..abc.options import common, takes
from ..provider import IdProvider, kinds, store_from_url
from ..provider.default import generator_named
from ..provider.hosting import Hosting, StoreHost, check_ids, check_type, wrong_type
from ..provider.options import HostOptions, ProviderOptions
from ..provider.specs import own
from ..stores.memory import MemoryStore
from ._batches import check_batch, check_make, check_timeout
from ._generator import DEFAULT_TIMEOUT, SyncIdGenerator
from ._grouping import check_groups
from ._methods import named, numbers, sharded, shared, text, texts
from ._session import LoopSession, refuse_on_a_loop
from ._sharded import SyncShardedId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ..abc import AnyGenerator, IdGenerator, TextIdGenerator
    from ..provider.specs import GeneratorSpec

__all__ = ("SyncIdProvider", "SyncProvider", "connect")

P = TypeVar("P", bound=Provider)
H = TypeVar("H", bound=SyncIdGenerator[Any])

INSTEAD = "use the asynchronous provider there"
TRIAL: Final = StoreHost(MemoryStore(), DEFAULT_NAMESPACE, {}, {"clock": SYSTEM_CLOCK})


class _Kind(NamedTuple, Generic[P]):
    """The kind that the first caller requested under a name, and how a provider finds it."""

    spec: GeneratorSpec[Any]
    find: Callable[[P], Awaitable[AnyGenerator]]


class SyncProvider(NotCopyable, Generic[P]):
    """The generators of a provider for threads and synchronous code, by name.

    Any number of threads may share it.  `open`, ``with`` or otherwise the first use opens it, also
    in a forked child; `close` or the end of the process closes it.
    """

    __slots__ = ("_generators", "_session", "_specs", "_types")

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[P]],
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Describe a provider; the first use creates and opens it.

        Args:
            make: returns a provider that is not open yet, or any other asynchronous context manager
                that yields one.  The background loop calls it, and calls it again in a forked
                child.
            timeout: maximum seconds that a call waits, including opening.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_make(make, "a provider")
        check_timeout(timeout)
        self._session: LoopSession[P] = LoopSession(
            make, label=type(self).__name__, timeout=timeout
        )
        self._generators: dict[str, SyncIdGenerator[Any]] = {}
        self._specs: dict[str, _Kind[P]] = {}  # of names requested as a kind
        # Id types of names whose kind is not known yet.
        self._types: dict[str, set[type[int | str]]] = {}

    @overload
    def __getitem__(self, name: str, /) -> SyncIdGenerator[int] | SyncIdGenerator[str]: ...

    @overload
    def __getitem__(self, name: tuple[str, type[int]], /) -> SyncIdGenerator[int]: ...

    @overload
    def __getitem__(self, name: tuple[str, type[str]], /) -> SyncIdGenerator[str]: ...

    @overload
    def __getitem__(self, name: tuple[str, type[SyncShardedId]], /) -> SyncShardedId: ...

    def __getitem__(
        self, name: str | tuple[str, type[int | str | SyncShardedId]], /
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the generator with this name, which the provider must have when it is used.

        ``ids["order", int]`` is a generator of numbers, and ``ids["order", str]`` a generator of
        texts, also for a type checker.  ``ids["order", SyncShardedId]`` accepts a sharding id.  The
        first use raises `GeneratorMissingError` if there is no such generator, and
        `InvalidArgumentError` if it is of another type.
        """
        if isinstance(name, str):
            return self._handle(name)
        name, wanted = name
        if wanted is SyncShardedId:
            return self._made(SyncShardedId, name)
        of = check_type(wanted)
        handle, kind = self._handle(name), self._specs.get(name)
        if kind is None or kind.spec.gives is None:  # not known until the generator exists
            self._types.setdefault(name, set()).add(of)
            handle.close()  # the type of buffered ids was not checked
        elif kind.spec.gives is not of:
            raise wrong_type(name, kind.spec, of)
        return handle

    def _handle(self, name: str) -> SyncIdGenerator[Any]:
        kind, found = self._specs.get(name), self._generators.get(name)
        is_sharded = kind is not None and (kind.spec.kind, kind.spec.gives) == ("ShardedId", int)
        made: type[SyncIdGenerator[Any]] = SyncShardedId if is_sharded else SyncIdGenerator
        if found is None:  # in one step, so that all threads get the same one
            found = self._generators.setdefault(name, self._made(made, name))
        if not isinstance(found, made):  # requested before the kind was known; neither buffers ids
            self._generators[name] = found = self._made(made, name)
        return found

    def _made(self, made: type[H], name: str) -> H:
        async def find(provider: P) -> AnyGenerator:
            kind = self._specs.get(name)
            found = await kind.find(provider) if kind else generator_named(name, provider)
            for of in tuple(self._types.get(name, ())):
                check_ids(name, found, of)
            return found

        return made._of(self._session, find, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the generators that were requested."""
        return iter(tuple(self._generators))

    def described(self) -> tuple[str, ...]:
        """Return the names that have a generator, as far as is known without opening the provider.

        For a provider from `aiocosid.configure`, these are the names in the settings; for one from
        `aiocosid.sync.connect`, the names for which a method was called; otherwise there are none.
        """
        made: object = self._session.make()
        return tuple(made) if isinstance(made, Hosting) else ()

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return the statistics by name, ready for JSON, in the format of CosId's actuator.

        Raises:
            CosIdError: the provider cannot be opened.
        """

        async def work(provider: P) -> dict[str, dict[str, Any]]:
            return provider.statistics()

        refuse_on_a_loop("statistics()", INSTEAD)
        return self._session.call(work)

    def open(self) -> None:
        """Open it now, even after it was closed.

        Raises:
            WouldBlock: an event loop runs in this thread.
            CosIdError: as for opening the provider.
        """

        async def work(_: P) -> None:
            """Do nothing, because the session has opened the provider."""

        refuse_on_a_loop("open()", INSTEAD)
        self._session.allow()
        self._session.call(work)

    def close(self) -> None:
        """Close it and all its generators; the buffered ids are a gap.

        Idempotent, and callable from any thread.  Waiting calls raise `ClosedError`.

        Raises:
            WouldBlock: an event loop runs in this thread.
        """
        self._session.close()

    def __enter__(self) -> Self:
        """Open it."""
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name it, and say whether it is open and how many generators are in use."""
        session = self._session
        return f"<{session.label} {session.condition} generators={len(self._generators)}>"


class SyncIdProvider(SyncProvider[IdProvider]):
    """Named generators on one store, for threads; created by `aiocosid.sync.connect`.

    Each method returns the same `SyncIdGenerator` for the same name, and does not wait: the first
    use creates the generator itself, with the options of the first call.  A method checks a
    counter's options at once; other kinds' options are checked at the first use, which raises the
    same errors as opening the generator.  ``batch`` is how many ids are taken from the generator at
    once; see `SyncIdGenerator`.
    """

    __slots__ = ()

    segment_chain = named(kinds.segment_chain)
    segment = named(kinds.segment)
    leaf_segment = named(kinds.leaf_segment)
    grouped = named(kinds.grouped)
    int32 = named(kinds.int32)
    uncertainty = named(kinds.uncertainty)
    snowflake = shared(kinds.snowflake)
    cached_snowflake = shared(kinds.cached_snowflake)
    cosid_text = text(kinds.cosid_text)
    sharded = sharded(kinds.sharded)
    remote = named(kinds.remote)
    uuid4 = texts(kinds.uuid4)
    uuid7 = texts(kinds.uuid7)
    counter = numbers(kinds.counter)

    def described(self) -> tuple[str, ...]:
        """Return the names for which a method was called, in that order."""
        return tuple(self._specs)

    @overload
    def add(
        self, name: str, make: Callable[[], IdGenerator], *, batch: int | None = None
    ) -> SyncIdGenerator[int]: ...

    @overload
    def add(
        self, name: str, make: Callable[[], TextIdGenerator], *, batch: int | None = None
    ) -> SyncIdGenerator[str]: ...

    def add(
        self, name: str, make: Callable[[], AnyGenerator], *, batch: int | None = None
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return a generator of your own, which its first use opens.

        The provider closes it, or `remove` does and frees its name.

        Args:
            name: the name for ``ids[name]``.
            make: returns a generator that is not open.  The background loop calls it, and calls it
                again in a forked child and after the provider was reopened.
            batch: ids taken from it at once.

        Raises:
            BusyError: the name is in use, perhaps with another ``make``.
            InvalidArgumentError: an argument is outside its range.
        """
        check_make(make, "a generator")
        return self._ask(name, own(make, make), batch)

    def remove(self, name: str) -> None:
        """Close the generator with this name, of whatever kind, and free the name.

        The buffered ids are a gap.  A `SyncIdGenerator` with that name raises
        `GeneratorMissingError` until a method of the provider, for example `segment_chain`, is
        called for the name again.

        Args:
            name: the generator's name.

        Raises:
            WouldBlock: an event loop runs in this thread.
            GeneratorMissingError: there is no generator with that name.
            CosIdError: closing it fails.
        """
        refuse_on_a_loop("remove()", INSTEAD)
        is_known = self._specs.pop(name, None) is not None
        handle = self._generators.pop(name, None)
        self._types.pop(name, None)

        async def work(provider: IdProvider) -> None:
            if not is_known or name in tuple(provider):
                await provider.remove(name)

        try:
            if not is_known or self._session.is_alive:  # otherwise there is nothing to close
                self._session.call(work)
        finally:
            if handle is not None:
                handle.close()  # last, because a thread may have asked for ids meanwhile

    def clear(self) -> None:
        """Close all generators and free their names, as `remove` does for one.

        Without generators it changes nothing.

        Raises:
            WouldBlock: an event loop runs in this thread.
            CosIdError: closing a generator fails; the others are still closed.
        """
        refuse_on_a_loop("clear()", INSTEAD)
        handles = tuple(self._generators.values())
        for known in (self._specs, self._generators, self._types):
            known.clear()
        try:
            if self._session.is_alive:
                self._session.call(IdProvider.clear)
        finally:
            for handle in handles:
                handle.close()  # last, as in `remove`

    def _ask(
        self, name: str, spec: GeneratorSpec[Any], batch: int | None = None
    ) -> SyncIdGenerator[Any]:
        """Return the handle; a counter's options are first tried on a store in memory."""
        if spec.resumes in {"counter", "groups"}:
            check_groups(spec.make(TRIAL, name))
        check_text("name", name)
        check_batch(batch)

        def find(provider: IdProvider) -> Awaitable[AnyGenerator]:
            return provider._named(name, spec)

        mine = _Kind(spec, find)
        kind = self._specs.setdefault(name, mine)
        kind.spec.check_agrees(name, spec)
        found = self._handle(name)
        if kind is mine:
            found._choose(batch)
        return found


class SyncOptions(HostOptions):
    """The options of `aiocosid.sync.connect`.

    Attributes:
        instrument: receives the events of all its generators, and of a store created from a URL, on
            the background loop.
        timeout: maximum seconds that a call waits, including opening.
    """

    timeout: float = DEFAULT_TIMEOUT


@takes(SyncOptions)
def connect(url: str | Store, options: SyncOptions, /) -> SyncIdProvider:
    """Return a provider of generators on one store, for threads; nothing is opened yet.

    Args:
        url: as for `aiocosid.store_from_url`; or a store, which stays open.  A store on your own
            client cannot be used in a forked child.
        options: the keyword arguments of `SyncOptions`.

    Raises:
        InvalidArgumentError: the URL names no store or is malformed, or another argument is outside
            its range.
        MissingExtraError: the store's driver is not installed.
    """
    store = url if isinstance(url, Store) else store_from_url(url, instrument=options.instrument)
    provider = IdProvider(store, owns_store=store is not url, **common(options, ProviderOptions))
    return SyncIdProvider(lambda: provider, timeout=options.timeout)
