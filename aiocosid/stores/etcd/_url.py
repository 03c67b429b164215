"""Reads the URL of an etcd cluster; shows nothing of it that may be secret."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from ...abc._ids import check_text
from ...errors import InvalidArgumentError

__all__ = ("PREFIX", "TIMEOUT", "Target", "check_prefix")

PREFIX: Final = "/cosid"
"""Beneath which all keys lie; CosId's name for its root."""

# Below the 2 s after which a generator gives a call up by default, so that it hears the reason.
TIMEOUT: Final = 1.5  # seconds for a call, retries included

PORT: Final = 2379

_TLS: Final = {"etcd": False, "etcds": True}
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_ESCAPED: Final = "with host:port and a percent-encoded user, password, path and option"
_HOST: Final = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]@\s]*)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names.

    Attributes:
        hosts: ``host:port`` of each member named.
        tls: whether connections are encrypted.
        prefix: beneath which all keys lie, without a ``/`` at its end.
        timeout: seconds for a call.
        login: user and password, if there are any.
        files: of certificates and keys, by the names of the options.
    """

    hosts: tuple[str, ...]
    tls: bool
    prefix: str = PREFIX
    timeout: float = TIMEOUT
    login: tuple[str, str] | None = field(default=None, repr=False)
    files: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)

    def __str__(self) -> str:
        """Name the cluster, without credentials."""
        return f"{','.join(self.hosts)}{self.prefix}"

    @classmethod
    def of(cls, url: str) -> Target:
        """Read a URL; nothing is resolved or connected.

        Raises:
            InvalidArgumentError: it is malformed; the sentence holds no part that may be secret.
        """
        scheme, found, rest = str(url).partition("://")
        scheme = scheme.lower()
        if not found or scheme not in _TLS:
            raise InvalidArgumentError(
                "url",
                f"{scheme}:..." if found else "...",
                expected="one that begins with etcd:// or etcds://",
            )
        return _Reading(scheme, rest).target()


def check_prefix(prefix: str) -> str:
    """Return a prefix without the ``/`` at its end.

    Raises:
        InvalidArgumentError: it is no text, or nothing is left of it.
    """
    check_text("prefix", prefix)
    if not (shorter := prefix.rstrip("/")):
        raise InvalidArgumentError("prefix", prefix, expected="more than '/'")
    return shorter


class _Reading:
    """One URL being read."""

    def __init__(self, scheme: str, rest: str) -> None:
        self._scheme = scheme
        rest, _, self._query = rest.partition("?")
        self._authority, slash, path = rest.partition("/")
        if "@" in path or "@" in self._query:  # most often a password with an unescaped '/' or '?'
            raise self._refused(_ESCAPED)
        self._path = unquote(slash + path).rstrip("/")

    def target(self) -> Target:
        """Return what was read."""
        login, _, hosts = self._authority.rpartition("@")
        user, colon, password = login.partition(":")
        if login and not (user and colon):
            raise self._refused("with user:password, or neither")
        timeout, files = self._queried()
        if bool(files.get("ssl_certfile")) != bool(files.get("ssl_keyfile")):
            raise self._refused("with both of ssl_certfile and ssl_keyfile, or neither")
        return Target(
            tuple(self._host(each) for each in (hosts or "localhost").split(",")),
            _TLS[self._scheme],
            prefix=check_prefix(self._path or PREFIX),
            timeout=timeout,
            login=(unquote(user), unquote(password)) if login else None,
            files=files,
        )

    def _host(self, text: str) -> str:
        match = _HOST.fullmatch(text)
        port = int(match["port"] or PORT) if match else 0
        if match is None or not 0 < port < 1 << 16 or not match["host"]:
            # Most often a password with an unescaped '/' or '@': so not a word of it.
            raise self._refused(_ESCAPED)
        return f"{unquote(match['host'])}:{port}"

    def _queried(self) -> tuple[float, dict[str, bytes]]:
        timeout, files = TIMEOUT, dict[str, bytes]()
        known = ("timeout", *(_FILES if _TLS[self._scheme] else ()))
        for pair in self._query.split("&") if self._query else ():
            name, found, text = pair.partition("=")
            if not found or name not in known:
                shown = f" {name!r}" if found else ""
                raise self._refused(f"without the option{shown}; known are {', '.join(known)}")
            if name == "timeout":
                timeout = self._seconds(text)
            else:
                files[name] = self._file(name, unquote(text))
        return timeout, files

    def _seconds(self, text: str) -> float:
        try:
            if 0 < (value := float(text)) < inf:
                return value
        except ValueError:
            pass
        raise self._refused("with a number of seconds for timeout")

    def _file(self, name: str, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError:
            raise self._refused(f"with a file that can be read for {name}") from None

    def _refused(self, expected: str) -> InvalidArgumentError:
        return InvalidArgumentError("url", f"{self._scheme}:...", expected=f"one {expected}")
