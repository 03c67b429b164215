"""Strict order over several processes while the server, or its leader, is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiocosid import open_store
from tests.histories import violations
from tests.servers import EtcdEnsemble, PostgresServer, Server
from tests.strict_worker import take_in_processes

pytestmark = [
    pytest.mark.stress,
    pytest.mark.integration,
    pytest.mark.asyncio,
    pytest.mark.timeout(300),
]

KILLS = 10
UP, DOWN = 2.0, 0.3  # seconds
TAKING = 60.0  # seconds


async def test_postgres_is_killed(postgres_factory: Callable[[], PostgresServer]) -> None:
    """And started again: what it has committed is there."""
    server = await asyncio.to_thread(postgres_factory)

    def kill() -> Server:
        server.kill()
        return server

    await _take_under(server.url, kill)


async def test_the_leader_of_etcd_is_killed(etcd_ensemble: EtcdEnsemble) -> None:
    """The next one knows of every grant."""
    await _take_under(etcd_ensemble.url, etcd_ensemble.kill_leader)


async def _take_under(url: str, kill: Callable[[], Server]) -> None:
    async with open_store(url) as store:
        await store.create_schema()
    taking = asyncio.create_task(take_in_processes(url, "strict", seconds=TAKING))
    for _ in range(KILLS):
        await asyncio.sleep(UP)
        killed = await asyncio.to_thread(kill)
        await asyncio.sleep(DOWN)
        await asyncio.to_thread(killed.start)
    assert not taking.done()
    history = await taking
    assert len(history) > 1000
    assert violations(history) == []
