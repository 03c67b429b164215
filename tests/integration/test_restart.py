"""Real processes of one stable instance, killed and started again: how long they wait."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import aiocosid
from tests.command import environment

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the boot clock, and kill -9"),
]

LIFE = """
import asyncio, json, sys, time
import aiocosid
from aiocosid.abc import InstanceId

async def main():
    url, state_dir, seconds = sys.argv[1:]
    who = InstanceId("pod-0", stable=True)
    place = {"state_dir": state_dir} if state_dir else {}
    async with aiocosid.connect(url, namespace="restart", instance_id=who, **place) as ids:
        gen = await ids.snowflake("order")
        ours = [await gen.next_id()]
        print(gen.statistics().machine.fence_wait, flush=True)
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            ours += await gen.next_ids(50)
            await asyncio.sleep(0.001)
        print(json.dumps([min(ours), max(ours)]), flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture(
    params=[
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("redis_server", "postgres")),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One store after the other, initialised."""
    address = f"sqlite:///{tmp_path}/ids.db"
    if request.param != "sqlite":
        address = request.getfixturevalue(request.param).url

    asyncio.run(prepare(address))
    return address


async def prepare(address: str) -> None:
    """Make what machine ids need."""
    async with aiocosid.store_from_url(address) as store:
        await store.create_schema()
        await store.initialize_namespace(namespace="restart", confirm_no_holders=True)


def live(url: str, state_dir: Path | str, seconds: float) -> tuple[float, list[int]]:
    """Run a life and kill it; return its wait for a mark, and its lowest and highest id."""
    with subprocess.Popen(
        [sys.executable, "-c", LIFE, url, str(state_dir), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as life:
        assert life.stdout is not None
        try:
            first = float(life.stdout.readline())
            return first, json.loads(life.stdout.readline())
        finally:
            life.send_signal(signal.SIGKILL)


def test_on_the_same_machine_it_does_not_wait_for_the_mark(url: str, tmp_path: Path) -> None:
    """Twice in a row; and each life is above the one before."""
    directory = tmp_path / "state"
    lives = [live(url, directory, 0.3) for _ in range(3)]
    bounds = [bound for _, life in lives for bound in life]
    assert bounds == sorted(bounds)
    assert max(wait for wait, _ in lives) < 5, "it waits for about a second, and a mark is 15 ahead"


@pytest.mark.stress
@pytest.mark.timeout(120)
def test_elsewhere_it_waits_for_the_mark(url: str, tmp_path: Path) -> None:
    """The directory of another machine is empty."""
    lives = [live(url, tmp_path / where, 0.3) for where in ("one", "two")]
    bounds = [bound for _, life in lives for bound in life]
    assert bounds == sorted(bounds)
    assert lives[1][0] > 5


OFFLINE = """
import asyncio, json, sys, time
began = time.monotonic()
import aiocosid
from aiocosid.abc import InstanceId

async def main():
    url, state_dir = sys.argv[1:]
    who = InstanceId("pod-0", stable=True)
    options = {"instance_id": who, "state_dir": state_dir, "offline": 3600.0}
    async with aiocosid.connect(url, namespace="restart", **options) as ids:
        gen = await ids.snowflake("order")
        ours = [await gen.next_id()]
        waited = time.monotonic() - began
        ours += await gen.next_ids(100)
        print(json.dumps([waited, min(ours), max(ours)]), flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


def work_offline(url: str, state_dir: Path, *, dies: bool) -> list[float]:
    """Run a life to its kill or orderly end; return its start in seconds, and its bounds."""
    with subprocess.Popen(
        [sys.executable, "-c", OFFLINE, url, str(state_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as life:
        assert life.stdout is not None
        try:
            told: list[float] = json.loads(life.stdout.readline())
        finally:
            if dies:
                life.kill()
            life.communicate()
    return told


@pytest.mark.parametrize("kind", ["valkey", pytest.param("postgres", marks=pytest.mark.nightly)])
def test_it_starts_without_its_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """After a kill and after an orderly end, while nobody answers at the store's address."""
    make = request.getfixturevalue(f"{kind}_factory")
    server = make(persistent=True) if kind == "valkey" else make()
    asyncio.run(prepare(server.url))
    lives = [work_offline(server.url, tmp_path, dies=True)]
    server.kill()
    lives += [work_offline(server.url, tmp_path, dies=dies) for dies in (False, True, True)]
    server.start()
    lives += [work_offline(server.url, tmp_path, dies=dies) for dies in (False, True)]
    bounds = [bound for _, *life in lives for bound in life]
    assert bounds == sorted(bounds)
    assert len({*bounds}) == len(bounds)
    waits = [wait for wait, *_ in lives[1:]]
    assert max(waits) < 10, f"a mark is an hour ahead: {waits}"
    print(waits)  # noqa: T201 - shown when it fails


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    """At the start, with the reason; the process with the original goes on."""
    url = f"sqlite:///{tmp_path}/ids.db"
    asyncio.run(prepare(url))
    work_offline(url, tmp_path / "a", dies=True)
    with subprocess.Popen(
        [sys.executable, "-c", OFFLINE, url, str(tmp_path / "a")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline()
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        second = subprocess.run(
            [sys.executable, "-c", OFFLINE, url, str(tmp_path / "b")],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=environment(),
            check=False,
        )
        first.communicate()
    assert second.returncode == 1
    assert "MachineIdInUseError: instance id 'pod-0' of namespace 'restart'" in second.stderr
    assert "a different state_dir, of which this one may be a copy" in second.stderr
    assert work_offline(url, tmp_path / "a", dies=True)[0] < 10
