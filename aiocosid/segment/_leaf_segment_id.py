"""Leaf's double buffer as a generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..abc import MAX_ID
from ..abc.checks import check_integer, check_seconds
from ..errors import InvalidArgumentError
from ._double_buffer import MAX_STEP, PREFETCH_AT, SEGMENT_DURATION, DoubleBuffer
from .generator import SegmentGenerator
from .options import MAX_WAITERS, SegmentOptions

if TYPE_CHECKING:
    from ..abc import Clock, IdSegmentDistributor
    from ..abc.events import Instrument

__all__ = ("LeafSegmentId", "RowStepped")


@runtime_checkable
class RowStepped(Protocol):
    """A distributor whose counter has a step of its own in the store, as a row of Leaf's."""

    async def row_step(self) -> int:
        """Return the step that lies in the store now, at least 1.

        Raises:
            StoreError: the store refuses or cannot be reached, or holds no such number.
        """
        raise NotImplementedError


class LeafSegmentId(SegmentGenerator):
    """Ids from two segments, as Leaf does it: the next is loaded while the first is in use.

    The segments become longer while they last for less than a quarter of an hour, and shorter again
    when they last for more than half an hour; they are never below the distributor's step, or the
    one of its row, which is read anew for each, as long as the counter has room for it.  If no
    segment is ready, Leaf answers -3; here callers wait, and the next load brings as many segments
    as they need.

    Use it if you come from Leaf and want its segment sizes; with `SegmentChainId` callers wait
    less.
    """

    __slots__ = ()

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        *,
        prefetch_at: float = PREFETCH_AT,
        segment_duration: float = SEGMENT_DURATION,
        max_step: int = MAX_STEP,
        ttl: float | None = None,
        wait_timeout: float = 5.0,
        fetch_timeout: float | None = None,
        close_timeout: float = 5.0,
        max_id: int = MAX_ID,
        max_waiters: int = MAX_WAITERS,
        fail_fast: bool | None = None,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            distributor: asks the store; closing closes what the distributor opened itself.  A
                `RowStepped` distributor is asked for the row's step before each segment, and its
                own step is not used.
            prefetch_at: the part of a segment, 0 to below 1, that is used when the next is loaded.
            segment_duration: seconds; if a segment lasts less, the step doubles; if it lasts at
                least twice as long, the step halves.
            max_step: ids; the step never doubles beyond it.  A row's own step may be above it.
            ttl: seconds after which fetched ids are no longer handed out; None for no limit.
            wait_timeout: maximum seconds that a caller waits for ids.
            fetch_timeout: seconds for one call to the store, at most ``wait_timeout``; None for two
                fifths of it.
            close_timeout: seconds that `aclose` waits for a call under way before it cancels the
                call.
            max_id: the highest id ever handed out, 1 to 2^63-1; 2^53-1 for JavaScript.
            max_waiters: how many callers may wait at a time, 1 or more; the next one fails at once.
            fail_fast: whether callers fail as soon as two calls to the store have failed in a row,
                and later ones with the next that fails, instead of after ``wait_timeout``.  None
                follows the provider: False, but True in the web integrations.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if not _is_part(prefetch_at):
            expected = "a number from 0 to below 1"
            raise InvalidArgumentError("prefetch_at", prefetch_at, expected=expected)
        check_seconds("segment_duration", segment_duration)
        check_integer("max_step", max_step, at_least=1)
        options = SegmentOptions.checked(
            ttl=ttl,
            wait_timeout=wait_timeout,
            fetch_timeout=fetch_timeout,
            close_timeout=close_timeout,
            max_id=max_id,
            instrument=instrument,
            max_waiters=max_waiters,
            fail_fast=fail_fast,
        )
        row_step = distributor.row_step if isinstance(distributor, RowStepped) else None
        pace = DoubleBuffer(
            # Of a row whatever it says when it is read, and never less than one.
            step=distributor.step if row_step is None else 1,
            prefetch_at=prefetch_at,
            segment_duration=segment_duration,
            max_step=min(max_step, distributor.step_limit or max_step),
        )
        super().__init__(distributor, options, pace, clock, row_step)


def _is_part(value: object) -> bool:
    return type(value) in {int, float} and 0 <= value < 1  # type: ignore[operator]  # a number
