"""A method for each kind of generator: the same for `IdProvider` and for threads."""

# A checker cannot know which of the types a subclass returns for a spec.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from ..abc import SHARE
from . import kinds

if TYPE_CHECKING:
    from ..abc import IdConverter
    from ..segment import GroupBy
    from ..snowflake import ShardedLayout
    from .kinds import (
        GeneratorSpec,
        NamedCached,
        NamedChain,
        NamedCosId,
        NamedGroups,
        NamedInner,
        NamedLeaf,
        NamedRemote,
        NamedSegment,
        NamedSharded,
        NamedSnowflake,
    )

__all__ = ("KindMethods",)

B = TypeVar("B")
ChainT = TypeVar("ChainT")
SegmentT = TypeVar("SegmentT")
LeafT = TypeVar("LeafT")
GroupedT = TypeVar("GroupedT")
Int32T = TypeVar("Int32T")
UncertaintyT = TypeVar("UncertaintyT")
SnowflakeT = TypeVar("SnowflakeT")
CachedT = TypeVar("CachedT")
CosIdT = TypeVar("CosIdT")
ShardedT = TypeVar("ShardedT")
RemoteT = TypeVar("RemoteT")
Uuid4T = TypeVar("Uuid4T")
Uuid7T = TypeVar("Uuid7T")
CounterT = TypeVar("CounterT")
TextT = TypeVar("TextT")


class KindMethods(
    Generic[
        B,
        ChainT,
        SegmentT,
        LeafT,
        GroupedT,
        Int32T,
        UncertaintyT,
        SnowflakeT,
        CachedT,
        CosIdT,
        ShardedT,
        RemoteT,
        Uuid4T,
        Uuid7T,
        CounterT,
        TextT,
    ]
):
    """A generator of each kind by name; a subclass says what it returns for one.

    The type of ``batch`` comes first: `Never` for a provider that takes none.  Then comes what each
    method returns, and last what the methods return that are given a ``converter``.
    """

    __slots__ = ()

    def _ask(self, name: str, spec: GeneratorSpec[Any], batch: B | None) -> Any:  # noqa: ANN401 - what the subclass says
        """Return what the subclass has for a generator."""
        raise NotImplementedError

    @overload
    def segment_chain(
        self, name: str, *, batch: B = ..., **options: Unpack[NamedChain]
    ) -> ChainT: ...

    @overload
    def segment_chain(
        self, name: str, *, converter: IdConverter, batch: B = ..., **options: Unpack[NamedChain]
    ) -> TextT: ...

    def segment_chain(
        self,
        name: str,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedChain],
    ) -> ChainT | TextT:
        """Return the `SegmentChainId` of this name, which the first call creates.

        The options are those of that call; a later one has to agree on ``step`` and ``converter``,
        and its other options are ignored.  A cancelled call of `IdProvider` creates no generator;
        if its first segment was reserved, that is a gap.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``step``, ids per segment, 100 by default; ``offset``, where a new counter
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
        return self._ask(name, kinds.segment_chain(**options).written(converter), batch)

    @overload
    def segment(
        self, name: str, *, batch: B = ..., **options: Unpack[NamedSegment]
    ) -> SegmentT: ...

    @overload
    def segment(
        self, name: str, *, converter: IdConverter, batch: B = ..., **options: Unpack[NamedSegment]
    ) -> TextT: ...

    def segment(
        self,
        name: str,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedSegment],
    ) -> SegmentT | TextT:
        """Return the `SegmentId` of this name, which the first call creates.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``step``, 1000 by default, and ``offset`` as for `segment_chain`; and as for
                `SegmentId`: ``strict``, ``ttl``, ``wait_timeout`` ...

        Raises:
            UnsupportedByStoreError: ``strict`` is true, and the store is not linearizable.
            CosIdError: as for `segment_chain`.
        """
        return self._ask(name, kinds.segment(**options).written(converter), batch)

    @overload
    def leaf(self, name: str, *, batch: B = ..., **options: Unpack[NamedLeaf]) -> LeafT: ...

    @overload
    def leaf(
        self, name: str, *, converter: IdConverter, batch: B = ..., **options: Unpack[NamedLeaf]
    ) -> TextT: ...

    def leaf(
        self,
        name: str,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedLeaf],
    ) -> LeafT | TextT:
        """Return the `LeafSegmentId` of this name, which the first call creates.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``step``, 1000 by default, and ``offset`` as for `segment_chain`; and as for
                `LeafSegmentId`: ``prefetch_at``, ``segment_duration``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        return self._ask(name, kinds.leaf(**options).written(converter), batch)

    @overload
    def grouped(
        self, name: str, *, group_by: GroupBy, batch: B = ..., **options: Unpack[NamedGroups]
    ) -> GroupedT: ...

    @overload
    def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        converter: IdConverter,
        batch: B = ...,
        **options: Unpack[NamedGroups],
    ) -> TextT: ...

    def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedGroups],
    ) -> GroupedT | TextT:
        """Return the `GroupedSegmentId` of this name, which the first call creates.

        Its numbers are `GroupedId`.  If the counter of a group went backwards, the next call for
        the name opens that group again.

        Args:
            name: the generator's name; its counters are called ``{name}@{group}``.
            group_by: ``GroupBy.day(zone="Europe/Berlin")``, or another; for threads by date alone.
                If it has a function, later callers have to pass the same function: each evaluation
                of a ``lambda`` counts as another one.
            converter: writes the ids as text, which does not contain the group; by default they are
                numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``step``, 1000 by default, and ``offset`` as for `segment_chain`; ``kind``,
                ``"chain"`` or ``"segment"``, the generator of each group; ``max_groups``, the
                maximum groups in memory, as for `GroupedSegmentId`; and the options of that kind.

        Raises:
            BusyError: the name is in use as another kind of generator, with another step, group or
                converter.
            CosIdError: as for `segment_chain`.
        """
        return self._ask(
            name, kinds.grouped(group_by=group_by, **options).written(converter), batch
        )

    @overload
    def int32(self, name: str, *, batch: B = ..., **options: Unpack[NamedInner]) -> Int32T: ...

    @overload
    def int32(
        self, name: str, *, converter: IdConverter, batch: B = ..., **options: Unpack[NamedInner]
    ) -> TextT: ...

    def int32(
        self,
        name: str,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedInner],
    ) -> Int32T | TextT:
        """Return the `IntegerIdGenerator` of this name, which the first call creates.

        Its ids come from a counter of the provider's store, and end at 2^31-1.  To wrap another
        kind, create an `IntegerIdGenerator` and `add` it.

        Args:
            name: the counter's name in the provider's namespace.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``kind``, ``"chain"`` by default or ``"segment"``, the wrapped generator; and
                its options, as for `segment_chain` or `segment`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step,
                ``kind`` or converter.
            CosIdError: as for `segment_chain`.
        """
        return self._ask(name, kinds.int32(**options).written(converter), batch)

    @overload
    def uncertainty(
        self, name: str, *, bits: int, batch: B = ..., **options: Unpack[NamedInner]
    ) -> UncertaintyT: ...

    @overload
    def uncertainty(
        self,
        name: str,
        *,
        bits: int,
        converter: IdConverter,
        batch: B = ...,
        **options: Unpack[NamedInner],
    ) -> TextT: ...

    def uncertainty(
        self,
        name: str,
        *,
        bits: int,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedInner],
    ) -> UncertaintyT | TextT:
        """Return the `UncertaintyIdGenerator` of this name, which the first call creates.

        It appends random bits to ids from a counter of the provider's store.  To wrap another kind,
        create an `UncertaintyIdGenerator` and `add` it.

        Args:
            name: the counter's name in the provider's namespace.
            bits: random bits of each id, 1 to 62; the counter ends at ``2**(63 - bits) - 1``.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: as for `int32`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with other ``bits``, or
                another step, ``kind`` or converter.
            CosIdError: as for `segment_chain`.
        """
        return self._ask(name, kinds.uncertainty(bits=bits, **options).written(converter), batch)

    @overload
    def snowflake(
        self, name: str = SHARE, *, batch: B = ..., **options: Unpack[NamedSnowflake]
    ) -> SnowflakeT: ...

    @overload
    def snowflake(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter,
        batch: B = ...,
        **options: Unpack[NamedSnowflake],
    ) -> TextT: ...

    def snowflake(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedSnowflake],
    ) -> SnowflakeT | TextT:
        """Return the `SnowflakeId` of this name, which the first call creates.

        Its machine id is leased from the provider's store.  All Snowflake generators of the
        provider share that lease, so their layouts need the same number of machine bits.
        ``machine``, here or for the provider, names another source.

        Args:
            name: the generator's name in the provider's namespace.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
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
        return self._ask(name, kinds.snowflake(**options).written(converter), batch)

    @overload
    def cached(
        self, name: str = SHARE, *, batch: B = ..., **options: Unpack[NamedCached]
    ) -> CachedT: ...

    @overload
    def cached(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter,
        batch: B = ...,
        **options: Unpack[NamedCached],
    ) -> TextT: ...

    def cached(
        self,
        name: str = SHARE,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedCached],
    ) -> CachedT | TextT:
        """Return the `CachedSnowflakeId` of this name, which the first call creates.

        Args:
            name: the generator's name in the provider's namespace.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``layout``, how the ids are put together, in seconds, uid-generator's
                `UID_GENERATOR_HA` if none is given; as for `CachedSnowflakeId`: ``boost``,
                ``max_borrow``, ``wait_timeout`` ...; and those of the machine id as for
                `snowflake`.

        Raises:
            CosIdError: as for `snowflake`.
        """
        return self._ask(name, kinds.cached(**options).written(converter), batch)

    def cosid(
        self, name: str = "cosid", *, batch: B | None = None, **options: Unpack[NamedCosId]
    ) -> CosIdT:
        """Return the `CosIdGenerator` of this name, which the first call creates; its ids are text.

        Its machine id has 20 bits, unless ``text`` says otherwise, and comes from the provider's
        one lease: Snowflake generators with another width need a ``machine`` or a namespace of
        their own.

        Args:
            name: the generator's name in the provider's namespace; by default CosId's own for it.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: ``text``, how the ids are written, `RADIX62` if none is given; as for
                `SnowflakeId`: ``broken_threshold``, ``wait_timeout`` ...; and those of the machine
                id as for `snowflake`.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another text.
            CosIdError: as for `snowflake`.
        """
        return self._ask(name, kinds.cosid(**options), batch)

    @overload
    def sharded(
        self, name: str, *, layout: ShardedLayout, **options: Unpack[NamedSharded]
    ) -> ShardedT: ...

    @overload
    def sharded(
        self,
        name: str,
        *,
        layout: ShardedLayout,
        converter: IdConverter,
        **options: Unpack[NamedSharded],
    ) -> TextT: ...

    def sharded(
        self,
        name: str,
        *,
        layout: ShardedLayout,
        converter: IdConverter | None = None,
        **options: Unpack[NamedSharded],
    ) -> ShardedT | TextT:
        """Return the `ShardedId` of this name, on Redis, which the first call creates.

        Threads take its ids one by one, and with the generator's own sharding id.

        Args:
            name: the name under which sequences are granted, in the provider's namespace.
            layout: how the ids are put together.
            converter: writes the ids as text; by default they are numbers.
            **options: as for `ShardedId`: ``sharding_id``, ``batch``, sequences to ask for at once,
                ``wait_timeout`` ...; and for the store's sequences: ``key``, ``max_sequence``, the
                layout's by default, ``tolerance``, ``margin`` and ``ttl``.  With
                ``on_unavailable="lane"`` and no ``lane`` its number is one of 64 machine ids of the
                store, in the namespace ``{namespace}.lane``.

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout,
                sharding id or converter.
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: the store grants no sequences of a second.
            LayoutExpiredError: the layout has ended.
            ClosedError: the provider is closed.
        """
        return self._ask(name, kinds.sharded(layout=layout, **options).written(converter), None)

    @overload
    def remote(self, name: str, *, batch: B = ..., **options: Unpack[NamedRemote]) -> RemoteT: ...

    @overload
    def remote(
        self, name: str, *, converter: IdConverter, batch: B = ..., **options: Unpack[NamedRemote]
    ) -> TextT: ...

    def remote(
        self,
        name: str,
        *,
        converter: IdConverter | None = None,
        batch: B | None = None,
        **options: Unpack[NamedRemote],
    ) -> RemoteT | TextT:
        """Return the `RemoteId` of this name, which the first call creates.

        The provider's store is an aiocosid server, such as the broker of a host.

        Args:
            name: the name of a generator on the server, whose ids are numbers.
            converter: writes the ids as text; by default they are numbers.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.
            **options: as for `RemoteId`: ``block``, ``max_age``, ``endurance``,
                ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another converter.
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: the store is not an aiocosid server.
            StoreError: the server has no generator of that name whose ids are numbers, or refuses.
            SegmentUnavailableError: no first block came within ``wait_timeout``.
            ClosedError: the provider is closed.
        """
        return self._ask(name, kinds.remote(**options).written(converter), batch)

    def uuid4(self, name: str, *, batch: B | None = None) -> Uuid4T:
        """Return the `Uuid4Id` of this name, which the first call creates.

        Args:
            name: the generator's name; no store uses it.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.

        Raises:
            BusyError: the name is in use as another kind of generator.
            ClosedError: the provider is closed.
        """
        return self._ask(name, kinds.uuid4(), batch)

    def uuid7(self, name: str, *, batch: B | None = None) -> Uuid7T:
        """Return the `Uuid7Id` of this name, which the first call creates.

        Args:
            name: the generator's name; no store uses it.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.

        Raises:
            BusyError: the name is in use as another kind of generator.
            ClosedError: the provider is closed.
        """
        return self._ask(name, kinds.uuid7(), batch)

    def counter(self, name: str, *, batch: B | None = None) -> CounterT:
        """Return the `CounterId` of this name, which counts only in this process.

        The first call creates it.  It goes on counting as long as this provider object exists, also
        when the provider is opened again.

        Args:
            name: the generator's name; no store uses it.
            batch: only for threads: how many ids are taken at once; see `SyncIdGenerator`.

        Raises:
            BusyError: the name is in use as another kind of generator.
            ForkedError: the parent process has counted under this name.
            ClosedError: the provider is closed.
        """
        return self._ask(name, kinds.counter(), batch)
