"""Builds what the settings describe; nothing is opened or sent.  All that does not fit is noted."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from .._life.clock import SYSTEM_CLOCK
from .._text_generator import StringIdGenerator
from ..abc import MAX_ID, SHARE
from ..errors import CosIdError, InvalidArgumentError
from ..generators import (
    CounterId,
    IntegerIdGenerator,
    UncertaintyIdGenerator,
    Uuid4Id,
    Uuid7Id,
)
from ..segment import (
    GroupedSegmentId,
    LeafSegmentId,
    SegmentChainId,
    SegmentId,
)
from ..snowflake import CachedSnowflakeId, CosIdGenerator, ShardedId, SnowflakeId
from ._converters import converter_of, date_of
from ._generators import (
    CachedSettings,
    ChainSettings,
    CosIdSettings,
    GroupedSettings,
    IntegerSettings,
    LeafSettings,
    OwnGeneratorSettings,
    SegmentSettings,
    ShardedSettings,
    SnowflakeSettings,
    UncertaintySettings,
    UuidSettings,
)
from ._machines import Machines
from ._own import make_generator
from ._parts import (
    check_layout,
    group_by_of,
    layout_of,
    sequences_of,
    sharded_layout_of,
    text_of,
)
from ._places import placed
from ._planned import LIMITS, Planned, example_of
from ._sharding import sharding_of
from ._stores import Stores

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from ..abc import Clock, IdConverter, IdGenerator
    from ..errors._general import SettingsProblem
    from ..events import Instrument
    from ..machine import MachineIdLease
    from ..sharding import Sharding
    from ._models import Settings
    from ._sources import Given

__all__ = ("Builder", "Built")

ELSEWHERE: Final = {
    *(UuidSettings.model_fields.keys() - {"wait_timeout"}),  # what all kinds have
    *("step", "offset", "max_id", "layout"),
    *("text", "zone", "pad_start", "timestamp_bits", "machine_bits", "sequence_bits"),
}
"""Keys that are of a generator's counter, layout or text; the others are handed on to itself."""

LOCAL: Final[dict[str, type[Any]]] = {"uuid4": Uuid4Id, "uuid7": Uuid7Id, "counter": CounterId}
"""What needs nothing but this process."""

STORED: Final = ("limit", "rate", "store", "wait_timeout", "close_timeout")
UUID: Final = ("converter", *STORED), "a UUID is a text, which this process makes"
INSIDE: Final = ("namespace", "name", *STORED), "it goes into inner"
NOTHING: Final = (), ""
NO_PLACE: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "cosid": (("converter", "limit"), "text writes the ids"),
    "uuid4": UUID,
    "uuid7": UUID,
    "counter": (STORED, "the counter is in this process"),
    "int32": INSIDE,
    "uncertainty": INSIDE,
    "own": (("namespace", "name", *STORED), "make and options say what it is"),
}
"""Of what all kinds have, the keys that a kind does not have, and why."""

UNUSED_STORE: Final = "is not used: the machine id needs no store"
WRAPPING: Final = IntegerSettings | UncertaintySettings
INT32_BITS: Final = 31
LANE_BITS: Final = 6  # 64 lanes
OPTIONS: Final = {
    "segment": SegmentSettings.model_fields.keys() - ELSEWHERE,
    "chain": ChainSettings.model_fields.keys() - ELSEWHERE,
    "leaf": LeafSettings.model_fields.keys() - ELSEWHERE,
    "snowflake": SnowflakeSettings.model_fields.keys() - ELSEWHERE,
    "cached": CachedSettings.model_fields.keys() - ELSEWHERE,
    "cosid": CosIdSettings.model_fields.keys() - ELSEWHERE,
}


class Incomplete(Exception):  # noqa: N818 - no error: the problem is noted already
    """Something that is needed could not be built."""


@dataclass(slots=True)
class Built:
    """Everything.

    Attributes:
        generators: by name.
        shardings: by name.
        leases: of machine ids.
        stores: that have to be closed.
        borrowed: stores that were given, and stay open.
    """

    generators: dict[str, Planned] = field(default_factory=dict)
    shardings: dict[str, Sharding[Any]] = field(default_factory=dict)
    leases: list[MachineIdLease] = field(default_factory=list)
    stores: list[Any] = field(default_factory=list)
    borrowed: list[Any] = field(default_factory=list)


class Builder:
    """Builds, and notes what does not fit.

    Attributes:
        problems: what did not fit.
    """

    def __init__(
        self,
        settings: Settings,
        given: Given,
        *,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
        rehearsal: bool = False,
        broken: Collection[str] = (),
    ) -> None:
        """Look at settings.

        Args:
            settings: what to build.
            given: where they came from.
            instrument: receives the events of all generators.
            clock: time; the system's by default.
            rehearsal: whether this process is not the one that will open them.
            broken: generators that were left out, as something is wrong with them already.
        """
        self.problems: list[SettingsProblem] = []
        self._settings = settings
        self._given = given
        self._instrument = instrument
        self._clock = clock or SYSTEM_CLOCK
        self._broken = broken
        self._stores = Stores(settings, self._note, instrument=instrument, clock=self._clock)
        self._machines = Machines(
            settings, self._note, instrument=instrument, clock=clock, rehearsal=rehearsal
        )

    def build(self) -> Built:
        """Build everything that can be built."""
        built = Built()
        for path, name, section in self._sections():
            if name in built.generators:
                self._note(path, "is the default generator, which [share] describes already")
                continue
            planned = self._planned(path, name, section)
            built.generators[name] = planned
            with self._noting(path, section):
                self._complete(planned)
        for name, sharding in self._settings.sharding.items():
            path = ("sharding", name)
            with self._noting(path, sharding):
                made = sharding_of(sharding, built.generators, self._broken)
                if made is not None:
                    built.shardings[name] = made
        self._stores.check_unused()
        self._machines.check_unused()
        built.leases = self._machines.leases
        built.stores = self._stores.opened
        built.borrowed = self._stores.borrowed
        return built

    def _sections(self) -> Generator[tuple[tuple[str, ...], str, Any]]:
        if self._settings.share is not None:
            yield ("share",), SHARE, self._settings.share
        for name, section in self._settings.generators.items():
            yield ("generators", name), name, section

    def _planned(self, path: tuple[str, ...], name: str, section: Any) -> Planned:  # noqa: ANN401 - of any kind
        namespace = section.namespace or self._settings.namespace
        return Planned(path, name, section, namespace, section.name or name)

    def _note(self, path: tuple[str, ...], reason: str) -> None:
        self.problems.append(self._given.problem(path, reason))

    @contextmanager
    def _noting(self, path: tuple[str, ...], section: Any) -> Generator[None]:  # noqa: ANN401 - of any kind
        """Note what is raised within, at the key that it is about."""
        try:
            yield
        except Incomplete:
            pass
        except InvalidArgumentError as error:
            self._note(*placed(error, path, section))
        except CosIdError as error:
            self._note(path, str(error))

    # One generator.

    def _complete(self, planned: Planned) -> None:
        """Build it; each part by itself, so that what is wrong in several is told of all."""
        section = planned.section
        if isinstance(section, WRAPPING):
            planned.inner = self._inside(planned)
        with self._noting((*planned.path, "layout"), getattr(section, "layout", None)):
            if isinstance(section, SnowflakeSettings | CachedSettings):
                layout = layout_of(section.layout)
                check_layout(layout, self._clock.now_ms())
                planned.layout = layout
        with self._noting(planned.path, section):
            if isinstance(section, ShardedSettings):
                planned.sharded = sharded_layout_of(section, self._clock.now_ms())
        with self._noting(planned.path, section):
            self._check(planned)
        at = (*planned.path, "converter")
        with self._noting(at, section.converter):
            has_place = "converter" not in NO_PLACE.get(section.kind, NOTHING)[0]
            if section.converter is not None and has_place:
                planned.converter = self._converter(at, section.converter, planned)
        with self._noting(at, section.converter):
            planned.example = example_of(planned, self._clock.now_ms())
        generator = self._made(planned)
        if planned.converter is not None:
            generator = StringIdGenerator(generator, planned.converter)
        planned.generator = generator

    def _converter(self, path: tuple[str, ...], section: Any, planned: Planned) -> IdConverter:  # noqa: ANN401 - ConverterSettings
        date = None
        with self._noting((*path, "date_prefix"), section.date_prefix):
            if section.date_prefix is not None:
                date = date_of(section.date_prefix)
        return converter_of(section, planned, partial(self._at, path), date=date)

    def _check(self, planned: Planned) -> None:
        section, limit = planned.section, LIMITS[planned.section.limit or "int64"]
        keys, reason = NO_PLACE.get(section.kind, NOTHING)
        for key in keys:
            if getattr(section, key) != SnowflakeSettings.model_fields[key].default:  # as of all
                self._note((*planned.path, key), f"has no place here: {reason}")
        if section.kind in LOCAL or isinstance(section, WRAPPING | OwnGeneratorSettings):
            return
        if isinstance(section, CosIdSettings):
            planned.text = text_of(section)
        elif isinstance(section, SnowflakeSettings | CachedSettings | ShardedSettings):
            if planned.fields is not None and planned.fields.max_id > limit:
                about = f"{planned.fields!r} goes up to {planned.fields.max_id}"
                reason = f"is {section.limit}, which ends at {limit}, but {about}"
                self._note((*planned.path, "limit"), reason)
        else:
            self._check_counted(planned.path, section, limit)
        if isinstance(section, GroupedSettings):
            planned.group_by = group_by_of(section)

    def _check_counted(self, path: tuple[str, ...], section: Any, limit: int) -> None:  # noqa: ANN401 - of any kind
        top = section.max_id or limit
        if top > limit:
            reason = f"is {top}, above the limit {limit} of {section.limit}"
            self._note((*path, "max_id"), reason)
        elif section.offset >= top:
            what = "max_id" if section.max_id else f"the last id of {section.limit or 'int64'}"
            reason = f"is {section.offset}; it has to be below {what}, {top}: no id is left else"
            self._note((*path, "offset"), reason)
        if getattr(section, "mode", "chain") == "segment":
            for key in sorted(section.model_fields_set & (OPTIONS["chain"] - OPTIONS["segment"])):
                self._note((*path, key), "goes with mode = 'chain'")

    def _at(self, path: tuple[str, ...], key: str, reason: str) -> None:
        self._note((*path, key), reason)

    def _store(self, planned: Planned) -> Any:  # noqa: ANN401 - a Store
        store, planned.store = self._stores.of(planned.path, planned.section.store)
        if store is None:
            raise Incomplete
        return store

    def _common(self, section: Any, names: Collection[str]) -> dict[str, Any]:  # noqa: ANN401 - of any kind
        told = {name: getattr(section, name) for name in names}
        told["close_timeout"] = section.close_timeout or self._settings.close_timeout
        return {**told, "instrument": self._instrument, "clock": self._clock}

    def _made(self, planned: Planned) -> Any:  # noqa: ANN401 - of any kind
        section, name = planned.section, planned.counter
        if planned.inner is not None:
            return self._around(planned, planned.inner)
        if section.kind in LOCAL:
            local = LOCAL[section.kind]
            return local(namespace=planned.namespace, name=name, clock=self._clock)
        if isinstance(section, SnowflakeSettings | CachedSettings | CosIdSettings):
            lease, told = self._lease(planned), self._stamped(section)
            if planned.text is not None:
                return CosIdGenerator(lease, name=name, text=planned.text, **told)
            if planned.layout is not None:
                kind = CachedSnowflakeId if isinstance(section, CachedSettings) else SnowflakeId
                return kind(lease, name=name, layout=planned.layout, **told)
        if isinstance(section, ShardedSettings):
            return self._sharded(planned, section)
        is_own = isinstance(section, OwnGeneratorSettings)
        return make_generator(section) if is_own else self._counted(planned, section)

    def _inside(self, planned: Planned) -> Planned:
        """Build the generator inside of another one, as far as it can be built."""
        section = planned.section.inner
        inner = self._planned((*planned.path, "inner"), planned.name, section)
        if section.converter is not None:
            self._note((*inner.path, "converter"), "has no place here: it goes around the whole")
        with self._noting(inner.path, section):
            self._complete(inner)
        return inner

    def _around(self, planned: Planned, inner: Planned) -> IdGenerator:
        generator: Any = inner.generator
        if generator is None or inner.section.converter is not None:
            raise Incomplete
        spare = getattr(planned.section, "bits", 63 - INT32_BITS)
        highest = (1 << 63 - spare) - 1
        if int(inner.example) > highest:
            reason = f"makes ids as {inner.example} now, and the highest one that fits is {highest}"
            self._note(inner.path, reason)
        if isinstance(planned.section, IntegerSettings):
            return IntegerIdGenerator(generator)
        return UncertaintyIdGenerator(generator, spare)

    def _sharded(self, planned: Planned, section: ShardedSettings) -> ShardedId:
        store, lane = self._store(planned), None
        if planned.sharded is None:
            raise Incomplete
        distributor = sequences_of(store, planned)
        if section.on_unavailable == "lane":
            lane = self._lane(planned, section)
        elif section.lane_store is not None:
            self._note((*planned.path, "lane_store"), "goes with on_unavailable = 'lane'")
        told = self._common(section, {"sharding_id", "on_unavailable", "batch", "nodes"})
        patience = section.broken_threshold
        told |= {"wait_timeout": section.wait_timeout, "lane": lane}
        told["broken_threshold"] = None if patience == inf else patience
        return ShardedId(distributor, layout=planned.sharded, **told)

    def _lane(self, planned: Planned, section: ShardedSettings) -> MachineIdLease:
        """Return what lanes take their numbers from: machine ids of a namespace of their own."""
        given, store, place = section.lane_store, None, ""
        if self._settings.machine.source == "store":
            given, key = (section.store, "store") if given is None else (given, "lane_store")
            store, _ = self._stores.of(planned.path, given, key)
            place = self._stores.place(given)
        elif given is not None:
            self._note((*planned.path, "lane_store"), UNUSED_STORE)
        lanes = replace(planned, namespace=f"{planned.namespace}.lane")
        lane = self._machines.lease(lanes, place, store, LANE_BITS)
        if lane is None:
            raise Incomplete
        return lane

    def _counted(self, planned: Planned, section: Any) -> Any:  # noqa: ANN401 - of any kind
        mode = section.mode if isinstance(section, GroupedSettings) else section.kind
        told = self._common(section, OPTIONS[mode])
        told["max_id"] = min(section.max_id or MAX_ID, LIMITS[section.limit or "int64"])
        store = self._store(planned)
        about = {
            "namespace": planned.namespace,
            "name": planned.counter,
            "offset": section.offset,
            "step": section.step,
        }
        if isinstance(section, GroupedSettings):
            if planned.group_by is None:
                raise Incomplete
            about |= {"group_by": planned.group_by, "kind": mode, "max_groups": section.max_groups}
            return GroupedSegmentId(store, **about, **told)
        distributor = store.segment_distributor(**about)
        if isinstance(section, LeafSettings):
            return LeafSegmentId(distributor, **told)
        return (SegmentId if mode == "segment" else SegmentChainId)(distributor, **told)

    def _stamped(
        self, section: SnowflakeSettings | CachedSettings | CosIdSettings
    ) -> dict[str, Any]:
        told = self._common(section, OPTIONS[section.kind])
        for name in ("broken_threshold", "max_forward_jump"):
            value = getattr(section, name)
            told[name] = None if value == inf else value
        return told

    def _lease(self, planned: Planned) -> MachineIdLease:
        section, store, place = planned.section, None, ""
        if self._settings.machine.source == "store":
            store, planned.store = self._stores.of(planned.path, section.store)
            place = planned.place = self._stores.place(section.store)
            if not place:
                raise Incomplete
        elif section.store is not None:
            self._note((*planned.path, "store"), UNUSED_STORE)
        fields, lease = planned.fields, None
        if fields is not None:
            lease = self._machines.lease(planned, place, store, fields.machine_bits)
        if lease is None:
            raise Incomplete
        return lease
