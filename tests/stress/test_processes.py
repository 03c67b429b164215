"""Many processes on one store: no id is handed out twice, whoever dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aiocosid
from tests.consumers import kill_now_and_then, overlaps, spawn

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(params=["sqlite", "valkey", "redis_server", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One store after the other."""
    if request.param == "sqlite":
        (tmp_path / "ids.db").touch()
        return f"sqlite:///{tmp_path}/ids.db"
    url: str = request.getfixturevalue(request.param).url

    async def prepare() -> None:
        async with aiocosid.open_store(url) as store:
            await store.create_schema()

    asyncio.run(prepare())
    return url


@pytest.mark.parametrize(("processes", "ids"), [(8, 400_000), (2, 2_000_000)])
def test_processes_share_nothing(
    url: str, namespace: str, tmp_path: Path, processes: int, ids: int
) -> None:
    """All ids from several processes are different ones."""
    record = tmp_path / "record"
    record.mkdir()
    running = [spawn(url, namespace, ids // processes, record / str(i)) for i in range(processes)]
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [0] * processes
    assert overlaps(record) == (ids, 0)


@pytest.mark.parametrize("kills", [12, 50])
def test_killed_processes_take_nothing_twice(
    url: str, namespace: str, tmp_path: Path, kills: int
) -> None:
    """A kill -9 every fifth of a second leaves gaps and no repeat."""
    record = tmp_path / "record"
    record.mkdir()
    kill_now_and_then(url, namespace, record, processes=4, every=0.2, kills=kills)
    count, twice = overlaps(record)
    assert count > 10_000, "the survivors have to get on"
    assert twice == 0
