"""Takes a buffered id, and decides what to do when there is none."""

from __future__ import annotations

from copy import copy
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .._life import fork
from .._life.atomic_step import EMPTY
from .._life.callers import MAX_BATCH, expand_ranges
from .._life.clock import call_bounded
from .._life.component import Component
from .._life.loop import CheckedIds
from ..abc import IdGenerator
from ..abc.checks import check_integer
from ..abc.options import takes
from ..errors import CosIdError, InvalidArgumentError, UnsupportedByStoreError, WouldBlock
from ._opening import SegmentOpening
from .options import SegmentChainOptions, SegmentIdOptions
from .pace import Pace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._life.loop import TaskRoot
    from ..abc import IdSegmentDistributor
    from ._statistics import SegmentStatistics
    from .chain import IdsInHand
    from .options import SegmentOptions

__all__ = (
    "MAX_BATCH",
    "SegmentChainId",
    "SegmentGenerator",
    "SegmentId",
    "claim",
    "reached",
    "resume",
)


class SegmentGenerator(Component, IdGenerator):
    """Hands out the ids of its opening from a buffered piece: an iterator over a range.

    Anything that ends the use of buffered ids (closing, a fork, expiry, a store that went
    backwards) replaces the iterator with an empty one.  So the hot path checks nothing, and the
    slow path finds the reason.
    """

    __slots__ = ("__weakref__", "_distributor", "_hand", "_options", "_pace", "_row_step")

    _opening: SegmentOpening
    _opens: ClassVar = SegmentOpening

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        options: SegmentOptions,
        pace: Pace,
        row_step: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        limit = distributor.step_limit
        if limit is not None and pace.step > limit:
            rule = f"must be at most {limit}, the distributor's step_limit"
            raise InvalidArgumentError("step", pace.step, rule)
        self._distributor = distributor
        self._options = options
        self._pace = pace  # as it is at rest; each opening gets a copy
        self._row_step = row_step
        super().__init__(options.clock)
        self._reset()

    # The hot path.

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        for new_id in self._hand.exposed:
            return new_id
        return await self._next_id_slow()

    def next_id_nowait(self) -> int:
        """Return the next buffered id; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        for new_id in self._hand.exposed:
            return new_id
        return self._next_id_nowait_slow()

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, 1 to 10 million; see `aiocosid.abc.IdGenerator.next_ids`."""
        if self._find_loop() is not self._loop:
            self._check_usable()  # always raises: wrong loop, closed, or forked
        home, hand = self._home, self._hand
        if type(n) is int and not hand.busy:
            try:  # `atomic_step` inlined, to save the cost of its calls
                hand.busy = True
                hand.exposed = EMPTY  # a signal handler finds no id from here on
                left = length_hint(hand.piece)
                if 0 < n <= left:
                    stop, stride = hand.stop, hand.stride
                    rest = stop - (left - n) * stride
                    hand.piece = hand.iterate(range(rest, stop, stride))
                    return list(range(rest - n * stride, rest, stride))
            finally:
                hand.exposed = hand.piece if home.ended is None else EMPTY
                hand.busy = False
        return await self._next_ids_slow(n)

    async def peek(self) -> int | None:
        """Return the last id that any process has reserved in the store; None if there is none.

        It calls the store once, and changes nothing; buffered ids of any process are at or below
        the answer.  It takes at most ``fetch_timeout``, and can be cancelled at any time.

        Raises:
            UnsupportedByStoreError: the store cannot read a counter without changing it.
            StoreError: the store refuses, cannot be reached, or does not answer in time.
            NotOpenError: the generator is not open.
            CosIdError: it cannot be used here, as for `next_id`.
        """
        self._check_usable()
        answer = await call_bounded(
            self._distributor.peek,
            store=self._distributor.store,
            clock=self._clock,
            within=self._options.call_timeout,
        )
        if isinstance(answer, CosIdError):
            raise answer
        return answer

    def probe(self) -> None:
        """Call the store again in the background if it has failed and no id is buffered.

        Otherwise only a caller does so.  For a health check, which keeps callers away; what the
        call reserves is buffered, or with strict order a gap.

        Raises:
            CosIdError: it cannot be used here, as for `next_id`.
        """
        self._check_usable()
        self._opening.probe()

    # The boundary.

    async def _next_id_slow(self) -> int:
        self._check_usable()  # first, because a thread without a loop cannot be suspended
        opening = self._opening
        await opening.cross()
        for new_id in self._hand.exposed:
            return new_id
        return (await opening.callers.wait(1, opening))[0][0]

    def _next_id_nowait_slow(self) -> int:
        self._check_usable()
        opening = self._opening
        opening.cross_now()
        for new_id in self._hand.exposed:
            return new_id
        self._check_usable()  # a store in this process may have ended it a moment ago
        raise WouldBlock

    async def _next_ranges(self, n: int) -> list[range]:
        """Return ``n`` ids as ranges."""
        check_integer("n", n, at_least=1, at_most=MAX_BATCH)
        self._check_usable()
        opening = self._opening
        await opening.cross()
        return opening.take_now(n) or await opening.callers.wait(n, opening)

    async def _next_ids_slow(self, n: int) -> list[int]:
        opening, pieces = self._opening, await self._next_ranges(n)
        process = fork.generation
        try:
            ids = await expand_ranges(pieces)
        except BaseException:
            opening.stock.discard(n, "cancelled")
            raise
        fork.ensure_own(process, self._home.label)
        return ids

    # Opening and closing.

    def _reset(self) -> None:
        self._opening = self._opens(
            self._home,
            self._opening,
            distributor=self._distributor,
            options=self._options,
            pace=copy(self._pace),
            row_step=self._row_step,
        )
        self._hand: IdsInHand = self._opening.hand
        if (check := self._home.loop_check) is not None:
            self._hand.iterate = partial(CheckedIds, check)

    async def _start(self) -> None:
        await self._distributor.aopen()
        await self._opening.wait_for_first()

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    @property
    def _has_to_drain(self) -> bool:
        return self._opening.has_to_drain

    async def _release(self) -> None:
        await self._distributor.aclose()

    def _reached(self) -> int | None:
        """Return the highest id reserved so far: its successor accepts only ids above it."""
        return self._hand.floor

    def _resume(self, reached: int | None) -> None:
        """Continue above what `_reached` returned."""
        self._hand.floor = reached
        if reached is not None:
            self._distributor.resume_above(reached)

    # Looking inside.

    @property
    def name(self) -> str:
        """The counter's name in its namespace."""
        return self._distributor.name

    def _label(self) -> str:
        return f"{type(self).__name__} {self._distributor.namespaced_name}"

    def statistics(self) -> SegmentStatistics:
        """Return a frozen snapshot of the generator; cheap, and never waits."""
        from ._statistics import picture_of

        return picture_of(self._opening, type(self).__name__)

    def __repr__(self) -> str:
        """Show its state, the buffered ids and the number of waiting callers."""
        opening = self._opening
        return (
            f"<{self._label()} {self._condition} head={opening.supply.head_sequence} "
            f"remaining={opening.hand.ahead} distance={opening.pace.distance} "
            f"waiting={len(opening.line)}>"
        )


def claim(generator: SegmentGenerator, root: TaskRoot | None) -> SegmentOpening:
    """Open a generator without an await; return its opening."""
    generator._claim(root)
    return generator._opening


class _Resumable(Protocol):
    def _reached(self) -> Any: ...  # noqa: ANN401 - of a kind of its own

    def _resume(self, reached: Any) -> None: ...  # noqa: ANN401 - of that kind


def reached(generator: _Resumable) -> Any:  # noqa: ANN401 - for `resume` of the same kind
    """Return the highest id that a generator has reserved; None if that is not known."""
    return generator._reached()


def resume(generator: _Resumable, floor: Any) -> None:  # noqa: ANN401 - of `reached`
    """Let a generator that is not open yet continue above what `reached` returned."""
    generator._resume(floor)


class SegmentChainId(SegmentGenerator):
    """Ids from a chain of segments that are fetched before they are needed.

    Open it with ``async with``, or with ``await task_group.start(chain.run)``; either returns once
    the first segment is there.  It belongs to the event loop on which it was opened.
    """

    __slots__ = ()

    @takes(SegmentChainOptions)
    def __init__(self, distributor: IdSegmentDistributor, options: SegmentChainOptions, /) -> None:
        """Describe a chain; nothing is fetched before it is opened.

        Args:
            distributor: calls the store; closing closes whatever the distributor opened itself.
            options: the keyword arguments: see `SegmentChainOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(distributor, options, options.pace(distributor.step))


class SegmentId(SegmentGenerator):
    """Ids from one segment, which is refilled only when it is used up.

    Once in ``step`` ids callers wait for the store; concurrent callers share that one fetch.  With
    a step of 1 it buffers nothing, and ids come in the store's own order: a later call of any
    process gets a higher id.

    With ``strict`` ids keep that order with any step, also through crashes and elections of the
    store: each id is above every id whose call ended, in any process, before this call began.  All
    processes must be ``strict``.  Callers that wait at the same time share one call to the store,
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
            distributor: calls the store; closing closes whatever the distributor opened itself.
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
