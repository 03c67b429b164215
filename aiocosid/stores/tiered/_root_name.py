"""The name of a root on Redis: if spans of two roots were mixed, ids would repeat.

Two names for one root only cost a span; so a name includes all that may differ between two roots.
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

from ...abc.checks import check_text
from ...errors import InvalidArgumentError
from ..memory import MemoryBackend

if TYPE_CHECKING:
    from ...abc import Store

__all__ = ("name_of_root", "name_of_url")

LOCAL: Final = ("localhost", "127.", "0.", "[::", "%2f", ":")  # a socket's path is percent-encoded
# Parts of the names of options that do not identify a database.
SECRET: Final = ("password", "timeout", "durability")
# PostgreSQL's driver takes parts that the URL lacks from these environment variables.
VARIABLES: Final = (
    *("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGOPTIONS", "PGSERVICE", "PGSERVICEFILE"),
)
DIGITS: Final = 16

_memories: WeakKeyDictionary[MemoryBackend, str] = WeakKeyDictionary()


def name_of_root(store: Store, given: str | None) -> str:
    """Return the given name, or one that no other root has.

    Raises:
        InvalidArgumentError: no name was given, and the root has none of its own.
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
        f"a text that no other root with spans on the same Redis has than this {kind} root, "
        "the same in every process, as 'db1/shop'"
    )
    raise InvalidArgumentError("root_name", given, expected=expected)


def name_of_url(url: str) -> str | None:
    """Return the name of a server's database by its URL; None for other stores.

    It consists of user, hosts and path, and a digest of the options, without passwords.
    """
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "memory"}:
        return None
    login, _, hosts = parts.netloc.rpartition("@")
    user, hosts = login.partition(":")[0], hosts.lower()
    # localhost is another server on each host.
    is_local = any(not each or each.startswith(LOCAL) for each in hosts.split(","))
    here = f"{socket.gethostname()} " if is_local else ""
    return f"{here}{user}@{hosts}{parts.path}{_digest(parts, user)}"


def _digest(parts: SplitResult, user: str) -> str:
    """Return a digest of other differences: a schema on the search path, a socket, a default."""
    query = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    kept = [pair for pair in query if not any(word in pair[0] for word in SECRET)]
    kept += [(name, os.environ[name]) for name in VARIABLES if os.environ.get(name)]
    if not user:
        with suppress(Exception):  # no user with this number has a name
            kept.append(("", getpass.getuser()))
    if not kept:
        return ""
    return " " + hashlib.sha256(repr(sorted(kept)).encode()).hexdigest()[:DIGITS]
