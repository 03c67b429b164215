"""One segment at a time, fetched when the one before is used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc import MAX_ID
from ._generator import SegmentGenerator
from ._options import SegmentOptions
from ._pace import Pace

if TYPE_CHECKING:
    from ..abc import Clock, IdSegmentDistributor
    from ..events import Instrument

__all__ = ("SegmentId",)


class SegmentId(SegmentGenerator):
    """Ids from one segment, refilled when it is used up; simple, and never ahead of its callers.

    Every ``step`` ids somebody waits for the store; concurrent callers share that one fetch.  With
    a step of 1 nothing is kept in hand at all, and ids come in the store's own order: an id that
    any process asked for later is higher.
    """

    __slots__ = ()

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        *,
        ttl: float | None = None,
        wait_timeout: float = 5.0,
        fetch_timeout: float | None = None,
        close_timeout: float = 5.0,
        max_id: int = MAX_ID,
        give_back: bool = False,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            distributor: asks the store; closing closes what the distributor opened itself.
            ttl: seconds after which fetched ids are not handed out any more; None for ever.
            wait_timeout: seconds that a caller waits for ids at most.
            fetch_timeout: seconds for one call to the store, at most ``wait_timeout``; None for two
                fifths of it.
            close_timeout: seconds that `aclose` waits for a call under way before it tears it.
            max_id: the highest id ever handed out, 1 to 2^63-1.
            give_back: whether closing gives ids that were not used back to the store, if nothing
                has happened to the counter since.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the distributor takes no ids
                back.
        """
        options = SegmentOptions.checked(
            ttl=ttl,
            wait_timeout=wait_timeout,
            fetch_timeout=fetch_timeout,
            close_timeout=close_timeout,
            max_id=max_id,
            instrument=instrument,
            give_back=give_back,
        )
        super().__init__(distributor, options, Pace(step=distributor.step, safe_distance=0), clock)
