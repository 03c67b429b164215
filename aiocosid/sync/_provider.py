"""Named generators for threads, opened and closed together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, Unpack

from .._default import generator_named
from .._life.not_copyable import NotCopyable
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor, Provider, Store
from ..abc._ids import check_text
from ..errors import BusyError
from ..provider import (
    IdProvider,
    SegmentChainOptions,
    SegmentIdOptions,
    SnowflakeOptions,
    open_store,
)
from ..segment import GroupedSegmentId, SegmentChainId, SegmentId
from ..segment._grouped import MAX_GROUPS
from ._batches import check_batch, check_make, check_timeout
from ._generator import DEFAULT_TIMEOUT, SyncIdGenerator
from ._grouping import check_groups
from ._session import LoopSession, refuse_on_a_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ..abc import AnyGenerator, InstanceId
    from ..events import Instrument
    from ..segment import GroupBy
    from ..segment._group import SegmentKind
    from ..snowflake import CosIdText, SnowflakeLayout

__all__ = ("SyncIdProvider", "SyncProvider", "connect")

P = TypeVar("P", bound=Provider)

INSTEAD = "use the asynchronous provider there"


class _Kind(NamedTuple, Generic[P]):
    """What a generator was first asked for as, and how the provider makes it."""

    asked: str
    find: Callable[[P], Awaitable[AnyGenerator]]


class SyncProvider(NotCopyable, Generic[P]):
    """The generators of a provider for threads and synchronous code, by name.

    It may be shared by any number of threads.  It is opened at the first use, unless it is opened
    before by `open` or ``with``; closed by `close`, or with the process; and opened anew in a
    forked child.
    """

    __slots__ = ("_generators", "_kinds", "_session")

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
        self._kinds: dict[str, _Kind[P]] = {}  # of those that were asked for as one

    def __getitem__(self, name: str) -> SyncIdGenerator[Any]:
        """Return the generator of this name, which the provider has to have when it is used.

        Its first use raises `InvalidArgumentError` if it has none.
        """
        if name in self._generators:
            return self._generators[name]

        async def find(provider: P) -> AnyGenerator:
            kind = self._kinds.get(name)
            return await kind.find(provider) if kind else generator_named(name, provider)

        made = SyncIdGenerator[Any]._of(self._session, find)
        return self._generators.setdefault(name, made)

    def _generator(
        self,
        name: str,
        asked: str,
        find: Callable[[P], Awaitable[AnyGenerator]],
        batch: int | None,
    ) -> SyncIdGenerator[Any]:
        check_batch(batch)
        mine = _Kind(asked, find)
        kind = self._kinds.setdefault(name, mine)
        if kind.asked != asked:
            reason = f"is in use as {kind.asked}; {asked} needs another name"
            raise BusyError(repr(name), reason=reason)
        found = self[name]
        if kind is mine:
            found._choose(batch)
        return found

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
    is made at the first use, with the settings of the first call.
    """

    __slots__ = ()

    def segment_chain(
        self,
        name: str,
        *,
        step: int = DEFAULT_STEP,
        offset: int = 0,
        batch: int | None = None,
        **options: Unpack[SegmentChainOptions],
    ) -> SyncIdGenerator[int]:
        """Return the `SegmentChainId` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            step: ids per segment.
            offset: where a new counter starts.
            batch: ids taken from it at once; see `SyncIdGenerator`.
            **options: as for `SegmentChainId`: ``safe_distance``, ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step.
            InvalidArgumentError: an argument is outside its range.
        """
        SegmentChainId(_Nowhere(name=name, step=step, offset=offset), **options)  # checks them

        def find(provider: IdProvider) -> Awaitable[SegmentChainId]:
            return provider.segment_chain(name, step=step, offset=offset, **options)

        return self._generator(name, f"SegmentChainId with step {step}", find, batch)

    def segment(
        self,
        name: str,
        *,
        step: int = DEFAULT_STEP,
        offset: int = 0,
        batch: int | None = None,
        **options: Unpack[SegmentIdOptions],
    ) -> SyncIdGenerator[int]:
        """Return the `SegmentId` of this name.

        Args:
            name: the counter's name in the provider's namespace.
            step: ids per segment.
            offset: where a new counter starts.
            batch: ids taken from it at once; see `SyncIdGenerator`.
            **options: as for `SegmentId`: ``ttl``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        SegmentId(_Nowhere(name=name, step=step, offset=offset), **options)  # checks them

        def find(provider: IdProvider) -> Awaitable[SegmentId]:
            return provider.segment(name, step=step, offset=offset, **options)

        return self._generator(name, f"SegmentId with step {step}", find, batch)

    def snowflake(
        self,
        name: str = "__share__",
        *,
        layout: SnowflakeLayout | None = None,
        batch: int | None = None,
        **options: Unpack[SnowflakeOptions],
    ) -> SyncIdGenerator[int]:
        """Return the `SnowflakeId` of this name.

        Args:
            name: the generator's name in the provider's namespace.
            layout: how the ids are put together; CosId's default if none is given.
            batch: ids taken from it at once; see `SyncIdGenerator`.
            **options: as for `SnowflakeId`: ``broken_threshold``, ``wait_timeout`` ...; they are
                checked at the first use.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout.
            InvalidArgumentError: an argument is outside its range.
        """
        # Here, and not on the background loop in the middle of a fork.
        import_module("aiocosid.snowflake")
        check_text("name", name)

        def find(provider: IdProvider) -> Awaitable[Any]:
            return provider.snowflake(name, layout=layout, **options)

        return self._generator(name, f"SnowflakeId with layout {layout!r}", find, batch)

    def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        step: int = DEFAULT_STEP,
        offset: int = 0,
        kind: SegmentKind = "chain",
        max_groups: int = MAX_GROUPS,
        batch: int | None = None,
        **options: Unpack[SegmentChainOptions],
    ) -> SyncIdGenerator[int]:
        """Return the `GroupedSegmentId` of this name; its ids are `GroupedId`.

        Args:
            name: the generator's name; its counters are called ``{name}@{group}``.
            group_by: by date alone: ``GroupBy.day(zone="Europe/Berlin")``, or another.
            step: ids per segment.
            offset: where a new counter starts.
            kind: ``"chain"`` or ``"segment"``: what hands out the ids of one group.
            max_groups: groups held in memory at most, as for `GroupedSegmentId`.
            batch: ids taken from it at once; see `SyncIdGenerator`.
            **options: as for that kind.

        Raises:
            BusyError: the name is in use as another kind of generator, with another step or group.
            InvalidArgumentError: an argument is outside its range.
        """
        checked = GroupedSegmentId(
            _Nowhere,
            namespace=DEFAULT_NAMESPACE,
            name=name,
            group_by=group_by,
            step=step,
            offset=offset,
            kind=kind,
            max_groups=max_groups,
            **options,
        )
        check_groups(checked)

        def find(provider: IdProvider) -> Awaitable[GroupedSegmentId]:
            return provider.grouped(
                name,
                group_by=group_by,
                step=step,
                offset=offset,
                kind=kind,
                max_groups=max_groups,
                **options,
            )

        asked = f"GroupedSegmentId with {checked._detail}"
        return self._generator(name, asked, find, batch)

    def cosid(
        self,
        name: str = "cosid",
        *,
        text: CosIdText | None = None,
        batch: int | None = None,
        **options: Unpack[SnowflakeOptions],
    ) -> SyncIdGenerator[str]:
        """Return the `CosIdGenerator` of this name; its ids are text.

        Args:
            name: the generator's name in the provider's namespace; by default CosId's own for it.
            text: how the ids are written; `aiocosid.snowflake.RADIX62` if none is given.
            batch: ids taken from it at once; see `SyncIdGenerator`.
            **options: as for `SnowflakeId`; they are checked at the first use.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another text.
            InvalidArgumentError: an argument is outside its range.
        """
        import_module("aiocosid.snowflake")  # as in snowflake()
        check_text("name", name)

        def find(provider: IdProvider) -> Awaitable[Any]:
            return provider.cosid(name, text=text, **options)

        return self._generator(name, f"CosIdGenerator with text {text!r}", find, batch)


class _Nowhere(IdSegmentDistributor):
    """Stands in for a counter while arguments are checked."""

    __slots__ = ()

    async def next_max_id(self, step: int) -> int:
        raise NotImplementedError


def connect(
    url: str | Store,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    instrument: Instrument | None = None,
    instance_id: InstanceId | str | None = None,
    close_timeout: float = 5.0,
    timeout: float = DEFAULT_TIMEOUT,
    create: bool = False,
) -> SyncIdProvider:
    """Return a provider of generators on one store, for threads; nothing is opened yet.

    Args:
        url: as for `aiocosid.open_store`; or a store, which stays open.  A store made on a client
            of yours cannot be used in a forked child.
        namespace: the namespace of all its counters.
        instrument: receives the events of all its generators, and of a store made from a URL, on
            the background loop.
        instance_id: who asks for a machine id, when Snowflake ids are made; by default an instance
            that nobody else is.
        close_timeout: seconds that closing waits for calls under way.
        timeout: seconds that a call waits at most, also for the opening.
        create: whether opening creates missing tables and files, as for `aiocosid.connect`.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed; or another argument is
            outside its range.
        MissingExtraError: the store's driver is not installed.
    """
    provider = IdProvider(
        url if isinstance(url, Store) else open_store(url, instrument=instrument),
        namespace=namespace,
        instrument=instrument,
        instance_id=instance_id,
        close_timeout=close_timeout,
        create=create,
        owns_store=not isinstance(url, Store),
    )
    return SyncIdProvider(lambda: provider, timeout=timeout)
