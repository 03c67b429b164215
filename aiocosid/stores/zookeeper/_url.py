"""Reads the URL of a ZooKeeper deployment; shows nothing of it that may be secret."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ...errors import InvalidArgumentError
from ._driver import KazooClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("Target",)

PORT: Final = 2181
SESSION_TIMEOUT: Final = 10.0  # seconds, the driver's own default
SCHEME: Final = "zookeeper"

_ESCAPED: Final = "with host:port,host:port and a percent-encoded user, password and chroot"
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]@\s]+)(?::(?P<port>[0-9]{1,5}))?")
_CHROOT: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f]+)*")


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < 2**31 / 1000:
        raise ValueError
    return value


_OPTIONS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "session_timeout": (_seconds, "a number of seconds"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names.

    Attributes:
        hosts: the servers, ``host:port`` each.
        chroot: below which node everything lies; empty for none.
        session_timeout: seconds; the server may choose another time.
        login: ``user:password``; empty for none.
    """

    hosts: tuple[str, ...]
    chroot: str = ""
    session_timeout: float = SESSION_TIMEOUT
    login: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Name the deployment, without credentials."""
        return f"{','.join(self.hosts)}{self.chroot}"

    @classmethod
    def of(cls, url: str) -> Target:
        """Read a URL; nothing is resolved or connected.

        Raises:
            InvalidArgumentError: it is malformed; the sentence holds no part that may be secret.
        """
        scheme, found, rest = str(url).partition("://")
        scheme = scheme.lower()
        if not found or scheme != SCHEME:
            shown = f"{scheme}:..." if found else "..."
            raise InvalidArgumentError("url", shown, expected="one that begins with zookeeper://")
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        if "@" in path or "@" in query:  # most often a password with an unescaped '/' or '?'
            raise _refused(scheme, _ESCAPED)
        login, _, hosts = authority.rpartition("@")
        chroot = unquote(slash + path).rstrip("/")
        if not _CHROOT.fullmatch(chroot):
            raise _refused(scheme, _ESCAPED)
        options = _queried(scheme, query)
        return cls(_hosts(scheme, hosts), chroot, login=_login(scheme, login), **options)

    def client(self) -> Any:  # noqa: ANN401 - the driver's
        """Return a client of these servers; nothing is sent yet."""
        return KazooClient(
            hosts=",".join(self.hosts),
            timeout=self.session_timeout,
            auth_data=[("digest", self.login)] if self.login else None,
            # The driver's own pauses grow to an hour.
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5},
        )


def _hosts(scheme: str, text: str) -> tuple[str, ...]:
    hosts: list[str] = []
    for each in (text or "localhost").split(","):
        match = _HOST.fullmatch(each)
        port = int(match["port"] or PORT) if match else 0
        if match is None or not 0 < port < 1 << 16:
            # Most often a password with an unescaped '/' or '@': so not a word of it.
            raise _refused(scheme, _ESCAPED)
        hosts.append(f"{unquote(match['host'])}:{port}")
    return tuple(hosts)


def _login(scheme: str, text: str) -> str:
    if not text:
        return ""
    user, colon, password = text.partition(":")
    if not user or not colon:
        raise _refused(scheme, "with user:password@, or neither")
    return f"{unquote(user)}:{unquote(password)}"


def _queried(scheme: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        name, found, text = pair.partition("=")
        if not found or name not in _OPTIONS:
            shown = f" {name!r}" if found else ""
            raise _refused(scheme, f"without the option{shown}; known are {', '.join(_OPTIONS)}")
        read, expected = _OPTIONS[name]
        try:
            options[name] = read(unquote(text))
        except ValueError:
            raise _refused(scheme, f"with {expected} for {name}") from None
    return options


def _refused(scheme: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError("url", f"{scheme}:...", expected=f"one {expected}")
