"""tinyid's tokens: who may have ids of which ``biz_type``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..._clock import SYSTEM_CLOCK
from ..._uncopied import Uncopied

if TYPE_CHECKING:
    from ...abc import Clock
    from ._segments import TinyidStore

__all__ = ("REFRESH_INTERVAL", "TinyidTokens")

REFRESH_INTERVAL: Final = 60.0
"""Seconds that tokens are kept; tinyid reads them every minute."""

_TOKENS: Final = "SELECT token, biz_type FROM tiny_id_token"


class TinyidTokens(Uncopied):
    """What ``tiny_id_token`` allows, read when it is asked and at most every 60 s.

    No token is ever part of a message, a log line or a ``repr``.
    """

    __slots__ = ("_allowed", "_clock", "_read_at", "_store")

    def __init__(self, store: TinyidStore, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Read from a store, which stays yours to close; nothing is sent yet."""
        self._store = store
        self._clock = clock
        self._allowed: frozenset[tuple[str, str]] = frozenset()
        self._read_at: float | None = None

    async def allows(self, token: str | None, biz_type: str | None) -> bool:
        """Tell whether a token may have ids of a ``biz_type``; without either of them none may.

        Raises:
            StoreError: the table cannot be read, and was not read in the last 60 s.
        """
        if not token or not biz_type:
            return False
        asked_at = self._clock.monotonic()
        if self._read_at is None or asked_at - self._read_at >= REFRESH_INTERVAL:
            done = await self._store._executor.run(_TOKENS)
            self._allowed = frozenset((row[0], row[1]) for row in done.rows)
            self._read_at = asked_at
        return (token, biz_type) in self._allowed

    def __repr__(self) -> str:
        """Name the database, and no token."""
        return f"<{type(self).__name__} {self._store!r}>"
