"""Each kind of generator that a provider makes by name: what askers agree on, and how it is made.

`IdProvider` and the provider for threads both ask by these, with the options of
`_provider_options`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeVar, cast

from .._later import dataclass
from .._provider_options import LeaseTerms, MachineOptions, SequenceOptions, StepOptions
from ..abc import DEFAULT_STEP
from ..errors import BusyError, InvalidArgumentError, UnsupportedByStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, KeysView, Mapping

    from .._provider_options import (
        NamedCached,
        NamedChain,
        NamedCosId,
        NamedGroups,
        NamedLeaf,
        NamedSegment,
        NamedSharded,
        NamedSnowflake,
    )
    from .._text_generator import StringIdGenerator
    from ..abc import AnyGenerator, IdConverter, IdGenerator
    from ..generators import CounterId, Uuid7Id
    from ..machine import MachineIdLease
    from ..segment import GroupBy, GroupedSegmentId, LeafSegmentId, SegmentChainId, SegmentId
    from ..segment._generator import SegmentGenerator
    from ..snowflake import (
        CachedSnowflakeId,
        CosIdGenerator,
        ShardedId,
        ShardedLayout,
        SnowflakeId,
        SnowflakeLayout,
    )
    from ._id_provider import IdProvider

__all__ = (
    "LEASE_TERMS",
    "MACHINE",
    "OF_STORE",
    "GeneratorSpec",
    "cached",
    "check_terms",
    "cosid",
    "counter",
    "grouped",
    "leaf",
    "own",
    "segment",
    "segment_chain",
    "sharded",
    "snowflake",
    "uuid7",
)

G_co = TypeVar("G_co", bound="AnyGenerator", covariant=True)
G = TypeVar("G", bound="AnyGenerator")
S = TypeVar("S", bound="SegmentGenerator")
F = TypeVar("F", bound="SnowflakeId")

STEP: Final = StepOptions.__annotations__.keys()
LEASE_TERMS: Final = LeaseTerms.__annotations__.keys()
MACHINE: Final = MachineOptions.__annotations__.keys()
OF_STORE: Final = ("instance_id", "safe_guard", "interval")  # of MACHINE
SEQUENCE: Final = SequenceOptions.__annotations__.keys()

NOTHING: Final = "no settings"


@dataclass(frozen=True, slots=True)
class GeneratorSpec(Generic[G_co]):
    """What somebody asks for under a name.

    Attributes:
        kind: the generator's class, by name.
        detail: what two askers have to agree on besides.
        make: makes the generator for a provider, under a name; nothing is sent.
        converter: writes its ids; None for the kind's own.
        is_own: whether the generator is the asker's, and lives outside of the provider's root.
        is_text: whether the ids of a kind are text.
        resumes: what a successor under the same name goes on above; "" for kinds that need not.
    """

    kind: str
    detail: object
    make: Callable[[IdProvider, str], G_co]
    converter: IdConverter | None = None
    is_own: bool = False
    is_text: bool = False
    resumes: Literal["", "counter", "groups"] = ""

    @property
    def gives(self) -> type[int | str] | None:
        """The type of the ids; None if it is not known before the generator is made."""
        if self.is_own:
            return None
        return str if self.is_text else int

    def __str__(self) -> str:
        """Say it in a message."""
        if self.is_own:
            return f"a generator of your own, {self.detail!r}"
        written = "" if self.converter is None else f" and {self.converter!r}"
        return f"{self.kind} with {self.detail}{written}"

    def check_agrees(self, name: str, other: GeneratorSpec[Any]) -> None:
        """Raise `BusyError` unless another asker for the name gets what it asks for."""
        mine, wanted = (
            (each.kind, each.detail, each.converter, each.is_own) for each in (self, other)
        )
        if mine == wanted:
            return
        asked = str(other)
        if asked == str(self):
            asked = f"{other.kind} with another function, zone or converter of the same name"
        raise BusyError(repr(name), reason=f"is in use as {self}; {asked} needs another name")

    def without_make(self) -> GeneratorSpec[G_co]:
        """Return what has to agree alone, to be kept for each name of many."""
        return replace(self, make=_refuse)

    def written(self, converter: IdConverter | None) -> GeneratorSpec[G_co | StringIdGenerator]:
        """Return the same with its ids as text, if there is a converter."""
        if converter is None:
            return self

        from .._text_generator import StringIdGenerator

        def make(host: IdProvider, name: str) -> StringIdGenerator:
            return StringIdGenerator(cast("IdGenerator", self.make(host, name)), converter)

        return replace(
            cast("GeneratorSpec[StringIdGenerator]", self),
            make=make,
            converter=converter,
            is_text=True,
        )


def own(source: object, make: Callable[[], G]) -> GeneratorSpec[G]:
    """Return the spec of a generator of the asker's own.

    Args:
        source: the generator, or what makes it: askers have to bring the same one.
        make: returns the generator, which is not open.
    """
    return GeneratorSpec("", source, lambda _host, _name: make(), is_own=True)


# Ids from a counter.


def segment_chain(options: NamedChain) -> GeneratorSpec[SegmentChainId]:
    """Return the spec of a `SegmentChainId`."""
    from ..segment import SegmentChainId

    return _counted(SegmentChainId, options)


def segment(options: NamedSegment) -> GeneratorSpec[SegmentId]:
    """Return the spec of a `SegmentId`."""
    from ..segment import SegmentId

    return _counted(SegmentId, options)


def leaf(options: NamedLeaf) -> GeneratorSpec[LeafSegmentId]:
    """Return the spec of a `LeafSegmentId`."""
    from ..segment import LeafSegmentId

    return _counted(LeafSegmentId, options)


def _counted(kind: type[S], options: Mapping[str, Any]) -> GeneratorSpec[S]:
    given, rest = _split(options, STEP)
    counter_options = {"step": DEFAULT_STEP, "offset": 0, **given}

    def make(host: IdProvider, name: str) -> S:
        distributor = host._store.segment_distributor(
            namespace=host.namespace, name=name, **counter_options
        )
        generator = kind(distributor, clock=host._clock, **host._with_defaults(rest))
        generator._resume(host._floors.get(("counter", name)))
        return generator

    detail = f"step {counter_options['step']}"
    return GeneratorSpec(kind.__name__, detail, make, resumes="counter")


def grouped(group_by: GroupBy, options: NamedGroups) -> GeneratorSpec[GroupedSegmentId]:
    """Return the spec of a `GroupedSegmentId`."""
    from ..segment import GroupedSegmentId
    from ..segment._group_parts import KINDS, Agreement

    step, kind = options.get("step", DEFAULT_STEP), options.get("kind", "chain")

    def make(host: IdProvider, name: str) -> GroupedSegmentId:
        generator = GroupedSegmentId(
            host._store,
            namespace=host.namespace,
            name=name,
            group_by=group_by,
            clock=host._clock,
            **host._with_defaults(options),
        )
        generator._resume(host._floors.get(("groups", name)))
        return generator

    # Of a kind that there is not, making it tells.
    detail = Agreement(step, KINDS[kind], group_by) if kind in KINDS else f"kind {kind!r}"
    return GeneratorSpec(GroupedSegmentId.__name__, detail, make, resumes="groups")


# Ids from a clock and a machine id.  Who uses segments alone need not wait for their modules.


def snowflake(options: NamedSnowflake) -> GeneratorSpec[SnowflakeId]:
    """Return the spec of a `SnowflakeId`."""
    from ..snowflake import COSID_MS, SnowflakeId

    return _stamped(SnowflakeId, options, COSID_MS)


def cached(options: NamedCached) -> GeneratorSpec[CachedSnowflakeId]:
    """Return the spec of a `CachedSnowflakeId`."""
    from ..snowflake import UID_GENERATOR_HA, CachedSnowflakeId

    return _stamped(CachedSnowflakeId, options, UID_GENERATOR_HA)


def _stamped(
    kind: type[F], options: Mapping[str, Any], default: SnowflakeLayout
) -> GeneratorSpec[F]:
    machine, rest = _split(options, MACHINE)
    layout = rest["layout"] = rest.get("layout") or default

    def make(host: IdProvider, name: str) -> F:
        lease = host._lease_for(layout.machine_bits, machine)
        return kind(lease, name=name, clock=host._clock, **host._with_defaults(rest))

    return GeneratorSpec(kind.__name__, f"layout {layout!r}", make)


def cosid(options: NamedCosId) -> GeneratorSpec[CosIdGenerator]:
    """Return the spec of a `CosIdGenerator`."""
    from ..snowflake import RADIX62, CosIdGenerator

    machine, rest = _split(options, MACHINE)
    text = rest["text"] = rest.get("text") or RADIX62

    def make(host: IdProvider, name: str) -> CosIdGenerator:
        lease = host._lease_for(text.layout.machine_bits, machine)
        return CosIdGenerator(lease, name=name, clock=host._clock, **host._with_defaults(rest))

    return GeneratorSpec(CosIdGenerator.__name__, f"text {text!r}", make, is_text=True)


def check_terms(lease: MachineIdLease, options: Mapping[str, Any]) -> None:
    """Raise `InvalidArgumentError` if a lease has other terms than a generator asks for."""
    from .._instance_id import as_instance_id

    for name, value in options.items():
        if name == "machine" or value is None:
            continue
        asked = as_instance_id(value) if name == "instance_id" else value
        found = getattr(lease._options if name in LEASE_TERMS else lease.distributor, name)
        if asked != found:
            expected = f"{found}, with which the machine id of {lease.namespace!r} is leased"
            raise InvalidArgumentError(name, value, expected=expected)


def sharded(layout: ShardedLayout, options: NamedSharded) -> GeneratorSpec[ShardedId]:
    """Return the spec of a `ShardedId`."""
    from ..snowflake import ShardedId
    from ..snowflake._sharded_id import LANE_BITS

    sequence, rest = _split(options, SEQUENCE)

    def make(host: IdProvider, name: str) -> ShardedId:
        grants = getattr(host._store, "sequence_distributor", None)
        if grants is None:
            what = "no sequences of a second: those of aiocosid.stores.redis have them"
            raise UnsupportedByStoreError(type(host._store).__name__, what)
        sequence.setdefault("max_sequence", layout.max_sequence)
        distributor = grants(namespace=host.namespace, name=name, **sequence)
        all_options = host._with_defaults(rest)
        if rest.get("on_unavailable") == "lane" and rest.get("lane") is None:
            all_options["lane"] = host._shared_lease(f"{host.namespace}.lane", LANE_BITS, {})
        return ShardedId(distributor, layout=layout, clock=host._clock, **all_options)

    detail = f"layout {layout!r} and sharding_id {options.get('sharding_id', 0)}"
    return GeneratorSpec(ShardedId.__name__, detail, make)


# Ids of this process.


def uuid7() -> GeneratorSpec[Uuid7Id]:
    """Return the spec of a `Uuid7Id`."""
    from ..generators import Uuid7Id

    def make(host: IdProvider, name: str) -> Uuid7Id:
        return Uuid7Id(namespace=host.namespace, name=name, clock=host._clock)

    return GeneratorSpec(Uuid7Id.__name__, NOTHING, make, is_text=True)


def counter() -> GeneratorSpec[CounterId]:
    """Return the spec of a `CounterId`, of which a provider has one for each name, for good."""
    from ..generators import CounterId

    def make(host: IdProvider, name: str) -> CounterId:
        found: CounterId | None = host._counters.get(name)
        if found is None:
            found = CounterId(namespace=host.namespace, name=name, clock=host._clock)
            host._counters[name] = found
        return found

    return GeneratorSpec(CounterId.__name__, NOTHING, make)


def _refuse(_host: IdProvider, _name: str) -> NoReturn:
    raise NotImplementedError


def _split(
    options: Mapping[str, Any], names: KeysView[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of these names, and the others."""
    chosen = {name: value for name, value in options.items() if name in names}
    return chosen, {name: value for name, value in options.items() if name not in names}
