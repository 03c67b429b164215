"""How many ids does a restart waste, with and without giving back?"""

from __future__ import annotations

from aiocosid.segment import SegmentChainId
from aiocosid.stores.memory import MemoryStore

from ._harness import Answer

LIVES = 200  # of processes on one counter, one after the other
OVERLAPS = (1, 2)  # processes that run at the same time
TAKEN = (1, 100, 2500)  # ids that each takes
STEP = 1000


async def ask() -> Answer:
    """Let many short lives take ids from one counter, and see how far it has come."""
    rows: list[tuple[str, str, str, str]] = []
    raw: dict[str, float] = {}
    for overlap in OVERLAPS:
        for taken in TAKEN:
            waste = [await _waste(overlap, taken, give_back=way) for way in (False, True)]
            rows.append((str(overlap), str(taken), f"{waste[0]:.0f}", f"{waste[1]:.0f}"))
            raw |= {f"{overlap}x{taken}": waste[0], f"{overlap}x{taken} given back": waste[1]}
    return Answer(
        "Ids wasted by a restart",
        "",
        None,
        f"Alone on the counter {raw['1x100']:.0f} ids without giving back, and "
        f"{raw['1x100 given back']:.0f} with it.",
        ("processes at a time", "ids taken by each", "wasted", "wasted, giving back"),
        tuple(rows),
        raw,
    )


async def _waste(overlap: int, taken: int, *, give_back: bool) -> float:
    """Return the ids wasted in one life, of processes that end in the order they began in."""
    store = MemoryStore()
    open_: list[SegmentChainId] = []
    for _ in range(LIVES):
        distributor = store.segment_distributor(name="order", step=STEP)
        generator = SegmentChainId(distributor, give_back=give_back)
        await generator.__aenter__()
        open_.append(generator)
        for _ in range(taken):
            await generator.next_id()
        if len(open_) == overlap:
            await open_.pop(0).aclose()
    for generator in open_:
        await generator.aclose()
    (counter,) = await store.counters()
    return counter.last_max_id / LIVES - taken
