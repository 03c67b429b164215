"""What clients that want to harm a server send, each on many connections at once.

An attack runs in a process of its own, as fast as it can: it must not slow down who measures.
"""

from __future__ import annotations

import json
import multiprocessing
import selectors
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from aiocosid.server import digest_of

__all__ = ("ATTACKS", "LEAST", "SECRET", "TOKENS", "Attack", "under")

SECRET: Final = "aiocosid_of-a-good-client"  # noqa: S105 - of a test
LEAST: Final = "aiocosid_of-one-verb-for-one-name"
TOKENS: Final = "".join(
    f'[[server.tokens]]\nname = "{name}"\ndigest = "{digest_of(secret)}"\n{rights}\n'
    for name, secret, rights in (
        ("good", SECRET, 'scopes = ["ids", "segments"]'),
        ("ids", LEAST, 'scopes = ["ids"]\nnames = ["order"]'),
        ("segments", f"{LEAST}-2", 'scopes = ["segments"]\nnames = ["cosid.order", "order"]'),
        ("machines", f"{LEAST}-3", 'scopes = ["machines"]\nnames = ["shop"]'),
    )
)
WRONG: Final = "aiocosid_of-nobody"
READ: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Attack:
    """What each of many connections does.

    Attributes:
        sent: what it sends, again and again.
        first: what it sends once, before that.
        connections: how many.
        reads: whether it reads the answers.
        pause: seconds after each time.
        tls: whether the server has a certificate; the attack itself does not use it.
    """

    sent: bytes = b""
    first: bytes = b""
    connections: int = 60
    reads: bool = True
    pause: float = 0.0
    tls: bool = False


def ask(
    method: str, path: str, body: bytes = b"", *, token: str = "", more: str = "", size: int = -1
) -> bytes:
    """Return a request; its length may be another than its body's."""
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}"
    if token:
        head += f"authorization: Bearer {token}\r\n"
    if body or size >= 0:
        head += f"content-length: {len(body) if size < 0 else size}\r\n"
    return head.encode() + b"\r\n" + body


def redis(*words: str) -> bytes:
    """Return a command of RESP."""
    parts = "".join(f"${len(each.encode())}\r\n{each}\r\n" for each in words)
    return f"*{len(words)}\r\n{parts}".encode()


def add(token: str, **args: object) -> bytes:
    """Return a call of the store's operation."""
    return ask("POST", "/v1/store/add", json.dumps(args).encode(), token=token)


CHUNK: Final = b"10000\r\n%b\r\n" % bytes(0x10000)
CHUNKED: Final = "transfer-encoding: chunked\r\n"
DEEP: Final = b'{"name": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
SITE: Final = "origin: http://evil.example\r\nsec-fetch-site: cross-site\r\n"
NINES: Final = "9" * 5000

ATTACKS: Final = {
    "pipelines, nothing read": Attack(ask("POST", "/v1/ids/order") * 2000, reads=False),
    "pipelines, answers read": Attack(ask("POST", "/v1/ids/order") * 2000),
    "pipelines of RESP": Attack(redis("INCRBY", "order", "5") * 2000),
    "pipelines of RESP, nothing read": Attack(redis("INCRBY", "order", "5") * 2000, reads=False),
    "idle RESP": Attack(first=redis("PING") + b"*2\r\n$4\r\nAUTH\r\n", connections=2000),
    "idle RESP, full buffers": Attack(
        first=b"*2\r\n$4\r\nAUTH\r\n$16300\r\n" + b"x" * 16_290, connections=2000
    ),
    "idle heads, full buffers": Attack(
        first=b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"x" * 65_000, connections=2000
    ),
    "stalled handshakes": Attack(
        first=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        connections=2000,
        tls=True,
    ),
    "bodies of 3.7 MB": Attack(ask("POST", "/v1/store/add", b"x" * 3_700_000)),
    "bodies of 800 kB, wrong token": Attack(
        ask("POST", "/v1/store/add", b"x" * 800_000, token=WRONG)
    ),
    "bodies of 60 kB, no token": Attack(ask("POST", "/v1/store/add", b"x" * 60_000)),
    "bodies in chunks": Attack(
        sent=CHUNK * 20, first=ask("POST", "/v1/machines/shop", more=CHUNKED, token=LEAST)
    ),
    "bodies of 3.7 MB, least token": Attack(
        ask("POST", "/v1/store/add", b"x" * 3_700_000, token=f"{LEAST}-2")
    ),
    "slow bodies, least token": Attack(
        first=ask("POST", "/v1/store/add", b"x" * 50_000, token=f"{LEAST}-2", size=65_000),
        sent=b"x",
        pause=0.2,
        connections=500,
    ),
    "wrong tokens": Attack(ask("POST", "/v1/ids/order", token=WRONG)),
    "wrong tokens in a row": Attack(ask("POST", "/v1/ids/order", token=WRONG) * 500),
    "wrong tokens of RESP": Attack(redis("AUTH", WRONG) * 500),
    "long wrong tokens of RESP": Attack(redis("AUTH", "x" * 16_000) * 10),
    "GETs of other sites": Attack(
        ask("GET", "/api/segment/get/order/1000", more=SITE)
        + ask("GET", "/tinyid/id/nextId?bizType=order&token=x&batchSize=1000", more=SITE)
        + ask("GET", "/dashboard", more=SITE)
        + ask("GET", "/metrics", more=SITE).replace(b"127.0.0.1", b"evil.example")
        + ask("GET", "/ids/order").replace(b"127.0.0.1", b"evil.example")
    ),
    "least token, many ids": Attack(
        ask("POST", "/v1/ids/order?count=100000", token=LEAST), connections=60
    ),
    "least token, many ids, nothing read": Attack(
        ask("POST", "/v1/ids/order?count=100000", token=LEAST) * 4, reads=False
    ),
    "least token, many ids of tinyid, nothing read": Attack(
        ask("POST", f"/tinyid/id/nextId?bizType=order&token={LEAST}&batchSize=100000") * 4,
        reads=False,
    ),
    "least token, long numbers": Attack(
        ask("POST", f"/v1/ids/order?count={NINES}", token=LEAST)
        + add(f"{LEAST}-2", name="cosid.order", by=1, first=10**3000)
        + ask("PATCH", f"/v1/machines/shop/{NINES}", b"{}", token=f"{LEAST}-3")
        + ask("POST", "/v1/machines/shop", b'{"bits": %b}' % NINES.encode(), token=f"{LEAST}-3")
    ),
    "least token, deep JSON": Attack(
        ask("POST", "/v1/store/add", DEEP, token=f"{LEAST}-2")
        + ask("POST", "/v1/machines/shop", DEEP, token=f"{LEAST}-3")
    ),
    "least token, many names": Attack(
        b"".join(ask("POST", f"/v1/ids/{'x' * 200}{n}", token=LEAST) for n in range(500))
        + b"".join(add(f"{LEAST}-2", name=f"cosid.{n}", by=1) for n in range(500))
    ),
    "least token, many instances": Attack(
        b"".join(
            ask(
                "POST",
                "/v1/machines/shop",
                json.dumps({"instance_id": f"i{n}", "bits": 10, "now_ms": 1}).encode(),
                token=f"{LEAST}-3",
            )
            for n in range(500)
        ),
        connections=8,
    ),
    "least token, bits of 31": Attack(
        ask(
            "POST",
            "/v1/machines/shop",
            b'{"instance_id": "a", "bits": 31, "now_ms": 1}',
            token=f"{LEAST}-3",
        ),
        connections=8,
    ),
    "least token, RESP": Attack(
        first=redis("AUTH", f"{LEAST}-2"),
        sent=(redis("MGET", *["cosid:{cosid.order}.adder"] * 1000) * 4)
        + redis("INCRBY", "cosid:{cosid.order}.adder", "7") * 1000,
        connections=16,
    ),
}
"""By name."""


@contextmanager
def under(attack: Attack, address: tuple[str, int]) -> Generator[None]:
    """Attack a server meanwhile."""
    process = multiprocessing.get_context("spawn").Process(
        target=_attack, args=(attack, address), daemon=True
    )
    process.start()
    try:
        yield
        assert process.is_alive(), "the attack has ended by itself"
    finally:
        process.kill()
        process.join()


def _attack(attack: Attack, address: tuple[str, int]) -> None:
    with selectors.DefaultSelector() as selector:
        opened = [_Attacker(attack, address, selector) for _ in range(attack.connections)]
        while True:
            if attack.pause:
                time.sleep(attack.pause)
            for key, events in selector.select(1):
                key.data.go_on(events)
            for each in opened:
                if each.socket is None:
                    each.open()


class _Attacker:
    """One connection, which is opened again when it ends."""

    def __init__(
        self, attack: Attack, address: tuple[str, int], selector: selectors.BaseSelector
    ) -> None:
        self.socket: socket.socket | None = None
        self._attack, self._address, self._selector = attack, address, selector
        self._left = b""
        self.open()

    def open(self) -> None:
        """Connect."""
        self._left = self._attack.first or self._attack.sent
        self.socket = found = socket.socket()
        found.setblocking(False)
        found.connect_ex(self._address)
        self._selector.register(found, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def go_on(self, events: int) -> None:
        """Send and read what can be."""
        assert self.socket is not None
        try:
            if events & selectors.EVENT_READ and self._attack.reads and not self.socket.recv(READ):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                self._send(self.socket)
        except BlockingIOError:
            pass
        except OSError:
            with suppress(KeyError):
                self._selector.unregister(self.socket)
            self.socket.close()
            self.socket = None

    def _send(self, connection: socket.socket) -> None:
        self._left = self._left[connection.send(self._left) :] or self._attack.sent
        if not self._left:
            self._selector.modify(connection, selectors.EVENT_READ, self)
