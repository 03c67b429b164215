"""The workers of docs/howto/observe.md under gunicorn: one scrape has the statistics of all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("gunicorn")

from tests.docs._blocks import ROOT, blocks
from tests.servers import HOST, ValkeyServer, free_port, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.stress]

FILES = {b.title: b.source for b in blocks(ROOT / "docs" / "howto" / "observe.md") if b.title}

# The page's applications; an answer names the worker, and keeps no connection to it.
NAMED = """
import os
from shop_workers import app

@app.middleware("http")
async def name(request, call_next):
    response = await call_next(request)
    response.headers["worker"] = str(os.getpid())
    return response
"""


@contextmanager
def serving(folder: Path, url: str, namespace: str) -> Generator[str]:
    """Run gunicorn with the page's settings; yield its base URL."""
    for name, text in {**FILES, "named.py": NAMED}.items():
        source = text.replace("sqlite:///ids.db", url).replace('"shop"', f'"{namespace}"')
        source = source.replace("create=True", 'create="disposable"')
        (folder / str(name)).write_text(source)
    (folder / "multiprocess").mkdir()
    base = f"http://{HOST}:{(port := free_port())}"
    log = folder / "log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--bind", f"{HOST}:{port}", "named:app"],
            cwd=folder,
            env={
                "PATH": "",
                "HOME": str(folder),
                "PYTHONPATH": f"{ROOT}:{folder}",
                "PROMETHEUS_MULTIPROC_DIR": str(folder / "multiprocess"),
            },
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: answers(base) or server.poll() is not None, "it answers", deadline=40)
        assert server.poll() is None, log.read_text()
        yield base
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        server.kill()
        server.wait()


def answers(base: str) -> bool:
    try:
        httpx.get(base)
    except httpx.TransportError:
        return False
    return True


def scrape(base: str) -> dict[str, float]:
    """The sums of all series; one worker answers for all."""
    found: dict[str, float] = {}
    text = httpx.get(f"{base}/all-metrics/").text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("aiocosid_")
            found[name] = found.get(name, 0) + sample.value
    return found


def test_one_scrape_has_the_statistics_of_all_workers(
    valkey: ValkeyServer, namespace: str, tmp_path: Path
) -> None:
    """Counts of a killed worker stay, and its gauges go."""
    with serving(tmp_path, valkey.url, namespace) as base:
        given: dict[str, list[int]] = {}
        while len(given) < 2 or sum(map(len, given.values())) < 100:
            reply = httpx.post(f"{base}/orders")
            given.setdefault(reply.headers["worker"], []).append(reply.json()["id"])
        total = sum(map(len, given.values()))

        def count() -> float:
            return scrape(base).get("ids_handed_out_total", 0)

        wait_until(lambda: count() == total, "the statistics of both workers are there")
        seen = scrape(base)
        assert seen["ids_remaining"] == seen["ids_fetched_total"] - total
        assert 0 < seen["prefetch_distance"] < 1000

        victim = next(iter(given))
        os.kill(int(victim), signal.SIGKILL)
        folder = tmp_path / "multiprocess"
        wait_until(
            lambda: not list(folder.glob(f"gauge_live*_{victim}.db")),
            "the gauges of the killed worker are gone",
            deadline=20,
        )
        alive = {*given} - {victim}
        while len(alive) < 2:  # until its successor answers
            reply = httpx.post(f"{base}/orders")
            total += 1
            alive.add(reply.headers["worker"])
        # The others' last second is not counted yet.
        wait_until(lambda: count() >= total - 20, "those of the killed worker stay")
        seen = scrape(base)
        assert seen["ids_remaining"] < seen["ids_fetched_total"] - total, "it had some in hand"
    assert counted(folder) == total, "the last ones are written at the end"


def counted(folder: Path) -> float:
    """How many ids were handed out, by the files alone."""
    collector: Any = MultiProcessCollector
    families = collector(CollectorRegistry(), str(folder)).collect()
    (family,) = (each for each in families if each.name == "aiocosid_ids_handed_out")
    return sum(float(sample.value) for sample in family.samples)
