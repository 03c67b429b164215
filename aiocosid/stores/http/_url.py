"""Which proxy a URL names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from ...errors import InvalidArgumentError

__all__ = ("Target", "path_of")

SCHEMES: Final = {"http": "http", "https": "https", "cosid+http": "http", "cosid+https": "https"}
EXPECTED: Final = "http://host:8688 or https://host, without a query; before it cosid+ may stand"


@dataclass(frozen=True, slots=True)
class Target:
    """A proxy's address.

    Attributes:
        base: ``http://host:8688``, with a path if it has one; without credentials.
        login: user and password, or None.
    """

    base: str
    login: tuple[str, str] | None = field(repr=False)

    @classmethod
    def of(cls, url: str) -> Target:
        """Read a URL.

        Raises:
            InvalidArgumentError: it is malformed; what was given is not shown, as it may hold a
                password.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # a port that is none, or half of a pair of brackets
            raise InvalidArgumentError("url", "...", expected=EXPECTED) from None
        scheme = SCHEMES.get(parts.scheme)
        host = parts.hostname
        if scheme is None or not host or parts.query or parts.fragment:
            raise InvalidArgumentError("url", "...", expected=EXPECTED)
        where = f"[{host}]" if ":" in host else host
        where += f":{port}" if port is not None else ""
        login = None
        if parts.username is not None:
            login = unquote(parts.username), unquote(parts.password or "")
        return cls(f"{scheme}://{where}{parts.path.rstrip('/')}", login)

    def __str__(self) -> str:
        """Return it without credentials."""
        return self.base


def path_of(*parts: str) -> str:
    """Return a path of parts that may hold any letter; none of them becomes two, or nothing."""
    return "".join(f"/{_quoted(part)}" for part in parts)


def _quoted(part: str) -> str:
    # A part of dots alone would be a step in the tree, which clients and gateways take themselves.
    return part.replace(".", "%2E") if part in {".", ".."} else quote(part, safe="")
