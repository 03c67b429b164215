"""What does an id cost beside other Snowflake libraries of Python?

Peers have no layout to choose, so snowflake-id is given our wide one by its constant; else it
returns None for most calls.  Those that are not installed are left out: ``make bench`` brings them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from ._harness import SHORT_ROUNDS, Answer, timed
from ._snowflake import WIDE, snowflake

N = 20_000
PURE, NATIVE = "pure Python", "native"


def peers() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Name each peer, say what it is made of, and give its call."""
    with suppress(ImportError):
        module: Any = import_module("snowflake.snowflake")
        module.MAX_SEQ = WIDE.max_sequence
        yield "snowflake-id, widened", PURE, module.SnowflakeGenerator(1).__next__
    with suppress(ImportError):
        flakeid: Any = import_module("snowflake_id_toolkit")
        yield "snowflake-id-toolkit", PURE, flakeid.TwitterSnowflakeIDGenerator(1).generate_next_id
    with suppress(ImportError):
        tsid: Any = import_module("tsidpy")
        yield "tsidpy", PURE, tsid.TSIDGenerator(node=1, node_bits=1).create
    with suppress(ImportError):
        turbo: Any = import_module("sonyflake_turbo")
        yield "sonyflake-turbo, 32 machine ids", NATIVE, turbo.SonyFlake(*range(32)).__next__


async def per_id(call: Callable[[], Any]) -> float:
    """Return seconds for each id that a call returns; None is none."""
    returned = 0

    async def take() -> None:
        nonlocal returned
        for _ in range(N):
            if call() is not None:
                returned += 1

    return await timed(take) / max(1, returned)


async def ask() -> Answer:
    """Take ids without awaiting, ours and theirs in turn."""
    async with snowflake(layout=WIDE) as gen:
        calls = [("aiocosid", PURE, gen.next_id_nowait), *peers()]
        found: dict[str, list[float]] = {name: [] for name, _, _ in calls}
        for _ in range(SHORT_ROUNDS):
            for name, _, call in calls:
                found[name].append(await per_id(call))
    ratios = {
        name: statistics.median(t / o for t, o in zip(times, found["aiocosid"], strict=True))
        for name, times in found.items()
    }
    pure = [ratios[name] for name, kind, _ in calls[1:] if kind == PURE]
    return Answer(
        "`next_id_nowait()` beside other Snowflake libraries, for each id returned",
        "at most what the fastest in pure Python takes",
        min(pure) >= 1 if pure else None,
        "Times of ours; those of native code sleep when their layout is used up.",
        ("library", "made of", "x ours"),
        tuple((name, kind, f"{ratios[name]:.2f}") for name, kind, _ in calls),
        raw={"seconds_per_id": found, "n": N},
    )
