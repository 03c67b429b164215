"""The addresses on which a server listens.  No I/O."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from ...errors import InvalidArgumentError

__all__ = ("ADDRESSES", "Address", "address_of", "is_loopback")

ADDRESSES: Final = "'host:port', '[::1]:port', 'unix:/path' or 'fd://' for systemd's sockets"

UNIX: Final = "unix:"
INHERITED: Final = "fd://"
TCP: Final = re.compile(
    r"(?:\[(?P<ipv6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>\d{1,5})"
)
MOST_PORTS: Final = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """One address; without host and path it stands for the sockets that systemd passes.

    Attributes:
        host: a name or an IP address; empty for other addresses.
        port: the TCP port; 0 for any free port.
        path: the path of a Unix socket; empty for other addresses.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        """Return the address as it is written in settings."""
        if self.path:
            return f"{UNIX}{self.path}"
        if not self.host:
            return INHERITED
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> Address:
    """Return the address that a text names.

    Raises:
        InvalidArgumentError: the text does not name an address.
    """
    if text == INHERITED:
        return Address()
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return Address(path=text.removeprefix(UNIX))
    found = TCP.fullmatch(text)
    if found is None or int(found["port"]) > MOST_PORTS:
        raise InvalidArgumentError("listen", text, f"must be {ADDRESSES}")
    return Address(host=found["ipv6"] or found["host"], port=int(found["port"]))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host; of names, only localhost is certain."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host.partition("%")[0]).is_loopback
    return False
