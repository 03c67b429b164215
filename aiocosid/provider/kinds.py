"""Each kind of generator, declared once: its options, its creation, and what callers must agree on.

The methods of `IdProvider` and `aiocosid.sync`, and the settings, are generated from these
declarations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..abc import DEFAULT_STEP, SHARE
from ..abc.options import declared
from ..errors import InvalidArgumentError, UnsupportedByStoreError
from ..errors.base import one_of
from ..segment import SegmentChainId, SegmentId
from ..segment.generator import resume
from ..segment.options import GroupOptions, RemoteOptions
from ..segment.pace import CHAIN_STEP
from .options import (
    MachineOptions,
    NamedCached,
    NamedChain,
    NamedCosId,
    NamedInner,
    NamedLeaf,
    NamedSegment,
    NamedSharded,
    NamedSnowflake,
    NamedUncertainty,
    NoOptions,
    SequenceOptions,
    StepOptions,
)
from .specs import GeneratorSpec, kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import IdGenerator, Store
    from ..abc.options import Options
    from ..generators import (
        CounterId,
        IntegerIdGenerator,
        UncertaintyIdGenerator,
        Uuid4Id,
        Uuid7Id,
    )
    from ..segment import GroupedSegmentId, LeafSegmentId, RemoteId
    from ..segment.generator import SegmentGenerator
    from ..snowflake import (
        CachedSnowflakeId,
        CosIdGenerator,
        ShardedId,
        SnowflakeId,
        SnowflakeLayout,
    )
    from .specs import GeneratorHost, Given, Kind

__all__ = (
    "KINDS",
    "cached_snowflake",
    "cosid_text",
    "counter",
    "grouped",
    "int32",
    "leaf_segment",
    "remote",
    "segment",
    "segment_chain",
    "sharded",
    "snowflake",
    "uncertainty",
    "uuid4",
    "uuid7",
)

S = TypeVar("S", bound="SegmentGenerator")
F = TypeVar("F", bound="SnowflakeId")
W = TypeVar("W", bound="IntegerIdGenerator | UncertaintyIdGenerator")
L = TypeVar("L", bound="CounterId | Uuid4Id | Uuid7Id")


NOTHING: Final = "no settings"


# Ids from a counter.


@kind(NamedChain)
def segment_chain(given: Given) -> GeneratorSpec[SegmentChainId]:
    """Return the `SegmentChainId` with this name, which the first call creates.

    The options are those of that call; a later call must have the same ``step`` and ``converter``,
    and its other options are ignored.  A cancelled call of `IdProvider` creates no generator; if
    its first segment was reserved, that segment is a gap.

    Args:
        name: the counter's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, or with another step or
            converter.
        InvalidArgumentError: an argument is outside its range.
        StoreError: the store refuses.
        SegmentUnavailableError: no first segment arrived within ``wait_timeout``.
        ClosedError: the provider is closed.
    """
    return _counted(SegmentChainId, given)


@kind(NamedSegment)
def segment(given: Given) -> GeneratorSpec[SegmentId]:
    """Return the `SegmentId` with this name, which the first call creates.

    Args:
        name: the counter's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        UnsupportedByStoreError: ``strict`` is true, and the store is not linearizable.
        CosIdError: as for `segment_chain`.
    """
    return _counted(SegmentId, given)


@kind(NamedLeaf)
def leaf_segment(given: Given) -> GeneratorSpec[LeafSegmentId]:
    """Return the `LeafSegmentId` with this name, which the first call creates.

    Args:
        name: the counter's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        CosIdError: as for `segment_chain`.
    """
    from ..segment import LeafSegmentId

    return _counted(LeafSegmentId, given)


def _counted(made: type[S], options: Given) -> GeneratorSpec[S]:
    counter, rest = _split(options, StepOptions)
    step = CHAIN_STEP if made is SegmentChainId else DEFAULT_STEP
    counter_options = {"step": step, "offset": 0, **counter}

    make_one: Callable[..., S] = made

    def make(host: GeneratorHost, name: str) -> S:
        distributor = host.store.segment_distributor(
            namespace=host.namespace, name=name, **counter_options
        )
        generator = make_one(distributor, **host.with_defaults(rest))
        resume(generator, host.floors.get(("counter", name)))
        return generator

    detail = "strict order" if rest.get("strict") else f"step {counter_options['step']}"
    return GeneratorSpec(made.__name__, detail, make, resumes="counter")


@kind(GroupOptions)
def grouped(given: Given) -> GeneratorSpec[GroupedSegmentId]:
    """Return the `GroupedSegmentId` with this name, which the first call creates.

    Its ``with_group`` returns `GroupedId` objects.  If the counter of a group went backwards, the
    next call for the name opens that group again.

    Args:
        name: the generator's name; its counters are called ``{name}@{group}``.
        converter: writes the ids as text, which does not contain the group; by default they are
            numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, with another step, group or
            converter.
        CosIdError: as for `segment_chain`.
    """
    from ..segment import GroupedSegmentId
    from ..segment.group_parts import KINDS as GROUP_KINDS
    from ..segment.group_parts import Agreement

    step = None if given.get("strict") else given.get("step", DEFAULT_STEP)

    def make(host: GeneratorHost, name: str) -> GroupedSegmentId:
        generator = GroupedSegmentId(
            host.store, namespace=host.namespace, name=name, **host.with_defaults(given)
        )
        resume(generator, host.floors.get(("groups", name)))
        return generator

    # An unknown kind is refused when the generator is made.
    known, _ = GROUP_KINDS.get(given.get("group_kind", "chain"), (None, None))
    detail = (
        f"kind {given['group_kind']!r}"
        if known is None
        else Agreement(step, known, given["group_by"])
    )
    return GeneratorSpec(GroupedSegmentId.__name__, detail, make, resumes="groups")


@kind(NamedInner)
def int32(given: Given) -> GeneratorSpec[IntegerIdGenerator]:
    """Return the `IntegerIdGenerator` with this name, which the first call creates.

    Its ids come from a counter in the provider's store, and end at 2^31-1.  To wrap another kind,
    create an `IntegerIdGenerator` and `add` it.

    Args:
        name: the counter's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, or with another step,
            ``kind`` or converter.
        CosIdError: as for `segment_chain`.
    """
    from ..generators import IntegerIdGenerator

    return _around(IntegerIdGenerator, given, lambda inner, _: IntegerIdGenerator(inner))


@kind(NamedUncertainty)
def uncertainty(given: Given) -> GeneratorSpec[UncertaintyIdGenerator]:
    """Return the `UncertaintyIdGenerator` with this name, which the first call creates.

    It appends random bits to ids from a counter in the provider's store.  To wrap another kind,
    create an `UncertaintyIdGenerator` and `add` it.

    Args:
        name: the counter's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, or with different ``bits``,
            or another step, ``kind`` or converter.
        CosIdError: as for `segment_chain`.
    """
    from ..generators import UncertaintyIdGenerator

    def wrap(inner: IdGenerator, store: Store) -> UncertaintyIdGenerator:
        return UncertaintyIdGenerator(inner, given["bits"], store=store)

    return _around(UncertaintyIdGenerator, given, wrap, f"bits {given['bits']} and ")


def _around(
    made: type[W],
    options: Given,
    wrap: Callable[[IdGenerator, Store], W],
    detail: str = "",
) -> GeneratorSpec[W]:
    from ..segment.group_parts import KINDS as INNER

    inner_kind = options.get("kind", "chain")
    if inner_kind not in INNER:
        raise InvalidArgumentError("kind", inner_kind, one_of(INNER, inner_kind))
    kind_inside, _ = INNER[inner_kind]
    rest = {name: value for name, value in options.items() if name not in {"kind", "bits"}}
    inner: GeneratorSpec[IdGenerator] = _counted(kind_inside, rest)

    def make(host: GeneratorHost, name: str) -> W:
        return wrap(inner.make(host, name), host.store)

    return GeneratorSpec(made.__name__, f"{detail}inner {inner}", make, resumes="counter")


# Ids from a clock and a machine id.  Their modules are imported at the first use, so that a program
# that uses only segments does not wait for them.


@kind(NamedSnowflake, SHARE)
def snowflake(given: Given) -> GeneratorSpec[SnowflakeId]:
    """Return the `SnowflakeId` with this name, which the first call creates.

    Its machine id is leased from the provider's store.  All Snowflake generators of the
    provider share that lease, so their layouts need the same number of machine bits.
    ``machine``, here or for the provider, names another source.

    Args:
        name: the generator's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, or with another layout or
            converter.
        InvalidArgumentError: an argument is outside its range, or the machine id is leased with
            different options.
        MachineBitsMismatchError: another width of machine ids is in use, in this provider or in
            other processes of the namespace.
        MachineIdOverflowError: all machine ids are held.
        MachineIdUnavailableError: the store could not be reached.
        LayoutExpiredError: the layout has ended.
        ClosedError: the provider is closed.
    """
    from ..snowflake import COSID_MS, SnowflakeId

    return _stamped(SnowflakeId, given, COSID_MS)


@kind(NamedCached, SHARE)
def cached_snowflake(given: Given) -> GeneratorSpec[CachedSnowflakeId]:
    """Return the `CachedSnowflakeId` with this name, which the first call creates.

    Args:
        name: the generator's name in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        CosIdError: as for `snowflake`.
    """
    from ..snowflake import UID_GENERATOR_HA, CachedSnowflakeId

    return _stamped(CachedSnowflakeId, given, UID_GENERATOR_HA)


def _stamped(made: type[F], options: Given, default: SnowflakeLayout) -> GeneratorSpec[F]:
    machine, rest = _split(options, MachineOptions)
    layout = rest["layout"] = rest.get("layout") or default

    make_one: Callable[..., F] = made

    def make(host: GeneratorHost, name: str) -> F:
        lease = host.lease_for(layout.machine_bits, machine)
        return make_one(lease, name=name, **host.with_defaults(rest))

    return GeneratorSpec(made.__name__, f"layout {layout!r}", make)


@kind(NamedCosId, "cosid_text")
def cosid_text(given: Given) -> GeneratorSpec[CosIdGenerator]:
    """Return the `CosIdGenerator` with this name, which the first call creates; its ids are text.

    Its machine id has 20 bits, unless ``text`` says otherwise, and comes from the provider's single
    lease, so Snowflake generators with another width need their own ``machine`` or namespace.

    Args:
        name: the generator's name in the provider's namespace; by default CosId's own for it.

    Raises:
        BusyError: the name is in use as another kind of generator, or with another text.
        CosIdError: as for `snowflake`.
    """
    from ..snowflake import RADIX62, CosIdGenerator

    machine, rest = _split(given, MachineOptions)
    text = rest["text"] = rest.get("text") or RADIX62

    def make(host: GeneratorHost, name: str) -> CosIdGenerator:
        lease = host.lease_for(text.layout.machine_bits, machine)
        return CosIdGenerator(lease, name=name, **host.with_defaults(rest))

    return GeneratorSpec(CosIdGenerator.__name__, f"text {text!r}", make, is_text=True)


# Ids that contain their shard.


@kind(NamedSharded)
def sharded(given: Given) -> GeneratorSpec[ShardedId]:
    """Return the `ShardedId` with this name, which the first call creates.

    The provider's store grants its sequences: Redis or Valkey, a SQLite file, or memory.

    Args:
        name: the name under which sequences are granted, in the provider's namespace.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, or with another layout,
            sharding id or converter.
        InvalidArgumentError: an argument is outside its range.
        UnsupportedByStoreError: the store grants no sequences of a second.
        LayoutExpiredError: the layout has ended.
        ClosedError: the provider is closed.
    """
    from ..snowflake import ShardedId, ShardedLayout
    from ..snowflake.sharded_id import LANE_BITS

    sequence, rest = _split(given, SequenceOptions)
    layout = rest["layout"] = rest.get("layout") or ShardedLayout()

    def make(host: GeneratorHost, name: str) -> ShardedId:
        grants = getattr(host.store, "sequence_distributor", None)
        if grants is None:
            what = "it does not grant sequences of a second"
            remedy = "take Redis, Valkey, a SQLite file, or memory"
            raise UnsupportedByStoreError(type(host.store).__name__, what, remedy=remedy)
        if sequence.get("max_sequence") is None:
            sequence["max_sequence"] = layout.max_sequence
        distributor = grants(namespace=host.namespace, name=name, **sequence)
        all_options = host.with_defaults(rest)
        if rest.get("on_unavailable") == "lane" and rest.get("lane") is None:
            all_options["lane"] = host.lane_lease(LANE_BITS)
        return ShardedId(distributor, **all_options)

    detail = f"layout {layout!r} and sharding_id {given.get('sharding_id', 0)}"
    return GeneratorSpec(ShardedId.__name__, detail, make)


# Ids of a server's generator.


@kind(RemoteOptions)
def remote(given: Given) -> GeneratorSpec[RemoteId]:
    """Return the `RemoteId` with this name, which the first call creates.

    The provider's store must be an aiocosid server, for example the broker of a host.

    Args:
        name: the name of a generator on the server, whose ids are numbers.
        converter: writes the ids as text; by default they are numbers.

    Raises:
        BusyError: the name is in use as another kind of generator, or with another converter.
        InvalidArgumentError: an argument is outside its range.
        UnsupportedByStoreError: the store is not an aiocosid server.
        StoreError: the server has no generator of numbers with that name, or refuses.
        SegmentUnavailableError: no first block arrived within ``wait_timeout``.
        ClosedError: the provider is closed.
    """
    from ..segment import RemoteId

    def make(host: GeneratorHost, name: str) -> RemoteId:
        source: Any = host.store
        if not hasattr(source, "take_block"):
            remedy = "use a server of 'aiocosid serve' or 'aiocosid broker'"
            raise UnsupportedByStoreError(
                type(source).__name__, "it has no generators", remedy=remedy
            )
        generator = RemoteId(
            source, namespace=host.namespace, name=name, **host.with_defaults(given)
        )
        resume(generator, host.floors.get(("remote", name)))
        return generator

    return GeneratorSpec(RemoteId.__name__, NOTHING, make, resumes="remote")


# Ids of this process.


@kind(NoOptions)
def uuid4(_: Given) -> GeneratorSpec[Uuid4Id]:
    """Return the `Uuid4Id` with this name, which the first call creates.

    Args:
        name: the generator's name; no store uses it.

    Raises:
        BusyError: the name is in use as another kind of generator.
        ClosedError: the provider is closed.
    """
    from ..generators import Uuid4Id

    return _local(Uuid4Id, is_text=True)


@kind(NoOptions)
def uuid7(_: Given) -> GeneratorSpec[Uuid7Id]:
    """Return the `Uuid7Id` with this name, which the first call creates.

    Args:
        name: the generator's name; no store uses it.

    Raises:
        BusyError: the name is in use as another kind of generator.
        ClosedError: the provider is closed.
    """
    from ..generators import Uuid7Id

    return _local(Uuid7Id, is_text=True)


@kind(NoOptions)
def counter(_: Given) -> GeneratorSpec[CounterId]:
    """Return the `CounterId` with this name, which counts only in this process.

    The first call creates it.  It continues to count as long as this provider object exists, even
    if the provider is reopened.

    Args:
        name: the generator's name; no store uses it.

    Raises:
        BusyError: the name is in use as another kind of generator.
        ForkedError: the parent process has counted under this name.
        ClosedError: the provider is closed.
    """
    from ..generators import CounterId

    spec = _local(CounterId, is_text=False)

    def make(host: GeneratorHost, name: str) -> CounterId:
        if name not in host.counters:
            host.counters[name] = spec.make(host, name)
        return host.counters[name]

    return replace(spec, make=make)


def _local(made: type[L], *, is_text: bool) -> GeneratorSpec[L]:
    def make(host: GeneratorHost, name: str) -> L:
        return made(namespace=host.namespace, name=name, clock=host.clock)

    return GeneratorSpec(made.__name__, NOTHING, make, is_text=is_text)


def _split(options: Given, kind: type[Options]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that a class declares, and the other ones."""
    names = declared(kind).keys()
    chosen = {name: value for name, value in options.items() if name in names}
    return chosen, {name: value for name, value in options.items() if name not in names}


KINDS: Final[dict[str, Kind[..., Any]]] = {
    "segment": segment,
    "chain": segment_chain,
    "leaf_segment": leaf_segment,
    "grouped": grouped,
    "snowflake": snowflake,
    "cached_snowflake": cached_snowflake,
    "cosid_text": cosid_text,
    "sharded": sharded,
    "remote": remote,
    "uuid4": uuid4,
    "uuid7": uuid7,
    "counter": counter,
}
"""The kinds by their names in settings."""
