"""Long lists of ids, without keeping the loop from everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("MAX_BATCH", "STRETCH", "expand_ranges")

MAX_BATCH: Final = 10_000_000
"""Ids that one ``next_ids`` call may ask for; a list of them takes 400 MB."""

STRETCH: Final = 10_000
"""Ids between two turns of the event loop at most, about a millisecond."""


async def expand_ranges(pieces: Sequence[range]) -> list[int]:
    """Make a list of ranges, with a turn for the loop between long stretches."""
    if len(pieces) == 1 and len(pieces[0]) <= STRETCH:
        return list(pieces[0])
    ids: list[int] = []
    turn_at = STRETCH
    for piece in pieces:
        for start in range(0, len(piece), STRETCH):
            if len(ids) >= turn_at:
                await checkpoint()
                turn_at += STRETCH
            ids += piece[start : start + STRETCH]
    return ids
