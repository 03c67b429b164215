"""The commands that run the id service, and create its tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidArgumentError
from ._options import AsText, Config, Create
from ._output import TextFormat, write, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..provider.settings import Settings

__all__ = ("serve", "token")

token = typer.Typer(name="token", help="Create tokens for the id service.")


def serve(
    *,
    config: Config = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="HOST:PORT, unix:/PATH, or fd:// for systemd's sockets; may be repeated.",
        ),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A host name that requests without a token may use; may be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The number of processes.")
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=3600,
            metavar="SECONDS",
            help="How long to keep serving after SIGTERM, while /health/ready answers 503.",
        ),
    ] = None,
    create: Create = False,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Serve other machines even without tokens."),
    ] = False,
) -> None:
    """Run the id service until SIGTERM or Ctrl-C.

    Options override the settings.  On the first signal it reports that it is not ready, answers
    the requests that have arrived, and gives its machine ids back; a second signal ends it at once.
    SIGHUP reloads tokens, certificates and host names.
    """
    from ..provider.settings import address_of
    from ..server import run

    for each in listen or ():
        address_of(each)
    options = {
        "listen": listen or None,
        "hosts": host_name or None,
        "workers": workers,
        "drain": drain,
        "insecure": insecure or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    load = partial(_settings, config, given, create=create)
    run(load(), load)


def _settings(config: str | None, given: Mapping[str, object], *, create: bool) -> Settings:
    """Return the settings, overridden by the given options; each process may reload them."""
    from ..provider.settings import load_settings

    found = load_settings(config)
    if found.store is None and not found.generators and found.share is None:
        rule = "must name a file with a store or a generator to serve, unless AIOCOSID_CONFIG does"
        raise InvalidArgumentError("--config", config, rule)
    server = found.server.model_copy(update=dict(given))
    return found.model_copy(update={"server": server, "create": found.create or create})


@token.callback()
def _group() -> None: ...


@token.command()
def new(
    *,
    name: Annotated[str, typer.Option(metavar="NAME", help="The holder's name in the audit log.")],
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE",
            help="A right: ids, segments, machines, read or admin; may be repeated.",
        ),
    ] = ["ids"],  # noqa: B006 - typer copies it
    names: Annotated[
        list[str],
        typer.Option(metavar="PATTERN", help="Names it may use, like shop.*; may be repeated."),
    ] = ["*"],  # noqa: B006 - as above
    expires_in: Annotated[
        int | None,
        typer.Option(min=1, max=36500, metavar="DAYS", help="Days until it expires."),
    ] = None,
    ids_per_second: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximum ids a second, for each name."),
    ] = None,
    ids_per_request: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum ids in one request.")
    ] = None,
    form: AsText = TextFormat.TEXT,
) -> None:
    """Create a token, and print the table that the settings need.

    The table goes to standard output and contains only the token's hash.  The token itself goes to
    standard error, and is not shown again.
    """
    from ..server import new_token, token_table

    secret = new_token()
    table = token_table(
        secret,
        name=name,
        scopes=scope,
        names=names,
        days=expires_in,
        ids_per_second=ids_per_second,
        ids_per_request=ids_per_request,
    )
    if form is TextFormat.JSON:
        write_json({"token": secret, "settings": table})
        return
    write(table)
    typer.echo(f"token (keep it secret): {secret}", err=True)
