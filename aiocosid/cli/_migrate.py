"""The command that checks another system's tables before a migration, and writes nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..compat import Examinable
from ..errors import InvalidArgumentError, SchemaMissingError
from ..errors.base import one_of
from ..provider import SYSTEMS
from ._exit import ExitCode, printable
from ._options import DEFAULT_TIMEOUT, AsTable, Timeout
from ._output import TableFormat, write, write_json, write_table
from ._session import StoreSession
from ._stores import named_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..compat import Examined

__all__ = ("migrate",)

migrate = typer.Typer(name="migrate", help="Prepare a migration from another system.")


BY_ADDRESS: Final = {"leaf-workerid", "leaf-zk-normal", "leaf-zk-recycle"}
"""The systems whose URLs name an address; the check writes nothing, so any address will do."""


def _known(system: str) -> str:
    if system not in SYSTEMS:
        raise InvalidArgumentError("--from", system, one_of(SYSTEMS, system))
    return system


@migrate.callback()
def _group() -> None: ...


@migrate.command()
def check(
    *,
    system: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SYSTEM",
            callback=_known,
            autocompletion=lambda: [*SYSTEMS],
            help=f"The system to check: {', '.join(SYSTEMS)}.",
        ),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Its database: mysql://user@host/db, postgresql://..., sqlite:///file.db; "
            "zookeeper://host for Twitter, zookeeper://host?name=leaf.name for Leaf's nodes, "
            "redis://host for published Lua scripts (default: AIOCOSID_STORE).",
        ),
    ] = None,
    output: AsTable = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show what another system's tables, nodes or keys mean, their next ids, and problems.

    It writes nothing.  The exit code is 1 if there are problems.
    """
    url = _url_of(system, named_url(store, None) or "")
    with StoreSession.on(url, None, timeout=timeout) as session:
        examined = session.store
        if not isinstance(examined, Examinable):
            raise InvalidArgumentError("--from", system, "cannot be examined")
        try:
            found = session.call(examined.examine)
        except SchemaMissingError as error:
            remedy = f"check that --store names the database of {system}, whose table this is"
            raise SchemaMissingError(error.store, table=error.table, remedy=remedy) from error
    if output is TableFormat.JSON:
        write_json([asdict(each) for each in found])
    else:
        _write_examined(found)
    if any(each.problems for each in found):
        raise typer.Exit(ExitCode.FAILED)


def _url_of(system: str, store: str) -> str:
    prefix = f"{system}+"
    url = prefix + store.removeprefix(prefix)
    if system not in BY_ADDRESS or "ip=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}ip=nobody&port=1"


def _write_examined(found: Sequence[Examined]) -> None:
    if not found:
        write("nothing to check\n")
        return
    rows = [(each.name, each.stored, each.next_id, each.meaning) for each in found]
    write_table(("name", "stored", "next id", "what it means"), rows, left=(0, 3))
    for each in found:
        for problem in each.problems:
            write(f"problem: {printable(each.name)}: {printable(problem)}\n")
