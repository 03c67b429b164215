"""Who asks for a worker id: an address and a port that somebody has named, never guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from ...abc._ids import check_integer, check_text
from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("WORKER_IDS_ALONE", "Place", "check_leaf_name", "split_url")

WIDTH: Final = 100  # characters of address and port together; Leaf's table holds 127
WORKER_IDS_ALONE: Final = (
    "it keeps worker ids alone; Leaf's segments are a store of their own, leaf+mysql://"
)
MAX_PORT: Final = 2**16 - 1

_NODE: Final = re.compile(r"(?!\.{1,2}$)[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff]+")


@dataclass(frozen=True, slots=True)
class Place:
    """An address and a port, as Leaf writes them.

    Attributes:
        ip: the address, or whatever stands in its place.
        port: the port, as text.
    """

    ip: str
    port: str

    @classmethod
    def of(cls, ip: str, port: int | str) -> Place:
        """Check both.

        Raises:
            InvalidArgumentError: the address is empty, or no node could be called so; or the port
                is not 1 to 65535.
        """
        check_text("ip", ip, at_most=WIDTH - 6)
        if not _NODE.fullmatch(ip):
            raise InvalidArgumentError("ip", ip, expected="this host's address, without a slash")
        number = int(port) if isinstance(port, str) and re.fullmatch("[0-9]{1,5}", port) else port
        check_integer("port", number, at_least=1, at_most=MAX_PORT)
        return cls(ip, str(number))

    def __str__(self) -> str:
        """Return Leaf's key, ``ip:port``."""
        return f"{self.ip}:{self.port}"


def check_leaf_name(name: str) -> str:
    """Return ``leaf.name`` if a node and a directory can be called so.

    Raises:
        InvalidArgumentError: they cannot.
    """
    check_text("name", name, at_most=WIDTH)
    if not _NODE.fullmatch(name):
        raise InvalidArgumentError("name", name, expected="Leaf's leaf.name, without a slash")
    return name


def split_url(
    url: str, scheme: str, names: Iterable[str], *, optional: Iterable[str] = ()
) -> tuple[str, dict[str, str]]:
    """Take what is Leaf's out of a URL's query; return the server's URL, and that.

    Raises:
        InvalidArgumentError: a name is missing; the sentence holds nothing that may be secret.
    """
    wanted = {*names}
    rest, _, query = str(url).removeprefix(f"{scheme}+").partition("?")
    given = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    told = {name: text for name, text in given if name in wanted | {*optional}}
    if missing := sorted(wanted - {*told}):
        query = "&".join(f"{name}=..." for name in names)
        expected = f"one with {', '.join(missing)} in its query: {scheme}+...?{query}"
        raise InvalidArgumentError("url", f"{scheme}+...", expected=expected)
    others = urlencode([pair for pair in given if pair[0] not in told])
    return f"{rest}?{others}" if others else rest, told
