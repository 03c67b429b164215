"""Strict order over several processes."""

from __future__ import annotations

import pytest

from aiocosid import open_store
from tests.histories import violations
from tests.servers import EtcdServer, PostgresServer
from tests.strict_worker import take_in_processes

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


async def test_processes_on_postgres(postgres: PostgresServer, namespace: str) -> None:
    """No call gets an id below one whose call had ended, in whichever process."""
    await _check(postgres.url, namespace)


async def test_processes_on_etcd(etcd: EtcdServer, namespace: str) -> None:
    """The same by compare and swap."""
    await _check(etcd.url, namespace)


async def _check(url: str, namespace: str) -> None:
    async with open_store(url) as store:
        await store.create_schema()
    history = await take_in_processes(url, namespace, seconds=1.5)
    assert len(history) > 100
    assert violations(history) == []
