"""What a root is called on Redis: spans of two roots must not be mixed, or ids come twice.

One name too many for a root costs a span; so all goes in that may tell two of them apart.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from ...abc._ids import check_text
from ...errors import InvalidArgumentError
from ..memory import MemoryBackend

if TYPE_CHECKING:
    from ...abc import Store

__all__ = ("name_of_root", "name_of_url")

LOCAL: Final = ("localhost", "127.", "0.", "[::", "%2f", ":")  # a socket's path is encoded
SECRET: Final = ("password", "timeout", "durability")  # in the names of options: not of the place
# What the driver of PostgreSQL takes from the environment for what the URL leaves out.
VARIABLES: Final = (
    *("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGOPTIONS", "PGSERVICE", "PGSERVICEFILE"),
)
DIGITS: Final = 16

_memories: WeakKeyDictionary[MemoryBackend, str] = WeakKeyDictionary()


def name_of_root(store: Store, given: str | None) -> str:
    """Return the name that was given, or one that no other root has.

    Raises:
        InvalidArgumentError: none was given, and the root does not say which one it is.
    """
    if given is not None:
        check_text("root_name", given)
        return given
    root = store.segment_distributor(name="root")
    kind, _, path = root.store.partition(" ")
    if kind == "sqlite" and path:
        return f"{socket.gethostname()} {path}"
    backend = getattr(root, "_backend", None)
    if isinstance(backend, MemoryBackend):
        return _memories.setdefault(backend, f"memory {secrets.token_hex(8)}")
    expected = (
        f"a text that tells this {kind} root from all others whose spans lie on the same Redis, "
        "the same in every process, as 'db1/shop'"
    )
    raise InvalidArgumentError("root_name", given, expected=expected)


def name_of_url(url: str) -> str | None:
    """Return the name of a server's database by its URL; None for what has a name of its own.

    It has the user, the hosts and the path, and a digest of the options, without passwords.
    """
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "memory"}:
        return None
    login, _, hosts = parts.netloc.rpartition("@")
    user, hosts = login.partition(":")[0], hosts.lower()
    # Every host has a localhost.
    is_local = any(not each or each.startswith(LOCAL) for each in hosts.split(","))
    here = f"{socket.gethostname()} " if is_local else ""
    return f"{here}{user}@{hosts}{parts.path}{_digest(parts, user)}"


def _digest(parts: SplitResult, user: str) -> str:
    """Tell apart what host and path do not: a schema on the search path, a socket, a default."""
    query = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    kept = [pair for pair in query if not any(word in pair[0] for word in SECRET)]
    kept += [(name, os.environ[name]) for name in VARIABLES if os.environ.get(name)]
    if not user:
        with suppress(Exception):  # nobody of this number has a name
            kept.append(("", getpass.getuser()))
    if not kept:
        return ""
    return " " + hashlib.sha256(repr(sorted(kept)).encode()).hexdigest()[:DIGITS]
