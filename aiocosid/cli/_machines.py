"""The commands about machine ids."""

from __future__ import annotations

import sys
from dataclasses import asdict
from math import ceil, isinf
from typing import TYPE_CHECKING, Annotated

import typer

from ..abc import DEFAULT_NAMESPACE
from ..errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    StoreError,
    UnsupportedByStoreError,
)
from ._exit import PROGRAM, ExitCode, one_line, printable, redacted
from ._options import (
    DEFAULT_STORE,
    DEFAULT_TIMEOUT,
    AnyMachineNamespace,
    MachineNamespace,
    StoreUrl,
    Timeout,
)
from ._output import TableFormat, time_text, write, write_json, write_table
from ._session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Machine

__all__ = ("machines", "tell_quarantines")

machines = typer.Typer(help="The machine ids of a store: who holds which.")


@machines.command("list")
def list_(
    *,
    store: StoreUrl = DEFAULT_STORE,
    namespace: AnyMachineNamespace = None,
    layout: Annotated[TableFormat, typer.Option("--format")] = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the machine ids that were ever handed out, and who holds them."""
    with StoreSession(store, timeout=timeout) as session:
        found = session.call(session.store.machines, namespace=namespace)
        tell_quarantines(session, namespace)
    if layout is TableFormat.JSON:
        write_json([{**asdict(each), "free": not each.instance_id} for each in found])
    elif found:
        write_table(_COLUMNS, map(_row, found), left=(0, 2))
    else:
        write("no machine ids\n")


def tell_quarantines(session: StoreSession, namespace: str | None) -> None:
    """Say on standard error where nobody is handed a machine id now."""
    try:
        markers = session.call(session.store.machine_markers)
    except UnsupportedByStoreError:
        return  # nobody is handed any there
    except StoreError as error:
        # Looking at the rest is no less use: a reader without EVALSHA, a table that is older.
        if error.retryable or isinstance(error, CorruptMachineStateError):
            raise
        why = one_line(redacted(str(error)))
        typer.echo(f"{PROGRAM}: quarantines of machine ids are not shown: {why}", err=True)
        return
    for each in markers:
        if each.is_quarantined and namespace in {None, each.namespace}:
            left = "without an end" if isinf(each.seconds_left) else f"{ceil(each.seconds_left)} s"
            subject = f"{PROGRAM}: machine ids of namespace {printable(each.namespace)}"
            typer.echo(f"{subject} are in quarantine: {left}", err=True)


_COLUMNS = (
    "namespace",
    "machine id",
    "instance",
    "last sign of life (UTC)",
    "mark (UTC)",
    "stable",
    "free",
)


def _row(each: Machine) -> Sequence[str]:
    return (
        printable(each.namespace),
        str(each.machine_id),
        printable(each.instance_id) or "-",
        time_text(each.last_timestamp_ms),
        time_text(each.mark_ms),
        "yes" if each.stable else "no",
        "no" if each.instance_id else "yes",
    )


@machines.command()
def revert(
    machine_id: Annotated[int, typer.Argument(min=0, help="The machine id.")],
    *,
    store: StoreUrl = DEFAULT_STORE,
    namespace: MachineNamespace = DEFAULT_NAMESPACE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take a machine id from its owner, so that another instance may have it.

    The owner must not run any more: an owner that does, and is CosId's, makes the ids that the next
    one makes.  For one that died and was stable; others are found free after the safe guard.
    """
    if not yes and not _is_terminal():
        expected = "given where nobody can be asked; the owner must not run any more"
        raise InvalidArgumentError("--yes", yes, expected=expected)
    with StoreSession(store, timeout=timeout) as session:
        owner = _owner(session, namespace, machine_id)
        who = f"machine id {machine_id} of namespace {printable(namespace)}"
        if not yes:
            if not _is_wanted(who, owner):
                write(f"{who} stays with {printable(owner.instance_id)}\n")
                raise typer.Exit(ExitCode.FAILED)
            # Somebody may have thought about it for long.
            if _owner(session, namespace, machine_id).instance_id != owner.instance_id:
                expected = "held by the same instance as before you were asked"
                raise InvalidArgumentError("machine_id", machine_id, expected=expected)
        session.call(session.store.revert_machine, namespace=namespace, machine_id=machine_id)
    write(f"{who} is free; {printable(owner.instance_id)} held it\n")


@machines.command()
def bits(
    *,
    store: StoreUrl = DEFAULT_STORE,
    namespace: MachineNamespace = DEFAULT_NAMESPACE,
    change_to: Annotated[
        int | None,
        typer.Option("--set", metavar="N", min=1, help="The new width."),
    ] = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show how many bits the machine ids of a namespace have, or change it for good.

    It is changed only while nobody holds a machine id: close all instances, and free the ids of
    dead ones by 'machines revert'.  The new layout must make no id that the old one has made.
    """
    with StoreSession(store, timeout=timeout) as session:
        if change_to is not None:
            session.call(session.store.set_machine_bits, namespace=namespace, bits=change_to)
        found = session.call(session.store.machine_bits, namespace=namespace)
    width = "no noted width" if found is None else f"{found} bits"
    write(f"machine ids of namespace {printable(namespace)} have {width}\n")


def _owner(session: StoreSession, namespace: str, machine_id: int) -> Machine:
    for each in session.call(session.store.machines, namespace=namespace):
        if each.machine_id == machine_id and each.instance_id:
            return each
    expected = f"one that is held in namespace {namespace!r}"
    raise InvalidArgumentError("machine_id", machine_id, expected=expected)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _is_wanted(who: str, owner: Machine) -> bool:
    stable = ", which is stable" if owner.stable else ""
    # Not typer.confirm: a part of its question goes to standard output.
    typer.echo(
        f"{who} is held by {one_line(owner.instance_id)}{stable}; its last sign of life was at "
        f"{time_text(owner.last_timestamp_ms)} UTC.\n"
        "It must not run any more, or its ids may be made a second time by the next owner.\n"
        "Take the machine id from it? [y/N] ",
        err=True,
        nl=False,
    )
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
