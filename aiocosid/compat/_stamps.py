"""The one number that a registry keeps of a worker id: a time, and whose it is.  Pure.

Leaf keeps a time beside each worker id, and nothing that tells two lives of one address apart.  So
the time does that as well, by its remainder: each life has the one after that of the time which it
has found, and writes no other.  A time is only written in the place of the very one that was read.
So a life that finds a time which it has not sent itself has lost the worker id, and it cannot take
another's time for one of its own whose answer it never heard: for that 64 others would have to
begin within the seconds that a mark is ahead.
"""

from __future__ import annotations

from typing import Final

__all__ = ("LIVES", "claim_stamp", "stamp")

LIVES: Final = 64


def claim_stamp(found_ms: int, now_ms: int) -> int:
    """Return the first time of the life that comes after the one that has left ``found_ms``."""
    return stamp(found_ms + 1, max(found_ms + 1, now_ms))


def stamp(life: int, least_ms: int) -> int:
    """Return the first time of a life from ``least_ms`` on, at most 63 ms later."""
    return least_ms + (life - least_ms) % LIVES
