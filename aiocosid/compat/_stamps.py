"""The single time that a registry keeps for an address; it identifies owner and write.  No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("LIVES", "claim_stamp", "name_of", "named_stamps", "stamp")

LIVES: Final = 64
MOST_NAMED: Final = 16  # because a record on the disk is short


def claim_stamp(found_ms: int, now_ms: int) -> int:
    """Return the first time of the owner that follows the one that left ``found_ms``."""
    return stamp(found_ms + 1, max(found_ms + 1, now_ms))


def stamp(life: int, least_ms: int) -> int:
    """Return the first time from ``least_ms`` on with a life's remainder, at most 63 ms later."""
    return least_ms + (life - least_ms) % LIVES


def name_of(stamps: Iterable[int], worker_id: int) -> str:
    """Return the name of the write of one of these stamps, as a `RestartRecord` has it.

    A stamp serves as both token and version: a process that takes the id while its time is ahead of
    the clock adds 1 to it.  If there are too many stamps, the name keeps the first one, which was
    read, and the last ones that were sent.
    """
    first, *others = sorted(stamps)
    kept = [first, *others[-MOST_NAMED:]]
    return "|".join(f"{each} {each} - {worker_id}" for each in kept)


def named_stamps(name: str, worker_id: int) -> set[int]:
    """Return the stamps that `name_of` was given, if the name is of this worker id."""
    facts = (each.split(" ") for each in name.split("|"))
    return {int(each[0]) for each in facts if each[2:] == ["-", str(worker_id)]}
