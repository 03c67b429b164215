"""Reads the URL of a Redis or Valkey deployment; shows nothing of it that may be secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ...errors import InvalidArgumentError
from .._durability import DEMANDS
from ._demands import MAX_REPLICAS, Demands

__all__ = ("Target",)

PORT: Final = 6379
SENTINEL_PORT: Final = 26379

_SCHEMES: Final = {
    **dict.fromkeys(("redis", "valkey"), ("server", False)),
    **dict.fromkeys(("rediss", "valkeys"), ("server", True)),
    "unix": ("unix", False),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
}
_ESCAPED: Final = "with host:port and a percent-encoded user, password, path and option"
_HOST: Final = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]@\s]*)(?::(?P<port>[0-9]{1,5}))?")


def _boolean(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
        text.lower()
    ]


def _at_least(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if (value := int(text)) < lowest:
            raise ValueError
        return value

    return integer


def _up_to(highest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not 0 <= (value := int(text)) <= highest:
            raise ValueError
        return value

    return integer


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < float("inf"):
        raise ValueError
    return value


def _file(text: str) -> str:
    # The driver would report a missing file as a server that cannot be reached.
    if not Path(text).is_file():
        raise ValueError
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    def word(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return word


_Reader = Callable[[str], Any]
_OPTIONS: Final[Mapping[str, tuple[_Reader, str]]] = {
    "db": (_at_least(0), "an integer from 0"),
    "username": (str, "a text"),
    "password": (str, "a text"),
    "client_name": (str, "a text"),
    "max_connections": (_at_least(1), "an integer from 1"),
    "health_check_interval": (_at_least(0), "an integer from 0"),
    "protocol": (lambda text: int(_one_of("2", "3")(text)), "2 or 3"),
    "socket_timeout": (_seconds, "a number of seconds"),
    "socket_connect_timeout": (_seconds, "a number of seconds"),
}
_DEMANDS: Final[Mapping[str, tuple[_Reader, str]]] = {
    "replicas": (_up_to(MAX_REPLICAS), f"an integer from 0 to {MAX_REPLICAS}"),
    "replica_timeout": (_seconds, "a number of seconds"),
    "durability": (_one_of(*DEMANDS), "warn, refuse or ignore"),
}
_TLS_OPTIONS: Final[Mapping[str, tuple[_Reader, str]]] = {
    "ssl_ca_certs": (_file, "a file that is there"),
    "ssl_certfile": (_file, "a file that is there"),
    "ssl_keyfile": (_file, "a file that is there"),
    "ssl_cert_reqs": (_one_of("none", "optional", "required"), "none, optional or required"),
    "ssl_check_hostname": (_boolean, "true or false"),
    "ssl_ciphers": (str, "a text"),
}
_SENTINEL_OPTIONS: Final[Mapping[str, tuple[_Reader, str]]] = {
    "sentinel_username": (str, "a text"),
    "sentinel_password": (str, "a text"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names.

    Attributes:
        kind: ``server``, ``unix``, ``cluster`` or ``sentinel``.
        tls: whether connections are encrypted.
        hosts: host and port of each server named; sentinels, if that is the kind.
        path: of the unix socket.
        service: the name under which the sentinels know the master.
        options: everything else, by the driver's names; may hold passwords.
        demands: what is asked of the server.
    """

    kind: str
    tls: bool
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    demands: Demands = field(default_factory=Demands)

    def __str__(self) -> str:
        """Name the deployment, without credentials."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.kind} {self.path or hosts}" + (f" {self.service!r}" if self.service else "")

    @classmethod
    def of(cls, url: str) -> Target:
        """Read a URL; nothing is resolved or connected.

        Raises:
            InvalidArgumentError: it is malformed; the sentence holds no part that may be secret.
        """
        scheme, found, rest = str(url).partition("://")
        scheme = scheme.lower()
        if not found or scheme not in _SCHEMES:
            known = ", ".join(f"{name}://" for name in _SCHEMES)
            raise InvalidArgumentError(
                "url", f"{scheme}:..." if found else "...", expected=f"one that begins with {known}"
            )
        return _Reading(scheme, rest).target()


class _Reading:
    """One URL being read."""

    def __init__(self, scheme: str, rest: str) -> None:
        self._scheme = scheme
        self._kind, self._tls = _SCHEMES[scheme]
        rest, _, query = rest.partition("?")
        self._authority, slash, path = rest.partition("/")
        if "@" in path:  # most often a password with an unescaped '/'; a path is shown
            raise self._refused(_ESCAPED)
        self._path = unquote(slash + path)
        self._options = self._queried(query)
        asked = {name: self._options.pop(name) for name in _DEMANDS if name in self._options}
        self._demands = Demands(**asked)

    def target(self) -> Target:
        """Return what was read."""
        return replace(self._target(), demands=self._demands)

    def _target(self) -> Target:
        login, _, hosts = self._authority.rpartition("@")
        for name, text in zip(("username", "password"), login.partition(":")[::2], strict=True):
            if text:
                self._options.setdefault(name, unquote(text))
        if self._kind == "unix":
            if hosts or len(self._path) < len("/x"):
                raise self._refused("unix:///path/of/socket?db=0")
            return Target(self._kind, self._tls, path=self._path, options=self._options)
        service, db = self._service_and_db()
        if db:
            self._options.setdefault("db", self._read("db", db, _OPTIONS["db"]))
        if self._kind == "cluster" and self._options.get("db"):
            raise self._refused("without a db: a cluster has only db 0")
        return Target(
            self._kind, self._tls, self._hosts(hosts), service=service, options=self._options
        )

    def _hosts(self, text: str) -> tuple[tuple[str, int], ...]:
        default = SENTINEL_PORT if self._kind == "sentinel" else PORT
        hosts: list[tuple[str, int]] = []
        several = "," in text
        for each in text.split(","):
            match = _HOST.fullmatch(each)
            port = int(match["port"] or default) if match else 0
            if match is None or not 0 < port < 1 << 16 or (several and not match["host"]):
                # Most often a password with an unescaped '/' or '@': so not a word of it.
                raise self._refused(_ESCAPED)
            hosts.append((unquote(match["host"]).strip("[]") or "localhost", port))
        if self._kind == "server" and len(hosts) > 1:
            raise self._refused("one host, or redis+cluster:// or redis+sentinel:// for several")
        return tuple(hosts)

    def _service_and_db(self) -> tuple[str, str]:
        path = self._path[1:]
        if self._kind != "sentinel":
            return "", path
        service, _, db = path.partition("/")
        if not service:
            raise self._refused("redis+sentinel://host:port,host:port/service/db")
        return service, db

    def _queried(self, query: str) -> dict[str, Any]:
        known = {**_OPTIONS, **_DEMANDS}
        if self._tls:
            known |= _TLS_OPTIONS
        if self._kind == "sentinel":
            known |= _SENTINEL_OPTIONS
        options: dict[str, Any] = {}
        if "@" in query:  # most often a password with an unescaped '?'
            raise self._refused(_ESCAPED)
        for pair in query.split("&") if query else ():
            name, found, text = pair.partition("=")
            if not found or name not in known:
                shown = f" {name!r}" if found else ""
                raise self._refused(f"without the option{shown}; known are {', '.join(known)}")
            options[name] = self._read(name, unquote(text), known[name])
        return options

    def _read(self, name: str, text: str, reader: tuple[_Reader, str]) -> object:
        read, expected = reader
        try:
            return read(text)
        except (KeyError, ValueError):
            raise self._refused(f"with {expected} for {name}") from None

    def _refused(self, expected: str) -> InvalidArgumentError:
        return InvalidArgumentError("url", f"{self._scheme}:...", expected=f"one {expected}")
