"""The command that checks whether a store is fit for use."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter as Tally
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..abc import ServerInfo
from ..errors import (
    CosIdError,
    InvalidSettingsError,
    MissingExtraError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from ..machine import MachineIdLease
from ..stores.inspection import label_of, parts_of, read_store
from ._exit import PROGRAM, ExitCode, one_line, redacted
from ._findings import Finding, Status, failed, judge_reading, judge_server
from ._options import DEFAULT_TIMEOUT, AsText, StoreUrl, Timeout
from ._output import TextFormat, write, write_json
from ._session import StoreSession
from ._stores import ChosenStore, chosen_store, named_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..abc import Store

__all__ = ("doctor",)

NAMESPACE: Final = "aiocosid-doctor"  # for a trial only
TRIAL_BITS: Final = 10
INDENT: Final = 22  # columns for status and check

DRIVERS: Final = {
    "etcd": "aetcd",
    "http": "httpx",
    "mysql": "asyncmy",
    "nats": "nats-py",
    "postgres": "asyncpg",
    "redis": "redis",
    "remote": "httpx",
    "sqlalchemy": "sqlalchemy",
    "sqlite": "aiosqlite",
    "zookeeper": "kazoo",
}
"""The distribution that each module of `aiocosid.stores` needs."""

COLORS: Final = {
    Status.OK: typer.colors.GREEN,
    Status.WARNING: typer.colors.YELLOW,
    Status.FAILED: typer.colors.RED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checkup:
    """What to check of each store.

    Attributes:
        timeout: seconds for one call.
        writes: whether to test writing.
        limits: the highest id of counters, by name.
    """

    timeout: float
    writes: bool
    limits: dict[str, int] = field(default_factory=dict[str, int])


def doctor(
    *,
    store: StoreUrl = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Check a TOML file, and all stores that it names."),
    ] = None,
    write_trial: Annotated[
        bool,
        typer.Option(
            "--write",
            help=f"Also take an id and a machine id (leaves test data in namespace {NAMESPACE}).",
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 on warnings, too.")
    ] = False,
    output: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Check whether a store is fit for use: run this first.

    It checks the connection, durability, clocks, permissions, machine ids and counters.  It uses no
    ids, and writes nothing without --write.  The exit code is 1 if a check fails.
    """
    checkup = _Checkup(timeout=timeout, writes=write_trial)
    found: list[Finding] = []
    for each in _examine(store, config, checkup):
        clean = replace(each, text=_clean(each.text), remedy=_clean(each.remedy))
        if output is TextFormat.TEXT:
            _write_finding(clean, found)
        found.append(clean)
    worst = max((each.status for each in found), key=[*Status].index)
    tally = Tally(each.status for each in found)
    if output is TextFormat.JSON:
        write_json({"status": worst, "findings": [asdict(each) for each in found]})
    else:
        write(", ".join(f"{tally[each]} {each}" for each in Status if tally[each]) + "\n")
    if worst is Status.FAILED or (strict and tally[Status.WARNING]):
        raise typer.Exit(ExitCode.FAILED)


def _clean(text: str) -> str:
    return one_line(redacted(text))


def _write_finding(each: Finding, before: list[Finding]) -> None:
    if each.store and (not before or before[-1].store != each.store):
        write(f"{_clean(each.store)}\n")
    status = f"{each.status:<8}"
    text = f"{each.text.rstrip('.')}; {each.remedy}" if each.remedy else each.text
    if sys.stdout.isatty():
        room = max(get_terminal_size().columns - INDENT, INDENT)
        text = f"\n{'':{INDENT}}".join(
            wrap(text, room, break_long_words=False, break_on_hyphens=False)
        )
        if "NO_COLOR" not in os.environ:
            status = typer.style(status, fg=COLORS.get(each.status))
    write(f"{status} {each.check:<12} {text}\n")


def _examine(store: str | None, config: str | None, checkup: _Checkup) -> Iterator[Finding]:
    text = f"{PROGRAM} {version(PROGRAM)}, Python {platform.python_version()}"
    yield Finding(check="versions", status=Status.OK, text=text)
    try:
        if named_url(store, config) is not None:
            yield from _examine_store(chosen_store(store, config), checkup)
            return
        from ..provider.settings import check_settings, make_stores

        report, stores = check_settings(config), make_stores(config)
    except InvalidSettingsError as error:
        for problem in error.problems:
            yield Finding(check="settings", status=Status.FAILED, text=str(problem))
        return
    for warning in report.warnings:
        yield Finding(check="settings", status=Status.WARNING, text=str(warning))
    if not report.warnings:
        source = config or "the environment"
        text = f"{source} describes {len(report.generators)} generators"
        yield Finding(check="settings", status=Status.OK, text=text)
    for generator in report.generators:
        if generator.max_id is not None:
            known = checkup.limits.get(generator.counter, generator.max_id)
            checkup.limits[generator.counter] = min(known, generator.max_id)
    for each in stores:
        yield from _examine_store(ChosenStore(label_of(each), partial(_same, each)), checkup)


def _same(store: Store) -> Store:
    return store


def _driver_of(store: Store) -> str:
    """Return the driver of a store with its version; empty for none, or one that is not known."""
    name = DRIVERS.get(type(store).__module__.removeprefix(f"{PROGRAM}.stores."), "")
    try:
        return f"{name} {version(name)}" if name else ""
    except PackageNotFoundError:  # a server on a Unix socket needs none
        return ""


def _examine_store(chosen: ChosenStore, checkup: _Checkup) -> Iterator[Finding]:
    try:
        session = StoreSession(chosen, timeout=checkup.timeout)
    except MissingExtraError as error:
        yield failed("driver", error)
        return
    with session:
        cache = getattr(session.store, "cache", None)  # of a tiered store
        for each in parts_of(session.store):
            for finding in _examine_part(session, each, checkup, is_cache=each is cache):
                yield replace(finding, store=label_of(each))


def _examine_part(
    session: StoreSession, store: Store, checkup: _Checkup, *, is_cache: bool
) -> Iterator[Finding]:
    reading = session.run(read_store, store, within=checkup.timeout)
    facts = reading.server or ServerInfo(version="")  # unknown for custom stores
    if is_cache:  # a tiered store's cache may lose its data, and holds no machine ids
        facts = replace(facts, durability_warnings=(), unproved=())
    if silence := reading.silence:
        if isinstance(silence, str):
            silence = StoreUnavailableError("store", f"no answer within {checkup.timeout:g} s")
        # A tiered store works without its cache.
        finding = failed("server", silence)
        yield replace(finding, status=Status.WARNING) if is_cache else finding
        return
    yield from judge_server(facts, reading.took, _driver_of(store))
    if is_cache:
        return
    bits: dict[str, int | None] = {}
    for namespace in {each.namespace for each in reading.machines}:
        with suppress(CosIdError):  # what cannot be read is in the reading already
            bits[namespace] = session.call(store.machine_bits, namespace=namespace)
    yield from judge_reading(reading, checkup.limits, bits)
    if checkup.writes:
        needs_mark = not reading.is_initialized and "machines" not in reading.errors
        yield from _try_to_write(session, store, needs_mark=needs_mark)
    else:
        text = "not checked; use --write, which leaves test data"
        yield Finding(check="write", status=Status.SKIPPED, text=text)


def _try_to_write(session: StoreSession, store: Store, *, needs_mark: bool) -> Iterator[Finding]:
    trials = {
        "a counter": lambda: _take_id(store),
        "a machine id": lambda: _take_machine_id(store, session, needs_mark=needs_mark),
    }
    for what, trial in trials.items():
        try:
            session.call(trial)
        except UnsupportedByStoreError:
            text = f"this store does not support writing {what}"
            yield Finding(check="write", status=Status.SKIPPED, text=text)
        except CosIdError as error:
            yield failed("write", error)
        else:
            text = f"wrote {what} in namespace {NAMESPACE}"
            yield Finding(check="write", status=Status.OK, text=text)


async def _take_id(store: Store) -> None:
    counter = store.segment_distributor(namespace=NAMESPACE, name="trial", step=1)
    await counter.next_max_id(1)


async def _take_machine_id(store: Store, session: StoreSession, *, needs_mark: bool) -> None:
    distributor = store.machine_id_distributor(namespace=NAMESPACE)
    if needs_mark:  # only doctors hold machine ids of this namespace, and make no ids
        await store.initialize_namespace(namespace=NAMESPACE, confirm_no_holders=True)
    patience = session.timeout
    async with MachineIdLease(
        distributor,
        bits=TRIAL_BITS,
        start_timeout=patience,
        call_timeout=patience,
        close_timeout=patience,
    ):
        pass
