"""One request for a segment, on its way through Redis and the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .._give_back import Note

__all__ = ("Call",)


class Call(NamedTuple):
    """One request for a segment.

    Attributes:
        step: ids per segment.
        sent: the highest id that was known when it began.
        nonce: its name in Redis.
        closings: how often this was closed before it began.
        note: what is noted with it in Redis.
    """

    step: int
    sent: int | None
    nonce: bytes
    closings: int
    note: Note
