"""What a URL tells besides where the database is.  Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_plus

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ("check_identifier", "check_one_of", "split_group", "split_options")

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


def split_group(
    url: str, system: str, options: Sequence[str], store_timeout: float
) -> tuple[list[str], dict[str, str], float]:
    """Return what a URL of several databases tells.

    Args:
        url: such as ``tinyid-group+striped:?store=URL&store=URL``.
        system: its name there.
        options: what it may tell to all of the databases, each once.
        store_timeout: used if the URL has none.

    Returns:
        The databases' URLs in their order, what they are told, and the seconds that one has.

    Raises:
        InvalidArgumentError: it is malformed; it is not shown, as it may hold passwords.
    """
    scheme, _, query = url.removeprefix(f"{system}-group+").partition(":?")
    given = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    urls = [text for name, text in given if name == "store"]
    told = {name: text for name, text in given if name != "store"}
    is_known = told.keys() <= {*options, "store_timeout"} and len(urls) + len(told) == len(given)
    if scheme != "striped" or not urls or not is_known:
        expected = f"{system}-group+striped:?store=URL&store=URL, percent-encoded"
        raise InvalidArgumentError("url", f"{scheme}:...", expected=expected)
    timeout = told.pop("store_timeout", store_timeout)
    try:
        return urls, told, float(timeout)
    except ValueError:
        raise InvalidArgumentError("store_timeout", timeout, expected="a number") from None


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
