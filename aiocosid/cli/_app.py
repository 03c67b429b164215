"""The commands, with their options."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from difflib import get_close_matches
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
import typer.main

from ..errors import CounterMissingError, InvalidArgumentError
from ..provider import OPTIONS, connect
from ..stores.columns import highest_in_column
from ._bench import BENCH_NAME, BENCH_NAMESPACE, Measurement, measure
from ._broker import broker
from ._doctor import doctor
from ._examples import EXAMPLES
from ._exit import PROGRAM, ExitCode, printable, redacted
from ._init import init
from ._machines import machines, tell_quarantines
from ._migrate import migrate
from ._options import (
    DEFAULT_TIMEOUT,
    AnyNamespace,
    AsTable,
    AsText,
    Config,
    Count,
    Name,
    Namespace,
    Seconds,
    StoreUrl,
    Timeout,
    declared,
)
from ._output import (
    TableFormat,
    TextFormat,
    progress_bar,
    write,
    write_counters,
    write_ids,
    write_json,
    write_table,
)
from ._series import series
from ._serve import serve, token
from ._session import StoreSession
from ._settings import check_config, groups
from ._snowflakes import parse, snowflake
from ._stores import ChosenStore, chosen_store
from ._watch import watch

__all__ = ("app", "command_tree", "run")

HELP: Final = ["--help", "-h"]

PANELS: Final = {
    "Ids": ("next", "snowflake", "parse", "set-floor", "series"),
    "Store": ("init", "doctor", "inspect", "watch", "bench", "migrate"),
    "Machine ids": ("machines",),
    "Service": ("serve", "broker", "token"),
    "Settings": ("check-config", "groups"),
}
"""The commands of each panel of the help, in their order."""

app = typer.Typer(
    help="Generate unique ids, and inspect and repair the stores that they come from.",
    epilog="Exit codes: 0 done, 1 a check failed, 2 invalid argument, 3 store unavailable (try "
    "again), 4 store refused, 5 ids exhausted or store rolled back, 130 Ctrl-C.",
    rich_markup_mode="markdown",
    context_settings={"help_option_names": HELP},
    invoke_without_command=True,
    pretty_exceptions_enable=False,  # they print local variables, and a URL holds a password
)


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: the words after the program's name; by default the process's own.

    Raises:
        Exception: an error that `aiocosid.cli._exit.report` turns into a line and an exit code.
        KeyboardInterrupt: Ctrl-C.
    """
    # A warning of the library would be a second line in addition to the error that follows.
    logging.basicConfig(handlers=[logging.NullHandler()])
    try:
        # Not standalone: click would write its own messages, and end the process.
        code: int | None = command_tree()(args=argv, prog_name=PROGRAM, standalone_mode=False)
    except typer.Abort as error:  # raised by older releases on Ctrl-C
        raise KeyboardInterrupt from error
    if code == ExitCode.INTERRUPTED:  # returned by newer ones
        raise KeyboardInterrupt
    return code or ExitCode.OK


def command_tree() -> Any:  # noqa: ANN401 - click's, which typer does not name in all releases
    """Return all commands; their help has panels, examples, and words instead of types."""
    tree: Any = typer.main.get_command(app)
    for panel, names in PANELS.items():
        for name in names:
            tree.commands[name] = found = tree.commands.pop(name)  # in this order
            found.rich_help_panel = panel
    _complete(tree, "")
    return tree


def _complete(command: Any, path: str) -> None:  # noqa: ANN401 - as above
    if examples := EXAMPLES.get(path):
        lines = (f"- `{PROGRAM} {path} {each}`" for each in examples)
        command.epilog = "\n\n".join(("Examples:", *lines))
    for param in command.get_params(typer.Context(command, help_option_names=HELP)):
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.param_type_name == "argument":
            param.display_type = _no_type  # its name says it already
    for name, each in getattr(command, "commands", {}).items():
        _complete(each, f"{path} {name}".strip())


def _no_type(ctx: object) -> str:  # noqa: ARG001 - typer's signature
    return ""


def _show_version(wanted: bool) -> None:
    if wanted:
        write(f"{PROGRAM} {version('aiocosid')}\n")
        raise typer.Exit


@app.callback()
def _program(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        context.get_help()  # rich writes it
        raise typer.Exit(ExitCode.USAGE)


@app.command("next")
def next_(
    name: Name,
    *,
    count: Count = 1,
    store: StoreUrl = None,
    config: Config = None,
    namespace: Namespace = None,
    step: Annotated[
        int | None,
        declared(OPTIONS["step"], "--step", metavar="N", words="{} (default: all at once)."),
    ] = None,
    output: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print the next ids of a counter, which is created on first use.

    Exactly as many ids are reserved as are asked for.  Those that are not printed, because of
    Ctrl-C or a closed pipe, leave a gap: no other process gets them.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        space = session.namespace(namespace)
        write_ids(_reserved(session, name, space, count, step or count), output)
        session.tell_written()


def _reserved(
    session: StoreSession, name: str, namespace: str, count: int, step: int
) -> Iterator[range]:
    distributor = session.store.segment_distributor(namespace=namespace, name=name, step=step)
    while count > 0:
        size = min(step, count, distributor.step_limit or count)
        max_id = session.call(distributor.next_max_id, size)
        stride = distributor.stride
        yield range(max_id - (size - 1) * stride, max_id + 1, stride)
        count -= size


@app.command()
def inspect(
    *,
    store: StoreUrl = None,
    config: Config = None,
    namespace: AnyNamespace = None,
    output: AsTable = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the counters of a store."""
    with StoreSession.on(store, config, timeout=timeout) as session:
        counters = session.call(session.store.counters, namespace=namespace)
        tell_quarantines(session, namespace)
    write_counters(counters, output)


def set_floor(
    name: Name,
    *,
    above: Annotated[
        int | None,
        typer.Option(metavar="N", help="The highest id ever handed out."),
    ] = None,
    from_table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE.COLUMN",
            help="Instead of --above: the highest number in this column, such as orders.id.",
        ),
    ] = None,
    data_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The SQL database that holds the table (default: the store)."
        ),
    ] = None,
    store: StoreUrl = None,
    config: Config = None,
    namespace: Namespace = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the counter if it does not exist.")
    ] = False,
    output: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Raise a counter so that every further id is above a number; never lowers it.

    Use it when a store has lost writes, for example after restoring a backup.  First close the
    generators that may hold ids at or below the number.
    """
    _check_floor(above, from_table, data_url)
    with StoreSession.on(store, config, timeout=timeout) as session:
        if from_table is not None:
            source = session.store if data_url is None else data_url
            above = session.call(highest_in_column, source, from_table)
        if above is None or (from_table is not None and above < 0):
            _tell_nothing_to_raise(f"{from_table}", above, output)
            return
        try:
            counter = session.call(
                session.store.set_floor,
                namespace=session.namespace(namespace),
                name=name,
                above=above,
                create=create,
            )
        except CounterMissingError as error:
            raise _with_similar(session, error) from error
    if output is TextFormat.JSON:
        write_json(asdict(counter))
    else:
        already = f", already above {above}" if counter.last_max_id > above else ""
        write(f"{printable(counter.namespaced_name)} is at {counter.last_max_id}{already}\n")
    session.tell_written()


def _check_floor(above: int | None, from_table: str | None, data_url: str | None) -> None:
    """Raise unless there is one source of the number."""
    if (above is None) == (from_table is None):
        one = "--above N or --from-table TABLE.COLUMN"
        raise InvalidArgumentError(one, None, "is required, not both")
    if data_url is not None and from_table is None:
        rule = "requires --from-table, whose database it names"
        raise InvalidArgumentError("--data-url", printable(redacted(data_url)), rule)


def _tell_nothing_to_raise(column: str, highest: int | None, output: TextFormat) -> None:
    if output is TextFormat.JSON:
        write_json(None)
        return
    above = "" if highest is None else f" above {highest}"
    write(f"{column} holds no number{above}; nothing to raise\n")


def _with_similar(session: StoreSession, error: CounterMissingError) -> CounterMissingError:
    """Return the error with similar names."""
    known = [each.namespaced_name for each in session.call(session.store.counters)]
    similar = tuple(get_close_matches(error.counter, known))
    remedy = "correct the name, or create it with --create"
    return CounterMissingError(error.store, counter=error.counter, similar=similar, remedy=remedy)


def bench(
    *,
    store: StoreUrl = None,
    config: Config = None,
    seconds: Seconds = 3.0,
    output: AsTable = TableFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Measure how fast ids are generated on this machine.

    The yardstick is an empty coroutine method.  The counter is in the namespace aiocosid-bench.
    """
    found = asyncio.run(_measured(chosen_store(store, config), seconds, timeout))
    if output is TableFormat.JSON:
        write_json(asdict(found))
    else:
        _write_measurement(found)


async def _measured(chosen: ChosenStore, seconds: float, wait_timeout: float) -> Measurement:
    store = chosen.make()
    with progress_bar("measuring") as show:
        async with aclosing(store), connect(store, namespace=BENCH_NAMESPACE) as ids:
            chain = await ids.segment_chain(BENCH_NAME, wait_timeout=wait_timeout)
            return await measure(chain, seconds=seconds, on_progress=show)


def _write_measurement(found: Measurement) -> None:
    rates = {
        "await an empty coroutine method": found.empty_calls_per_second,
        "await next_id()": found.next_id_per_second,
        "await next_ids(1000), per id": found.next_ids_per_second,
    }
    rows = [(what, f"{rate:,.0f}", f"{1e9 / rate:,.1f}") for what, rate in rates.items()]
    write_table(("", "per second", "ns each"), rows)
    write(f"one next_id() takes {found.next_id_ratio:.2f} times as long as an empty call\n")


for _function in (doctor, init, check_config, watch, bench, set_floor, snowflake, parse, serve):
    app.command()(_function)
app.command()(broker)
for _group in (machines, groups, series, migrate, token):
    app.add_typer(_group)
