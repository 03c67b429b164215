"""The options that commands share."""

from __future__ import annotations

import math
from typing import Annotated, Final

import typer

__all__ = (
    "DEFAULT_STORE",
    "DEFAULT_TIMEOUT",
    "STORE_VARIABLE",
    "AnyMachineNamespace",
    "AnyNamespace",
    "Bits",
    "Epoch",
    "Layout",
    "MachineNamespace",
    "Name",
    "Namespace",
    "Seconds",
    "StoreUrl",
    "Timeout",
    "Unit",
    "Zone",
)

STORE_VARIABLE: Final = "AIOCOSID_STORE"
DEFAULT_STORE: Final = "sqlite:///ids.db"
DEFAULT_TIMEOUT: Final = 10.0  # seconds


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):  # nan passes the range check of older click releases
        raise typer.BadParameter("it has to be a finite number")
    return seconds


Name = Annotated[str, typer.Argument(help="The counter's name in its namespace.")]

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        help="The store of counters and machine ids: sqlite:///ids.db, redis://..., "
        "postgresql://..., memory://",
    ),
]

Namespace = Annotated[str, typer.Option("--namespace", help="The counter's namespace.")]

AnyNamespace = Annotated[
    str | None, typer.Option("--namespace", help="Only counters of this namespace (default: all).")
]

MachineNamespace = Annotated[
    str, typer.Option("--namespace", help="The namespace of the machine ids.")
]

AnyMachineNamespace = Annotated[
    str | None,
    typer.Option("--namespace", help="Only machine ids of this namespace (default: all)."),
]

Layout = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="NAME",
        help="The layout of the id (default: cosid-ms); a wrong name lists all.",
    ),
]

Bits = Annotated[
    str | None,
    typer.Option(
        "--bits",
        metavar="T/M/S",
        help="Your own layout, with --unit and --epoch: bits of time, machine id and sequence "
        "as 41/10/12, or of time, region, worker and sequence as 41/5/5/12.",
    ),
]

Unit = Annotated[
    str | None,
    typer.Option("--unit", metavar="UNIT", help="Length of its tick: ms, 10ms, s, 500ms, 60s."),
]

Epoch = Annotated[
    str | None,
    typer.Option(
        "--epoch",
        metavar="TIME",
        help="The start of its time, or of that of --layout if it differs from the default: as "
        "2020-01-01T00:00:00+08:00, or in milliseconds since 1970.",
    ),
]

Zone = Annotated[
    str | None,
    typer.Option(
        "--zone",
        metavar="ZONE",
        help="The zone of local time and friendly text, as Asia/Shanghai, +08:00 or UTC "
        "(default: the system's for local time, UTC for friendly text).",
    ),
]

Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        callback=_finite,
        help="The timeout of one store call.",
    ),
]

Seconds = Annotated[
    float,
    typer.Option(
        "--seconds", min=0.01, metavar="SECONDS", callback=_finite, help="The approximate duration."
    ),
]
