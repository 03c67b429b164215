"""Strict order over several processes."""

from __future__ import annotations

import pytest

from aiocosid import store_from_url
from tests.histories import violations
from tests.servers import EtcdServer, PostgresServer
from tests.strict_worker import CALLS, PROCESSES, take_in_processes

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest.fixture(params=["postgres", "etcd"])
def url(request: pytest.FixtureRequest) -> str:
    """By an update of a row, and by compare and swap."""
    server: PostgresServer | EtcdServer = request.getfixturevalue(request.param)
    return server.url


async def test_processes(url: str, namespace: str) -> None:
    """No call gets an id below one whose call had ended, in whichever process."""
    async with store_from_url(url) as store:
        await store.create_schema(disposable=True)
    async with take_in_processes(url, namespace) as history:
        pass  # each of them has made its calls by now
    assert len(history) >= PROCESSES * CALLS
    assert violations(history) == []
