"""Many processes on one store: no id is handed out twice, whoever dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aiocosid
from tests.consumers import kill_now_and_then, overlaps, spawn
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.valkey import ValkeyServer

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(240)]

IDS = 2_000_000


@pytest.fixture(params=["sqlite", "valkey", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One store after the other."""
    server: ValkeyServer | RedisServer | PostgresServer
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/ids.db"
        case "valkey":
            server = request.getfixturevalue("valkey")
        case "redis":
            server = request.getfixturevalue("redis_server")
        case _:
            server = request.getfixturevalue("postgres")

    async def prepare() -> None:
        async with aiocosid.open_store(server.url) as store:
            await store.create_schema()

    asyncio.run(prepare())
    return server.url


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_share_nothing(url: str, namespace: str, tmp_path: Path, processes: int) -> None:
    """Two million ids from several processes are two million different ids."""
    record = tmp_path / "record"
    record.mkdir()
    running = [spawn(url, namespace, IDS // processes, record / str(i)) for i in range(processes)]
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [0] * processes
    assert overlaps(record) == (IDS, 0)


def test_killed_processes_take_nothing_twice(url: str, namespace: str, tmp_path: Path) -> None:
    """A kill -9 every fifth of a second leaves gaps and no repeat."""
    record = tmp_path / "record"
    record.mkdir()
    kill_now_and_then(url, namespace, record, processes=4, every=0.2, kills=50)
    count, twice = overlaps(record)
    assert count > 10_000, "the survivors have to get on"
    assert twice == 0
