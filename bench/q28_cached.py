"""How fast is a cached generator far above what its layout has, and how far ahead does it end?"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

from aiocosid.abc import Store
from aiocosid.snowflake import CachedSnowflakeId
from aiocosid.stores.redis import RedisStore

from ._harness import ROUNDS, Answer, timed
from ._servers import valkey

IDS, BATCH = 1_000_000, 10_000
TASKS, EACH = 200, 2000  # a burst by many, within the default of a minute
A_SECOND = 8192  # ids that 13 sequence bits have
BAR = 6.0e6  # uid-generator's published figure
NAMESPACE = "bench"
HOURS = 7200.0  # a safe guard that lets an hour be borrowed


async def ask() -> Answer:
    """Take ids by the batch, one by one, and by many tasks at once, on a Valkey."""

    async def batches(gen: CachedSnowflakeId) -> None:
        for _ in range(IDS // BATCH):
            await gen.next_ids(BATCH)

    async def singles(gen: CachedSnowflakeId) -> None:
        for _ in range(IDS):
            await gen.next_id()

    async def crowd(gen: CachedSnowflakeId) -> None:
        async def one() -> None:
            for _ in range(EACH):
                await gen.next_id()

        await asyncio.gather(*(one() for _ in range(TASKS)))

    with valkey() as url:
        async with RedisStore.from_url(url) as store:
            await store.initialize_namespace(namespace=NAMESPACE, safe_guard=HOURS)
            batched = await _rounds(store, batches, IDS, ROUNDS, max_borrow=3600)
            single = await _rounds(store, singles, IDS, ROUNDS, max_borrow=3600)
            crowded = await _rounds(store, crowd, TASKS * EACH, 1)
    rate = statistics.median(batched["rates"])
    rows = [
        _row(f"`next_ids({BATCH})`, {ROUNDS} x {IDS} ids", batched),
        _row(f"`next_id()`, {ROUNDS} x {IDS} ids", single),
        _row(
            f"`next_id()` of {TASKS} tasks, {TASKS * EACH} ids, a minute may be borrowed", crowded
        ),
    ]
    waited = crowded["waits"]
    return Answer(
        "A cached generator with 13 sequence bits, in a burst",
        f"at least {BAR / 1e6:g} million ids a second by `next_ids`, and a burst without a wait",
        rate >= BAR and waited == 0,
        f"{rate / 1e6:.1f} million ids a second, {rate / A_SECOND:.0f} times what the layout has; "
        f"{waited} waits in the burst of {TASKS} tasks.",
        ("what", "million ids/s", "seconds borrowed at the end", "waits", "marks written"),
        tuple(rows),
        {"batches": batched, "singles": single, "crowd": crowded, "ids": IDS, "batch": BATCH},
    )


async def _rounds(
    store: Store,
    take: Callable[[CachedSnowflakeId], Awaitable[None]],
    ids: int,
    rounds: int,
    **options: Any,  # noqa: ANN401 - CachedSnowflakeId's
) -> dict[str, Any]:
    machine = store.machine_id_distributor(namespace=NAMESPACE, safe_guard=HOURS)
    async with CachedSnowflakeId(machine, **options) as gen:
        seconds = [await timed(lambda: take(gen)) for _ in range(rounds)]
        seen = gen.statistics()
    waits = seen.waits_for_tick + seen.waits_for_clock + seen.waits_for_lease
    return {
        "rates": [ids / each for each in seconds],
        "borrowed": seen.borrowed,
        "waits": waits,
        "marks": seen.machine.renewals,
    }


def _row(what: str, seen: dict[str, Any]) -> tuple[Any, ...]:
    rate = statistics.median(seen["rates"]) / 1e6
    return what, f"{rate:.2f}", seen["borrowed"], seen["waits"], seen["marks"]
