"""Runs many worlds on all cores."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ._catalogue import SCENARIOS
from ._errors import SimulationError
from ._world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("run_all",)

CHUNK: Final = 25  # worlds that a process runs before it tells
EVERY: Final = 5.0  # seconds between two lines of progress


class Chunk(NamedTuple):
    """Worlds of one scenario."""

    scenario: str
    seeds: range


class Done(NamedTuple):
    """What came of a chunk."""

    worlds: int
    ids: int
    error: str


def run_all(seeds: range, *, jobs: int | None = None, share: int = 1) -> int:
    """Run all scenarios that come with the package; tell how it goes.

    Args:
        seeds: the seeds.
        jobs: processes; as many as there are cores by default.
        share: each scenario gets one seed in so many, and each seed another part of them.

    Returns:
        1 if something was found, else 0.
    """
    chunks, began = list(_chunks(seeds, share)), time.monotonic()
    total = sum(len(chunk.seeds) for chunk in chunks)
    worlds, ids, told = 0, 0, began
    # Not forked: this process may have threads.
    with multiprocessing.get_context("spawn").Pool(jobs, _be_quiet) as pool:
        for done in pool.imap_unordered(_run, chunks):
            worlds, ids, now = worlds + done.worlds, ids + done.ids, time.monotonic()
            if done.error:
                pool.terminate()
                sys.stderr.write(f"{done.error}\n")
                return 1
            if now - told >= EVERY:
                told = now
                _tell(f"{worlds} of {total} worlds", worlds, now - began)
    _tell(f"{worlds} worlds, {ids} ids: nothing found", worlds, time.monotonic() - began)
    return 0


def _tell(what: str, worlds: int, seconds: float) -> None:
    sys.stdout.write(f"{what}; {worlds / seconds:.0f} a second\n")
    sys.stdout.flush()


def _chunks(seeds: range, share: int) -> Iterator[Chunk]:
    """Take turns, so that whatever is broken shows early."""
    for first in range(seeds.start, seeds.stop, CHUNK * share):
        for place, name in enumerate(SCENARIOS):
            end = min(first + CHUNK * share, seeds.stop)
            yield Chunk(name, range(first + place % share, end, share))


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)


def _run(chunk: Chunk) -> Done:
    ids = 0
    for seed in chunk.seeds:
        try:
            ids += World(seed).run(SCENARIOS[chunk.scenario]).ids
        except SimulationError as error:
            return Done(0, ids, str(error))
    return Done(len(chunk.seeds), ids, "")
