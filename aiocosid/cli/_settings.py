"""The command that checks settings, and opens nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidSettingsError
from ._exit import ExitCode, printable
from ._output import TableFormat, write, write_json, write_table

if TYPE_CHECKING:
    from ..settings import SettingsReport

__all__ = ("check_config",)


def check_config(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A TOML file (default: the file in AIOCOSID_CONFIG)."),
    ] = None,
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if there are warnings.")
    ] = False,
    form: Annotated[TableFormat, typer.Option("--format")] = TableFormat.TABLE,
) -> None:
    """Show what settings would build, with warnings about likely mistakes.

    The environment's AIOCOSID_... variables apply as in the application.  Nothing is opened or
    sent.
    """
    from ..settings import check_settings

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


def _write_report(report: SettingsReport) -> None:
    if report.generators:
        columns = ("generator", "kind", "store", "counter", "step", "ends", "converter", "example")
        rows = [
            (
                each.name,
                each.kind,
                each.store or "-",
                each.counter or "-",
                "-" if each.step is None else str(each.step),
                each.ends or "-",
                each.converter or "-",
                f"{each.example} ({each.length})" if each.example else "-",
            )
            for each in report.generators
        ]
        write_table(columns, [tuple(map(printable, row)) for row in rows], left=(0, 1, 2, 3, 6, 7))
    else:
        write("no generators\n")
    for layout in dict.fromkeys(each.layout for each in report.generators if each.layout):
        names = ", ".join(each.name for each in report.generators if each.layout == layout)
        write(f"{printable(names)}: {layout.strip('<>')}\n")
    for each in report.sharding:
        write(f"sharding {printable(each.name)}: {each.kind}, {each.nodes} nodes\n")
    for warning in report.warnings:
        write(f"warning: {printable(str(warning))}\n")
