"""The markers of a SQL database: whether it may have forgotten who holds which machine id."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final

from ..abc import DEFAULT_SAFE_GUARD, MachineMarker
from ..abc._ids import check_text
from ..abc._machine import NAME_WIDTH, QUARANTINE_MARGIN, check_safe_guard
from ..errors import MachineIdQuarantineError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._machine_tables import MachineTables

__all__ = ("UNNAMED", "Markers", "lasts_ms")

ENDLESS: Final = 2**62  # ms that a quarantine lasts which does not end by itself
UNNAMED: Final = round((DEFAULT_SAFE_GUARD + QUARANTINE_MARGIN) * 1000)  # ms, if none is known
ATTEMPTS: Final = 100  # each failure is somebody else's change


class Markers:
    """The marker of each namespace, in a table of our own."""

    __slots__ = ("_tables",)

    def __init__(self, tables: MachineTables) -> None:
        self._tables = tables

    async def left(self, namespace: str, safe_guard: float) -> float:
        """Begin, prolong or end a quarantine, whichever is due; the seconds that it has left.

        On a store that is sound a longer safe guard than any before is noted for the next one.

        Args:
            namespace: whose.
            safe_guard: seconds, of who asks; 0 for who holds no id.
        """
        lasts = lasts_ms(safe_guard)
        for _ in range(ATTEMPTS):
            found = await self._found(namespace)
            if found is not None:
                _, is_ours, since, longest, now = found
                if is_ours and longest >= lasts:
                    if not since:
                        return 0.0
                    length = longest or UNNAMED
                    # The clock may have been ahead when it began.
                    if since - length <= now < since + length:
                        return _seconds(since + length - now)
            dialect = self._tables.dialect
            await self._tables.fetch_rows(dialect.quarantine, namespace=namespace, lasts=lasts)
        raise StoreUnavailableError(
            self._tables.executor.label, f"the marker of {namespace!r} is always changed by others"
        )

    async def check(self, namespace: str, safe_guard: float) -> None:
        """Raise `MachineIdQuarantineError` while a quarantine runs."""
        if left := await self.left(namespace, safe_guard):
            raise self.quarantine(namespace, left)

    def quarantine(self, namespace: str, left: float) -> MachineIdQuarantineError:
        """Return the error."""
        label = self._tables.executor.label
        return MachineIdQuarantineError(label, namespace=namespace, seconds_left=left)

    async def mark(
        self, namespace: str, *, is_new: bool, safe_guard: float | None
    ) -> MachineMarker:
        """Write the marker; see `aiocosid.abc.Store.mark_machines`."""
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        named = check_safe_guard(safe_guard)
        written = await self._tables.fetch_row(
            self._tables.dialect.mark,
            namespace=namespace,
            is_new=int(is_new),
            lasts=lasts_ms(named),
        )
        if written is not None:
            return MachineMarker(namespace=namespace, is_new=True)
        found = await self._found(namespace)
        # One that runs is not prolonged by somebody who holds no id.
        runs = found is not None and found[1] and found[2]
        left = await self.left(namespace, 0.0 if runs else named)
        return MachineMarker(namespace=namespace, seconds_left=left)

    async def all(self, namespace: str | None) -> Sequence[MachineMarker]:
        """Return the markers; see `aiocosid.abc.Store.machine_markers`."""
        if namespace:  # nobody has the empty one
            check_text("namespace", namespace)
        rows = await self._tables.fetch_rows(
            self._tables.dialect.markers,
            everything=int(namespace is None),
            namespace=namespace or "",
        )
        found = [
            MachineMarker(namespace=name, seconds_left=_shown(*facts)) for name, *facts in rows
        ]
        return sorted(found, key=lambda each: each.namespace)

    async def _found(self, namespace: str) -> Any:  # noqa: ANN401 - a driver's row
        return await self._tables.fetch_row(
            self._tables.dialect.markers, everything=0, namespace=namespace
        )


def lasts_ms(safe_guard: float) -> int:
    """Return how long a quarantine lasts for a safe guard of so many seconds; 0 for none."""
    if not safe_guard:
        return 0
    if safe_guard == inf:
        return ENDLESS
    return min(ceil((safe_guard + QUARANTINE_MARGIN) * 1000), ENDLESS)


def _seconds(left: int) -> float:
    return inf if left >= ENDLESS // 2 else left / 1000


def _shown(is_ours: int, since: int, lasts: int, now: int) -> float:
    """Return the seconds left; all of them, if it has not begun because nobody has asked yet."""
    if not is_ours:
        return _seconds(lasts or UNNAMED)
    return max(0.0, _seconds(since + (lasts or UNNAMED) - now)) if since else 0.0
