"""What every question uses: rounds, medians, percentiles, and where it ran.

Figures are ratios taken in one run, never absolute times: in each round the floor is measured next
to the thing itself, and the median of the rounds' ratios counts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aiocosid.abc import IdSegmentDistributor
from aiocosid.stores.memory import MemoryStore

RESULTS = Path(__file__).with_name("results")
ROUNDS = 5  # of what takes seconds
SHORT_ROUNDS = 51  # of what takes milliseconds


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question.

    Attributes:
        question: what was asked.
        bar: what it has to reach; empty if it is asked for the record.
        reached: whether it does; None without a bar.
        headline: the answer in one line.
        columns: the table's head.
        rows: the table's rows.
        raw: every figure measured.
    """

    question: str
    bar: str
    reached: bool | None
    headline: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    raw: dict[str, Any] = field(default_factory=dict)


class Empty:
    """The language's floor: methods that do nothing."""

    async def coroutine(self) -> None:
        """Be awaited."""

    def method(self) -> None:
        """Be called."""


class SlowDistributor(IdSegmentDistributor):
    """A store that takes its time; the counter itself is in memory.

    Attributes:
        latency: seconds that each call takes.
        calls: how many there were.
    """

    def __init__(self, latency: float, *, name: str = "bench", step: int = 1000) -> None:
        super().__init__(name=name, step=step)
        self.latency = latency
        self.calls = 0
        self._memory = MemoryStore().segment_distributor(name=name, step=step)

    async def next_max_id(self, step: int) -> int:
        """Answer after the latency."""
        self.calls += 1
        await asyncio.sleep(self.latency)
        return self._memory.next_max_id_nowait(step)


def settings() -> dict[str, Any]:
    """Say where and with what this runs; no name of a machine."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "loop": "asyncio",
        "system": platform.system(),
        "cores": os.cpu_count(),
        "pinned_to": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "rounds": ROUNDS,
        **{package: version(package) for package in ("aiocosid", "anyio")},
    }


def pin() -> None:
    """Stay on one core, so that the floor and the thing itself see the same one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def ratio(values: list[float], floor: list[float]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(v / f for v, f in zip(values, floor, strict=True))


async def beside(
    floor: Callable[[], Awaitable[object]], ours: Callable[[], Awaitable[object]], rounds: int
) -> tuple[list[float], list[float]]:
    """Time two things in turn, many short rounds: a busy neighbour then meets both alike."""
    floors: list[float] = []
    times: list[float] = []
    for _ in range(rounds):
        floors.append(await timed(floor))
        times.append(await timed(ours))
    return floors, times


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that a coroutine function takes, without the collector's."""
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        await work()
        return time.perf_counter() - begin
    finally:
        gc.enable()


def percentiles(nanoseconds: list[int]) -> dict[str, float]:
    """Return p50 to max in microseconds; sorts its argument."""
    nanoseconds.sort()
    last = len(nanoseconds) - 1
    return {
        name: nanoseconds[min(last, int(last * part))] / 1000
        for name, part in (
            ("p50", 0.5),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("p99.99", 0.9999),
            ("max", 1.0),
        )
    }


def table(answer: Answer) -> str:
    """Write an answer as Markdown."""
    verdict = {True: "reached", False: "**not reached**", None: "for the record"}[answer.reached]
    lines = [f"### {answer.question}", ""]
    lines += [f"{answer.headline} Bar: {answer.bar or 'none'}; {verdict}.", ""]
    if answer.columns:
        lines.append("| " + " | ".join(answer.columns) + " |")
        lines.append("|" + "---|" * len(answer.columns))
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in answer.rows]
        lines.append("")
    return "\n".join(lines)


def save(answers: dict[str, Answer]) -> Path:
    """Keep the raw results of one run."""
    RESULTS.mkdir(exist_ok=True)
    major_minor = f"py{sys.version_info.major}.{sys.version_info.minor}"
    path = RESULTS / f"{major_minor}.json"
    kept: dict[str, Any] = {"settings": settings(), "answers": {}}
    if path.exists():
        kept["answers"] = json.loads(path.read_text()).get("answers", {})
    kept["answers"].update({name: asdict(answer) for name, answer in answers.items()})
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return path
