"""The commands for gapless series."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from ..abc import MAX_ID
from ..errors import InvalidArgumentError
from ..stores.series_admin import (
    Audit,
    Series,
    audit_series,
    close_series,
    list_series,
    open_series,
)
from ._exit import ExitCode, printable
from ._options import DEFAULT_TIMEOUT, AsTable, AsText, Config, StoreUrl, Timeout
from ._output import TableFormat, TextFormat, write, write_json, write_table
from ._session import StoreSession

__all__ = ("series",)

MOST_SHOWN: Final = 20  # holes, and repeats

series = typer.Typer(name="series", help="Manage gapless series in an application's database.")

SeriesName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the series.")]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="The tenant that owns the series.")]

TenantColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column with the tenant, in the same table."),
]


@series.command("open")
def open_(
    name: SeriesName,
    *,
    tenant: Tenant = "",
    group_by: Annotated[
        str | None,
        typer.Option(metavar="year|month|day", help="Start at 1 in each period; requires --zone."),
    ] = None,
    group_zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="ZONE", help="The time zone of the periods: Europe/Berlin."),
    ] = None,
    after: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="The last number that another system has issued."),
    ] = 0,
    after_column: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE.COLUMN",
            help="After a loss or a restored backup: continue each period after its highest number "
            "in this column.",
        ),
    ] = None,
    tenant_column: TenantColumn = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="FIRST-LAST",
            help="An approved range, or one more for a series that has ranges; may be repeated.",
        ),
    ] = None,
    store: StoreUrl = None,
    config: Config = None,
    form: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Open a series in the application's database, or add approved ranges to it.

    Only this command opens a series, so that a wrong name or an emptied table never starts at 1.
    """
    if group_by not in {None, "year", "month", "day"}:
        raise InvalidArgumentError("--group-by", group_by, "must be year, month or day")
    with StoreSession.on(store, config, timeout=timeout) as session:
        found = session.call(
            open_series,
            session.store,
            name,
            tenant=tenant,
            group_by=group_by,  # type: ignore[arg-type]  # checked above
            zone=group_zone,
            after=after,
            after_column=after_column,
            tenant_column=tenant_column,
            ranges=",".join(ranges or ()),
        )
        _tell(found, "is open", form)
        session.tell_written()


@series.command("list")
def list_(
    *,
    store: StoreUrl = None,
    config: Config = None,
    form: AsTable = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show all series, with the last number of each."""
    with StoreSession.on(store, config, timeout=timeout) as session:
        found = session.call(list_series, session.store)
    if form is TableFormat.JSON:
        write_json([asdict(each) for each in found])
        return
    write_table(
        ("series", "tenant", "by", "period", "last number", "ranges", "state"),
        [
            (
                *(each.name, each.tenant, each.grouped_by.partition("(")[0], each.period),
                each.last_number,
                *(each.ranges.replace(f"-{MAX_ID}", "-"), "open" if each.is_open else "closed"),
            )
            for each in found
        ],
        left=(0, 1, 2, 3, 5, 6),
    )


@series.command("close")
def close(
    name: SeriesName,
    *,
    tenant: Tenant = "",
    store: StoreUrl = None,
    config: Config = None,
    form: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Close a series: no further number can be taken from it.

    It asks for no confirmation, and a closed series cannot be opened again.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        found = session.call(close_series, session.store, name, tenant=tenant)
        _tell(found, "is closed", form)
        session.tell_written()


@series.command("audit")
def audit(
    name: SeriesName,
    *,
    column: Annotated[
        str,
        typer.Option(
            metavar="TABLE.COLUMN",
            help="The application's column with the numbers, or with the texts of a "
            "series with periods.",
        ),
    ],
    tenant: Tenant = "",
    tenant_column: TenantColumn = None,
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="The prefix of the texts.")] = "",
    store: StoreUrl = None,
    config: Config = None,
    form: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Find missing, repeated and untaken numbers of a series in the application's own table.

    The exit code is 1 if there are any.  Run it while no transaction is open: numbers that are not
    committed yet look missing.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        found = session.call(
            audit_series,
            session.store,
            name,
            tenant=tenant,
            column=column,
            prefix=prefix,
            tenant_column=tenant_column,
        )
    if form is TextFormat.JSON:
        write_json(asdict(found) | {"is_sound": found.is_sound})
    else:
        _write_audit(found, prefix, tenant_column)
    if not found.is_sound:
        raise typer.Exit(ExitCode.FAILED)


def _write_audit(found: Audit, prefix: str, tenant_column: str | None) -> None:
    numbers = "1 number" if found.count == 1 else f"{found.count} numbers"
    write(f"{_named(found.series)}: {numbers}, the last is {found.last}\n")
    for what, ranges in (("missing", found.missing), ("not taken from it", found.untaken)):
        for period, (first, last) in ranges[:MOST_SHOWN]:
            numbers = f"{first}" if first == last else f"{first} to {last}"
            write(f"{what}: {_of(period)}{numbers}\n")
    for period, number in found.repeated[:MOST_SHOWN]:
        write(f"repeated: {_of(period)}{number}\n")
    lists: tuple[list[Any], ...] = (found.missing, found.untaken, found.repeated)
    more = sum(len(each[MOST_SHOWN:]) for each in lists)
    if more:
        write(f"and {more} more; --format json shows all\n")
    if found.foreign:
        ask = "" if prefix else "; if they begin with a prefix, add --prefix"
        write(f"values that are not numbers of this series: {found.foreign}{ask}\n")
    if (found.repeated or found.untaken) and found.series.tenant and tenant_column is None:
        write("if the table has rows of other tenants, add --tenant-column\n")


def _of(period: str) -> str:
    return f"{period}-" if period else ""


def _named(found: Series) -> str:
    tenant = f" of tenant {printable(found.tenant)}" if found.tenant else ""
    return f"{printable(found.name)}{tenant}"


def _tell(found: Series, what: str, form: TextFormat) -> None:
    if form is TextFormat.JSON:
        write_json(asdict(found))
        return
    number = f"{found.period}-{found.last_number}" if found.period else f"{found.last_number}"
    write(f"{_named(found)} {what}; the last number is {number}\n")
