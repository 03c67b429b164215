"""The host names to which a server answers.  No I/O.

Another site may make its own host name resolve to this server's address, so that a browser treats
both as one site.  The host name in the request tells them apart.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("Hosts",)

LOCAL = "localhost", "*.localhost"


class Hosts:
    """Host names: any address, ``localhost`` in any case, and the given names."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Store the names; ``*`` in a name matches any characters."""
        self._names = (*LOCAL, *(each.lower() for each in names))

    def allow(self, host: bytes) -> bool:
        """Return whether a request may name this host, which may include a port."""
        return _is_allowed(host, self._names)


@lru_cache(maxsize=1024)
def _is_allowed(host: bytes, names: tuple[str, ...]) -> bool:
    name = re.sub(r":[0-9]*\Z", "", host.decode("latin-1").lower()).removesuffix(".")
    try:
        ip_address(name[1:-1] if name.startswith("[") else name)
    except ValueError:
        patterns = (".*".join(map(re.escape, each.split("*"))) for each in names)
        return re.fullmatch("|".join(patterns), name) is not None
    return True
