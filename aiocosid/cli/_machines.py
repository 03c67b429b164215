"""The commands about machine ids."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from math import ceil, isinf
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    StoreError,
    UnsupportedByStoreError,
)
from ..provider import OPTIONS
from ._exit import PROGRAM, ExitCode, one_line, printable, redacted
from ._options import (
    DEFAULT_TIMEOUT,
    AnyNamespace,
    AsTable,
    AsText,
    Bits,
    Config,
    Epoch,
    Layout,
    Namespace,
    StoreUrl,
    Timeout,
    Unit,
    declared,
)
from ._output import (
    NoTerminalError,
    TableFormat,
    TextFormat,
    confirmed,
    has_terminal,
    time_text,
    write,
    write_json,
    write_table,
)
from ._parts import AS_NAMED, OwnLayout, last_ms_of, layout_of, time_ms
from ._program import run as run_program
from ._session import StoreSession

if TYPE_CHECKING:
    from ..abc import Machine

__all__ = ("machines", "tell_quarantines")

machines = typer.Typer(name="machines", help="List, free and repair the machine ids of a store.")


@machines.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],  # its own parser has one
    }
)
def run(context: typer.Context) -> None:
    """Run a program in any language with a leased machine id."""
    raise typer.Exit(run_program(context.args))


@machines.command("list")
def list_(
    *,
    store: StoreUrl = None,
    config: Config = None,
    namespace: AnyNamespace = None,
    output: AsTable = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show all machine ids ever handed out, and their holders."""
    with StoreSession.on(store, config, timeout=timeout) as session:
        found = session.call(session.store.machines, namespace=namespace)
        tell_quarantines(session, namespace)
    if output is TableFormat.JSON:
        write_json([_facts(each) for each in found])
    elif rows := [_row(each) for each in found]:
        write_table([*rows[0]], [[*row.values()] for row in rows], left=(0, 2, 3))
    else:
        write("no machine ids\n")


def tell_quarantines(session: StoreSession, namespace: str | None) -> None:
    """Write to standard error which namespaces hand out no machine ids now."""
    try:
        markers = session.call(session.store.machine_markers)
    except UnsupportedByStoreError:
        return  # it hands out none
    except StoreError as error:
        # The rest is still useful: the user may lack EVALSHA, or the table may be older.
        if error.retryable or isinstance(error, CorruptMachineStateError):
            raise
        why = one_line(redacted(str(error)))
        typer.echo(f"{PROGRAM}: cannot show quarantines of machine ids: {why}", err=True)
        return
    for each in markers:
        if each.is_quarantined and namespace in {None, each.namespace}:
            is_endless = isinf(each.seconds_left)
            left = (
                "until an operator ends the quarantine"
                if is_endless
                else f"for {ceil(each.seconds_left)} s"
            )
            subject = f"{PROGRAM}: namespace {printable(each.namespace)} is in quarantine"
            typer.echo(f"{subject}: no machine ids {left}", err=True)


def _facts(each: Machine) -> dict[str, object]:
    """Return a machine id for JSON; one that was never renewed has no time."""
    last_ms = each.last_timestamp_ms if each.last_timestamp_ms > 0 else None
    return {**asdict(each), "last_timestamp_ms": last_ms, "free": not each.instance_id}


def _row(each: Machine) -> dict[str, object]:
    """Return the cells of a machine id by their headings."""
    return {
        "namespace": each.namespace,
        "machine id": each.machine_id,
        "instance": each.instance_id,
        "state": "free" if not each.instance_id else "stable" if each.stable else "held",
        "last renewal (UTC)": time_text(each.last_timestamp_ms),
        "fence (UTC)": time_text(each.fence_ms),
    }


@machines.command()
def evict(
    machine_id: Annotated[
        int, declared(OPTIONS["machine_id"], make=typer.Argument, metavar="MACHINE_ID")
    ],
    *,
    store: StoreUrl = None,
    config: Config = None,
    namespace: Namespace = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take a machine id from its owner, so that another instance can get it.

    The owner must have ended: a CosId process that is still running would issue the same ids as
    the next owner.  Only a stable owner that has died needs this; other machine ids become free
    after the safe guard.
    """
    if not yes and not has_terminal():
        raise NoTerminalError("--yes", remedy="give --yes if the owner is no longer running")
    with StoreSession.on(store, config, timeout=timeout) as session:
        namespace = session.namespace(namespace)
        owner = _owner(session, namespace, machine_id)
        who = f"machine id {machine_id} of namespace {printable(namespace)}"
        if not yes:
            if not _is_wanted(who, owner):
                write(f"{printable(owner.instance_id)} keeps {who}\n")
                raise typer.Exit(ExitCode.FAILED)
            # The user may have taken a long time to answer.
            if _owner(session, namespace, machine_id).instance_id != owner.instance_id:
                rule = "was taken by another instance meanwhile; run the command again"
                raise InvalidArgumentError("machine_id", machine_id, rule)
        session.call(session.store.evict_machine, namespace=namespace, machine_id=machine_id)
    write(f"{who} is free; it was held by {printable(owner.instance_id)}\n")
    session.tell_written()


@machines.command()
def forget(
    lost: Annotated[
        str, typer.Argument(metavar="NAMESPACE", help="The namespace that was removed.")
    ],
    *,
    store: StoreUrl = None,
    config: Config = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Accept that a namespace was removed from the store on purpose.

    A store counts the namespaces that have handed out machine ids.  While one is missing, every new
    namespace must wait, since it may be the missing one.  No process may still use the namespace.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        was_missed = session.call(session.store.forget_namespace, namespace=lost)
    missed = (
        "is no longer missing" if was_missed else "was not missing: every counted namespace exists"
    )
    write(f"namespace {printable(lost)} {missed}\n")


@machines.command()
def repair(
    *,
    store: StoreUrl = None,
    config: Config = None,
    namespace: Namespace = None,
    form: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Make machine ids usable again after a wrong clock wrote times far ahead.

    No owner can use a machine id whose fence is more than a day ahead.  The command sets such a
    fence to a minute ahead, if the machine id is free.  If it is held, stop its holder and free it
    with 'machines evict' first.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        namespace = session.namespace(namespace)
        found = session.call(session.store.repair_machines, namespace=namespace)
    if form is TextFormat.JSON:
        write_json([{**asdict(each), "repaired": not each.instance_id} for each in found])
    else:
        for each in found:
            at = time_text(max(each.fence_ms, each.last_timestamp_ms))
            who = printable(each.instance_id)
            done = f"not repaired, because {who} holds it" if who else "repaired"
            write(f"machine id {each.machine_id} with the fence {at} UTC: {done}\n")
        count = sum(not each.instance_id for each in found)
        write(f"{_number(count)} of namespace {printable(namespace)} repaired\n")
    session.tell_written()


@machines.command()
def bits(
    *,
    store: StoreUrl = None,
    config: Config = None,
    namespace: Namespace = None,
    change_to: Annotated[
        int | None, declared(OPTIONS["machine_bits"], "--set", metavar="N", words="The new {}.")
    ] = None,
    region: Annotated[
        int | None, typer.Option(metavar="N", help="With --set: the store's region.")
    ] = None,
    region_bits: Annotated[
        int, typer.Option(metavar="N", help="With --set: the bits that name it.")
    ] = 0,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the width of a namespace's machine ids in bits, or change it permanently.

    It can be changed only while no machine id is held: close all instances, and free the machine
    ids of dead ones with 'machines evict'.  The new layout must not repeat ids of the old one.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        namespace = session.namespace(namespace)
        if change_to is not None:
            session.call(
                session.store.set_machine_bits,
                namespace=namespace,
                bits=change_to,
                region=region,
                region_bits=region_bits,
            )
        found = session.call(session.store.machine_bits, namespace=namespace)
    width = "no recorded width" if found is None else f"{found} bits"
    write(f"machine ids of namespace {printable(namespace)} have {width}\n")
    if change_to is not None:
        session.tell_written()


@machines.command()
def floor(
    *,
    above_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The latest time of any existing id: 2026-11-23T12:00Z."),
    ] = None,
    above_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The latest existing id, read with --layout."),
    ] = None,
    layout: Layout = None,
    bits: Bits = None,
    unit: Unit = None,
    epoch: Epoch = None,
    up_to: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=2**22 - 1,
            help="Also raise machine ids 0 to N that the store does not know.",
        ),
    ] = None,
    store: StoreUrl = None,
    config: Config = None,
    namespace: Namespace = None,
    form: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Make the next owners of all machine ids start above a time; never lowers it.

    Use it when a store has lost writes, for example after restoring a backup.  First close the
    instances that hold machine ids of the namespace.
    """
    own = OwnLayout(bits=bits, unit=unit, epoch=epoch)
    above_ms = _floor_ms(above_time, above_id, layout, own)
    with StoreSession.on(store, config, timeout=timeout) as session:
        namespace = session.namespace(namespace)
        numbers = _known(session, namespace, up_to)
        lift = partial(session.store.raise_machine_fence, namespace=namespace, above_ms=above_ms)
        raised = [each for each in numbers if session.call(lift, machine_id=each)]
    if form is TextFormat.JSON:
        write_json({"namespace": namespace, "above_ms": above_ms, "raised": raised})
    else:
        subject = f"{_number(len(numbers))} of namespace {printable(namespace)}"
        moment = f"{time_text(above_ms)}.{above_ms % 1000:03d}"
        write(f"{subject} will start above {moment} UTC; {len(raised)} raised\n")
    session.tell_written()


def _floor_ms(
    above_time: str | None, above_id: str | None, layout: str | None, own: OwnLayout
) -> int:
    """Return the latest time of any existing id."""
    if (above_id is None) == (above_time is None):
        one = "--above-time or --above-id"
        raise InvalidArgumentError(one, None, "is required, not both")
    if above_id is not None:
        return last_ms_of(above_id, layout_of(layout, own))
    if layout is not None or own != AS_NAMED:
        rule = (
            "cannot be combined with --layout, --bits, --unit or --epoch: they belong to --above-id"
        )
        raise InvalidArgumentError("--above-time", above_time, rule)
    return time_ms(f"{above_time}", "--above-time")


def _number(count: int) -> str:
    return "1 machine id" if count == 1 else f"{count} machine ids"


def _known(session: StoreSession, namespace: str, up_to: int | None) -> list[int]:
    """Return the machine ids to raise, in ascending order."""
    found = {each.machine_id for each in session.call(session.store.machines, namespace=namespace)}
    if up_to is not None:
        bits = session.call(session.store.machine_bits, namespace=namespace)
        if bits is not None and up_to >> bits:
            rule = f"must be at most {(1 << bits) - 1}: namespace {namespace!r} has {bits} bits"
            raise InvalidArgumentError("--up-to", up_to, rule)
        found.update(range(up_to + 1))
    if not found:
        rule = "has no machine ids; correct the name, or give --up-to if the store lost them"
        raise InvalidArgumentError("namespace", namespace, rule)
    return sorted(found)


def _owner(session: StoreSession, namespace: str, machine_id: int) -> Machine:
    for each in session.call(session.store.machines, namespace=namespace):
        if each.machine_id == machine_id and each.instance_id:
            return each
    raise InvalidArgumentError("machine_id", machine_id, f"is not held in namespace {namespace!r}")


def _is_wanted(who: str, owner: Machine) -> bool:
    stable = ", which is stable" if owner.stable else ""
    last = "it was never renewed"
    if owner.last_timestamp_ms > 0:
        last = f"it was last renewed at {time_text(owner.last_timestamp_ms)} UTC"
    return confirmed(
        f"{who} is held by {one_line(owner.instance_id)}{stable}; {last}.\n"
        "It must have ended: otherwise the next owner may issue the same ids.\n"
        "Free this machine id?"
    )
