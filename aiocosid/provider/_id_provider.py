"""Named generators, opened and closed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

import anyio

from .. import _kinds
from .._default import generator_named
from ..abc import (
    DEFAULT_NAMESPACE,
    SHARE,
    Store,
)
from ._hosting import Hosting, OwnGenerator
from ._machine_leases import MachineLeases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._kinds import (
        GeneratorSpec,
        MachineOptions,
        NamedCached,
        NamedChain,
        NamedCosId,
        NamedGroups,
        NamedInner,
        NamedLeaf,
        NamedSegment,
        NamedSharded,
        NamedSnowflake,
    )
    from .._text_generator import StringIdGenerator
    from ..abc import AnyGenerator, Clock, IdConverter, Store
    from ..events import Instrument
    from ..generators import (
        CounterId,
        IntegerIdGenerator,
        UncertaintyIdGenerator,
        Uuid4Id,
        Uuid7Id,
    )
    from ..machine import MachineIdLease
    from ..segment import GroupBy, GroupedSegmentId, LeafSegmentId, SegmentChainId, SegmentId
    from ..segment._generator import SegmentGenerator
    from ..snowflake import (
        CachedSnowflakeId,
        CosIdGenerator,
        ShardedId,
        ShardedLayout,
        SnowflakeId,
    )

__all__ = ("IdProvider", "connect")

_G = TypeVar("_G", bound="AnyGenerator")


def connect(
    url: str | Store,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    instrument: Instrument | None = None,
    close_timeout: float = 5.0,
    clock: Clock | None = None,
    create: bool = False,
    **machine: Unpack[MachineOptions],
) -> IdProvider:
    """Return a provider of generators on one store, to be opened by ``async with``.

    Args:
        url: as for `open_store`; or a store made from your own client, which stays open.
        namespace: the namespace of all its counters.
        instrument: receives the events of all its generators, and of a store made from a URL.
        close_timeout: seconds that closing waits for calls under way, also of each generator.
        clock: time; the system's by default.
        create: whether opening creates missing tables and files.  What it has created itself is
            ready for machine ids; a store that was there needs ``aiocosid init`` once.
        **machine: where the machine ids of Snowflakes come from, and how they are leased:
            ``machine``, ``instance_id``, ``safe_guard``, ``interval``, ``on_lost`` ... as in
            `MachineOptions`.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed; or an option of the store's
            machine ids is given with a ``machine``.
        MissingExtraError: the store's driver is not installed.
    """
    from .._store_urls import open_store
    from ..abc import Store

    return IdProvider(
        url if isinstance(url, Store) else open_store(url, instrument=instrument),
        namespace=namespace,
        instrument=instrument,
        close_timeout=close_timeout,
        clock=clock,
        create=create,
        owns_store=not isinstance(url, Store),
        **machine,
    )


class IdProvider(Hosting):
    """Named generators on one store; the same object for the same name.

    All of them run their tasks in the provider's one task group, so that an idle generator costs
    its counters and nothing else.
    """

    __slots__ = (
        "_counters",
        "_creates",
        "_defaults",
        "_floors",
        "_machines",
        "_opening",
        "_owns_store",
        "_specs",
        "_store",
        "namespace",
    )

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instrument: Instrument | None = None,
        close_timeout: float = 5.0,
        clock: Clock | None = None,
        create: bool = False,
        owns_store: bool = False,
        **machine: Unpack[MachineOptions],
    ) -> None:
        """Describe a provider; see `connect`."""
        self.namespace: str = namespace
        self._store = store
        self._owns_store = owns_store
        self._creates = create
        self._defaults = {"instrument": instrument, "close_timeout": close_timeout}
        self._machines = MachineLeases(store, machine, self._defaults, clock)
        self._specs: dict[str, GeneratorSpec[Any]] = {}
        self._counters: dict[str, CounterId] = {}
        self._opening: dict[str, anyio.Event] = {}
        # Of generators that are gone, by their kind and name: how far they have come.
        self._floors: dict[tuple[str, str], Any] = {}
        super().__init__(close_timeout=close_timeout, clock=clock)

    async def _start(self) -> None:
        await super()._start()
        if self._creates:
            await self._store.create_schema()

    def _reset(self) -> None:
        self._drop_generators()  # they are another loop's, or the parent process's
        self._opening = {}

    @overload
    async def segment_chain(self, name: str, **options: Unpack[NamedChain]) -> SegmentChainId: ...

    @overload
    async def segment_chain(
        self, name: str, *, converter: IdConverter, **options: Unpack[NamedChain]
    ) -> StringIdGenerator: ...

    async def segment_chain(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[NamedChain]
    ) -> SegmentChainId | StringIdGenerator:
        """Return the open `SegmentChainId` of this name; it is made by the first call.

        The settings are those of that call; of a later one only ``step`` and ``converter`` are
        looked at.  A cancelled call makes no generator; its first segment may have been reserved,
        and is a gap then.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``step``, ids per segment, 1000 by default; ``offset``, where a new counter
                starts, 0 by default; and as for `SegmentChainId`: ``safe_distance``, ``ttl``,
                ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step or
                converter.
            InvalidArgumentError: an argument is outside its range.
            StoreError: the store refuses.
            SegmentUnavailableError: no first segment came within ``wait_timeout``.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.segment_chain(**options).written(converter))

    @overload
    async def segment(self, name: str, **options: Unpack[NamedSegment]) -> SegmentId: ...

    @overload
    async def segment(
        self, name: str, *, converter: IdConverter, **options: Unpack[NamedSegment]
    ) -> StringIdGenerator: ...

    async def segment(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[NamedSegment]
    ) -> SegmentId | StringIdGenerator:
        """Return the open `SegmentId` of this name; it is made by the first call.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``step`` and ``offset`` as for `segment_chain`; and as for `SegmentId`:
                ``ttl``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        return await self._named(name, _kinds.segment(**options).written(converter))

    @overload
    async def leaf(self, name: str, **options: Unpack[NamedLeaf]) -> LeafSegmentId: ...

    @overload
    async def leaf(
        self, name: str, *, converter: IdConverter, **options: Unpack[NamedLeaf]
    ) -> StringIdGenerator: ...

    async def leaf(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[NamedLeaf]
    ) -> LeafSegmentId | StringIdGenerator:
        """Return the open `LeafSegmentId` of this name; it is made by the first call.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``step`` and ``offset`` as for `segment_chain`; and as for `LeafSegmentId`:
                ``prefetch_at``, ``segment_duration``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        return await self._named(name, _kinds.leaf(**options).written(converter))

    @overload
    async def grouped(
        self, name: str, *, group_by: GroupBy, **options: Unpack[NamedGroups]
    ) -> GroupedSegmentId: ...

    @overload
    async def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        converter: IdConverter,
        **options: Unpack[NamedGroups],
    ) -> StringIdGenerator: ...

    async def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        converter: IdConverter | None = None,
        **options: Unpack[NamedGroups],
    ) -> GroupedSegmentId | StringIdGenerator:
        """Return the open `GroupedSegmentId` of this name; it is made by the first call.

        A group whose counter went backwards is opened anew by its first call after this one.

        Args:
            name: the generator's name; its counters are called ``{name}@{group}``.
            group_by: ``GroupBy.day(zone="Europe/Berlin")``, or another.  With a function, each
                asker has to bring the same one, as a module's own: a lambda made anew is another.
            converter: writes the ids as text, which do not bring their group along; numbers without
                it.
            **options: ``step`` and ``offset`` as for `segment_chain`; ``kind``, ``"chain"`` or
                ``"segment"``, what hands out the ids of one group; ``max_groups``, groups held in
                memory at most, as for `GroupedSegmentId`; and as for that kind.

        Raises:
            BusyError: the name is in use as another kind of generator, with another step, group or
                converter.
            CosIdError: as for `segment_chain`.
        """
        return await self._named(
            name, _kinds.grouped(group_by=group_by, **options).written(converter)
        )

    @overload
    async def int32(self, name: str, **options: Unpack[NamedInner]) -> IntegerIdGenerator: ...

    @overload
    async def int32(
        self, name: str, *, converter: IdConverter, **options: Unpack[NamedInner]
    ) -> StringIdGenerator: ...

    async def int32(
        self, name: str, *, converter: IdConverter | None = None, **options: Unpack[NamedInner]
    ) -> IntegerIdGenerator | StringIdGenerator:
        """Return the open `IntegerIdGenerator` of this name; the first call creates it.

        Its ids come from a counter of the provider's store, and end at 2^31-1.  Around another
        kind of generator it is opened by `add`.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``kind``, ``"chain"`` by default or ``"segment"``, the generator inside; and
                its options, as for `segment_chain` or `segment`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step,
                ``kind`` or converter.
            CosIdError: as for `segment_chain`.
        """
        return await self._named(name, _kinds.int32(**options).written(converter))

    @overload
    async def uncertainty(
        self, name: str, *, bits: int, **options: Unpack[NamedInner]
    ) -> UncertaintyIdGenerator: ...

    @overload
    async def uncertainty(
        self, name: str, *, bits: int, converter: IdConverter, **options: Unpack[NamedInner]
    ) -> StringIdGenerator: ...

    async def uncertainty(
        self,
        name: str,
        *,
        bits: int,
        converter: IdConverter | None = None,
        **options: Unpack[NamedInner],
    ) -> UncertaintyIdGenerator | StringIdGenerator:
        """Return the open `UncertaintyIdGenerator` of this name; the first call creates it.

        It appends random bits to ids from a counter of the provider's store.  Around another kind
        of generator it is opened by `add`.

        Args:
            name: the counter's name in the provider's namespace.
            bits: random bits of each id, 1 to 62; the counter ends at ``2**(63 - bits) - 1``.
            converter: writes the ids as text; numbers without it.
            **options: as for `int32`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with other ``bits``, or
                another step, ``kind`` or converter.
            CosIdError: as for `segment_chain`.
        """
        return await self._named(name, _kinds.uncertainty(bits=bits, **options).written(converter))

    @overload
    async def snowflake(
        self, name: str = SHARE, **options: Unpack[NamedSnowflake]
    ) -> SnowflakeId: ...

    @overload
    async def snowflake(
        self, name: str = SHARE, *, converter: IdConverter, **options: Unpack[NamedSnowflake]
    ) -> StringIdGenerator: ...

    async def snowflake(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter | None = None,
        **options: Unpack[NamedSnowflake],
    ) -> SnowflakeId | StringIdGenerator:
        """Return the open `SnowflakeId` of this name; it is made by the first call.

        Its machine id is leased from the provider's store, one for all Snowflake generators of the
        provider, so that all their layouts have the same number of machine bits; unless ``machine``
        is given, here or to the provider.

        Args:
            name: the generator's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``layout``, how the ids are put together, CosId's default of 41, 10 and 12
                bits, in milliseconds, if none is given; as for `SnowflakeId`:
                ``broken_threshold``, ``random_start``, ``wait_timeout`` ...; and those of the
                machine id, before the provider's own: ``machine``, ``interval``, ``on_lost`` ...
                The first generator on a lease sets them.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout or
                converter.
            InvalidArgumentError: an argument is outside its range, or the machine id is leased with
                other options.
            MachineBitsMismatchError: another width of machine ids is in use, in this provider or in
                other processes of the namespace.
            MachineIdOverflowError: all machine ids are held.
            MachineIdUnavailableError: the store could not be reached.
            LayoutExpiredError: the layout has ended.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.snowflake(**options).written(converter))

    @overload
    async def cached(
        self, name: str = SHARE, **options: Unpack[NamedCached]
    ) -> CachedSnowflakeId: ...

    @overload
    async def cached(
        self, name: str = SHARE, *, converter: IdConverter, **options: Unpack[NamedCached]
    ) -> StringIdGenerator: ...

    async def cached(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter | None = None,
        **options: Unpack[NamedCached],
    ) -> CachedSnowflakeId | StringIdGenerator:
        """Return the open `CachedSnowflakeId` of this name; it is made by the first call.

        Args:
            name: the generator's name in the provider's namespace.
            converter: writes the ids as text; numbers without it.
            **options: ``layout``, how the ids are put together, in seconds, uid-generator's
                `UID_GENERATOR_HA` if none is given; as for `CachedSnowflakeId`: ``boost``,
                ``max_borrow``, ``wait_timeout`` ...; and those of the machine id as for
                `snowflake`.

        Raises:
            CosIdError: as for `snowflake`.
        """
        return await self._named(name, _kinds.cached(**options).written(converter))

    async def cosid(self, name: str = "cosid", **options: Unpack[NamedCosId]) -> CosIdGenerator:
        """Return the open `CosIdGenerator` of this name; it is made by the first call.

        Its machine id has 20 bits, unless ``text`` says otherwise, and is the provider's one, so
        that Snowflake generators with other widths take a ``machine`` or a namespace of their own.

        Args:
            name: the generator's name in the provider's namespace; by default CosId's own for it.
            **options: ``text``, how the ids are written, `RADIX62` if none is given; as for
                `SnowflakeId`: ``broken_threshold``, ``wait_timeout`` ...; and those of the machine
                id as for `snowflake`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another text.
            CosIdError: as for `snowflake`.
        """
        return await self._named(name, _kinds.cosid(**options))

    @overload
    async def sharded(
        self, name: str, *, layout: ShardedLayout, **options: Unpack[NamedSharded]
    ) -> ShardedId: ...

    @overload
    async def sharded(
        self,
        name: str,
        *,
        layout: ShardedLayout,
        converter: IdConverter,
        **options: Unpack[NamedSharded],
    ) -> StringIdGenerator: ...

    async def sharded(
        self,
        name: str,
        *,
        layout: ShardedLayout,
        converter: IdConverter | None = None,
        **options: Unpack[NamedSharded],
    ) -> ShardedId | StringIdGenerator:
        """Return the open `ShardedId` of this name, on Redis; it is made by the first call.

        Args:
            name: the name under which sequences are granted, in the provider's namespace.
            layout: how the ids are put together.
            converter: writes the ids as text; numbers without it.
            **options: as for `ShardedId`: ``sharding_id``, ``batch``, ``wait_timeout`` ...; and for
                the store's sequences: ``key``, ``max_sequence``, the layout's by default,
                ``tolerance``, ``margin`` and ``ttl``.  With ``on_unavailable="lane"`` and no
                ``lane`` its number is one of 64 machine ids of the store, in the namespace
                ``{namespace}.lane``.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout,
                sharding id or converter.
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: the store grants no sequences of a second.
            LayoutExpiredError: the layout has ended.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.sharded(layout=layout, **options).written(converter))

    async def uuid4(self, name: str) -> Uuid4Id:
        """Return the open `Uuid4Id` of this name; the first call creates it.

        Args:
            name: the generator's name; no store knows it.

        Raises:
            BusyError: the name is in use as another kind of generator.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.uuid4())

    async def uuid7(self, name: str) -> Uuid7Id:
        """Return the open `Uuid7Id` of this name; it is made by the first call.

        Args:
            name: the generator's name; no store knows it.

        Raises:
            BusyError: the name is in use as another kind of generator.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.uuid7())

    async def counter(self, name: str) -> CounterId:
        """Return the open `CounterId` of this name, which counts in this process alone.

        It is made by the first call, and goes on counting as long as this provider lives, also when
        that is opened again.

        Args:
            name: the generator's name; no store knows it.

        Raises:
            BusyError: the name is in use as another kind of generator.
            ForkedError: the parent process has counted under this name.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.counter())

    async def add(self, name: str, generator: _G) -> _G:
        """Open a generator of your own under a name; returns it when it can hand out ids.

        It is closed with the provider, or by `remove`, and then its name is free.  Adding the same
        one again changes nothing.  A cancelled call adds nothing, and closes it if it was open.

        Args:
            name: where it is found, as ``ids[name]``; its own name may be another.
            generator: of any class that fulfils `aiocosid.abc.IdGenerator` or `TextIdGenerator`;
                not open.

        Raises:
            BusyError: the name is in use, or the generator is open already.
            InvalidArgumentError: it is no generator.
            CosIdError: as opening it does.
            ClosedError: the provider is closed.
        """
        return await self._named(name, _kinds.own(generator, lambda: generator))

    async def remove(self, name: str) -> None:
        """Close the generator of this name, whichever kind it is, and free the name.

        Asked for again, the name gets a new generator, above all that came before.  A cancelled
        call has closed it all the same.

        Args:
            name: as it was asked for, or added.

        Raises:
            InvalidArgumentError: there is no generator of that name.
            ClosedError: the provider is closed.
        """
        await self._settled(name)
        found = generator_named(name, self)
        try:
            await self._part(name).aclose()
        finally:
            if self._generators.get(name) is found and self._closing is None:
                self._drop(name)

    # For what makes them.

    def _with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a generator's options, with the provider's own where it has none."""
        return {**self._defaults, **options}

    def _lease_for(self, bits: int, options: Mapping[str, Any]) -> MachineIdLease:
        """Return the lease of a generator's machine id."""
        return self._machines.lease_for(self.namespace, bits, options, self._root)

    def _lane_lease(self, bits: int) -> MachineIdLease:
        """Return the lease of the number of a lane, a machine id of a namespace of its own."""
        return self._machines.shared_lease(f"{self.namespace}.lane", bits, {}, self._root)

    # By name.

    async def _settled(self, name: str) -> None:
        """Return when no other task is opening the generator of this name."""
        self._check_usable()
        while (opening := self._opening.get(name)) is not None:
            await opening.wait()  # it ends within its own deadline
            self._check_usable()

    async def _named(self, name: str, spec: GeneratorSpec[_G]) -> _G:
        """Return the generator that is open under a name, or make and open it."""
        await self._settled(name)
        found = self._generators.get(name)
        if found is None or self._part(name)._unusable is not None:
            return await self._opened(name, spec)
        self._specs[name].check_agrees(name, spec)
        if spec.resumes == "groups":
            cast("GroupedSegmentId", self._part(name))._renew_fallen()
        return cast("_G", found)

    async def _opened(self, name: str, spec: GeneratorSpec[_G]) -> _G:
        self._drop(name)
        generator = spec.make(self, name)
        if spec.is_own:
            timeout = self._close_timeout
            self._own[name] = OwnGenerator(generator, close_timeout=timeout, clock=self._clock)
        opening = self._opening
        done = opening[name] = anyio.Event()
        # Among the others at once: a provider that closes now has to close this one too.
        self._generators[name], self._specs[name] = generator, spec.without_make()
        try:
            await self._part(name)._open(self._root)
        except BaseException:
            # While we close, its call is still to be waited for.
            if self._generators.get(name) is generator and self._closing is None:
                self._drop(name)
            raise
        else:
            return generator
        finally:
            del opening[name]
            done.set()

    def _drop(self, name: str) -> None:
        """Forget a generator, but not how far it has come: its successor must not go below."""
        if name not in self._generators:
            return
        part, resumes = self._part(name), self._specs[name].resumes
        del self._generators[name], self._specs[name]
        self._own.pop(name, None)
        if resumes and (reached := cast("SegmentGenerator | GroupedSegmentId", part)._reached()):
            self._floors[resumes, name] = reached

    def _label(self) -> str:
        return f"IdProvider {self.namespace}"

    def _leases(self) -> tuple[MachineIdLease, ...]:
        return tuple(self._machines.shared.values())

    def _drop_generators(self) -> None:
        for name in tuple(self._generators):
            self._drop(name)

    async def _release(self) -> None:
        if self._owns_store:
            await self._store.aclose()
