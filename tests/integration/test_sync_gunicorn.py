"""The applications of docs/howto/workers.md under gunicorn --preload, asked over real HTTP."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytest.importorskip("gunicorn")

from tests.docs._blocks import ROOT, blocks
from tests.servers import HOST, ValkeyServer, free_port, wait_until

pytestmark = [pytest.mark.integration]

FILES = {b.title: b.source for b in blocks(ROOT / "docs" / "howto" / "workers.md") if b.title}

# Opened and used before the fork, and again in the workers.
WSGI = """
import os
from wsgi import app as inner, ids, orders

preloaded = [orders.next_id(), *orders.next_ids(20)]

def app(environ, start_response):
    (body,) = inner(environ, start_response)
    return [f"{os.getpid()} {body.decode()} {preloaded[-1]}".encode()]
"""

ASGI = """
import os
import aiocosid

ids = aiocosid.connect(os.environ["IDS_URL"], namespace="shop")  # made before the fork

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        async with ids:
            scope["state"]["orders"] = await ids.segment_chain("order")
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = f"{os.getpid()} {await scope['state']['orders'].next_id()} 0".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(WSGI, ("--threads", "4"), id="wsgi", marks=pytest.mark.stress),
        pytest.param(ASGI, ("--worker-class", "asgi"), id="asgi", marks=pytest.mark.stress),
    ],
)
def test_workers_of_a_preloaded_application(
    source: str, options: tuple[str, ...], valkey: ValkeyServer, namespace: str, tmp_path: Path
) -> None:
    """Each has ids of its own, and ends in silence on SIGTERM."""
    for name, text in FILES.items() if source is WSGI else ():
        (tmp_path / name).write_text(text.replace('"shop"', f'"{namespace}"'))
    (tmp_path / "preloaded.py").write_text(source.replace('"shop"', f'"{namespace}"'))
    base = f"http://{HOST}:{(port := free_port())}"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", *options]
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--bind", f"{HOST}:{port}", "preloaded:app"],
            cwd=tmp_path,
            env={"IDS_URL": valkey.url, "PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: server.poll() is not None or answers(base), "gunicorn answers", deadline=30
        )
        assert server.poll() is None, log.read_text()
        found: list[str] = []
        # A connection for each request, until both have answered: which one does is the system's
        # choice.
        client = httpx.Client(headers={"Connection": "close"})
        with client, ThreadPoolExecutor(8) as pool:
            for _ in range(20):
                found += [reply.text for reply in pool.map(client.get, [base] * 30)]
                if len({each.split()[0] for each in found}) == 2:
                    break
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.wait()
    triples = [tuple(map(int, each.split())) for each in found]
    ids = [new_id for _, new_id, _ in triples]
    assert len({pid for pid, *_ in triples}) == 2
    assert len(ids) == len(set(ids))
    assert min(ids) > max(preloaded for *_, preloaded in triples)
    said = log.read_text()
    assert not any(word in said for word in ("Traceback", "Error", "Warning", "[ERROR]")), said


def answers(base: str) -> bool:
    try:
        httpx.get(base)
    except httpx.TransportError:
        return False
    return True
