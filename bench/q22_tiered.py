"""What does a durable root beneath Redis cost, while nothing fails?"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from aiocosid import SegmentChainId
from aiocosid.abc import IdSegmentDistributor, Store
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.stores.tiered import TieredStore

from ._harness import SHORT_ROUNDS, Answer, beside, ratio
from ._servers import valkey

TRIPS, IDS, WARM_UP, ID_ROUNDS = 100, 200_000, 2_000_000, 15
TRIP_BAR, ID_BAR = 1.5, 1.1  # 1.1: the same, within what rounds differ by


async def trips(distributor: IdSegmentDistributor) -> None:
    """Take segments, one after the other."""
    for _ in range(TRIPS):
        await distributor.next_max_id(1000)


async def ids(chain: SegmentChainId) -> None:
    """Take ids, one by one."""
    for _ in range(IDS):
        await chain.next_id()


async def ask() -> Answer:
    """Time segments and ids of both stores in turn, on one Valkey, with a SQLite file as root."""
    with TemporaryDirectory() as folder, valkey() as url:
        async with (
            RedisStore.from_url(url) as plain,
            SqliteStore.from_url(f"sqlite:///{Path(folder) / 'ids.db'}") as root,
        ):
            await root.create_schema()
            tiered = TieredStore(root, plain)
            trip = await _both(plain, tiered, trips, "trip", SHORT_ROUNDS)
            leased = await _chains(plain, tiered)
    rows = [
        ("a segment of 1000, one trip", *_row(trip, TRIPS)),
        ("an id, `await chain.next_id()`", *_row(leased, IDS)),
    ]
    by_trip, by_id = ratio(trip[1], trip[0]), ratio(leased[1], leased[0])
    return Answer(
        "A tiered store against plain Redis, nothing failing",
        f"at most {TRIP_BAR} times a trip, the same time an id",
        by_trip <= TRIP_BAR and by_id <= ID_BAR,
        f"{by_trip:.2f} times a trip, {by_id:.2f} times an id.",
        ("what", "plain, us", "tiered, us", "ratio"),
        tuple((*row, f"{each:.2f}") for row, each in zip(rows, (by_trip, by_id), strict=True)),
        {"trip": trip, "id": leased},
    )


async def _both(
    plain: Store,
    tiered: Store,
    work: Callable[[IdSegmentDistributor], Awaitable[None]],
    name: str,
    rounds: int,
) -> tuple[list[float], list[float]]:
    each = [store.segment_distributor(name=name) for store in (plain, tiered)]
    for distributor in each:
        await work(distributor)
    return await beside(partial(work, each[0]), partial(work, each[1]), rounds)


async def _chains(plain: Store, tiered: Store) -> tuple[list[float], list[float]]:
    async with (
        SegmentChainId(plain.segment_distributor(name="id")) as one,
        SegmentChainId(tiered.segment_distributor(name="id")) as other,
    ):
        for chain in (one, other):
            for _ in range(WARM_UP):
                await chain.next_id()
        return await beside(partial(ids, one), partial(ids, other), ID_ROUNDS)


def _row(times: tuple[list[float], list[float]], count: int) -> tuple[str, ...]:
    return tuple(f"{statistics.median(each) / count * 1e6:.3g}" for each in times)
