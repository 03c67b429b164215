"""Reports what settings would build, with warnings about what is probably not meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._dates import iso_text
from .._life.clock import SYSTEM_CLOCK
from ._load import built
from ._warnings import warnings_of

if TYPE_CHECKING:
    from ..abc import Clock
    from ..errors._general import SettingsProblem
    from ._load import Source
    from ._planned import Planned

__all__ = ("GeneratorReport", "SettingsReport", "ShardingReport", "check_settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorReport:
    """One generator that would be built.

    Attributes:
        name: by which it is asked for.
        kind: its kind.
        store: where its counter or machine id lies, without secrets; empty without a store.
        counter: ``namespace.name``; empty for a generator of the user's.
        step: ids per segment; None if it has none.
        layout: how a Snowflake is put together; empty for others.
        ends: the start of its last tick, ISO 8601 in UTC; empty for others.
        converter: the type of what writes its ids; empty for numbers.
        example: an id of now; of UUIDs any one; empty for a generator of the user's.
        length: how many characters the example has.
    """

    name: str
    kind: str
    store: str
    counter: str
    step: int | None
    layout: str
    ends: str
    converter: str
    example: str
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingReport:
    """One sharding that would be built.

    Attributes:
        name: by which it is asked for.
        kind: its class.
        nodes: how many.
    """

    name: str
    kind: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReport:
    """What `configure` would build.

    Attributes:
        generators: in the order of the settings.
        sharding: likewise.
        warnings: settings that can be built, but are probably not what was meant.
    """

    generators: tuple[GeneratorReport, ...]
    sharding: tuple[ShardingReport, ...]
    warnings: tuple[SettingsProblem, ...]


def check_settings(source: Source = None, *, clock: Clock | None = None) -> SettingsReport:
    """Return what `configure` would build from the same source; open and send nothing.

    Args:
        source: as for `configure`.
        clock: time; the system's by default.

    Raises:
        InvalidSettingsError: nothing can be built; the error lists every problem.
        MissingExtraError: the extra ``settings``, or a store's driver, is not installed.
    """
    now_ms = (clock or SYSTEM_CLOCK).now_ms()
    _, given, parts = built(source, clock=clock, rehearsal=True)
    planned = parts.generators.values()
    return SettingsReport(
        generators=tuple(map(_reported, planned)),
        sharding=tuple(
            ShardingReport(name=name, kind=type(each).__name__, nodes=len(each.effective_nodes))
            for name, each in parts.shardings.items()
        ),
        warnings=(
            *given.environment.unknown,
            *(given.problem(path, reason) for path, reason in warnings_of(planned, now_ms)),
        ),
    )


def _reported(planned: Planned) -> GeneratorReport:
    source = planned.inner or planned  # whose counter, store and layout it is
    fields, section = source.fields, planned.section
    return GeneratorReport(
        name=planned.name,
        kind=section.kind,
        store=source.store,
        counter="" if section.kind in {"own", "remote"} else f"{source.namespace}.{source.counter}",
        step=getattr(source.section, "step", None),
        layout="" if fields is None else repr(fields),
        ends="" if fields is None else iso_text(fields.ms_of(fields.last_tick)),
        converter=_writing(planned),
        example=planned.example,
        length=len(planned.example),
    )


def _writing(planned: Planned) -> str:
    """Return the type of the converter; for one of the user's, the name of its ``make``."""
    section = planned.section
    if planned.text is not None:
        return str(section.text)
    if section.converter is None:
        return ""
    make = section.converter.make
    return str(section.converter.type if make is None else getattr(make, "__qualname__", make))
