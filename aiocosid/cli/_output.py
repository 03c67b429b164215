"""The output of the commands."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING, Final, Literal

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from ..errors import InvalidArgumentError
from ._exit import OutputError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from ..abc import Counter

__all__ = (
    "NoTerminalError",
    "TableFormat",
    "TextFormat",
    "confirmed",
    "drawn_table",
    "has_terminal",
    "progress_bar",
    "time_text",
    "write",
    "write_counters",
    "write_ids",
    "write_json",
    "write_table",
)

CHUNK: Final = 10_000  # ids that are formatted at a time
UNBOUNDED: Final = 10_000  # columns of a table without a terminal
PROGRESS_STEP: Final = 0.01  # the share of progress between two updates of the bar


class TextFormat(StrEnum):
    """The format of ids, or of a sentence."""

    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    """The format of a table."""

    TABLE = "table"
    JSON = "json"


def write(text: str) -> None:
    """Write to standard output, and flush it.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError as error:  # a counter's name, on a terminal that is not UTF-8
            sys.stdout.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(error) from error


def write_ids(segments: Iterable[Sequence[int]], output: TextFormat) -> None:
    """Write ids: as text at once, one per line; as a JSON array when all of them are there.

    Raises:
        OutputError: standard output cannot be written.
    """
    if output is TextFormat.TEXT:
        for segment in segments:
            for chunk in _chunks(segment):
                write("\n".join(map(str, chunk)) + "\n")
        return
    separator = "["
    for segment in list(segments):  # ranges, not ids; so an error leaves no partial array
        for chunk in _chunks(segment):
            write(separator + ", ".join(map(str, chunk)))
            separator = ", "
    write("]\n")


def _chunks(segment: Sequence[int]) -> Iterator[Sequence[int]]:
    return (segment[start : start + CHUNK] for start in range(0, len(segment), CHUNK))


def write_counters(counters: Sequence[Counter], output: TableFormat) -> None:
    """Write counters as a table or as a JSON array of objects.

    Raises:
        OutputError: standard output cannot be written.
    """
    if output is TableFormat.JSON:
        write_json([asdict(counter) for counter in counters])
        return
    if not counters:
        write("no counters\n")
        return
    rows = [(c.namespaced_name, c.last_max_id, _time(c.last_fetch_time)) for c in counters]
    write_table(("counter", "last max id", "last fetch (UTC)"), rows)


def time_text(ms: int) -> str:
    """Return a unix time in milliseconds to the second, in UTC; ``-`` for none, 0 or below."""
    return _time(max(ms, 0) // 1000)


def _time(seconds: int | None) -> str:
    if not seconds:  # stores keep 0 for a time that is not known
        return "-"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):  # the column may hold any number
        return str(seconds)


def has_terminal() -> bool:
    """Return whether standard input is a terminal, so that a question can be answered."""
    return sys.stdin is not None and sys.stdin.isatty()


class NoTerminalError(InvalidArgumentError):
    """A command has a question, and there is no terminal to ask it on."""

    def __init__(self, option: str, *, remedy: str) -> None:
        super().__init__(option, None, "is required")
        self.remedy = remedy
        self.args = (f"cannot ask for confirmation without a terminal; {remedy}",)


def confirmed(question: str) -> bool:
    """Ask on standard error; return whether the answer is yes."""
    # Not typer.confirm: it writes a part of its question to standard output.
    typer.echo(f"{question} [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def write_json(value: object) -> None:
    """Write one JSON document on a line.

    Raises:
        OutputError: standard output cannot be written.
    """
    write(json.dumps(value) + "\n")


def write_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[int] = (0,)
) -> None:
    """Write a table; nothing is truncated.

    On a terminal that is too narrow for it, each row is a block of lines instead.

    Args:
        columns: the headings.
        rows: the cells; None and an empty text are shown as ``-``.
        left: which columns hold text; the others hold numbers and times.

    Raises:
        OutputError: standard output cannot be written.
    """
    # Drawn to a buffer: on a broken pipe rich itself would end the process.
    drawn = _Drawing()
    console = Console(file=drawn, width=None if sys.stdout.isatty() else UNBOUNDED)
    console.print(drawn_table(columns, rows, left=left, width=console.width))
    write(drawn.getvalue())


def drawn_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Sequence[int] = (0,),
    width: int,
) -> Table:
    """Return the table that `write_table` writes, for a terminal of ``width`` columns."""
    texts = [["-" if e is None or e == "" else printable(str(e)) for e in row] for row in rows]
    cells = [*zip(columns, *texts, strict=True)]
    widths = [max(map(cell_len, each)) for each in cells]
    least = [max(map(cell_len, " ".join(each).split()), default=0) for each in cells]  # whole words
    room = width - 3 * len(columns) - 1  # without the borders
    if sum(least) > room and texts and len(columns) > 2:  # noqa: PLR2004 - those of a block
        blocks = Table(show_header=False)
        for row in texts:
            for pair in zip(columns, row, strict=True):
                blocks.add_row(*map(Text, pair))
            blocks.add_section()
        return blocks
    while sum(widths) > room and widths != least:
        loosest = max(range(len(widths)), key=lambda i: widths[i] - least[i])
        widths[loosest] -= 1
    table = Table()
    for i, column in enumerate(columns):
        justify: Literal["left", "right"] = "left" if i in left else "right"
        table.add_column(column, justify=justify, overflow="fold", width=widths[i])
    for row in texts:
        table.add_row(*map(Text, row))  # Text: a name with [brackets] is not markup
    return table


class _Drawing(StringIO):
    """Collects what is drawn for standard output."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.encoding = sys.stdout.encoding  # boxes that it cannot encode are drawn in ASCII

    def isatty(self) -> bool:
        return sys.stdout.isatty()


@contextmanager
def progress_bar(description: str) -> Generator[Callable[[float], None]]:
    """Draw a bar on standard error if it is a terminal; yield a function of the share, 0 to 1."""
    console = Console(stderr=True)
    # No automatic refresh: its thread would disturb measurements.
    with Progress(
        console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(description, total=1.0)
        shown = 0.0

        def show(share: float) -> None:
            nonlocal shown
            if share - shown >= PROGRESS_STEP:
                shown = share
                progress.update(task, completed=share, refresh=True)

        yield show
