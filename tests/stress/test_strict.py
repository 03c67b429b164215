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

UP, DOWN = 2.0, 0.3  # seconds


@pytest.mark.parametrize("kills", [3, 20])
async def test_postgres_is_killed(
    postgres_factory: Callable[[], PostgresServer], kills: int
) -> None:
    """And started again: what it has committed is there."""
    server = await asyncio.to_thread(postgres_factory)

    def kill() -> Server:
        server.kill()
        return server

    await _take_under(server.url, kill, kills)


@pytest.mark.parametrize("kills", [3, 20])
async def test_the_leader_of_etcd_is_killed(etcd_ensemble: EtcdEnsemble, kills: int) -> None:
    """The next one knows of every grant."""
    await _take_under(etcd_ensemble.url, etcd_ensemble.kill_leader, kills)


async def _take_under(url: str, kill: Callable[[], Server], kills: int) -> None:
    async with open_store(url) as store:
        await store.create_schema(disposable=True)
    async with take_in_processes(url, "strict") as history:
        for _ in range(kills):
            killed = await asyncio.to_thread(kill)
            await asyncio.sleep(DOWN)
            await asyncio.to_thread(killed.start)
            await asyncio.sleep(UP)
    assert len(history) > 1000
    assert violations(history) == []
