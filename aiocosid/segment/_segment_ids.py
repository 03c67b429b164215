"""The segment chain as a generator, and one segment at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.options import takes
from ..errors import UnsupportedByStoreError
from .generator import SegmentGenerator
from .options import SegmentChainOptions, SegmentIdOptions
from .pace import Pace

if TYPE_CHECKING:
    from ..abc import IdSegmentDistributor

__all__ = ("SegmentChainId", "SegmentId")


class SegmentChainId(SegmentGenerator):
    """Ids from a chain of segments that are fetched before they are needed.

    Open it with ``async with``, or with ``await task_group.start(chain.run)``; either returns when
    the first segment is in hand.  It belongs to the event loop it was opened on.
    """

    __slots__ = ()

    @takes(SegmentChainOptions)
    def __init__(self, distributor: IdSegmentDistributor, options: SegmentChainOptions, /) -> None:
        """Describe a chain; nothing is fetched before it is opened.

        Args:
            distributor: asks the store; closing closes what the distributor opened itself.
            options: the keyword arguments: see `SegmentChainOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(distributor, options, options.pace(distributor.step))


class SegmentId(SegmentGenerator):
    """Ids from one segment, refilled when it is used up; simple, and never ahead of its callers.

    Once in ``step`` ids callers wait for the store; concurrent callers share that one fetch.  With
    a step of 1 it keeps nothing in hand, and ids come in the store's own order: a later call of any
    process gets a higher id.

    With ``strict`` ids keep that order with any step, also through crashes and elections of the
    store: each id is above every id whose call ended, in any process, before this call began, if
    all processes are ``strict``.  Callers that wait at the same time share one call to the store,
    which is sent after they came and reserves as many ids as they want.  So `next_id_nowait` always
    raises `WouldBlock`, and the ids of a cancelled caller are a gap.

    Attributes:
        strict: whether it promises that order.
    """

    __slots__ = ("strict",)

    @takes(SegmentIdOptions)
    def __init__(self, distributor: IdSegmentDistributor, options: SegmentIdOptions, /) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            distributor: asks the store; closing closes what the distributor opened itself.
            options: the keyword arguments: see `SegmentIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: ``strict`` is true, and the store is not linearizable; the
                error says why.
        """
        strict = options.strict
        if strict and distributor.order_risk:
            reason = f"it cannot keep strict order: {distributor.order_risk}"
            remedy = "take a linearizable store, or leave out strict"
            raise UnsupportedByStoreError(distributor.store, reason, remedy=remedy)
        pace = Pace(step=1 if strict else distributor.step, safe_distance=0)
        super().__init__(distributor, options, pace)
        self.strict: bool = strict
