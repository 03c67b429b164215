"""The options in another system's URL.  No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from ..errors import InvalidArgumentError
from ..stores.over import read_option

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Options", "check_identifier", "check_one_of", "split_options")

# The options of a query, and the functions that read their texts.
Options: TypeAlias = Mapping[str, Callable[[str], Any]]

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,63}")


def split_options(
    url: str,
    scheme: str,
    options: Options,
    *,
    needs_all: bool = False,
    extras: Options | None = None,
) -> tuple[str, dict[str, Any]]:
    """Remove a system's name and options from a URL; the rest is for the driver.

    Args:
        url: for example ``tddl+mysql://user@host/db?inner_step=1000``.
        scheme: the system's name in the URL, which may be left out.
        options: the allowed options.
        needs_all: whether all of them are required.
        extras: additional optional options.

    Raises:
        InvalidArgumentError: an option is missing, occurs twice, or cannot be read; the URL is not
            shown, because it may contain passwords.
    """
    base, _, query = str(url).removeprefix(f"{scheme}+").partition("?")
    kept: list[str] = []
    read: dict[str, Any] = {}
    allowed = {**options, **(extras or {})}
    for piece in query.split("&") if query else ():
        name, _, text = piece.partition("=")
        if name not in allowed:
            kept.append(piece)
        elif name in read:
            raise InvalidArgumentError(name, text, "is given more than once")
        else:
            read[name] = read_option(name, unquote(text), allowed[name])
    if needs_all and (missing := sorted(options.keys() - read.keys())):
        whole = "&".join(f"{name}=..." for name in options)
        rule = f"lacks {', '.join(missing)} in its query; write {scheme}+...?{whole}"
        raise InvalidArgumentError("url", f"{scheme}+...", rule)
    return base + ("?" + "&".join(kept) if kept else ""), read


def check_identifier(argument: str, value: object) -> None:
    """Raise unless the value is a name that needs no quotes in a statement."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        rule = "must be a table name of at most 64 letters, digits and _"
        raise InvalidArgumentError(argument, value, rule)


def check_one_of(argument: str, value: object, allowed: Sequence[object]) -> None:
    """Raise unless the value is one of those allowed."""
    if value not in allowed:
        raise InvalidArgumentError(argument, value, f"must be {' or '.join(map(repr, allowed))}")
