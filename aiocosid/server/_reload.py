"""The settings that a running server can reload: tokens, certificates, and its names."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgumentError
from ._tls import context_of
from ._tokens import Token, TokenScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..provider.settings import ServerSettings, Settings

__all__ = ("read_again", "tokens_of")

MS: Final = 1000
AGAIN: Final = ("tokens", "hosts", "tls_certificate", "tls_key")


def tokens_of(server: ServerSettings) -> list[Token]:
    """Return the tokens of the settings."""
    return [
        Token(
            name=each.name,
            digest=each.digest,
            scopes=tuple(map(TokenScope, each.scopes)),
            names=tuple(each.names),
            expires_ms=None if each.expires is None else ceil(each.expires.timestamp() * MS),
            ids_per_second=each.ids_per_second,
            ids_per_request=each.ids_per_request,
        )
        for each in server.tokens
    ]


def read_again(settings: Settings, load: Callable[[], Settings]) -> Settings:
    """Return settings with reloaded tokens, certificates and names; all others stay.

    Args:
        settings: the server's settings.
        load: loads the settings again.

    Raises:
        InvalidSettingsError: the new settings are wrong.
        InvalidArgumentError: the new settings no longer have a token, so that every caller could do
            everything; TLS would begin or end; or a certificate cannot be read.
    """
    old, new = settings.server, load().server
    if old.tokens and not new.tokens:
        rule = "cannot be empty after a reload; restart the server to run without tokens"
        raise InvalidArgumentError("tokens", [], rule)
    if (old.tls_certificate is None) != (new.tls_certificate is None):
        rule = "cannot be added or removed by a reload; restart the server to change that"
        raise InvalidArgumentError("tls_certificate", new.tls_certificate, rule)
    server = old.model_copy(update={name: getattr(new, name) for name in AGAIN})
    found = settings.model_copy(update={"server": server})
    context_of(found)
    return found
