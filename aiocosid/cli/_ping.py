"""The command that measures how long a store takes to answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from statistics import median
from timeit import default_timer
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import CosIdError, StoreUnavailableError
from ..inspection import label_of, parts_of, seconds_text
from ..provider import OptionSpec
from ._exit import ExitCode, one_line, printable, redacted
from ._options import DEFAULT_TIMEOUT, Config, StoreUrl, Timeout, declared
from ._output import write
from ._session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Store

__all__ = ("Latency", "ping", "time_answer")

Interval = Annotated[
    float,
    declared(
        OptionSpec("seconds between two calls", 0.01, 86400),
        "--interval",
        "-i",
        metavar="SECONDS",
    ),
]


def ping(
    *,
    store: StoreUrl = None,
    config: Config = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-c", min=1, metavar="N", help="How many calls (default: endless)."
        ),
    ] = None,
    interval: Interval = 1.0,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show how long a store takes to answer, until Ctrl-C.

    It reads a counter that does not exist: no id is used up, and nothing is written.  The exit code
    is 0 if the store has answered at least once, and else 1.
    """
    with StoreSession.on(store, config, timeout=timeout) as session:
        targets = {printable(label_of(each)): each for each in parts_of(session.store)}
        times: dict[str, list[float]] = {label: [] for label in targets}
        sent = 0
        with suppress(KeyboardInterrupt):
            for each in targets.values():  # connects, which takes longer than a call
                with suppress(StoreUnavailableError):
                    session.call(time_answer, each)
            while sent != count:
                if sent:
                    session.pause(interval)
                sent += 1
                for label, each in targets.items():
                    _ping_once(session, label, each, sent, times[label])
    for label, found in times.items():
        write(f"--- {label}: {sent} calls, {len(found)} answers\n")
        if found:
            write(f"{Latency.of(found)}\n")
    if not any(times.values()):
        raise typer.Exit(ExitCode.FAILED)


def _ping_once(
    session: StoreSession, label: str, store: Store, number: int, times: list[float]
) -> None:
    try:
        took = session.call(time_answer, store)
    except StoreUnavailableError as error:
        write(f"{label}: call {number}: no answer: {one_line(redacted(str(error)))}\n")
        return
    times.append(took)
    write(f"{label}: call {number}: {seconds_text(took)}\n")


async def time_answer(store: Store) -> float:
    """Return the seconds of one round trip that reads nothing in use, and writes nothing.

    Raises:
        StoreError: the store refuses or cannot be reached.
    """
    counter = store.segment_distributor(namespace="aiocosid-ping", name="none")
    *others, last = counter.peek, store.ask_server, store.counters
    for ask in others:
        began = default_timer()
        try:
            await ask()
        except CosIdError as error:
            if error.retryable:
                raise
        else:
            return default_timer() - began
    began = default_timer()
    await last()  # raises why the store refuses
    return default_timer() - began


@dataclass(frozen=True, slots=True)
class Latency:
    """How long calls took, in seconds.

    Attributes:
        least: the shortest.
        middle: the median.
        p99: 99 of 100 took at most so long.
        most: the longest.
    """

    least: float
    middle: float
    p99: float
    most: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Latency:
        """Summarise at least one call."""
        ordered = sorted(times)
        p99 = ordered[ceil(0.99 * len(ordered)) - 1]
        return cls(ordered[0], median(ordered), p99, ordered[-1])

    def __str__(self) -> str:
        """Return the line that ``ping`` ends with."""
        found = (self.least, self.middle, self.p99, self.most)
        return f"min/median/p99/max = {' / '.join(map(seconds_text, found))}"
