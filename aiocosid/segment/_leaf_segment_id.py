"""Leaf's double buffer as a generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..abc.options import takes
from ._double_buffer import DoubleBuffer
from .generator import SegmentGenerator
from .options import LeafSegmentOptions

if TYPE_CHECKING:
    from ..abc import IdSegmentDistributor

__all__ = ("LeafSegmentId", "RowStepped")


@runtime_checkable
class RowStepped(Protocol):
    """A distributor whose counter stores a step of its own, such as a row of Leaf's table."""

    async def row_step(self) -> int:
        """Return the step that the store has now, at least 1.

        Raises:
            StoreError: the store refuses, cannot be reached, or has no valid step.
        """
        raise NotImplementedError


class LeafSegmentId(SegmentGenerator):
    """Ids from two segments, as in Leaf: the next is loaded while the first is in use.

    Segments grow while they last for less than a quarter of an hour, and shrink again when they
    last for more than half an hour.  They are never smaller than the distributor's step.  If the
    counter's row has a step, that one counts instead; it is read before each load, and applies
    as long as the counter has that many ids left.  If no segment is ready, Leaf answers -3; here
    callers wait, and the next load brings as many segments as they need.

    Use it if you come from Leaf and want its segment sizes.  With `SegmentChainId` callers wait
    less.
    """

    __slots__ = ()

    @takes(LeafSegmentOptions)
    def __init__(self, distributor: IdSegmentDistributor, options: LeafSegmentOptions, /) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            distributor: calls the store; closing the generator closes whatever the distributor
                opened itself.  A `RowStepped` distributor is asked for the row's step before each
                segment, and its own step is not used.
            options: the keyword arguments: see `LeafSegmentOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        row_step = distributor.row_step if isinstance(distributor, RowStepped) else None
        pace = DoubleBuffer(
            # A row's step is unknown until it is read, and is at least 1.
            step=distributor.step if row_step is None else 1,
            prefetch_at=options.prefetch_at,
            segment_duration=options.segment_duration,
            max_step=min(options.max_step, distributor.step_limit or options.max_step),
        )
        super().__init__(distributor, options, pace, row_step)
