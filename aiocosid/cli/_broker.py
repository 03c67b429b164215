"""The command that runs the broker of a host."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InvalidArgumentError
from ._options import Config, Create

__all__ = ("broker",)


def broker(
    *,
    config: Config = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where to fetch ids, instead of a settings file."),
    ] = None,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The Unix socket to listen on (default: systemd's, or /run/aiocosid/broker.sock).",
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="The socket's permissions, for example 660.")
    ] = None,
    endurance: Annotated[
        float,
        typer.Option(
            min=0, max=3600, metavar="SECONDS", help="How long to serve without the store."
        ),
    ] = 60.0,
    create: Create = False,
) -> None:
    """Run the broker of this host until SIGTERM or Ctrl-C.

    It fetches ids for all processes of the host, which use aiocosid+unix:///run/aiocosid/broker.sock
    as their store, and generators of the kind "remote" for Snowflakes.  Without a settings file it
    serves counters only.
    """
    from ..provider.settings import load_settings
    from ..server import run_broker

    if store is not None and config is not None:
        raise InvalidArgumentError("--store", "...", "cannot be combined with --config")
    found = load_settings(config if store is None else {"store": store})
    settings = found.model_copy(update={"create": found.create or create})
    run_broker(settings, socket=socket, mode=mode, endurance=endurance)
