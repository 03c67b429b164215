"""The tasks of docs/howto/threads-and-celery.md in a real worker that forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("celery")
if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

from tests.docs._blocks import ROOT, blocks
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.stress]

PAGE = ROOT / "docs" / "howto" / "threads-and-celery.md"
FILES = {b.title: b.source for b in blocks(PAGE) if b.title}

# A broker and results in folders; the parent takes ids of its own before the fork.
WORKER = """
import json
import os
from shop_ids import orders
from tasks import app

for folder in ("in", "results"):
    os.makedirs(folder, exist_ok=True)
app.conf.update(
    broker_url="filesystem://",
    broker_transport_options={
        "data_folder_in": "in", "data_folder_out": "in", "control_folder": "control",
        "polling_interval": 0.05,
    },
    result_backend=f"file://{os.getcwd()}/results",
    worker_prefetch_multiplier=1,
    worker_max_tasks_per_child=15,  # then another child is forked
)

@app.task
def place_orders(n):
    return os.getpid(), orders.next_ids(n), orders.next_id()
"""

PARENT = """
taken = orders.next_ids(25)
with open("parent.ids", "w") as file:
    file.write(" ".join(map(str, taken)))
"""

CALLS = """
import json
from worker import place_orders

waiting = [place_orders.delay(n % 7 + 1) for n in range(60)]
print(json.dumps([each.get(timeout=60, interval=0.05) for each in waiting]))
"""


@pytest.mark.parametrize("store", [pytest.param("sqlite", marks=pytest.mark.nightly), "valkey"])
def test_prefork(store: str, valkey: ValkeyServer, tmp_path: Path, namespace: str) -> None:
    """Parent, children and the children that replace them never share an id."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace('"shop"', f'"{namespace}"'))
    (tmp_path / "worker.py").write_text(WORKER)
    # With SQLite nothing is fetched before the fork: the page says why.
    (tmp_path / "parent.py").write_text(
        "from worker import *\n" + (PARENT if store == "valkey" else "")
    )
    url = valkey.url if store == "valkey" else f"sqlite:///{tmp_path}/ids.db"
    (tmp_path / "ids.db").touch()
    python = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    options = ["--app", "parent:app", "worker", "--pool", "prefork", "--concurrency", "2"]
    log = tmp_path / "log"
    with log.open("w") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", *options, "--without-gossip", "--without-mingle"],
            cwd=tmp_path,
            env={**python, "IDS_URL": url, "C_FORCE_ROOT": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        done = subprocess.run(
            [sys.executable, "-c", CALLS],
            cwd=tmp_path,
            env=python,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        assert done.returncode == 0, (done.stderr, log.read_text())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
    results = json.loads(done.stdout)
    ids = [new_id for _, batch, one in results for new_id in (*batch, one)]
    if store == "valkey":
        ids += map(int, (tmp_path / "parent.ids").read_text().split())
    assert len({pid for pid, *_ in results}) >= 4, "children have been replaced"
    assert len(ids) == len(set(ids))
    assert "Traceback" not in log.read_text(), log.read_text()
