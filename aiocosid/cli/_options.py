"""The options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from ..abc import DEFAULT_NAMESPACE
from ..errors import InvalidArgumentError
from ..provider import OPTIONS, OptionSpec
from ..snowflake import COSID_MS
from ._output import TableFormat, TextFormat

__all__ = (
    "DEFAULT_TIMEOUT",
    "AnyNamespace",
    "AsTable",
    "AsText",
    "Bits",
    "Config",
    "Count",
    "Create",
    "Epoch",
    "Layout",
    "Name",
    "Namespace",
    "Seconds",
    "StoreUrl",
    "Timeout",
    "Unit",
    "Zone",
    "declared",
)

DEFAULT_TIMEOUT: Final = 10.0  # seconds
UNLIMITED: Final = 10**9  # a maximum from here on is not shown in the help


def declared(
    spec: OptionSpec,
    *spellings: str,
    words: str = "{}.",
    make: Callable[..., Any] = typer.Option,
    **more: Any,  # noqa: ANN401 - of typer's function
) -> Any:  # noqa: ANN401 - as typer has it
    """Return an option with the range and the meaning of its declaration.

    Args:
        spec: the declaration.
        *spellings: its names on the command line.
        words: its help, around what its declaration says.
        make: `typer.Option` or `typer.Argument`.
        **more: its other arguments.
    """
    meaning = words.format(spec.doc)
    help_text = meaning[:1].upper() + meaning[1:]
    if spec.at_least is None or spec.at_most is None:
        return make(*spellings, help=help_text, **more)
    low, high = spec.at_least, spec.at_most

    def check(param: typer.CallbackParam, value: float | None) -> float | None:
        if value is not None and not low <= value <= high:  # nan is not
            raise InvalidArgumentError(param.opts[0], value, f"must be from {low} to {high}")
        return value

    limits = f"{low} to {high}" if high < UNLIMITED else f"at least {low}"
    return make(*spellings, callback=check, help=f"{help_text} [{limits}]", **more)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The counter's name in its namespace.")]

AsText = Annotated[
    TextFormat,
    typer.Option("--format", metavar="text|json", help="Text for people, JSON for programs."),
]

AsTable = Annotated[
    TableFormat,
    typer.Option("--format", metavar="table|json", help="A table for people, JSON for programs."),
]

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store, for example sqlite:///ids.db, redis://host/0 or postgresql://host/db "
        "(default: AIOCOSID_STORE, or the store that the settings name).",
    ),
]

Config = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The settings, a TOML file (default: AIOCOSID_CONFIG)."),
]

Create = Annotated[
    bool,
    typer.Option("--create", help="Create tables and files of the stores that have never existed."),
]

Count = Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="How many ids.")]

Namespace = Annotated[
    str | None,
    declared(
        OPTIONS["namespace"],
        "--namespace",
        metavar="NAMESPACE",
        words="{} (default: AIOCOSID_NAMESPACE, the settings' namespace, or "
        f"{DEFAULT_NAMESPACE}).",
    ),
]

AnyNamespace = Annotated[
    str | None,
    declared(
        OPTIONS["namespace"],
        "--namespace",
        metavar="NAMESPACE",
        words="Only this {} (default: all).",
    ),
]

Layout = Annotated[
    str | None,
    declared(
        OPTIONS["layout"],
        "--layout",
        metavar="NAME",
        words=f"{{}} (default: {COSID_MS.name}); an unknown name lists all.",
    ),
]

Bits = Annotated[
    str | None,
    typer.Option(
        "--bits",
        metavar="T/M/S",
        help="A custom layout, with --unit and --epoch: the bits of time, machine id and sequence "
        "(41/10/12), or of time, region, worker and sequence (41/5/5/12).",
    ),
]

Unit = Annotated[
    str | None,
    declared(OPTIONS["unit"], "--unit", metavar="UNIT", words="{}: ms, 10ms, s, 500ms, 60s."),
]

Epoch = Annotated[
    str | None,
    declared(OPTIONS["epoch"], "--epoch", metavar="TIME", words="{} (default: the layout's)."),
]

Zone = Annotated[
    str | None,
    declared(
        OPTIONS["zone"],
        "--zone",
        metavar="ZONE",
        words="{} and of local time: Asia/Shanghai, +08:00, UTC (default: UTC for friendly text, "
        "the system's zone for local time).",
    ),
]

Timeout = Annotated[float, declared(OPTIONS["call_timeout"], "--timeout", metavar="SECONDS")]

Seconds = Annotated[
    float,
    declared(
        OptionSpec("approximate duration in seconds", 0.01, 10**9), "--seconds", metavar="SECONDS"
    ),
]
