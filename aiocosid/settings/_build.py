"""Builds what the settings describe; nothing is opened or sent.  All that does not fit is noted."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .._clock import SYSTEM_CLOCK
from .._text_generator import StringIdGenerator
from ..abc import MAX_ID, SHARE, AnyGenerator
from ..errors import CosIdError, InvalidArgumentError
from ..segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from ..snowflake import JAVASCRIPT_MAX_SAFE_ID, CosIdGenerator, SnowflakeId
from ._converters import converter_of
from ._layouts import check_layout, layout_of, text_of
from ._machines import Machines
from ._models import CosIdSettings, GroupedSettings, SegmentSettings, SnowflakeSettings
from ._shardings import sharding_of
from ._stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from ..abc import Clock, IdConverter, IdGenerator
    from ..errors._settings import SettingsProblem
    from ..events import Instrument
    from ..machine import MachineIdLease
    from ..sharding import Sharding
    from ..snowflake import CosIdText, SnowflakeLayout
    from ._models import ChainSettings, Settings
    from ._sources import Given

__all__ = ("LIMITS", "Built", "Builder", "Planned")

LIMITS: Final = {"int32": 2**31 - 1, "javascript": JAVASCRIPT_MAX_SAFE_ID, "int64": MAX_ID}

COUNTED: Final = {"wait_timeout", "ttl", "fetch_timeout"}
PREFETCHED: Final = COUNTED | {"safe_distance", "max_distance", "max_ids_ahead", "quiet_period"}


class Incomplete(Exception):  # noqa: N818 - no error: the problem is noted already
    """Something that is needed could not be built."""


@dataclass(slots=True)
class Planned:
    """One generator, built and not opened.

    Attributes:
        path: its table.
        name: by which it is asked for.
        section: its settings.
        namespace: of its counter or machine id.
        counter: its name there.
        store: the store's URL without secrets; empty without a store.
        generator: what a user gets.
        layout: of a Snowflake.
        text: of a CosIdGenerator.
        converter: how its numbers are written.
    """

    path: tuple[str, ...]
    name: str
    section: Any
    namespace: str
    counter: str
    store: str = ""
    generator: AnyGenerator | None = None
    layout: SnowflakeLayout | None = None
    text: CosIdText | None = None
    converter: IdConverter | None = None


@dataclass(slots=True)
class Built:
    """Everything.

    Attributes:
        generators: by name.
        shardings: by name.
        leases: of machine ids.
        stores: that have to be closed.
    """

    generators: dict[str, Planned] = field(default_factory=dict)
    shardings: dict[str, Sharding[Any]] = field(default_factory=dict)
    leases: list[MachineIdLease] = field(default_factory=list)
    stores: list[Any] = field(default_factory=list)


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
        self._stores = Stores(settings, self._note)
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
        built.leases = self._machines.leases
        built.stores = self._stores.opened
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
            key = error.argument.rpartition(".")[2].replace("-", "_")
            at = (*path, key) if key in type(section).model_fields else path
            self._note(at, str(error))
        except CosIdError as error:
            self._note(path, str(error))

    # One generator.

    def _complete(self, planned: Planned) -> None:
        section = planned.section
        match section:
            case SnowflakeSettings():
                make = self._snowflake(planned, section)
            case CosIdSettings():
                make = self._cosid(planned, section)
            case _:
                make = self._counted(planned, section)
        at = (*planned.path, "converter")
        if section.converter is not None and not isinstance(section, CosIdSettings):
            with self._noting(at, section.converter):
                planned.converter = converter_of(section.converter, planned, partial(self._at, at))
        generator = make()
        if planned.converter is not None:
            generator = StringIdGenerator(generator, planned.converter)
        planned.generator = generator

    def _at(self, path: tuple[str, ...], key: str, reason: str) -> None:
        self._note((*path, key), reason)

    def _store(self, planned: Planned) -> Any:  # noqa: ANN401 - a Store
        store, planned.store = self._stores.of(planned.path, planned.section)
        if store is None:
            raise Incomplete
        return store

    def _common(self, section: Any, names: Collection[str]) -> dict[str, Any]:  # noqa: ANN401 - of any kind
        told = {name: getattr(section, name) for name in names}
        told["close_timeout"] = section.close_timeout or self._settings.close_timeout
        return {**told, "instrument": self._instrument, "clock": self._clock}

    def _counted(self, planned: Planned, section: ChainSettings) -> Callable[[], Any]:
        is_segment = isinstance(section, SegmentSettings)
        told = self._common(section, COUNTED if is_segment else PREFETCHED)
        told["max_id"] = self._max_id(planned, section)
        store = self._store(planned)
        about = {
            "namespace": planned.namespace,
            "name": planned.counter,
            "offset": section.offset,
            "step": section.step,
        }
        if isinstance(section, GroupedSettings):
            zone = {"zone": section.zone}
            if section.pattern is not None:
                zone["pattern"] = section.pattern
            group_by = getattr(GroupBy, section.group_by)(**zone)
            if section.mode == "segment":
                told = {key: told[key] for key in told if key not in PREFETCHED - COUNTED}
            about |= {"group_by": group_by, "kind": section.mode}
            return partial(GroupedSegmentId, store, **about, **told)
        distributor = store.segment_distributor(**about)
        return partial(SegmentId if is_segment else SegmentChainId, distributor, **told)

    def _max_id(self, planned: Planned, section: ChainSettings) -> int:
        limit = LIMITS[section.limit or "int64"]
        if section.max_id is not None and section.max_id > limit:
            self._note((*planned.path, "max_id"), f"is {section.max_id}, above the limit {limit}")
        return min(section.max_id or MAX_ID, limit)

    def _snowflake(self, planned: Planned, section: SnowflakeSettings) -> Callable[[], IdGenerator]:
        at = (*planned.path, "layout")
        with self._noting(at, section.layout):
            planned.layout = layout_of(section.layout)
            check_layout(planned.layout, self._clock.now_ms())
        layout = planned.layout
        if layout is None:
            raise Incomplete
        limit = LIMITS[section.limit or "int64"]
        if layout.max_id > limit:
            reason = f"is {section.limit}, at most {limit}, but ids of {layout!r} go up to "
            self._note((*planned.path, "limit"), f"{reason}{layout.max_id}")
        told = self._stamped(section)
        lease = self._lease(planned, layout.machine_bits)
        return partial(SnowflakeId, lease, name=planned.counter, layout=layout, **told)

    def _cosid(self, planned: Planned, section: CosIdSettings) -> Callable[[], AnyGenerator]:
        for key in ("converter", "limit"):
            if getattr(section, key) is not None:
                self._note((*planned.path, key), "has no place here: text says how ids are written")
        text = planned.text = text_of(section)
        told = self._stamped(section)
        lease = self._lease(planned, text.layout.machine_bits)
        return partial(CosIdGenerator, lease, name=planned.counter, text=text, **told)

    def _stamped(self, section: SnowflakeSettings | CosIdSettings) -> dict[str, Any]:
        told = self._common(section, {"wait_timeout", "sequence_reset_threshold"})
        for name in ("broken_threshold", "max_forward_jump"):
            value = getattr(section, name)
            told[name] = None if value is None or value == float("inf") else value
        return told

    def _lease(self, planned: Planned, bits: int) -> MachineIdLease:
        store = self._store(planned) if self._settings.machine.source == "store" else None
        if store is None and planned.section.store is not None:
            self._note((*planned.path, "store"), "is not used: the machine id needs no store")
        lease = self._machines.lease(planned, store, bits)
        if lease is None:
            raise Incomplete
        return lease
