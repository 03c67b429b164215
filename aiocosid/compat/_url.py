"""What a URL tells besides where the database is.  Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ("check_identifier", "check_one_of", "split_options")

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,63}")


def split_options(
    url: str, kinds: Mapping[str, Callable[[str], Any]]
) -> tuple[str, dict[str, Any]]:
    """Take the options of a system out of a URL's query; what else is there is the driver's.

    Args:
        url: such as ``mysql://user@host/db?inner_step=1000``.
        kinds: how the text of each option is read.

    Raises:
        InvalidArgumentError: an option is there twice, or cannot be read.
    """
    place, _, query = url.partition("?")
    kept: list[str] = []
    read: dict[str, Any] = {}
    for piece in query.split("&") if query else ():
        name, _, text = piece.partition("=")
        if name not in kinds:
            kept.append(piece)
            continue
        try:
            value = kinds[name](unquote_plus(text))
        except ValueError:
            raise InvalidArgumentError(name, text, expected="a number") from None
        if name in read:
            raise InvalidArgumentError(name, text, expected="one of them, not several")
        read[name] = value
    return place + ("?" + "&".join(kept) if kept else ""), read


def check_identifier(argument: str, value: object) -> None:
    """Raise unless it is a name that can stand in a statement as it is."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        expected = "the name of a table: letters, digits and _, at most 64"
        raise InvalidArgumentError(argument, value, expected=expected)


def check_one_of(argument: str, value: object, allowed: Sequence[object]) -> None:
    """Raise unless it is one of these."""
    if value not in allowed:
        expected = " or ".join(repr(each) for each in allowed)
        raise InvalidArgumentError(argument, value, expected=expected)
