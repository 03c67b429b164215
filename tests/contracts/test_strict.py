"""Strict order on every store that promises it, and the refusal of every other one."""

from __future__ import annotations

import random
from typing import Final

import anyio
import pytest

from aiocosid.errors import UnsupportedByStoreError
from aiocosid.provider import store_from_url
from aiocosid.segment import SegmentId
from aiocosid.testing._workers import fresh_namespace
from tests.histories import History

from ._stores import Backend, Http, Nats, Remote, Service, TieredOnSqlite, Valkey

REFUSED: Final[dict[type[Backend], str]] = {
    Http: "the store behind the proxy is not known",
    Service: "the store behind the proxy is not known",
    Remote: "the store behind the server is not known",
    Nats: "a power cut or a crash .* may take grants back, .*sync_always=true",
    TieredOnSqlite: "the root and each cache .* different spans",
    Valkey: "it replicates asynchronously",
}
CALLS: Final = 25  # of each task


def reason_of(backend: Backend) -> str:
    """Why a store is refused; empty if it is not."""
    return "".join(text for kind, text in REFUSED.items() if isinstance(backend, kind))


@pytest.mark.asyncio
class TestOnOneStore:
    async def test_it_is_kept_or_refused(self, backend: Backend) -> None:
        """A store that may break it is refused when the generator is made, with the reason."""
        url = backend.url
        if reason := reason_of(backend):
            async with backend.open() as store:
                with pytest.raises(UnsupportedByStoreError, match=f"strict order: {reason}"):
                    SegmentId(store.segment_distributor(name="order"), strict=True)
            if not isinstance(backend, Nats):
                return
            url += "&sync_always=true"  # its operator says that it cannot
        await _check_histories(backend, url)


async def _check_histories(backend: Backend, url: str) -> None:
    """Have tasks take any batches from two generators with connections of their own."""
    history, namespace = History(), fresh_namespace()
    rng = random.Random(5)  # noqa: S311 - the sizes of batches

    async def take(generator: SegmentId) -> None:
        for _ in range(CALLS):
            await history.take(generator.next_ids, rng.choice((1, 1, 3)))

    async with store_from_url(url) as one, store_from_url(url) as two:
        await backend.prepare(one)
        made = [
            SegmentId(
                store.segment_distributor(namespace=namespace, name="order"),
                strict=True,
                wait_timeout=30,
            )
            for store in (one, two)
        ]
        async with made[0], made[1], anyio.create_task_group() as group:
            for generator in made * 4:
                group.start_soon(take, generator)
    assert len(history.calls) == 8 * CALLS
    history.check()
