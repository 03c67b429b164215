"""What do sharding by time and by remainder cost beside a loop over the nodes?

The straightforward Python compares a key with the begin and the end of each node in turn, or asks
of each node's name whether it ends with the remainder, as ShardingSphere's own algorithms do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from aiocosid.sharding import IntervalTimeline, ModCycle, Sharding, ShardRange

from ._harness import Answer, timed

UNITS = ("months", "days", "seconds")
SIZES = (10, 100, 1_000, 10_000)
BAR = 1000  # exact, at the most nodes
FLAT = 1.5  # exact, the most nodes against the fewest
KEYS = 1000
LOOPS = 30_000  # nodes that the loop looks at in a round, more or less
ROUNDS_EACH = 15
START = datetime.fromisoformat("1000-01-01")

Shard = Callable[[Any], object]


def by_time(unit: str, size: int) -> tuple[Sharding[Any], Shard, Shard, list[Any]]:
    """A timeline, a loop for one key, a loop for a range, and keys."""
    step = timedelta(seconds=1) if unit == "seconds" else timedelta(days=1)
    end = datetime(START.year + size // 12, size % 12 + 1, 1)  # noqa: DTZ001 - a local time
    if unit != "months":
        end = START + step * size
    ours = IntervalTimeline[datetime](
        ShardRange.closed_open(START, end),
        unit,  # type: ignore[arg-type]  # one of them
        logic_name_prefix="t_",
        suffix_pattern={"months": "yyyyMM", "days": "yyyyMMdd"}.get(unit, "yyyyMMddHHmmss"),
    )
    if unit == "months":
        begins = [START.replace(year=START.year + n // 12, month=n % 12 + 1) for n in range(size)]
    else:
        begins = [START + step * offset for offset in range(size)]
    nodes = list(zip(begins, [*begins[1:], end], ours.effective_nodes, strict=True))

    def one(key: datetime) -> str | None:
        for begin, until, node in nodes:
            if begin <= key < until:
                return node
        return None

    def some(values: ShardRange[datetime]) -> list[str]:
        assert values.lower is not None
        assert values.upper is not None
        lower, upper = values.lower, values.upper
        return [node for begin, until, node in nodes if begin <= upper and lower < until]

    keys = [START + (end - START) * (at / KEYS) for at in range(KEYS)]
    return ours, one, some, keys


def by_remainder(size: int) -> tuple[Sharding[Any], Shard, Shard, list[Any]]:
    """A cycle, a loop for one key, a loop for a range, and keys."""
    ours = ModCycle(size, "t_")

    def one(key: int) -> str | None:
        suffix = f"_{key % size}"
        for node in ours.effective_nodes:
            if node.endswith(suffix):
                return node
        return None

    def some(values: ShardRange[int]) -> set[str | None]:
        assert values.lower is not None
        assert values.upper is not None
        last = min(values.upper, values.lower + size - 1)
        return {one(key) for key in range(values.lower, last + 1)}

    return ours, one, some, [2**40 + at * 987_654_321 for at in range(KEYS)]


async def per_call(call: Shard, keys: Sequence[Any]) -> float:
    """Return the seconds that one call takes."""

    async def work() -> None:
        for key in keys:
            call(key)

    return await timed(work) / len(keys)


async def measure(ours: Shard, loop: Shard, keys: list[Any], nodes: int) -> tuple[float, float]:
    """Return the medians of the loop's and of our seconds for one call."""
    few = min(max(5 if nodes <= SIZES[-1] else 1, LOOPS // nodes), len(keys))
    spread = [keys[(2 * at + 1) * len(keys) // (2 * few)] for at in range(few)]
    loops, times = list[float](), list[float]()
    for _ in range(ROUNDS_EACH if nodes <= SIZES[-1] else 3):
        loops.append(await per_call(loop, spread))
        times.append(await per_call(ours, keys))
    return statistics.median(loops), statistics.median(times)


def ranges(keys: list[Any], size: int) -> list[ShardRange[Any]]:
    """Ranges that hold a tenth of the nodes, or of the keys if these are times."""
    if isinstance(keys[0], int):
        return [ShardRange.closed(key, key + size // 10) for key in keys[:20]]
    tenth = (max(keys) - START) / 10
    return [ShardRange.closed(key, key + tenth) for key in keys[:20]]


async def ask() -> Answer:
    """Ask each sharding for one key and for a tenth of its nodes, from 10 to 10,000 nodes."""
    raw: dict[str, dict[str, float]] = {}
    rows: list[tuple[str, ...]] = []
    kinds = (*UNITS, "remainder")
    for kind in kinds:
        for size in SIZES:
            ours, one, some, keys = by_time(kind, size) if kind in UNITS else by_remainder(size)
            assert all(ours.exact(key) == one(key) for key in keys[:3])
            loop, exact = await measure(ours.exact, one, keys, size)
            wide = ranges(keys, size)
            assert set(ours.range(wide[0])) == set(some(wide[0]))  # type: ignore[call-overload]
            found = statistics.mean(len(ours.range(each)) for each in wide)
            work = size * (1 if kind != "remainder" else size // 10 + 1)
            range_loop, range_exact = await measure(ours.range, some, wide, work)
            raw[f"{kind} {size}"] = {
                "exact": exact,
                "exact_loop": loop,
                "range_nodes": found,
                "range": range_exact,
                "range_loop": range_loop,
            }
            rows.append(
                (kind, f"{size:,}", f"{loop / exact:,.1f}", f"{range_loop / range_exact:,.1f}")
            )
    most, fewest = SIZES[-1], SIZES[0]
    reached = min(raw[f"{k} {most}"]["exact_loop"] / raw[f"{k} {most}"]["exact"] for k in kinds)
    grown = max(raw[f"{k} {most}"]["exact"] / raw[f"{k} {fewest}"]["exact"] for k in kinds)
    return Answer(
        "`exact` and `range` of a sharding against a loop over its nodes",
        f"exact at {most:,} nodes at least {BAR:,} times faster, and at most {FLAT} of {fewest}",
        reached >= BAR and grown <= FLAT,
        f"At {most:,} nodes at least {reached:,.0f} times; a key takes {grown:.2f} of what it "
        f"takes at {fewest}. A range is a tenth of the nodes.",
        ("sharded by", "nodes", "exact: loop / ours", "range: loop / ours"),
        tuple(rows),
        raw=raw,
    )
