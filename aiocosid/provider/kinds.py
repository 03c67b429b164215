"""Each kind of generator, declared once: its options, how it is made, what callers agree on.

The arguments of `IdProvider` and `aiocosid.sync` and the settings are made from this; options that
the command line has too are in `OPTIONS`.  That, and the classes of options, are public as part of
`aiocosid.provider`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

from ..abc import DEFAULT_STEP, MAX_ID
from ..abc.checks import MAX_MACHINE_BITS
from ..errors import BusyError, InvalidArgumentError, UnsupportedByStoreError
from ..segment import SegmentChainId, SegmentId
from ..segment.generator import resume
from ..segment.options import SegmentChainOptions, SegmentIdOptions
from ..segment.pace import CHAIN_STEP

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, KeysView, Mapping

    from ..abc import (
        AnyGenerator,
        Clock,
        IdConverter,
        IdGenerator,
        InstanceId,
        MachineIdDistributor,
        Store,
    )
    from ..abc.events import Instrument
    from ..generators import (
        CounterId,
        IntegerIdGenerator,
        UncertaintyIdGenerator,
        Uuid4Id,
        Uuid7Id,
    )
    from ..generators.text import StringIdGenerator
    from ..machine import MachineIdLease
    from ..segment import GroupBy, GroupedSegmentId, LeafSegmentId, RemoteId
    from ..segment.generator import SegmentGenerator
    from ..segment.group_parts import SegmentKind
    from ..snowflake import (
        CachedSnowflakeId,
        CosIdGenerator,
        CosIdText,
        OnEmpty,
        OnUnavailable,
        ShardedId,
        ShardedLayout,
        SnowflakeId,
        SnowflakeLayout,
    )

__all__ = (
    "KINDS",
    "OPTIONS",
    "GeneratorHost",
    "GeneratorSpec",
    "Kind",
    "LeaseTerms",
    "MachineOptions",
    "NamedCached",
    "NamedChain",
    "NamedCosId",
    "NamedGroups",
    "NamedInner",
    "NamedLeaf",
    "NamedRemote",
    "NamedSegment",
    "NamedSharded",
    "NamedSnowflake",
    "OptionSpec",
    "SequenceOptions",
    "SnowflakeOptions",
    "StepOptions",
    "cached",
    "cosid",
    "counter",
    "grouped",
    "int32",
    "leaf",
    "own",
    "remote",
    "segment",
    "segment_chain",
    "sharded",
    "snowflake",
    "uncertainty",
    "uuid4",
    "uuid7",
)

G_co = TypeVar("G_co", bound="AnyGenerator", covariant=True)
G = TypeVar("G", bound="AnyGenerator")
S = TypeVar("S", bound="SegmentGenerator")
F = TypeVar("F", bound="SnowflakeId")
W = TypeVar("W", bound="IntegerIdGenerator | UncertaintyIdGenerator")
L = TypeVar("L", bound="CounterId | Uuid4Id | Uuid7Id")


NOTHING: Final = "no settings"


class OptionSpec(NamedTuple):
    """An option, as settings, the command line and the reference pages have it.

    Attributes:
        doc: what it is, with its unit; in small letters, without a full stop.
        at_least: the lowest value; None for a text.
        at_most: the highest value; None for a text.
    """

    doc: str
    at_least: float | None = None
    at_most: float | None = None


OPTIONS: Final = {
    "namespace": OptionSpec("namespace of counters and machine ids"),
    "step": OptionSpec("maximum ids for each store call", 1, MAX_ID),
    "layout": OptionSpec("how the ids are put together"),
    "unit": OptionSpec("length of a tick"),
    "epoch": OptionSpec("start of tick 0, a time with its offset or milliseconds since 1970"),
    "zone": OptionSpec("time zone of the texts"),
    "machine_id": OptionSpec("the machine id", 0, 2**MAX_MACHINE_BITS - 1),
    "machine_bits": OptionSpec("width of the machine ids in bits", 1, MAX_MACHINE_BITS),
    "call_timeout": OptionSpec("timeout of one store call in seconds", 0.001, 10**9),
    "safe_guard": OptionSpec("seconds until an unrenewed id is free, inf for never", 0.001, inf),
}
"""The options that the command line shares with settings, by their keys."""


class GeneratorHost(Protocol):
    """What a spec makes a generator for: a provider, or one generator of the settings."""

    namespace: str
    clock: Clock
    counters: dict[str, CounterId]
    floors: dict[tuple[str, str], Any]

    @property
    def store(self) -> Store:
        """The store of its counter or sequences."""
        ...

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a generator's options, with the host's own where it has none."""
        ...

    def lease_for(self, bits: int, options: Mapping[str, Any]) -> MachineIdLease:
        """Return the lease of a generator's machine id."""
        ...

    def lane_lease(self, bits: int) -> MachineIdLease:
        """Return the lease of the number of a lane."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratorSpec(Generic[G_co]):
    """The generator that a caller asks for under a name.

    Attributes:
        kind: the name of the generator's class.
        detail: what two callers have to agree on, besides kind and converter.
        make: creates the generator for a host, under a name; sends nothing.
        converter: writes its ids; None if the kind writes them itself, or they are numbers.
        is_own: whether the caller brings the generator, which then has a root of its own.
        is_text: whether its ids are text.
        resumes: which state of the generator its successor under the same name continues from;
            "" for kinds without such a state.
    """

    kind: str
    detail: object
    make: Callable[[GeneratorHost, str], G_co]
    converter: IdConverter | None = None
    is_own: bool = False
    is_text: bool = False
    resumes: Literal["", "counter", "groups", "remote"] = ""

    @property
    def gives(self) -> type[int | str] | None:
        """The type of the ids; None if it is not known before the generator is made."""
        if self.is_own:
            return None
        return str if self.is_text else int

    def __str__(self) -> str:
        """Describe it, for messages."""
        if self.is_own:
            return f"a generator of your own, {self.detail!r}"
        written = "" if self.converter is None else f" and {self.converter!r}"
        return f"{self.kind} with {self.detail}{written}"

    def check_agrees(self, name: str, other: GeneratorSpec[Any]) -> None:
        """Raise `BusyError` if a later caller for the name asks for another generator."""
        mine, wanted = (
            (each.kind, each.detail, each.converter, each.is_own) for each in (self, other)
        )
        if mine == wanted:
            return
        description = str(other)
        if description == str(self):
            description = f"{other.kind} with another function, zone or converter of the same name"
        remedy = f"take another name for {description}"
        raise BusyError(repr(name), reason=f"is in use as {self}", remedy=remedy)

    def without_make(self) -> GeneratorSpec[G_co]:
        """Return only what callers have to agree on; a provider keeps one for each of its names."""
        return replace(self, make=_refuse)

    def written(self, converter: IdConverter | None) -> GeneratorSpec[G_co | StringIdGenerator]:
        """Return the same spec with its ids as text, if there is a converter."""
        if converter is None:
            return self

        from ..generators.text import StringIdGenerator

        def make(host: GeneratorHost, name: str) -> StringIdGenerator:
            return StringIdGenerator(cast("IdGenerator", self.make(host, name)), converter)

        return replace(
            cast("GeneratorSpec[StringIdGenerator]", self),
            make=make,
            converter=converter,
            is_text=True,
        )


def own(source: object, make: Callable[[], G]) -> GeneratorSpec[G]:
    """Return the spec of a generator that the caller brings.

    Args:
        source: the generator, or the function that makes it; a later caller has to bring the same.
        make: returns the generator, which is not open.
    """
    return GeneratorSpec("", source, lambda _host, _name: make(), is_own=True)


# Ids from a counter.


class StepOptions(TypedDict, total=False):
    """The counter of a generator: ids per segment, and where a new one starts."""

    step: int
    offset: int


class NamedSegment(SegmentIdOptions, StepOptions, total=False):
    """The options of `IdProvider.segment`."""

    strict: bool


class NamedChain(SegmentChainOptions, StepOptions, total=False):
    """The options of `IdProvider.segment_chain`."""


class NamedLeaf(SegmentIdOptions, StepOptions, total=False):
    """The options of `IdProvider.leaf`."""

    prefetch_at: float
    segment_duration: float
    max_step: int


class NamedInner(SegmentChainOptions, StepOptions, total=False):
    """The options of `IdProvider.int32` and `IdProvider.uncertainty`.

    Attributes:
        kind: which generator hands out the ids inside: ``"chain"`` by default, or ``"segment"``.
    """

    kind: SegmentKind


class NamedGroups(SegmentChainOptions, StepOptions, total=False):
    """The options of `IdProvider.grouped`."""

    kind: SegmentKind
    strict: bool
    max_groups: int


STEP: Final = StepOptions.__annotations__.keys()


def segment_chain(**options: Unpack[NamedChain]) -> GeneratorSpec[SegmentChainId]:
    """Return the spec of a `SegmentChainId`."""
    return _counted(SegmentChainId, options)


def segment(**options: Unpack[NamedSegment]) -> GeneratorSpec[SegmentId]:
    """Return the spec of a `SegmentId`."""
    return _counted(SegmentId, options)


def leaf(**options: Unpack[NamedLeaf]) -> GeneratorSpec[LeafSegmentId]:
    """Return the spec of a `LeafSegmentId`."""
    from ..segment import LeafSegmentId

    return _counted(LeafSegmentId, options)


def _counted(kind: type[S], options: Mapping[str, Any]) -> GeneratorSpec[S]:
    given, rest = _split(options, STEP)
    step = CHAIN_STEP if kind is SegmentChainId else DEFAULT_STEP
    counter_options = {"step": step, "offset": 0, **given}

    def make(host: GeneratorHost, name: str) -> S:
        distributor = host.store.segment_distributor(
            namespace=host.namespace, name=name, **counter_options
        )
        generator = kind(distributor, clock=host.clock, **host.with_defaults(rest))
        resume(generator, host.floors.get(("counter", name)))
        return generator

    detail = "strict order" if rest.get("strict") else f"step {counter_options['step']}"
    return GeneratorSpec(kind.__name__, detail, make, resumes="counter")


def grouped(
    *, group_by: GroupBy, **options: Unpack[NamedGroups]
) -> GeneratorSpec[GroupedSegmentId]:
    """Return the spec of a `GroupedSegmentId`."""
    from ..segment import GroupedSegmentId
    from ..segment.group_parts import KINDS as GROUP_KINDS
    from ..segment.group_parts import Agreement

    kind = options.get("kind", "chain")
    step = None if options.get("strict") else options.get("step", DEFAULT_STEP)

    def make(host: GeneratorHost, name: str) -> GroupedSegmentId:
        generator = GroupedSegmentId(
            host.store,
            namespace=host.namespace,
            name=name,
            group_by=group_by,
            clock=host.clock,
            **host.with_defaults(options),
        )
        resume(generator, host.floors.get(("groups", name)))
        return generator

    # An unknown kind is refused when the generator is made.
    known = GROUP_KINDS.get(kind)
    detail = f"kind {kind!r}" if known is None else Agreement(step, known, group_by)
    return GeneratorSpec(GroupedSegmentId.__name__, detail, make, resumes="groups")


def int32(**options: Unpack[NamedInner]) -> GeneratorSpec[IntegerIdGenerator]:
    """Return the spec of an `IntegerIdGenerator` around ids from a counter."""
    from ..generators import IntegerIdGenerator

    return _around(IntegerIdGenerator, options, lambda inner, _: IntegerIdGenerator(inner))


def uncertainty(
    *, bits: int, **options: Unpack[NamedInner]
) -> GeneratorSpec[UncertaintyIdGenerator]:
    """Return the spec of an `UncertaintyIdGenerator` around ids from a counter."""
    from ..generators import UncertaintyIdGenerator

    def wrap(inner: IdGenerator, store: Store) -> UncertaintyIdGenerator:
        return UncertaintyIdGenerator(inner, bits, store=store)

    return _around(UncertaintyIdGenerator, options, wrap, f"bits {bits} and ")


def _around(
    kind: type[W],
    options: Mapping[str, Any],
    wrap: Callable[[IdGenerator, Store], W],
    detail: str = "",
) -> GeneratorSpec[W]:
    from ..segment.group_parts import KINDS as INNER

    inner_kind = options.get("kind", "chain")
    if inner_kind not in INNER:
        raise InvalidArgumentError("kind", inner_kind, expected=f"one of {', '.join(INNER)}")
    inner = _counted(
        INNER[inner_kind], {name: value for name, value in options.items() if name != "kind"}
    )

    def make(host: GeneratorHost, name: str) -> W:
        return wrap(inner.make(host, name), host.store)

    return GeneratorSpec(kind.__name__, f"{detail}inner {inner}", make, resumes="counter")


# Ids from a clock and a machine id.  Their modules are imported at the first use: a program that
# uses segments alone does not wait for them.


class LeaseTerms(TypedDict, total=False):
    """The options of `MachineIdLease` that a provider passes to it."""

    on_lost: Literal["redistribute", "raise"]
    peer_safe_guard: float | None
    lead: float | None
    start_timeout: float | None
    call_timeout: float


class MachineOptions(LeaseTerms, total=False):
    """Where machine ids come from, and how they are leased.

    Attributes:
        machine: a distributor of machine ids, as `ManualMachineIdDistributor`, or a lease; None for
            the provider's store, which alone takes the other options here.
        instance_id: the holder of the machine id; by default a new one for each process.
        safe_guard: seconds without a renewal after which another instance may get the id.
        interval: seconds between two renewals; by default 60, and 10 for a stable instance.
        state_dir: a directory on the machine's own disk, for a stable instance: after a crash and a
            start on the same machine it does not wait for its time mark.
        offline: seconds without the store for which ids may be issued, also by a process that
            starts on the same machine; see `Store.machine_id_distributor`.
        offline_beside_cosid: allows ``offline`` where CosId on Java holds machine ids.
    """

    machine: MachineIdDistributor | MachineIdLease | None
    instance_id: InstanceId | str | None
    safe_guard: float
    interval: float
    state_dir: str | os.PathLike[str] | None
    offline: float
    offline_beside_cosid: bool


class ClockOptions(TypedDict, total=False):
    """The options of all kinds on a clock."""

    broken_threshold: float | None
    max_forward_jump: float | None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None


class SnowflakeOptions(ClockOptions, total=False):
    """The options that `IdProvider.snowflake` and `IdProvider.cosid` have in common."""

    sequence_reset_threshold: int | None


class NamedSnowflake(SnowflakeOptions, MachineOptions, total=False):
    """The options of `IdProvider.snowflake`."""

    layout: SnowflakeLayout | None
    random_start: int | None


class NamedCached(ClockOptions, MachineOptions, total=False):
    """The options of `IdProvider.cached`."""

    layout: SnowflakeLayout | None
    boost: int
    padding_factor: int
    max_borrow: float
    refill_interval: float | None
    on_empty: OnEmpty


class NamedCosId(SnowflakeOptions, MachineOptions, total=False):
    """The options of `IdProvider.cosid`."""

    text: CosIdText | None


MACHINE: Final = MachineOptions.__annotations__.keys()


def snowflake(**options: Unpack[NamedSnowflake]) -> GeneratorSpec[SnowflakeId]:
    """Return the spec of a `SnowflakeId`."""
    from ..snowflake import COSID_MS, SnowflakeId

    return _stamped(SnowflakeId, options, COSID_MS)


def cached(**options: Unpack[NamedCached]) -> GeneratorSpec[CachedSnowflakeId]:
    """Return the spec of a `CachedSnowflakeId`."""
    from ..snowflake import UID_GENERATOR_HA, CachedSnowflakeId

    return _stamped(CachedSnowflakeId, options, UID_GENERATOR_HA)


def _stamped(
    kind: type[F], options: Mapping[str, Any], default: SnowflakeLayout
) -> GeneratorSpec[F]:
    machine, rest = _split(options, MACHINE)
    layout = rest["layout"] = rest.get("layout") or default

    def make(host: GeneratorHost, name: str) -> F:
        lease = host.lease_for(layout.machine_bits, machine)
        return kind(lease, name=name, clock=host.clock, **host.with_defaults(rest))

    return GeneratorSpec(kind.__name__, f"layout {layout!r}", make)


def cosid(**options: Unpack[NamedCosId]) -> GeneratorSpec[CosIdGenerator]:
    """Return the spec of a `CosIdGenerator`."""
    from ..snowflake import RADIX62, CosIdGenerator

    machine, rest = _split(options, MACHINE)
    text = rest["text"] = rest.get("text") or RADIX62

    def make(host: GeneratorHost, name: str) -> CosIdGenerator:
        lease = host.lease_for(text.layout.machine_bits, machine)
        return CosIdGenerator(lease, name=name, clock=host.clock, **host.with_defaults(rest))

    return GeneratorSpec(CosIdGenerator.__name__, f"text {text!r}", make, is_text=True)


# Ids that carry their shard.


class SequenceOptions(TypedDict, total=False):
    """The options of `RedisStore.sequence_distributor`."""

    key: str | None
    max_sequence: int | None
    tolerance: int
    margin: int
    ttl: int


class NamedSharded(SequenceOptions, total=False):
    """The options of `IdProvider.sharded`."""

    sharding_id: int
    on_unavailable: OnUnavailable
    lane: MachineIdDistributor | MachineIdLease | None
    batch: int | None
    nodes: int
    broken_threshold: float | None
    wait_timeout: float
    close_timeout: float
    instrument: Instrument | None


SEQUENCE: Final = SequenceOptions.__annotations__.keys()


def sharded(*, layout: ShardedLayout, **options: Unpack[NamedSharded]) -> GeneratorSpec[ShardedId]:
    """Return the spec of a `ShardedId`."""
    from ..snowflake import ShardedId
    from ..snowflake.sharded_id import LANE_BITS

    sequence, rest = _split(options, SEQUENCE)

    def make(host: GeneratorHost, name: str) -> ShardedId:
        grants = getattr(host.store, "sequence_distributor", None)
        if grants is None:
            what, remedy = "it has no sequences of a second", "take one of aiocosid.stores.redis"
            raise UnsupportedByStoreError(type(host.store).__name__, what, remedy=remedy)
        if sequence.get("max_sequence") is None:
            sequence["max_sequence"] = layout.max_sequence
        distributor = grants(namespace=host.namespace, name=name, **sequence)
        all_options = host.with_defaults(rest)
        if rest.get("on_unavailable") == "lane" and rest.get("lane") is None:
            all_options["lane"] = host.lane_lease(LANE_BITS)
        return ShardedId(distributor, layout=layout, clock=host.clock, **all_options)

    detail = f"layout {layout!r} and sharding_id {options.get('sharding_id', 0)}"
    return GeneratorSpec(ShardedId.__name__, detail, make)


# Ids of a server's generator.


class NamedRemote(TypedDict, total=False):
    """The options of `IdProvider.remote`."""

    block: int
    max_age: float | None
    endurance: float
    wait_timeout: float
    fetch_timeout: float | None
    close_timeout: float
    max_id: int
    max_waiters: int
    fail_fast: bool | None
    instrument: Instrument | None


def remote(**options: Unpack[NamedRemote]) -> GeneratorSpec[RemoteId]:
    """Return the spec of a `RemoteId`."""
    from ..segment import RemoteId

    def make(host: GeneratorHost, name: str) -> RemoteId:
        source: Any = host.store
        if not hasattr(source, "take_ids"):
            remedy = "use a server of 'aiocosid serve' or 'aiocosid broker'"
            raise UnsupportedByStoreError(
                type(source).__name__, "it has no generators", remedy=remedy
            )
        generator = RemoteId(
            source,
            namespace=host.namespace,
            name=name,
            clock=host.clock,
            **host.with_defaults(options),
        )
        resume(generator, host.floors.get(("remote", name)))
        return generator

    return GeneratorSpec(RemoteId.__name__, NOTHING, make, resumes="remote")


# Ids of this process.


def uuid4() -> GeneratorSpec[Uuid4Id]:
    """Return the spec of a `Uuid4Id`."""
    from ..generators import Uuid4Id

    return _local(Uuid4Id, is_text=True)


def uuid7() -> GeneratorSpec[Uuid7Id]:
    """Return the spec of a `Uuid7Id`."""
    from ..generators import Uuid7Id

    return _local(Uuid7Id, is_text=True)


def counter() -> GeneratorSpec[CounterId]:
    """Return the spec of a `CounterId`; a provider keeps one for each name as long as it lives."""
    from ..generators import CounterId

    spec = _local(CounterId, is_text=False)

    def make(host: GeneratorHost, name: str) -> CounterId:
        if name not in host.counters:
            host.counters[name] = spec.make(host, name)
        return host.counters[name]

    return replace(spec, make=make)


def _local(kind: type[L], *, is_text: bool) -> GeneratorSpec[L]:
    def make(host: GeneratorHost, name: str) -> L:
        return kind(namespace=host.namespace, name=name, clock=host.clock)

    return GeneratorSpec(kind.__name__, NOTHING, make, is_text=is_text)


def _refuse(_host: GeneratorHost, _name: str) -> NoReturn:
    raise NotImplementedError


def _split(
    options: Mapping[str, Any], names: KeysView[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of these names, and the others."""
    chosen = {name: value for name, value in options.items() if name in names}
    return chosen, {name: value for name, value in options.items() if name not in names}


class Kind(NamedTuple):
    """A kind as settings name it.

    Attributes:
        spec: returns its spec; it takes the options, and for some kinds parts that have no default.
        options: the names of the options.
    """

    spec: Callable[..., GeneratorSpec[Any]]
    options: Collection[str]


KINDS: Final = {
    "segment": Kind(segment, NamedSegment.__annotations__),
    "chain": Kind(segment_chain, NamedChain.__annotations__),
    "leaf": Kind(leaf, NamedLeaf.__annotations__),
    "grouped": Kind(grouped, NamedGroups.__annotations__),
    "snowflake": Kind(snowflake, NamedSnowflake.__annotations__),
    "cached": Kind(cached, NamedCached.__annotations__),
    "cosid": Kind(cosid, NamedCosId.__annotations__),
    "sharded": Kind(sharded, NamedSharded.__annotations__),
    "remote": Kind(remote, NamedRemote.__annotations__),
    "uuid4": Kind(uuid4, ()),
    "uuid7": Kind(uuid7, ()),
    "counter": Kind(counter, ()),
}
