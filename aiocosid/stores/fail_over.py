"""One call to several stores of which any one is enough: whom to ask next, and what failed."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio

from .._life.clock import call_bounded
from ..errors import (
    CosIdError,
    IdOverflowError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ..abc import Clock, IdSegmentDistributor
    from ._watermark import HighWater
    from .striped._stripe import StoreHealth

__all__ = ("FailOver", "FailOverMember", "no_answer")

_logger = logging.getLogger("aiocosid")

T = TypeVar("T")


class FailOverMember(Protocol):
    """One of the stores; its text names it in messages.

    Attributes:
        counter: the counter there.
        health: whether the store answers.
        ended: the error after which it is not asked any more, or None.
    """

    health: StoreHealth
    ended: StoreRolledBackError | None

    @property
    def counter(self) -> IdSegmentDistributor:
        """The counter there."""
        raise NotImplementedError


class Whole(Protocol):
    """The store that they are parts of."""

    clock: Clock
    store_timeout: float


M = TypeVar("M", bound=FailOverMember)


class FailOver(Generic[M]):
    """The stores of one counter, in a random order for each object.

    Attributes:
        order: the stores, the home first.
    """

    __slots__ = ("_judge", "_of", "_water", "_whole", "order")

    def __init__(
        self,
        members: Sequence[M],
        whole: Whole,
        water: HighWater,
        *,
        of: str,
        judge: Callable[[CosIdError], bool],
    ) -> None:
        """Combine stores.

        Args:
            members: the stores.
            whole: how long each has to answer, and the time.
            water: of the counter; tells whether the process has forked.
            of: the whole counter in messages.
            judge: returns whether an error is none of the store, which answers; raises the error if
                no other store may be asked after it.
        """
        # Random: the objects of a failed home spread over the others.
        self.order: Sequence[M] = random.sample(members, len(members))
        self._whole, self._water, self._of, self._judge = whole, water, of, judge

    def turn(self) -> list[M]:
        """Return the stores in the order to ask: home, the others, and last those in a cooldown."""
        usable = (member for member in self.order if member.ended is None)
        return sorted(usable, key=lambda member: member.health.rank)

    async def ask(self, member: M, call: Callable[[], Awaitable[T]]) -> T | CosIdError:
        """Ask one store; return its result, or the error of its failure.

        Raises:
            CosIdError: an error that is no failure of the store.
        """
        whole = self._whole
        answer = await call_bounded(
            call, store=member.counter.store, clock=whole.clock, within=whole.store_timeout
        )
        self._water.ensure_own(self._of)  # suspended across a fork: the range is the parent's
        if not isinstance(answer, CosIdError) or self._judge(answer):
            if member.health.answered():
                _logger.info("%s: %s answers again", self._of, member)
        elif not isinstance(answer, StoreError | IdOverflowError):
            raise answer
        elif isinstance(answer, StoreRolledBackError):
            member.ended = answer
            _logger.error("%s: %s is no longer used: %s", self._of, member, answer)
        elif member.health.failed(answer):
            _logger.warning("%s: %s fails, other stores are asked: %s", self._of, member, answer)
        return answer

    async def ask_at_once(
        self, calls: Mapping[M, Callable[[], Awaitable[object]]]
    ) -> dict[M, CosIdError]:
        """Ask several stores at the same time; return the failures.

        Raises:
            CosIdError: as for `ask`; all calls have ended.
        """
        failed: dict[M, CosIdError] = {}
        wrong: list[CosIdError] = []

        async def make(member: M) -> None:
            try:
                answer = await self.ask(member, calls[member])
            except CosIdError as error:
                wrong.append(error)
            else:
                if isinstance(answer, CosIdError):
                    failed[member] = answer

        if calls:
            async with anyio.create_task_group() as group:
                for member in calls:
                    group.start_soon(make, member)
        if wrong:
            raise wrong[0]
        return failed


def no_answer(store: str, what: str, errors: Sequence[CosIdError]) -> StoreError:
    """Return the error for a call that no store has answered; the last error is its cause.

    Args:
        store: the whole in messages.
        what: what does not answer.
        errors: of the stores that were asked, at least one.
    """
    reasons = "; ".join(str(each).removesuffix(f"; {each.remedy}") for each in errors)
    kind = StoreUnavailableError if any(error.retryable for error in errors) else StoreError
    error = kind(store, f"{what}: {reasons}", remedy=errors[-1].remedy)
    error.__cause__ = errors[-1]
    return error
