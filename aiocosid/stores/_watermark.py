"""How a distributor notices that its store lost writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _fork
from ..errors import ForkedError, StoreRolledBackError

if TYPE_CHECKING:
    from ..abc import IdSegmentDistributor

__all__ = ("HighWater",)


class HighWater:
    """The highest max id that one distributor object has seen, and the process it saw it in.

    Replies to concurrent calls may arrive in any order, so a reply is compared with what was known
    when its own call was sent::

        sent = water.sent()
        max_id = await ...
        water.check(distributor, max_id, step=step, sent=sent)
    """

    __slots__ = ("_born", "_highest")

    def __init__(self) -> None:
        self._highest: int | None = None
        self._born = _fork.generation

    def sent(self) -> int | None:
        """Return what a call that is sent now has to be compared with, or None at first."""
        return self._highest

    def check(
        self, distributor: IdSegmentDistributor, max_id: int, *, step: int, sent: int | None
    ) -> int:
        """Return ``max_id`` if a sound store could have answered it, and remember it.

        A store that only ever adds answers at least ``sent + step``.

        Raises:
            StoreRolledBackError: the counter went backwards since the call was sent.
        """
        if sent is not None and max_id < sent + step:
            raise StoreRolledBackError(
                distributor.store,
                namespace=distributor.namespace,
                name=distributor.name,
                seen=max_id,
                expected=sent + step,
            )
        if self._highest is None or max_id > self._highest:
            self._highest = max_id
        return max_id

    def raise_to(self, reached: int) -> None:
        """Expect no less than what another object has seen."""
        self._highest = max(reached, self._highest or 0)

    def lower(self, to: int) -> None:
        """Expect no more than that a sound store is at ``to``: ids above it may have gone back."""
        if self._highest is not None:
            self._highest = min(self._highest, to)

    @property
    def is_forked(self) -> bool:
        """Whether the process was forked since this object was made or last adopted."""
        return self._born != _fork.generation

    def ensure_own(self, what: str) -> None:
        """Raise in a forked child.

        Raises:
            ForkedError: ``what`` belongs to the parent process.
        """
        if self.is_forked:
            raise ForkedError(what)

    def adopt(self) -> None:
        """Make it this process's: what the parent saw until the fork still holds."""
        self._born = _fork.generation
