"""What attacks cost a server and its other clients: memory, and the longest wait."""

from __future__ import annotations

import http.client
import ssl
import time
from pathlib import Path

import pytest

from tests.integration._id_server import IdServer
from tests.servers._certificates import Certificates

from ._attacks import ATTACKS, SECRET, TOKENS, under

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(180)]

MOST_KB, LONGEST = 64_000, 1.0
PATIENCE = 10.0
"""So many times as long may a short attack keep others waiting: tests share a machine."""

DIALECTS = "[server.resp]\n[server.cosid]\n[server.leaf]\n[server.tinyid]\n"


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ATTACKS)
def test_others_hardly_notice(tmp_path: Path, name: str, seconds: float) -> None:
    attack, files, authority = ATTACKS[name], "", None
    if attack.tls:
        certificates = Certificates(tmp_path)
        certificates.make()
        authority = certificates.ca
        files = f'tls_certificate = "{certificates.certificate}"\ntls_key = "{certificates.key}"\n'
    with IdServer(server=files + DIALECTS + TOKENS, tls=authority) as server:
        client = Client(server)
        for _ in range(200):
            client.ask()
        at_rest = memory_kb(server.pid, "VmRSS")
        with under(attack, (server.host, server.port)):
            client.ask_for(seconds)
        most = memory_kb(server.pid, "VmHWM") - at_rest
        client.close()
    print(f"{name}: {most / 1000:.1f} MB, {client.longest:.2f} s, {client.count} answers")  # noqa: T201 - the figures
    assert most <= MOST_KB
    assert client.longest <= LONGEST * (PATIENCE if seconds < 60 else 1)


class Client:
    """One that behaves well, on a connection of its own.

    Attributes:
        count: its answers.
        longest: the longest that it waited for one, in seconds.
    """

    def __init__(self, server: IdServer) -> None:
        self.count, self.longest = 0, 0.0
        host, port = server.host, server.port
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPConnection(host, port, timeout=60)
            if server.tls is None
            else http.client.HTTPSConnection(
                host, port, timeout=60, context=ssl.create_default_context(cafile=str(server.tls))
            )
        )

    def ask(self) -> None:
        """Take an id."""
        began = time.monotonic()
        headers = {"authorization": f"Bearer {SECRET}"}
        self._connection.request("POST", "/v1/ids/order", headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        self.longest = max(self.longest, time.monotonic() - began)
        self.count += 1

    def ask_for(self, seconds: float) -> None:
        """Take ids for so long, fifty a second at most, and forget those before."""
        self.count, self.longest, until = 0, 0.0, time.monotonic() + seconds
        while time.monotonic() < until:
            self.ask()
            time.sleep(0.02)

    def close(self) -> None:
        self._connection.close()


def memory_kb(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))
