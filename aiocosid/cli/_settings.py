"""The commands that check settings and write nothing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidSettingsError, StoreUnavailableError
from ._exit import ExitCode, printable
from ._options import DEFAULT_TIMEOUT, AsTable, Timeout
from ._output import TableFormat, write, write_json, write_table
from ._parts import time_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..provider.settings import GroupReport, ServerReport, SettingsReport

__all__ = ("check_config", "groups")

File = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="The settings, a TOML file (default: AIOCOSID_CONFIG)."),
]

groups = typer.Typer(name="groups", help="Check generators that are grouped by period or key.")


def check_config(
    file: File = None,
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if there are warnings.")
    ] = False,
    form: AsTable = TableFormat.TABLE,
) -> None:
    """Show the generators that settings describe, and warn of likely mistakes.

    AIOCOSID_... variables of the environment override the file, as in the application.  The command
    opens and sends nothing.
    """
    from ..provider.settings import check_settings

    try:
        report = check_settings(file)
    except InvalidSettingsError as error:
        if form is TableFormat.TABLE:
            raise  # written to standard error, one line for each problem
        found = [asdict(each) for each in error.problems]
        write_json({"generators": [], "sharding": [], "warnings": [], "problems": found})
        raise typer.Exit(ExitCode.USAGE) from None
    if form is TableFormat.JSON:
        write_json({**asdict(report), "problems": []})
    else:
        _write_report(report)
    if strict and report.warnings:
        raise typer.Exit(ExitCode.FAILED)


@groups.callback()
def _group() -> None: ...


@groups.command()
def check(
    file: File = None,
    *,
    at: Annotated[
        str, typer.Option(metavar="TIME", help="A moment in the period: 2027-01-01T00:00+08:00.")
    ],
    form: AsTable = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the period that each grouped generator will be in, and problems.

    It reads the counters of the stores and writes nothing.  The exit code is 1 if there are
    problems.
    """
    from ..provider.settings import check_groups

    at_ms = time_ms(at if "T" in at or at.isdecimal() else f"{at}T00:00Z", "--at")

    async def bounded() -> tuple[GroupReport, ...]:
        try:
            async with asyncio.timeout(timeout):
                return await check_groups(file, at_ms=at_ms)
        except TimeoutError as error:
            raise StoreUnavailableError("store", f"no answer within {timeout:g} s") from error

    found = asyncio.run(bounded())
    if form is TableFormat.JSON:
        write_json([asdict(each) for each in found])
    else:
        _write_groups(found)
    if any(each.problems for each in found):
        raise typer.Exit(ExitCode.FAILED)


def _write_groups(found: Sequence[GroupReport]) -> None:
    if not found:
        write("no grouped generators\n")
        return
    rows = [(each.name, each.present, each.period, each.counter, each.example) for each in found]
    write_table(
        ("generator", "period now", "period then", "counter", "first id"), rows, left=range(5)
    )
    for each in found:
        for problem in each.problems:
            write(f"problem: {printable(each.name)}: {printable(problem)}\n")


def _write_server(server: ServerReport) -> None:
    facts = [
        ", ".join(server.listen),
        f"{server.workers} processes" if server.workers > 1 else "",
        "TLS" if server.tls else "",
        f"dialects {', '.join(server.dialects)}" if server.dialects else "",
        f"tokens of {', '.join(server.tokens)}" if server.tokens else "no tokens",
    ]
    write(f"server: {printable('; '.join(filter(None, facts)))}\n")


def _write_report(report: SettingsReport) -> None:
    if report.generators:
        columns = ("generator", "kind", "store", "counter", "step", "ends", "converter", "example")
        rows = [
            (
                *(each.name, each.kind, each.store, each.counter, each.step, each.ends),
                *(each.converter, f"{each.example} ({each.length})" if each.example else None),
            )
            for each in report.generators
        ]
        write_table(columns, rows, left=(0, 1, 2, 3, 6, 7))
    else:
        write("no generators\n")
    for layout in dict.fromkeys(each.layout for each in report.generators if each.layout):
        names = ", ".join(each.name for each in report.generators if each.layout == layout)
        write(f"{printable(names)}: {layout.strip('<>')}\n")
    for each in report.sharding:
        write(f"sharding {printable(each.name)}: {each.kind}, {each.nodes} nodes\n")
    if report.server is not None:
        _write_server(report.server)
    for warning in report.warnings:
        write(f"warning: {printable(str(warning))}\n")
