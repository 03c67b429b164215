"""The options that commands share."""

from __future__ import annotations

import math
from typing import Annotated, Final

import typer

__all__ = (
    "DEFAULT_STORE",
    "DEFAULT_TIMEOUT",
    "STORE_VARIABLE",
    "AnyNamespace",
    "Name",
    "Namespace",
    "Seconds",
    "StoreUrl",
    "Timeout",
)

STORE_VARIABLE: Final = "AIOCOSID_STORE"
DEFAULT_STORE: Final = "sqlite:///ids.db"
DEFAULT_TIMEOUT: Final = 10.0  # seconds


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):  # nan passes a range check in older releases of click
        raise typer.BadParameter("it has to be a finite number")
    return seconds


Name = Annotated[str, typer.Argument(help="The counter's name in its namespace.")]

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        help="Where the counters lie: sqlite:///ids.db, redis://..., postgresql://..., memory://",
    ),
]

Namespace = Annotated[str, typer.Option("--namespace", help="The counter's namespace.")]

AnyNamespace = Annotated[
    str | None, typer.Option("--namespace", help="Only counters of this namespace; all without it.")
]

Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        callback=_finite,
        help="How long one call to the store may take.",
    ),
]

Seconds = Annotated[
    float,
    typer.Option(
        "--seconds", min=0.01, metavar="SECONDS", callback=_finite, help="How long about."
    ),
]
