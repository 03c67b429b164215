"""The command that prepares a store: its tables, and the marker for machine ids."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from ..abc import DEFAULT_SAFE_GUARD
from ..errors import (
    InvalidArgumentError,
    MachineIdQuarantineError,
    StoreNotEmptyError,
    UnsupportedByStoreError,
)
from ..provider import OPTIONS
from ..stores.columns import highest_in_column
from ._exit import ExitCode, printable
from ._options import DEFAULT_TIMEOUT, StoreUrl, Timeout, declared
from ._output import NoTerminalError, confirmed, has_terminal, progress_bar, write
from ._schema import SqlDialect, dialect_of, write_schema
from ._session import StoreSession
from ._stores import chosen_store, chosen_stores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..abc import MachineMarker
    from ._stores import ChosenStore

__all__ = ("init",)

MARGIN: Final = 5.0  # seconds that a quarantine is longer than the longest safe guard

QUESTION: Final = (
    "{} has no marker for machine ids: it is new, or it was emptied, restored or failed over.\n"
    "A process that is still running may hold a machine id in it, which the next process would get "
    "as well.\n"
    "Are you sure that no such process is running?"
)

LOST: Final = (
    "{} has lost its counters. You gave the highest id of: {}. The ids of {} will be issued again, "
    "from 1.\nContinue?"
)

Floor: TypeAlias = int | str
"""The highest id that was handed out, or the column that has it."""


@dataclass(frozen=True, slots=True)
class _Request:
    """The options for each store.

    Attributes:
        namespace: write the marker of this namespace only; None for the store as a whole.
        says_yes: do not ask about a store that is empty.
        has_no_holders: a person has made sure that no process holds a machine id.
        waits: wait until no process can hold one, instead of asking.
        safe_guard: the longest safe guard in use, in seconds, or None.
        disposable: it is a store for tests, if this command makes it.
        floors: after a loss, the highest id that was handed out of each counter; None otherwise.
    """

    namespace: str | None
    says_yes: bool
    has_no_holders: bool
    waits: bool
    safe_guard: float | None
    disposable: bool
    floors: Mapping[str, Floor] | None


def init(
    *,
    store: StoreUrl = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Initialise all stores in a TOML file instead (default: AIOCOSID_CONFIG).",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        declared(
            OPTIONS["namespace"],
            "--namespace",
            metavar="NAMESPACE",
            words="Initialise only this {}: for machine ids on Redis Cluster. With --after-loss: "
            "the namespace of --floor's counters.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Do not ask whether a store without a marker is new."),
    ] = False,
    confirm_no_holders: Annotated[
        bool,
        typer.Option(
            "--confirm-no-holders",
            help="Skip the question: only if no process started earlier holds a machine id, and no "
            "counter is below an id already handed out.",
        ),
    ] = False,
    disposable: Annotated[
        bool,
        typer.Option(
            "--disposable",
            help="Create a store for tests: dropped tables are recreated, and ids may repeat.",
        ),
    ] = False,
    after_loss: Annotated[
        bool,
        typer.Option(
            "--after-loss",
            help="Recreate dropped tables; --floor says where a counter continues. Machine ids "
            "are handed out once all earlier leases have expired.",
        ),
    ] = False,
    floor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N", help="With --after-loss: the highest id that counter NAME handed out."
        ),
    ] = None,
    floor_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TABLE.COLUMN",
            help="With --after-loss: your own column; its highest value is the floor of NAME.",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Do not ask: wait until all leases that may exist have expired."
        ),
    ] = False,
    safe_guard: Annotated[
        float | None,
        declared(
            OPTIONS["safe_guard"],
            "--safe-guard",
            metavar="SECONDS",
            words="With --namespace or --wait: the longest that a process uses, in {}"
            f" (default: the stored one, or {DEFAULT_SAFE_GUARD:g}).",
        ),
    ] = None,
    sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the SQL that creates the tables, without connecting."),
    ] = False,
    dialect: Annotated[
        SqlDialect | None,
        typer.Option(
            metavar="DIALECT", help=f"With --sql: {', '.join(SqlDialect)} (default: the store's)."
        ),
    ] = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create a store's tables and initialise it for machine ids.

    Run it once for each store, like a migration, and not at every start: a store that has been
    emptied must not get a marker.  Repeating it is safe, and does not change a store that
    is ready.
    """
    if sql:
        _print_schema(dialect, store, config)
        return
    if dialect is not None:
        raise InvalidArgumentError("--dialect", dialect.value, "requires --sql")
    floors = _floors(floor or (), floor_from or ())
    if floors and not after_loss:
        raise InvalidArgumentError("--floor", next(iter(floors)), "requires --after-loss")
    request = _Request(
        namespace,
        says_yes=yes,
        has_no_holders=confirm_no_holders,
        waits=wait,
        safe_guard=safe_guard,
        disposable=disposable,
        floors=floors if after_loss else None,
    )
    for each in chosen_stores(store, config):
        with StoreSession(each, timeout=timeout) as session:
            _initialize(session, each, request)


def _print_schema(dialect: SqlDialect | None, url: str | None, config: str | None) -> None:
    if config is not None:
        raise InvalidArgumentError("--config", config, "cannot be combined with --sql")
    write_schema(dialect or dialect_of(chosen_store(url, None).where))


def _floors(given: Sequence[str], columns: Sequence[str]) -> dict[str, Floor]:
    """Return the floor of each counter, or the column that has it."""
    floors: dict[str, Floor] = {}
    for each in given:
        name, _, number = each.partition("=")
        if not name or not number.isdecimal():
            raise InvalidArgumentError("--floor", each, "must be NAME=N, such as order=123456")
        floors[name] = int(number)
    for each in columns:
        name, _, place = each.partition("=")
        if not name or "." not in place:
            rule = "must be NAME=TABLE.COLUMN or NAME=SCHEMA.TABLE.COLUMN, such as order=orders.id"
            raise InvalidArgumentError("--floor-from", each, rule)
        floors[name] = place
    return floors


def _initialize(session: StoreSession, chosen: ChosenStore, request: _Request) -> None:
    where = chosen.where
    if request.floors is not None:
        _recover(session, chosen, request.floors, request)
        return
    session.call(session.store.create_schema, disposable=request.disposable)
    try:
        markers = session.call(session.store.machine_markers, namespace=request.namespace)
    except UnsupportedByStoreError:  # it has counters only
        write(f"{where} is ready\n")
        return
    is_ready = _is_ready(session, markers, request)
    suffix = ", initialised for machine ids"
    is_confirmed = request.has_no_holders
    if not (is_ready or is_confirmed):
        if request.waits:
            _wait(session, markers, where, request)
            is_confirmed = True
        elif not request.says_yes:
            _confirm(where)
            is_confirmed = True
    if request.namespace is not None:  # of one that is ready only the safe guard is stored
        if not (is_ready or is_confirmed) and session.call(
            session.store.machines, namespace=request.namespace
        ):
            raise StoreNotEmptyError(where)
        mark = partial(session.store.initialize_namespace, namespace=request.namespace)
        session.call(mark, confirm_no_holders=not is_ready, safe_guard=request.safe_guard)
        suffix = f", initialised for the machine ids of namespace {request.namespace}"
    elif not is_ready:
        session.call(session.store.initialize, confirm_no_holders=is_confirmed)
    ready = f"{where} is ready{'' if is_ready else suffix}"
    write(f"{ready}\n")


def _recover(
    session: StoreSession, chosen: ChosenStore, floors: Mapping[str, Floor], request: _Request
) -> None:
    """Let each counter continue above its floor, and begin a quarantine of all machine ids.

    Until a person has answered, and each column was read, nothing is created.
    """
    where, namespace = chosen.where, request.namespace or chosen.namespace
    if floors and not (request.namespace or chosen.has_namespace):
        rule = (
            "is required with --floor: give the application's, which is 'cosid' if its code and "
            "settings name none"
        )
        raise InvalidArgumentError("--namespace", None, rule)
    found = {
        name: floor
        if isinstance(floor, int)
        else session.call(highest_in_column, session.store, floor) or 0
        for name, floor in floors.items()
    }
    if not request.says_yes:
        others = "all other counters" if floors else "all counters"
        question = LOST.format(where, ", ".join(sorted(floors)) or "none", others)
        _ask(question, where, "check the floors, then give --yes")
    create = partial(session.store.create_schema, after_loss=True)
    session.call(create, disposable=request.disposable)
    for name, above in found.items():
        session.call(session.store.set_floor, namespace=namespace, name=name, above=above)
        write(f"counter {printable(f'{namespace}.{name}')} continues above {above}\n")
    ready = "is ready"
    with suppress(UnsupportedByStoreError):  # it has counters only
        session.call(session.store.initialize, after_loss=True)
        ready += (
            "; machine ids are handed out once all earlier leases have expired\n"
            "Restart CosId's Java processes before then: "
            "they do not notice that their machine ids are lost"
        )
    write(f"{where} {ready}\n")


def _is_ready(session: StoreSession, markers: Sequence[MachineMarker], request: _Request) -> bool:
    if request.namespace is not None:
        return bool(markers) and not any(each.is_quarantined for each in markers)
    return session.call(session.store.is_initialized)


def _confirm(where: str) -> None:
    """Ask for confirmation that no process holds a machine id; else end the command."""
    remedy = (
        "give --yes if the store is new, --confirm-no-holders if no process that was started "
        "before holds a machine id in it, or else --wait"
    )
    _ask(QUESTION.format(where), where, remedy)


def _ask(question: str, where: str, remedy: str) -> None:
    if not has_terminal():
        raise NoTerminalError("--yes", remedy=remedy)
    if not confirmed(question):
        write(f"{where} was not initialised\n")
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
    with progress_bar(f"waiting {ceil(seconds)} s for earlier leases to expire") as show:
        session.pause(seconds, on_progress=show)
