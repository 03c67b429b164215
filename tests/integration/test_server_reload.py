"""SIGHUP: a server reads tokens, certificates and names again, and goes on."""

from __future__ import annotations

import os
import signal
import ssl
from pathlib import Path

import httpx
import pytest

from aiocosid.server import digest_of
from tests.servers import wait_until
from tests.servers._certificates import Certificates

from ._id_server import IdServer
from .test_server_run import BEARER, PING, RESP, SECRET, TOKEN, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

OTHER = "aiocosid_another"
NEW = {"Authorization": f"Bearer {OTHER}"}
AUTH = f"*2\r\n$4\r\nAUTH\r\n${len(SECRET)}\r\n{SECRET}\r\n".encode()


def rewrite(server: IdServer, before: str, after: str) -> None:
    text = server.config.read_text()
    assert before in text
    server.config.write_text(text.replace(before, after))


def hang_up(server: IdServer, said: str, times: int = 1) -> None:
    """Send SIGHUP, and wait until that many processes have said something more."""
    due = server.log().count(said) + times
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: server.log().count(said) >= due, said, deadline=20)


def status(server: IdServer, headers: dict[str, str]) -> int:
    with httpx.Client(base_url=server.client.base_url, timeout=20) as client:
        return client.post("/v1/ids/order", headers=headers).status_code


def test_tokens_of_today() -> None:
    """One that was taken out is refused at once, on connections that have shown it too."""
    with IdServer(server=RESP + TOKEN) as server, server.connect() as known:
        for said, answer in ((AUTH, b"+OK\r\n"), (PING, b"+PONG\r\n")):
            known.sendall(said)
            assert known.recv(100) == answer
        assert (status(server, BEARER), status(server, NEW)) == (200, 401)
        rewrite(server, digest_of(SECRET), digest_of(OTHER))
        hang_up(server, "has reloaded its 1 tokens")
        assert (status(server, BEARER), status(server, NEW)) == (401, 200)
        known.sendall(PING)
        assert known.recv(100).startswith(b"-NOAUTH")
        assert server.end() == 0
        assert not server.socket_path.exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'digest = "{digest_of(SECRET)}"', 'digest = "of no use"'),
        (TOKEN, ""),
        ("[server]", '[server]\ntls_certificate = "missing.pem"'),
        ("[server]", "[server"),
    ],
)
def test_what_is_wrong_changes_nothing(before: str, after: str) -> None:
    """Nor does a file without tokens: everybody could do everything."""
    with IdServer(server=RESP + TOKEN) as server:
        rewrite(server, before, after)
        hang_up(server, "keeps its tokens and certificates")
        assert (status(server, BEARER), status(server, {})) == (200, 401)
        assert "Traceback" not in server.log()
        assert server.end() == 0


def test_names_of_today() -> None:
    with IdServer() as server:
        named = {"host": "ids.internal"}
        assert status(server, named) == 421
        rewrite(server, "[server]", '[server]\nhosts = ["ids.internal"]')
        hang_up(server, "has reloaded its 0 tokens")
        assert status(server, named) == 200


def test_the_certificate_of_today(tmp_path: Path) -> None:
    old, new = (Certificates(tmp_path / each) for each in ("old", "new"))
    for each in (old, new):
        each.directory.mkdir()
        each.make()
    files = f'tls_certificate = "{old.certificate}"\ntls_key = "{old.key}"\n'
    with IdServer(server=files, tls=old.ca) as server:
        assert server.ids() == [1]
        rewrite(server, str(old.directory), str(new.directory))
        hang_up(server, "has reloaded its 0 tokens")
        assert server.ids() == [2], "connections stay"
        trusted = ssl.create_default_context(cafile=str(new.ca))
        url = f"{server.client.base_url}/v1/ids/order"
        assert httpx.post(url, verify=trusted).json()["ids"] == ["3"]


def test_each_of_several_processes_reads_them() -> None:
    """And one that takes another's place later."""
    with IdServer("--workers", "2", server=TOKEN) as server:
        rewrite(server, digest_of(SECRET), digest_of(OTHER))
        hang_up(server, "has reloaded its 1 tokens", times=2)
        assert {status(server, NEW) for _ in range(20)} == {200}
        os.kill(serving(server)[0], signal.SIGKILL)
        wait_until(lambda: server.log().count("has reloaded its ") == 3, "it has read", deadline=30)
        assert {status(server, NEW) for _ in range(20)} == {200}
        assert server.end() == 0
