"""The command that runs the broker of a host."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InvalidArgumentError
from ._options import Create, SettingsFile

__all__ = ("broker",)


def broker(
    *,
    config: SettingsFile = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where ids are bought, instead of a file with settings."),
    ] = None,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The Unix socket (default: systemd's, or /run/aiocosid/broker.sock).",
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="Its permissions, for example 660.")
    ] = None,
    endurance: Annotated[
        float,
        typer.Option(
            min=0, max=3600, metavar="SECONDS", help="How long it serves without its store."
        ),
    ] = 60.0,
    create: Create = False,
) -> None:
    """Run the broker of a host until SIGTERM or Ctrl-C: one chain and one machine id for all.

    Its workers have the store aiocosid+unix:///run/aiocosid/broker.sock, and take Snowflakes as
    generators of the kind "remote".  Without a file it has counters alone.
    """
    from ..provider.settings import load_settings
    from ..server import run_broker

    if store is not None and config is not None:
        raise InvalidArgumentError("--store", "...", "cannot be combined with --config")
    found = load_settings(config if store is None else {"store": store})
    settings = found.model_copy(update={"create": found.create or create})
    run_broker(settings, socket=socket, mode=mode, endurance=endurance)
