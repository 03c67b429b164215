"""What a root is called on Redis: spans of two roots must not be mixed, or ids come twice."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ...abc._ids import check_text
from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    from ...abc import IdSegmentDistributor

__all__ = ("name_of_root", "name_of_url")

LOCAL: Final = ("localhost", "127.", "[::1]", "%2F", ":")  # a socket's path is encoded
PROCESS: Final = secrets.token_hex(8)


def name_of_root(root: IdSegmentDistributor, given: str | None) -> str:
    """Return the name that was given, or one that no other root has.

    Raises:
        InvalidArgumentError: none was given, and the root does not say which one it is.
    """
    if given is not None:
        check_text("root_name", given)
        return given
    kind, _, path = root.store.partition(" ")
    if kind == "sqlite" and path:
        return f"{socket.gethostname()} {path}"
    if kind == "memory":
        return f"memory {PROCESS}"
    expected = (
        f"a text that tells this {kind} root from all others whose spans lie on the same Redis, "
        "the same in every process, as 'db1/shop'"
    )
    raise InvalidArgumentError("root_name", given, expected=expected)


def name_of_url(url: str) -> str | None:
    """Return the name of a server's database by its URL: host and path; None for what has none.

    A file, and memory, have names of their own.
    """
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "memory"}:
        return None
    host = parts.netloc.rpartition("@")[2]
    # Every host has a localhost.
    here = f"{socket.gethostname()} " if not host or host.startswith(LOCAL) else ""
    return f"{here}{host}{parts.path}"
