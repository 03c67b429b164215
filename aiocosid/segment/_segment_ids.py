"""The segment chain as a generator, and one segment at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc import MAX_ID
from ..abc.checks import check_boolean
from ..errors import UnsupportedByStoreError
from .generator import SegmentGenerator
from .options import MAX_WAITERS, SegmentOptions
from .pace import ENDURANCE, MAX_DISTANCE, MAX_IDS_AHEAD, QUIET_PERIOD, Pace

if TYPE_CHECKING:
    from ..abc import Clock, IdSegmentDistributor
    from ..abc.events import Instrument

__all__ = ("SegmentChainId", "SegmentId")


class SegmentChainId(SegmentGenerator):
    """Ids from a chain of segments that are fetched before they are needed.

    Open it with ``async with``, or with ``await task_group.start(chain.run)``; either returns when
    the first segment is in hand.  It belongs to the event loop it was opened on.
    """

    __slots__ = ()

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        *,
        safe_distance: int = 2,
        endurance: float = ENDURANCE,
        ttl: float | None = None,
        wait_timeout: float = 5.0,
        fetch_timeout: float | None = None,
        close_timeout: float = 5.0,
        max_id: int = MAX_ID,
        max_distance: int = MAX_DISTANCE,
        max_ids_ahead: int = MAX_IDS_AHEAD,
        quiet_period: float = QUIET_PERIOD,
        max_waiters: int = MAX_WAITERS,
        fail_fast: bool | None = None,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a chain; nothing is fetched before it is opened.

        Args:
            distributor: asks the store; closing closes what the distributor opened itself.
            safe_distance: segments kept ahead of the consumer at rest, 1 to ``max_distance``.
                CosId's code has the same default.
            endurance: seconds that the ids in hand last at the measured rate, even if the store
                fails at the worst moment; 0 to keep no more than the distances below.  The chain
                refills to one and a half times that; the ids are lost if the process crashes.  At
                most ``ttl`` (with a shorter ``ttl`` the default is ``ttl``), and bounded by
                ``max_ids_ahead`` and by a thousandth of the ids left below ``max_id``.
            ttl: seconds after which fetched ids are no longer handed out; None for no limit.
            wait_timeout: maximum seconds that a caller waits for ids.
            fetch_timeout: seconds for one call to the store, at most ``wait_timeout``; None for two
                fifths of it, so that a second attempt fits in.
            close_timeout: seconds that `aclose` waits for a call under way before it cancels the
                call.
            max_id: the highest id ever handed out, 1 to 2^63-1; 2^53-1 for JavaScript.
            max_distance: maximum ids kept ahead because the store is slow, under any load.
            max_ids_ahead: maximum ids kept ahead at all, for a high rate or a large step.  Neither
                maximum limits the safe distance or the size of a caller's batch.
            quiet_period: seconds after which an unneeded distance halves.
            max_waiters: how many callers may wait at a time, 1 or more; the next one fails at once.
            fail_fast: whether callers fail as soon as two calls to the store have failed in a row,
                and later ones with the next that fails, instead of after ``wait_timeout``.  None
                follows the provider: False, but True in the web integrations.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        options = SegmentOptions.checked(
            ttl=ttl,
            wait_timeout=wait_timeout,
            fetch_timeout=fetch_timeout,
            close_timeout=close_timeout,
            quiet_period=quiet_period,
            max_id=max_id,
            instrument=instrument,
            max_waiters=max_waiters,
            fail_fast=fail_fast,
        )
        pace = Pace.checked(
            step=distributor.step,
            safe_distance=safe_distance,
            max_distance=max_distance,
            max_ids_ahead=max_ids_ahead,
            endurance=endurance,
            ttl=options.ttl,
        )
        super().__init__(distributor, options, pace, clock)


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

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        *,
        strict: bool = False,
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
            distributor: asks the store; closing closes what the distributor opened itself.
            strict: whether ids are in order over all processes; the distributor's step is not used.
            ttl: seconds after which fetched ids are no longer handed out; None for no limit.
            wait_timeout: maximum seconds that a caller waits for ids.
            fetch_timeout: seconds for one call to the store, at most ``wait_timeout``; None for two
                fifths of it.
            close_timeout: seconds that `aclose` waits for a call under way before it cancels the
                call.
            max_id: the highest id ever handed out, 1 to 2^63-1.
            max_waiters: how many callers may wait at a time, 1 or more; the next one fails at once.
            fail_fast: whether callers fail as soon as two calls to the store have failed in a row,
                and later ones with the next that fails, instead of after ``wait_timeout``.  None
                follows the provider: False, but True in the web integrations.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            UnsupportedByStoreError: ``strict`` is true, and the store is not linearizable; the
                error says why.
        """
        check_boolean("strict", strict)
        if strict and distributor.order_risk:
            reason = f"it cannot keep strict order: {distributor.order_risk}"
            remedy = "take a linearizable store, or leave out strict"
            raise UnsupportedByStoreError(distributor.store, reason, remedy=remedy)
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
        pace = Pace(step=1 if strict else distributor.step, safe_distance=0)
        super().__init__(distributor, options, pace, clock)
        self.strict: bool = strict
