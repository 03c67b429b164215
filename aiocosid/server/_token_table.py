"""Formats the settings table of a new token."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from .._life.clock import SYSTEM_CLOCK
from ..errors import InvalidArgumentError
from ..errors.base import one_of
from ._tokens import ANYTHING, TokenScope, digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("token_table",)

DAY_MS: Final = 86_400_000
MS: Final = 1000


def token_table(
    secret: str,
    *,
    name: str,
    scopes: Sequence[str] = (TokenScope.IDS,),
    names: Sequence[str] = ANYTHING,
    days: int | None = None,
    ids_per_second: int | None = None,
    ids_per_request: int | None = None,
) -> str:
    """Return the lines for a token in a TOML file, with its hash.

    Args:
        secret: the token.
        name: the holder's name.
        scopes: the scopes that it allows.
        names: patterns of the names for which it is valid.
        days: days after which it expires; None for never.
        ids_per_second: how many ids of each name it may take per second; None for no limit.
        ids_per_request: how many ids one request may take; None for the server's limits alone.

    Raises:
        InvalidArgumentError: a scope is unknown.
    """
    known = [*map(str, TokenScope)]
    for each in scopes:
        if each not in known:
            raise InvalidArgumentError("scope", each, one_of(known, each))
    lines = [
        "",  # a file may lack the newline at its end
        "[[server.tokens]]",
        f"name = {_quoted(name)}",
        f'digest = "{digest_of(secret)}"',
        f"scopes = {_quoted([*map(str, scopes)])}",
        f"names = {_quoted([*names])}",
    ]
    if days is not None:
        end = datetime.fromtimestamp((SYSTEM_CLOCK.now_ms() + days * DAY_MS) // MS, UTC)
        lines.append(f"expires = {end:%Y-%m-%dT%H:%M:%SZ}")
    quotas = {"ids_per_second": ids_per_second, "ids_per_request": ids_per_request}
    lines += [f"{what} = {most}" for what, most in quotas.items() if most is not None]
    return "\n".join(lines) + "\n"


def _quoted(value: str | list[str]) -> str:
    # TOML has the same strings and lists as JSON, but no surrogate pairs, and DEL must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
