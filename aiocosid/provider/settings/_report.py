"""Reports what settings would build, with warnings about probable mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..._life.clock import SYSTEM_CLOCK
from ...abc.dates import iso_text
from ._load import built
from ._warnings import highest_of, server_warnings_of, warnings_of

if TYPE_CHECKING:
    from ...abc import Clock
    from ...errors.base import SettingsProblem
    from ._load import Source
    from ._models import Settings
    from ._planned import Planned

__all__ = ("GeneratorReport", "ServerReport", "SettingsReport", "ShardingReport", "check_settings")

DIALECTS: Final = ("cosid", "leaf", "tinyid", "resp")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorReport:
    """One generator that would be built.

    Attributes:
        name: its name in the provider.
        kind: its kind.
        store: the store of its counter or machine id, without secrets; empty without a store.
        counter: ``namespace.name``; empty for a user's own generator.
        step: ids per segment; None if it has none.
        max_id: the highest id that its counter may reach; None if it has no counter.
        layout: a Snowflake's layout; empty for other kinds.
        ends: the start of the layout's last tick, ISO 8601 in UTC; empty for other kinds.
        converter: the type of its converter; empty for numbers.
        example: an id of the present time, or any UUID; empty for a user's own generator.
        length: how many characters the example has.
    """

    name: str
    kind: str
    store: str
    counter: str
    step: int | None
    max_id: int | None
    layout: str
    ends: str
    converter: str
    example: str
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingReport:
    """One sharding that would be built.

    Attributes:
        name: its name in the provider.
        kind: its class.
        nodes: the number of nodes.
    """

    name: str
    kind: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """The id service that would run.

    Attributes:
        listen: the addresses on which it listens.
        workers: the number of processes.
        tls: whether TCP is encrypted.
        dialects: the other systems' protocols that it speaks.
        tokens: the names of the tokens' holders.
    """

    listen: tuple[str, ...]
    workers: int
    tls: bool
    dialects: tuple[str, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReport:
    """What `configure` would build.

    Attributes:
        generators: the generators, in the order of the settings.
        sharding: the shardings, in the order of the settings.
        warnings: settings that can be built, but are probably mistakes.
        server: the id service; None if the settings do not mention it.
    """

    generators: tuple[GeneratorReport, ...]
    sharding: tuple[ShardingReport, ...]
    warnings: tuple[SettingsProblem, ...]
    server: ServerReport | None = None


def check_settings(source: Source = None, *, clock: Clock | None = None) -> SettingsReport:
    """Return what `configure` would build from the same source; open and send nothing.

    Args:
        source: as for `configure`.
        clock: the time source; the system's clock by default.

    Raises:
        InvalidSettingsError: nothing can be built; the error lists every problem.
        MissingExtraError: the extra ``settings``, or a store's driver, is not installed.
    """
    now_ms = (clock or SYSTEM_CLOCK).now_ms()
    settings, given, parts = built(source, clock=clock, rehearsal=True)
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
            *(
                given.problem(path, reason)
                for path, reason in server_warnings_of(settings.server, now_ms)
            ),
        ),
        server=_server_report(settings) if "server" in settings.model_fields_set else None,
    )


def _server_report(settings: Settings) -> ServerReport:
    server = settings.server
    return ServerReport(
        listen=tuple(server.listen),
        workers=server.workers,
        tls=server.tls_certificate is not None,
        dialects=tuple(name for name in DIALECTS if getattr(server, name) is not None),
        tokens=tuple(dict.fromkeys(each.name for each in server.tokens)),
    )


def _reported(planned: Planned) -> GeneratorReport:
    source = planned.inner or planned  # the generator with the counter, store and layout
    fields, section = source.fields, planned.section
    return GeneratorReport(
        name=planned.name,
        kind=section.kind,
        store=source.store,
        counter="" if section.kind in {"own", "remote"} else f"{source.namespace}.{source.counter}",
        step=getattr(source.section, "step", None),
        max_id=highest_of(source) if hasattr(source.section, "max_id") else None,
        layout="" if fields is None else repr(fields),
        ends="" if fields is None else iso_text(fields.ms_of(fields.last_tick)),
        converter=_writing(planned),
        example=planned.example,
        length=len(planned.example),
    )


def _writing(planned: Planned) -> str:
    """Return the type of the converter; for a user's own, the name of its ``make``."""
    section = planned.section
    if planned.text is not None:
        return str(section.text)
    if section.converter is None:
        return ""
    make = section.converter.make
    return str(section.converter.type if make is None else getattr(make, "__qualname__", make))
