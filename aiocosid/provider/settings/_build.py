"""Builds what settings describe and collects all problems; opens and sends nothing."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ..._life.clock import SYSTEM_CLOCK
from ...abc import MAX_ID, SHARE
from ...abc.options import declared
from ...errors import CosIdError, InvalidArgumentError
from ...generators import IntegerIdGenerator, UncertaintyIdGenerator
from ...generators.text import StringIdGenerator
from ...segment import LeafSegmentId
from ...segment.options import OF_CHAINS
from ..kinds import KINDS
from ._converters import converter_of, date_of
from ._generators import (
    CachedSettings,
    CosIdSettings,
    GroupedSettings,
    IntegerSettings,
    OwnGeneratorSettings,
    ShardedSettings,
    SnowflakeSettings,
    UncertaintySettings,
)
from ._machines import Machines
from ._own import make_generator
from ._parts import (
    check_layout,
    group_by_of,
    layout_of,
    sharded_layout_of,
    text_of,
)
from ._places import placed
from ._planned import LIMITS, Planned, example_of
from ._sharding import sharding_of
from ._stores import Stores

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping

    from ...abc import Clock, IdConverter, IdGenerator, Store
    from ...abc.events import Instrument
    from ...compat.leaf import LeafTags
    from ...errors.base import SettingsProblem
    from ...generators import CounterId
    from ...machine import MachineIdLease
    from ...sharding import Sharding
    from ._models import LeafTagsSettings, Settings
    from ._sources import Given
    from ._values import StoreValue

__all__ = ("Builder", "Built")

STORED: Final = ("limit", "store", "wait_timeout", "close_timeout")
UUID: Final = ("converter", *STORED), "a UUID is a text, which this process makes"
INSIDE: Final = ("namespace", "name", *STORED), "it goes into inner"
NOTHING: Final = (), ""
NO_PLACE: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "cosid_text": (("converter", "limit"), "text writes the ids"),
    "uuid4": UUID,
    "uuid7": UUID,
    "counter": (STORED, "the counter is in this process"),
    "int32": INSIDE,
    "uncertainty": INSIDE,
    "own": (("namespace", "name", *STORED), "make and options say what it is"),
}
"""The common keys that a kind does not accept, and why."""

INT32_BITS: Final = 31
PARTS: Final = {
    "snowflake": ("layout", "layout"),
    "cached_snowflake": ("layout", "layout"),
    "cosid_text": ("text", "text"),
    "sharded": ("layout", "sharded"),
    "grouped": ("group_by", "group_by"),
}
"""The argument of a kind that must be built from settings first, and its attribute of `Planned`."""

STAMPED: Final = {"snowflake", "cached_snowflake", "cosid_text"}
STORELESS: Final = {*STAMPED, "uuid4", "uuid7", "counter"}
"""The kinds that have no counter in a store; the first of them lease machine ids there."""


class Incomplete(Exception):  # noqa: N818 - not an error: the problem is recorded
    """A part that the generator needs could not be built."""


@dataclass(slots=True)
class Built:
    """What the settings describe.

    Attributes:
        generators: the generators by name.
        shardings: the shardings by name.
        leases: the leases of machine ids.
        stores: the stores that the provider must close.
        borrowed: the stores that were passed as objects, which stay open.
        whole: all stores, with a tiered store in place of its parts.
        store: the store at the top of the settings.
        leaf_tags: the tags of Leaf's table; None if there are none.
    """

    generators: dict[str, Planned] = field(default_factory=dict)
    shardings: dict[str, Sharding[Any]] = field(default_factory=dict)
    leases: list[MachineIdLease] = field(default_factory=list)
    stores: list[Any] = field(default_factory=list)
    borrowed: list[Any] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)
    store: Store | None = None
    leaf_tags: LeafTags[LeafSegmentId] | None = None


class Builder:
    """Builds what the settings describe, and records each problem.

    Attributes:
        problems: the problems so far.
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
        """Prepare to build settings.

        Args:
            settings: what to build.
            given: the settings' source, for the places of problems.
            instrument: receives the events of all generators.
            clock: the time source; the system's clock by default.
            rehearsal: whether another process will open them, for example for a report.
            broken: the names of tables that were left out because their problems are already
                recorded.
        """
        self.problems: list[SettingsProblem] = []
        self.settings = settings
        self._given = given
        self.instrument = instrument
        self.clock = clock or SYSTEM_CLOCK
        self._broken = broken
        self.stores = Stores(settings, self._note, instrument=instrument, clock=self.clock)
        self.machines = Machines(
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
        self._check_random_bits(built.generators.values())
        for name, sharding in self.settings.sharding.items():
            path = ("sharding", name)
            with self._noting(path, sharding):
                algorithm = sharding_of(sharding, built.generators, self._broken)
                if algorithm is not None:
                    built.shardings[name] = algorithm
        built.leaf_tags = self._leaf_tags()
        self.stores.check_unused()
        if self.settings.store is not None:
            built.store = self.stores.of((), None)[0]
        self.machines.check_unused()
        built.leases = self.machines.leases
        built.stores = self.stores.opened
        built.borrowed, built.whole = self.stores.borrowed, self.stores.whole
        return built

    def _leaf_tags(self) -> LeafTags[LeafSegmentId] | None:
        """Return the tags of Leaf's table, if there are any; record any problem."""
        path, section = ("leaf_tags",), self.settings.leaf_tags
        if section is None:
            return None
        store, _ = self.stores.of(path, section.store)
        made: LeafTags[LeafSegmentId] | None = None
        with self._noting(path, section):
            if store is not None:
                made = self._tags_on(store, section)
        return made

    def _tags_on(self, store: Store, section: LeafTagsSettings) -> LeafTags[LeafSegmentId]:
        from ...compat.leaf import LeafStore, LeafTags

        if not isinstance(store, LeafStore):
            rule = "must be Leaf's, such as leaf+mysql://user:password@host/database"
            raise InvalidArgumentError("store", store, rule)
        close_timeout = self.settings.close_timeout
        options: dict[str, Any] = {"close_timeout": close_timeout, "clock": self.clock}
        make = partial(LeafSegmentId, instrument=self.instrument, **options)
        namespace, interval = self.settings.namespace, section.interval
        return LeafTags(store, make, namespace=namespace, interval=interval, **options)

    def _sections(self) -> Generator[tuple[tuple[str, ...], str, Any]]:
        if self.settings.share is not None:
            yield ("share",), SHARE, self.settings.share
        for name, section in self.settings.generators.items():
            yield ("generators", name), name, section

    def _planned(self, path: tuple[str, ...], name: str, section: Any) -> Planned:  # noqa: ANN401 - any kind
        namespace = section.namespace or self.settings.namespace
        return Planned(path, name, section, namespace, section.name or name)

    def _note(self, path: tuple[str, ...], reason: str) -> None:
        self.problems.append(self._given.problem(path, reason))

    @contextmanager
    def _noting(self, path: tuple[str, ...], section: Any) -> Generator[None]:  # noqa: ANN401 - any kind
        """Record an error that the block raises, at the key that caused it."""
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
        """Build the generator, part by part, so that each part's problems are recorded."""
        section, at = planned.section, (*planned.path, "converter")
        layout = getattr(section, "layout", None)
        of_layout = (*planned.path, "layout"), layout
        with self._noting(*((planned.path, section) if layout is None else of_layout)):
            self._add_part(planned)
        self._check(planned)
        with self._noting(at, section.converter):
            has_place = "converter" not in NO_PLACE.get(section.kind, NOTHING)[0]
            if section.converter is not None and has_place:
                planned.converter = self._converter(at, section.converter, planned)
            planned.example = example_of(planned, self.clock.now_ms())
        generator = self._generator(planned)
        if planned.converter is not None:
            generator = StringIdGenerator(generator, planned.converter)
        planned.generator = generator

    def _add_part(self, planned: Planned) -> None:
        """Build what its kind needs in addition to options."""
        section = planned.section
        match section:
            case SnowflakeSettings() | CachedSettings():
                layout = layout_of(section.layout)
                check_layout(layout, self.clock.now_ms())
                planned.layout = layout
            case ShardedSettings():
                planned.sharded = sharded_layout_of(section, self.clock.now_ms())
            case CosIdSettings():
                planned.text = text_of(section)
            case GroupedSettings():
                planned.group_by = group_by_of(section)
            case IntegerSettings() | UncertaintySettings():
                planned.inner = self._inside(planned)
            case _:
                pass

    def _check_random_bits(self, generators: Iterable[Planned]) -> None:
        """Record counters whose ids have random bits of several widths: such ids may be equal."""
        first: dict[tuple[str, str, str], tuple[int, Planned]] = {}
        for each in generators:
            bits, part = 0, each
            while part.inner is not None:
                bits, part = bits + getattr(part.section, "bits", 0), part.inner
            if part.made_store is None or part.group_by is not None:
                continue
            key = part.place, part.namespace, part.counter
            width, other = first.setdefault(key, (bits, each))
            if width != bits:
                self._note(
                    part.path,
                    f"adds {bits} random bits to the ids of counter {part.counter!r}, and "
                    f"{'.'.join(other.path)} adds {width}, so that ids may be equal; use another "
                    "name, or the same bits",
                )

    def _converter(self, path: tuple[str, ...], section: Any, planned: Planned) -> IdConverter:  # noqa: ANN401 - ConverterSettings
        date = None
        with self._noting((*path, "date_prefix"), section.date_prefix):
            if section.date_prefix is not None:
                date = date_of(section.date_prefix)
        return converter_of(section, planned, partial(self.at, path), date=date)

    def _check(self, planned: Planned) -> None:
        section, limit = planned.section, LIMITS[planned.section.limit or "int64"]
        keys, reason = NO_PLACE.get(section.kind, NOTHING)
        for key in keys:
            # The default of all kinds.
            if getattr(section, key) != SnowflakeSettings.model_fields[key].default:
                self.at(planned.path, key, f"has no place here: {reason}")
        lane_store = getattr(section, "lane_store", None)
        if lane_store is not None and section.on_unavailable != "lane":
            self.at(planned.path, "lane_store", "requires on_unavailable = 'lane'")
        if planned.fields is not None:
            if planned.text is None and planned.fields.max_id > limit:
                highest = f"{planned.fields!r} goes up to {planned.fields.max_id}"
                reason = f"is {section.limit}, which ends at {limit}, but {highest}"
                self.at(planned.path, "limit", reason)
        elif hasattr(section, "step"):
            self._check_counted(planned.path, section, limit)

    def _check_counted(self, path: tuple[str, ...], section: Any, limit: int) -> None:  # noqa: ANN401 - any kind
        top = section.max_id or limit
        if top > limit:
            self.at(path, "max_id", f"is {top}, above the limit {limit} of {section.limit}")
        elif section.offset >= top:
            what = "max_id" if section.max_id else f"the last id of {section.limit or 'int64'}"
            reason = f"must be below {what}, {top}, not {section.offset}: otherwise no id is left"
            self.at(path, "offset", reason)
        if getattr(section, "group_kind", "chain") == "segment":
            for key in sorted(section.model_fields_set & OF_CHAINS):
                self.at(path, key, "requires group_kind = 'chain'")

    def at(self, path: tuple[str, ...], key: str, reason: str) -> None:
        self._note((*path, key), reason)

    def _inside(self, planned: Planned) -> Planned:
        """Build the inner generator of another one, as far as possible."""
        section = planned.section.inner
        inner = self._planned((*planned.path, "inner"), planned.name, section)
        if section.converter is not None:
            self.at(inner.path, "converter", "has no place here: it goes around the whole")
        with self._noting(inner.path, section):
            self._complete(inner)
        return inner

    def _generator(self, planned: Planned) -> Any:  # noqa: ANN401 - any kind
        section = planned.section
        if planned.inner is not None:
            return self._around(planned, planned.inner)
        if isinstance(section, OwnGeneratorSettings):
            return make_generator(section)
        kind = KINDS[section.kind]
        if section.kind not in STORELESS:
            planned.made_store = self._store_of(planned)
        host = _Host(self, planned)
        options = self._options(section, declared(kind.options))
        if section.kind in PARTS:
            argument, attribute = PARTS[section.kind]
            options[argument] = getattr(planned, attribute)
            if options[argument] is None:  # already recorded; the store must be checked too
                if section.kind in STAMPED:
                    host.machine_store(planned, section.store, "store")
                raise Incomplete
        return kind(**options).make(host, planned.counter)

    def _store_of(self, planned: Planned) -> Store:
        store, planned.store = self.stores.of(planned.path, planned.section.store)
        if store is None:
            raise Incomplete
        if planned.section.kind == "sharded" and not hasattr(store, "sequence_distributor"):
            rule = "must be Redis, SQLite or memory: others do not grant sequences of a second"
            raise InvalidArgumentError("store", planned.store, rule)
        return store

    def _options(self, section: Any, names: Collection[str]) -> dict[str, Any]:  # noqa: ANN401 - any kind
        """Return the options that a kind takes from its settings, where inf stands for None."""
        values = {name: getattr(section, name) for name in names if hasattr(section, name)}
        options = {name: None if value == inf else value for name, value in values.items()}
        if "max_id" in names:
            most = getattr(section, "max_id", None) or MAX_ID
            options["max_id"] = min(most, LIMITS[section.limit or "int64"])
        if isinstance(section, GroupedSettings):
            options["group_kind"] = section.group_kind
            if section.group_kind == "segment":
                options = {name: value for name, value in options.items() if name not in OF_CHAINS}
        return options

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
        return UncertaintyIdGenerator(generator, spare, store=inner.made_store)


class _Host:
    """What a kind's spec takes from the settings, for one generator."""

    def __init__(self, builder: Builder, planned: Planned) -> None:
        self.namespace = planned.namespace
        self._builder = builder
        self._planned = planned
        self.clock = builder.clock
        self.counters: dict[str, CounterId] = {}
        self.floors: dict[tuple[str, str], Any] = {}
        self.store: Store = planned.made_store

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        builder, section = self._builder, self._planned.section
        close_timeout = section.close_timeout or builder.settings.close_timeout
        of_all = {"instrument": builder.instrument, "clock": self.clock}
        return {**options, "close_timeout": close_timeout, **of_all}

    def lease_for(self, bits: int, options: Mapping[str, Any]) -> MachineIdLease:
        del options  # in settings, [machine] has the terms of a lease
        return self._lease(self._planned, bits, self._planned.section.store, "store")

    def lane_lease(self, bits: int) -> MachineIdLease:
        planned, given, key = self._planned, self._planned.section.lane_store, "lane_store"
        if given is None and self._builder.settings.machine.source == "store":
            given, key = planned.section.store, "store"
        lanes = replace(planned, namespace=f"{planned.namespace}.lane")
        return self._lease(lanes, bits, given, key)

    def _lease(
        self, planned: Planned, bits: int, given: StoreValue | None, key: str
    ) -> MachineIdLease:
        store = self.machine_store(planned, given, key)
        lease = self._builder.machines.lease(planned, planned.place, store, bits)
        if lease is None:
            raise Incomplete
        return lease

    def machine_store(self, planned: Planned, given: StoreValue | None, key: str) -> Store | None:
        """Return the store of machine ids; None if there is none or it cannot be created."""
        builder = self._builder
        if builder.settings.machine.source != "store":
            if given is not None:
                builder.at(planned.path, key, "is not used: the machine id needs no store")
            return None
        store, planned.store = builder.stores.of(planned.path, given, key)
        planned.place = builder.stores.place(given)
        if not planned.place:
            raise Incomplete
        return store
