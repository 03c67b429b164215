"""The time that a registry stores for a worker id, which also identifies the owner.  Pure.

Leaf stores a time with each worker id, and nothing that distinguishes two processes of one address.
So the time's remainder modulo 64 does: each new owner (a *life*) takes the remainder after that of
the time that it has found, and writes only times with it.  A time is only written if the stored one
is still the one that was read.  So an owner that finds a time that it has not sent has lost the
worker id.  It cannot mistake another owner's time for its own with a lost reply: for that 64 others
would have to begin within the seconds that a mark is ahead.
"""

from __future__ import annotations

from typing import Final

__all__ = ("LIVES", "claim_stamp", "stamp")

LIVES: Final = 64


def claim_stamp(found_ms: int, now_ms: int) -> int:
    """Return the first time of the owner after the one that has left ``found_ms``."""
    return stamp(found_ms + 1, max(found_ms + 1, now_ms))


def stamp(life: int, least_ms: int) -> int:
    """Return the first time with a life's remainder from ``least_ms`` on, at most 63 ms later."""
    return least_ms + (life - least_ms) % LIVES
