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
    Unpack,
    cast,
    overload,
)

from .. import _kinds
from .._default import generator_named
from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE, SHARE, Provider, Store
from ..abc._ids import check_text
from ..provider import IdProvider, open_store
from ..provider._hosting import check_ids, check_type, wrong_type
from ..stores.memory import MemoryStore
from ._batches import check_batch, check_make, check_timeout
from ._generator import DEFAULT_TIMEOUT, SyncIdGenerator
from ._grouping import check_groups
from ._session import LoopSession, refuse_on_a_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from .._kinds import GeneratorSpec
    from ..abc import AnyGenerator, IdConverter, IdGenerator, TextIdGenerator
    from ..events import Instrument
    from ..provider import MachineOptions, NamedSharded
    from ..segment import GroupBy
    from ..snowflake import ShardedLayout
    from ._options import (
        BatchedCached,
        BatchedChain,
        BatchedCosId,
        BatchedGroups,
        BatchedInner,
        BatchedLeaf,
        BatchedSegment,
        BatchedSnowflake,
    )

__all__ = ("SyncIdProvider", "SyncProvider", "connect")

P = TypeVar("P", bound=Provider)

INSTEAD = "use the asynchronous provider there"
TRIAL: Final = IdProvider(MemoryStore())  # never opened


class _Kind(NamedTuple, Generic[P]):
    """The kind that the first caller asked for under a name, and how a provider finds it."""

    spec: GeneratorSpec[Any]
    find: Callable[[P], Awaitable[AnyGenerator]]


class SyncProvider(NotCopyable, Generic[P]):
    """The generators of a provider for threads and synchronous code, by name.

    It may be shared by any number of threads.  It is opened at the first use, unless it is opened
    before by `open` or ``with``; closed by `close`, or with the process; and opened anew in a
    forked child.
    """

    __slots__ = ("_generators", "_session", "_specs", "_types")

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[P]],
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Describe a provider; nothing is made or opened yet.

        Args:
            make: returns a provider that is not open yet, or any other asynchronous context manager
                that gives one.  It is called on the background loop, and again in a forked child.
            timeout: seconds that a call waits at most, also for the opening.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_make(make, "a provider")
        check_timeout(timeout)
        self._session: LoopSession[P] = LoopSession(
            make, label=type(self).__name__, timeout=timeout
        )
        self._generators: dict[str, SyncIdGenerator[Any]] = {}
        self._specs: dict[str, _Kind[P]] = {}  # of those that were asked for as one
        self._types: dict[str, set[type[int | str]]] = {}  # of ids whose kind is not known yet

    @overload
    def __getitem__(self, name: str, /) -> SyncIdGenerator[Any]: ...

    @overload
    def __getitem__(self, name: tuple[str, type[int]], /) -> SyncIdGenerator[int]: ...

    @overload
    def __getitem__(self, name: tuple[str, type[str]], /) -> SyncIdGenerator[str]: ...

    def __getitem__(self, name: str | tuple[str, type[int | str]], /) -> SyncIdGenerator[Any]:
        """Return the generator of this name, which the provider has to have when it is used.

        ``ids["order", int]`` is one whose ids are numbers, and ``ids["order", str]`` one whose ids
        are text, for a type checker too.  Its first use raises `InvalidArgumentError` if there is
        none, or if its ids are of the other type.
        """
        if isinstance(name, str):
            return self._handle(name)
        name, of = name
        check_type(of)
        handle, kind = self._handle(name), self._specs.get(name)
        if kind is None or kind.spec.gives is None:  # until it is made
            self._types.setdefault(name, set()).add(of)
            handle.close()  # what is in hand was not looked at
        elif kind.spec.gives is not of:
            raise wrong_type(name, kind.spec, of)
        return handle

    def _handle(self, name: str) -> SyncIdGenerator[Any]:
        if name in self._generators:
            return self._generators[name]

        async def find(provider: P) -> AnyGenerator:
            kind = self._specs.get(name)
            found = await kind.find(provider) if kind else generator_named(name, provider)
            for of in tuple(self._types.get(name, ())):
                check_ids(name, found, of)
            return found

        made = SyncIdGenerator[Any]._of(self._session, find)
        return self._generators.setdefault(name, made)

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Return a tree ready for JSON, by name, as CosId's actuator shows it.

        Raises:
            CosIdError: the provider cannot be opened.
        """

        async def work(provider: P) -> dict[str, dict[str, Any]]:
            return provider.statistics()

        refuse_on_a_loop("statistics()", INSTEAD)
        return self._session.call(work)

    def open(self) -> None:
        """Open it now, also after it was closed.

        Raises:
            WouldBlock: an event loop runs in this thread.
            CosIdError: what opening the provider raises.
        """

        async def work(_: P) -> None:
            """It is open."""

        refuse_on_a_loop("open()", INSTEAD)
        self._session.allow()
        self._session.call(work)

    def close(self) -> None:
        """Close it and all its generators; what is in hand is a gap.

        Idempotent, and from any thread.  Whoever waits gets `ClosedError`.

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
        """Say what it is and which names were asked for."""
        return f"<{self._session.label} {' '.join(self._generators)}>"


class SyncIdProvider(SyncProvider[IdProvider]):
    """Named generators on one store, for threads; made by `aiocosid.sync.connect`.

    Each method returns the same object for the same name, and does not wait: the generator itself
    is made at the first use, with the settings of the first call.  ``batch`` is how many ids are
    taken from it at once; see `SyncIdGenerator`.
    """

    __slots__ = ()

    @overload
    def segment_chain(self, name: str, **options: Unpack[BatchedChain]) -> SyncIdGenerator[int]: ...

    @overload
    def segment_chain(
        self, name: str, *, converter: IdConverter, **options: Unpack[BatchedChain]
    ) -> SyncIdGenerator[str]: ...

    def segment_chain(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[BatchedChain]
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `SegmentChainId` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.segment_chain`:
                ``step``, ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step or
                converter.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._named(name, _kinds.segment_chain, converter, options)

    @overload
    def segment(self, name: str, **options: Unpack[BatchedSegment]) -> SyncIdGenerator[int]: ...

    @overload
    def segment(
        self, name: str, *, converter: IdConverter, **options: Unpack[BatchedSegment]
    ) -> SyncIdGenerator[str]: ...

    def segment(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[BatchedSegment]
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `SegmentId` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.segment`:
                ``step``, ``ttl``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        return self._named(name, _kinds.segment, converter, options)

    @overload
    def leaf(self, name: str, **options: Unpack[BatchedLeaf]) -> SyncIdGenerator[int]: ...

    @overload
    def leaf(
        self, name: str, *, converter: IdConverter, **options: Unpack[BatchedLeaf]
    ) -> SyncIdGenerator[str]: ...

    def leaf(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[BatchedLeaf]
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `LeafSegmentId` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.leaf`:
                ``step``, ``prefetch_at``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        return self._named(name, _kinds.leaf, converter, options)

    @overload
    def grouped(
        self, name: str, *, group_by: GroupBy, **options: Unpack[BatchedGroups]
    ) -> SyncIdGenerator[int]: ...

    @overload
    def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        converter: IdConverter,
        **options: Unpack[BatchedGroups],
    ) -> SyncIdGenerator[str]: ...

    def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        converter: IdConverter | None = None,
        **options: Unpack[BatchedGroups],
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `GroupedSegmentId` of this name; numbers are `GroupedId`.

        Args:
            name: the generator's name; its counters are called ``{name}@{group}``.
            group_by: by date alone: ``GroupBy.day(zone="Europe/Berlin")``, or another.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.grouped`:
                ``step``, ``kind``, ``max_groups`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, with another step, group or
                converter.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._named(name, _kinds.grouped, converter, {**options, "group_by": group_by})

    @overload
    def int32(self, name: str, **options: Unpack[BatchedInner]) -> SyncIdGenerator[int]: ...

    @overload
    def int32(
        self, name: str, *, converter: IdConverter, **options: Unpack[BatchedInner]
    ) -> SyncIdGenerator[str]: ...

    def int32(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[BatchedInner]
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `IntegerIdGenerator` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.int32`:
                ``kind``, ``step``, ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step,
                ``kind`` or converter.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._named(name, _kinds.int32, converter, options)

    @overload
    def uncertainty(
        self, name: str, *, bits: int, **options: Unpack[BatchedInner]
    ) -> SyncIdGenerator[int]: ...

    @overload
    def uncertainty(
        self, name: str, *, bits: int, converter: IdConverter, **options: Unpack[BatchedInner]
    ) -> SyncIdGenerator[str]: ...

    def uncertainty(
        self,
        name: str,
        *,
        bits: int,
        converter: IdConverter | None = None,
        **options: Unpack[BatchedInner],
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `UncertaintyIdGenerator` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            bits: random bits of each id, 1 to 62; the counter ends at ``2**(63 - bits) - 1``.
            converter: writes the ids as text; numbers without it.
            **options: as for `int32`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with other ``bits``, or
                another step, ``kind`` or converter.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._named(name, _kinds.uncertainty, converter, {**options, "bits": bits})

    @overload
    def snowflake(
        self, name: str = SHARE, **options: Unpack[BatchedSnowflake]
    ) -> SyncIdGenerator[int]: ...

    @overload
    def snowflake(
        self, name: str = SHARE, *, converter: IdConverter, **options: Unpack[BatchedSnowflake]
    ) -> SyncIdGenerator[str]: ...

    def snowflake(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter | None = None,
        **options: Unpack[BatchedSnowflake],
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `SnowflakeId` of this name.

        Args:
            name: the generator's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.snowflake`:
                ``layout``, ``broken_threshold`` ...; the first use checks those.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout or
                converter.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._named(name, _kinds.snowflake, converter, options)

    @overload
    def cached(
        self, name: str = SHARE, **options: Unpack[BatchedCached]
    ) -> SyncIdGenerator[int]: ...

    @overload
    def cached(
        self, name: str = SHARE, *, converter: IdConverter, **options: Unpack[BatchedCached]
    ) -> SyncIdGenerator[str]: ...

    def cached(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter | None = None,
        **options: Unpack[BatchedCached],
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `CachedSnowflakeId` of this name.

        Args:
            name: the generator's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.cached`:
                ``layout``, ``boost``, ``max_borrow`` ...; the first use checks those.

        Raises:
            CosIdError: as for `snowflake`.
        """
        return self._named(name, _kinds.cached, converter, options)

    def cosid(self, name: str = "cosid", **options: Unpack[BatchedCosId]) -> SyncIdGenerator[str]:
        """Return the `CosIdGenerator` of this name; its ids are text.

        Args:
            name: the generator's name in the provider's namespace; by default CosId's own for it.
            **options: ``batch``, ids taken from it at once; and as for `IdProvider.cosid`:
                ``text``, ``broken_threshold`` ...; the first use checks those.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another text.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._named(name, _kinds.cosid, None, options)

    @overload
    def sharded(
        self, name: str, *, layout: ShardedLayout, **options: Unpack[NamedSharded]
    ) -> SyncIdGenerator[int]: ...

    @overload
    def sharded(
        self,
        name: str,
        *,
        layout: ShardedLayout,
        converter: IdConverter,
        **options: Unpack[NamedSharded],
    ) -> SyncIdGenerator[str]: ...

    def sharded(
        self,
        name: str,
        *,
        layout: ShardedLayout,
        converter: IdConverter | None = None,
        **options: Unpack[NamedSharded],
    ) -> SyncIdGenerator[int] | SyncIdGenerator[str]:
        """Return the `ShardedId` of this name, on Redis; its ids have the generator's sharding id.

        This provider takes them one by one: ``batch`` is the generator's own option here, the
        number of sequences that it asks for at once.

        Args:
            name: the name under which sequences are granted, in the provider's namespace.
            layout: how the ids are put together.
            converter: writes the ids as text; numbers without it.
            **options: as for `IdProvider.sharded`: ``sharding_id``, ``batch``, ``key`` ...; the
                first use checks them.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout,
                sharding id or converter.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._handle_of(
            name, _kinds.sharded(layout=layout, **options).written(converter), None
        )

    def uuid4(self, name: str, *, batch: int | None = None) -> SyncIdGenerator[str]:
        """Return the `Uuid4Id` of this name.

        Args:
            name: the generator's name; no store knows it.
            batch: ids taken from it at once.

        Raises:
            BusyError: the name is in use as another kind of generator.
            InvalidArgumentError: an argument is outside its range.
        """
        return self._handle_of(name, _kinds.uuid4(), batch)

    def uuid7(self, name: str, *, batch: int | None = None) -> SyncIdGenerator[str]:
        """Return the `Uuid7Id` of this name.

        Args:
            name: the generator's name; no store knows it.
            batch: ids taken from it at once.

        Raises:
            CosIdError: as for `uuid4`.
        """
        return self._handle_of(name, _kinds.uuid7(), batch)

    def counter(self, name: str, *, batch: int | None = None) -> SyncIdGenerator[int]:
        """Return the `CounterId` of this name, which counts in this process alone.

        A forked child is refused: its parent goes on counting.

        Args:
            name: the generator's name; no store knows it.
            batch: ids taken from it at once.

        Raises:
            CosIdError: as for `uuid4`.
        """
        return self._handle_of(name, _kinds.counter(), batch)

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
        """Return a generator of your own, which is opened at its first use.

        It is closed with the provider, or by `remove`, and then its name is free.

        Args:
            name: where it is found.
            make: returns a generator that is not open.  It is called on the background loop, and
                again in a forked child and after the provider was opened anew.
            batch: ids taken from it at once.

        Raises:
            BusyError: the name is in use, also by what another function makes.
            InvalidArgumentError: an argument is outside its range.
        """
        check_make(make, "a generator")
        return self._handle_of(name, _kinds.own(make, make), batch)

    def remove(self, name: str) -> None:
        """Close the generator of this name, whichever kind it is, and free the name.

        What is in hand is a gap.  A `SyncIdGenerator` of that name finds none until one is asked
        for again.

        Args:
            name: as it was asked for, or added.

        Raises:
            WouldBlock: an event loop runs in this thread.
            InvalidArgumentError: there is no generator of that name.
            CosIdError: closing it fails.
        """
        refuse_on_a_loop("remove()", INSTEAD)
        is_known = self._specs.pop(name, None) is not None
        handle = self._generators.pop(name, None)
        self._types.pop(name, None)
        if handle is not None:
            handle.close()

        async def work(provider: IdProvider) -> None:
            if not is_known or name in tuple(provider):
                await provider.remove(name)

        if not is_known or self._session.is_alive:  # else there is nothing to close
            self._session.call(work)

    def _named(
        self,
        name: str,
        kind: Callable[..., GeneratorSpec[AnyGenerator]],
        converter: IdConverter | None,
        options: Mapping[str, object],
    ) -> SyncIdGenerator[Any]:
        """Return the handle of a kind of generator, with the options of a method of ours."""
        rest = {option: value for option, value in options.items() if option != "batch"}
        return self._handle_of(name, kind(**rest).written(converter), options.get("batch"))

    def _handle_of(
        self, name: str, spec: GeneratorSpec[AnyGenerator], batch: object
    ) -> SyncIdGenerator[Any]:
        """Return the handle; options of a counter are first tried on a store in memory."""
        if spec.resumes:
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
            found._choose(cast("int | None", batch))
        return found


def connect(
    url: str | Store,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    instrument: Instrument | None = None,
    close_timeout: float = 5.0,
    timeout: float = DEFAULT_TIMEOUT,
    create: bool = False,
    **machine: Unpack[MachineOptions],
) -> SyncIdProvider:
    """Return a provider of generators on one store, for threads; nothing is opened yet.

    Args:
        url: as for `aiocosid.open_store`; or a store, which stays open.  A store made on a client
            of yours cannot be used in a forked child.
        namespace: the namespace of all its counters.
        instrument: receives the events of all its generators, and of a store made from a URL, on
            the background loop.
        close_timeout: seconds that closing waits for calls under way.
        timeout: seconds that a call waits at most, also for the opening.
        create: whether opening creates missing tables and files, as for `aiocosid.connect`.
        **machine: where the machine ids of Snowflakes come from, and how they are leased, as for
            `aiocosid.connect`.  A ``machine`` that somebody has chosen refuses a forked child.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed; or another argument is
            outside its range.
        MissingExtraError: the store's driver is not installed.
    """
    provider = IdProvider(
        url if isinstance(url, Store) else open_store(url, instrument=instrument),
        namespace=namespace,
        instrument=instrument,
        close_timeout=close_timeout,
        create=create,
        owns_store=not isinstance(url, Store),
        **machine,
    )
    return SyncIdProvider(lambda: provider, timeout=timeout)
