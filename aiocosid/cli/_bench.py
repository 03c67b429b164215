"""A quick measurement of the generator on this machine, compared with an empty call."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from timeit import default_timer
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import IdGenerator

__all__ = ("BATCH", "BENCH_NAME", "BENCH_NAMESPACE", "Measurement", "measure")

BENCH_NAMESPACE: Final = "aiocosid-bench"  # for the benchmark's counter only
BENCH_NAME: Final = "bench"

# About a millisecond: long enough for the timer, short enough for the progress bar.
CALLS: Final = 20_000
BATCH: Final = 1000  # ids of one next_ids() call
BATCHES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of a measurement.

    Attributes:
        rounds: how often each of the three was measured.
        empty_calls_per_second: awaiting an empty coroutine method.
        next_id_per_second: ids by ``await next_id()``, waiting for the store included.
        next_ids_per_second: ids by ``await next_ids(1000)``, waiting for the store included.
        next_id_ratio: time of an ``await next_id()`` over that of an empty call; the median round.
    """

    rounds: int
    empty_calls_per_second: float
    next_id_per_second: float
    next_ids_per_second: float
    next_id_ratio: float


async def measure(
    generator: IdGenerator,
    *,
    seconds: float,
    on_progress: Callable[[float], None] = lambda _share: None,
    timer: Callable[[], float] = default_timer,
) -> Measurement:
    """Measure an open generator.

    Args:
        generator: the generator; the measurement uses as many of its ids as it can.
        seconds: the approximate duration; there is at least one round.
        on_progress: called after each round with the elapsed share of the time, 0 to 1.
        timer: returns seconds.

    Raises:
        CosIdError: the generator got no ids.
    """
    empty: list[float] = []
    singles: list[float] = []
    batches: list[float] = []
    end = (start := timer()) + seconds
    while not empty or timer() < end:
        # In turn, so that a change of the machine's speed affects all three.
        empty.append(await _time_empty(_Empty(), timer))
        singles.append(await _time_next_id(generator, timer))
        batches.append(await _time_next_ids(generator, timer))
        on_progress(min(1.0, (timer() - start) / seconds))
        await anyio.lowlevel.checkpoint()
    return Measurement(
        rounds=len(empty),
        empty_calls_per_second=_rate(CALLS, empty),
        next_id_per_second=_rate(CALLS, singles),
        next_ids_per_second=_rate(BATCHES * BATCH, batches),
        next_id_ratio=median(a / b for a, b in zip(singles, empty, strict=True)),
    )


def _rate(count: int, times: list[float]) -> float:
    return count * len(times) / sum(times)


class _Empty:
    async def method(self) -> None:
        pass


# Three similar functions, because CPython specialises a loop for the calls in it, and could not
# specialise a shared one.


async def _time_empty(subject: _Empty, timer: Callable[[], float]) -> float:
    start = timer()
    for _ in range(CALLS):
        await subject.method()
    return timer() - start


async def _time_next_id(subject: IdGenerator, timer: Callable[[], float]) -> float:
    start = timer()
    for _ in range(CALLS):
        await subject.next_id()
    return timer() - start


async def _time_next_ids(subject: IdGenerator, timer: Callable[[], float]) -> float:
    start = timer()
    for _ in range(BATCHES):
        await subject.next_ids(BATCH)
    return timer() - start
