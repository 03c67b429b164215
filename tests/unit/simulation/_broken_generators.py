"""Broken lines of other systems' generators, and of a CosId proxy's store."""

from __future__ import annotations

from typing import Any

from aiocosid.machine._opening import LeaseOpening
from aiocosid.segment._supply import Supply
from aiocosid.snowflake._ring import Ring
from aiocosid.stores.http._backend import LOST, Answer, HttpMachineIdDistributor
from tests.simulation import SCENARIOS

from ._breaking import Broken, broken


async def marks_the_clock(opening: LeaseOpening, call: Any, *args: Any, **times: int) -> Any:
    """As shipped, but the store never hears of the seconds that are borrowed."""
    if "fence_ms" in times:
        latest_ms = times["now_ms"] + int(opening._options.lead_seconds * 1000)
        times["fence_ms"] = min(times["fence_ms"], latest_ms)
    return await call_store(opening, call, *args, **times)


call_store = LeaseOpening._call


def keeps_its_ids(ring: Ring, machine_id: int, floor_tick: int) -> None:
    """As shipped for the first lease, and nothing for the next ones."""
    if not hasattr(ring, "_machine_id"):
        move_ring(ring, machine_id, floor_tick)


move_ring = Ring._move


async def asks_for_less(supply: Supply, count: int) -> tuple[int, int]:
    """As shipped, but a segment is as long as its row says, whatever was asked for."""
    pace, row_step = supply._pace, supply._row_step
    if row_step is not None:
        pace.keep_to(await row_step())
    return await supply.distributor.next_max_id(count), max(count, pace.step)


async def believes(_: HttpMachineIdDistributor) -> bool:
    """Whatever the proxy remembers is ours."""
    return False


async def goes_on(machines: HttpMachineIdDistributor, _: int) -> Answer:
    """As shipped, but what the proxy says of a lost id is not heard."""
    answer = await machines._ask("PATCH", "M-02", LOST)
    return Answer(200, b"") if answer.code == LOST else answer


BROKEN: dict[str, Broken] = {
    "a mark without the borrowed seconds": Broken(
        broken(SCENARIOS["cached_snowflakes"], (LeaseOpening, "_call", marks_the_clock)),
        "machine id|handed out twice",
        1,
    ),
    "a ring that keeps the ids of its former lease": Broken(
        broken(SCENARIOS["cached_snowflakes"], (Ring, "_move", keeps_its_ids)),
        "machine id|handed out twice",
        4,
    ),
    "a segment as long as its row says": Broken(
        broken(SCENARIOS["leaf_segments"], (Supply, "_ask", asks_for_less)), "handed out twice", 1
    ),
    "a proxy that remembers too long": Broken(
        broken(SCENARIOS["http_snowflakes"], (HttpMachineIdDistributor, "_is_lost", believes)),
        "got no ids",
        13,
    ),
    "a lost id of a proxy's": Broken(
        broken(SCENARIOS["http_snowflakes"], (HttpMachineIdDistributor, "_guard", goes_on)),
        "machine id|handed out twice",
        3,
    ),
}
