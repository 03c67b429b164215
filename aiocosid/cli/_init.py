"""The command that prepares a store: its tables, and the marker for machine ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .. import open_store
from ..abc import DEFAULT_SAFE_GUARD
from ..errors import InvalidArgumentError, MachineIdQuarantineError, UnsupportedByStoreError
from ..provider import OPTIONS
from ._exit import ExitCode, printable, redacted
from ._options import DEFAULT_STORE, DEFAULT_TIMEOUT, StoreUrl, Timeout, declared
from ._output import confirmed, has_terminal, progress_bar, write
from ._schema import SqlDialect, write_schema
from ._session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..abc import MachineMarker, Store

__all__ = ("init",)

MARGIN: Final = 5.0  # seconds that a quarantine is longer than the longest safe guard

QUESTION: Final = (
    "{} has no marker for machine ids: it is new, or it was emptied, restored or failed over.\n"
    "A process that was started before and still runs may hold a machine id in it; the next "
    "process would get the same one.\n"
    "Are you sure that no such process runs?"
)


@dataclass(frozen=True, slots=True)
class _Request:
    """The options for each store.

    Attributes:
        namespace: mark only this namespace; None for the store as a whole.
        is_sure: no process holds a machine id, so do not ask.
        waits: wait until no process can hold one, instead of asking.
        safe_guard: the longest safe guard in use, in seconds, or None.
    """

    namespace: str | None
    is_sure: bool
    waits: bool
    safe_guard: float | None


def init(
    *,
    store: StoreUrl = DEFAULT_STORE,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Initialise all stores of a TOML file instead."),
    ] = None,
    namespace: Annotated[
        str | None,
        declared(
            OPTIONS["namespace"],
            "--namespace",
            metavar="NAMESPACE",
            words="Mark only this {}, as on Redis Cluster (default: all).",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Do not ask: no process that was started before holds a machine id."
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until every undetected machine id has expired, instead of asking."
        ),
    ] = False,
    safe_guard: Annotated[
        float | None,
        declared(
            OPTIONS["safe_guard"],
            "--safe-guard",
            metavar="SECONDS",
            words="With --namespace or --wait, the longest of all processes there: {}.",
            show_default=f"the longest one stored, or {DEFAULT_SAFE_GUARD:g}",
        ),
    ] = None,
    sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the statements that create the tables; connect nowhere."),
    ] = False,
    dialect: Annotated[
        SqlDialect | None,
        typer.Option(
            metavar="|".join(SqlDialect), help="With --sql, the database (default: the store's)."
        ),
    ] = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create a store's tables, and mark it as initialised for machine ids.

    Run it once for each store, like a migration, and not at every start: a store that was emptied
    since must not be marked as complete.  It is safe to repeat; a store that is ready is not
    changed.
    """
    if sql:
        _print_schema(dialect, store, config)
        return
    if dialect is not None:
        raise InvalidArgumentError("--dialect", dialect.value, expected="left out without --sql")
    request = _Request(namespace, yes, wait, safe_guard)
    for where, make in _stores(store, config):
        with StoreSession(make, timeout=timeout, kind=where.partition(":")[0]) as session:
            _initialize(session, where, request)


def _print_schema(dialect: SqlDialect | None, url: str, config: str | None) -> None:
    if config is not None:
        raise InvalidArgumentError("--config", config, expected="left out with --sql")
    write_schema(dialect, url)


def _stores(url: str, config: str | None) -> list[tuple[str, Callable[[], Store]]]:
    """Return the stores with their URLs, without credentials."""
    if config is None:
        return [(redacted(url), lambda: open_store(url))]
    from ..settings import configured_stores

    return [(printable(shown), make) for shown, make in configured_stores(config)]


def _initialize(session: StoreSession, where: str, request: _Request) -> None:
    session.call(session.store.create_schema)
    try:
        markers = session.call(session.store.machine_markers, namespace=request.namespace)
    except UnsupportedByStoreError:  # it has counters only
        write(f"{printable(where)} is ready\n")
        return
    is_ready = _is_ready(session, markers, request)
    suffix = ", initialised for machine ids"
    if not is_ready and not request.is_sure:
        if request.waits:
            _wait(session, markers, where, request)
        else:
            _confirm(where)
    if request.namespace is not None:  # of one that is ready only the safe guard is stored
        mark = partial(session.store.mark_machines, namespace=request.namespace)
        session.call(mark, is_new=not is_ready, safe_guard=request.safe_guard)
        suffix = f", marked for the machine ids of namespace {request.namespace}"
    elif not is_ready:
        session.call(session.store.initialize)
    ready = f"{where} is ready{'' if is_ready else suffix}"
    write(f"{printable(ready)}\n")


def _is_ready(session: StoreSession, markers: Sequence[MachineMarker], request: _Request) -> bool:
    if request.namespace is not None:
        return bool(markers) and not any(each.is_quarantined for each in markers)
    return session.call(session.store.is_initialized)


def _confirm(where: str) -> None:
    """Ask for confirmation that no process holds a machine id; else end the command."""
    if not has_terminal():
        expected = (
            "given if there is no terminal to ask on, and no process that was started before holds "
            "a machine id in the store; or --wait"
        )
        raise InvalidArgumentError("--yes", False, expected=expected)
    if not confirmed(QUESTION.format(printable(where))):
        write(f"{printable(where)} was not changed\n")
        raise typer.Exit(ExitCode.FAILED)


def _wait(
    session: StoreSession, markers: Sequence[MachineMarker], where: str, request: _Request
) -> None:
    """Wait until every process that may hold a machine id has renewed it, or has lost it."""
    longest = (request.safe_guard or DEFAULT_SAFE_GUARD) + MARGIN
    left = max((each.seconds_left for each in markers), default=0.0)
    seconds = max(left, longest if request.safe_guard or not left else 0.0)
    if seconds == inf:
        namespace = request.namespace or ""
        raise MachineIdQuarantineError(where, namespace=namespace, seconds_left=seconds)
    with progress_bar(f"waiting {ceil(seconds)} s for older processes") as show:
        session.pause(seconds, on_progress=show)
