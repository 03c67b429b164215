"""One counter in several databases, each of which grants ids of its own."""

from __future__ import annotations

import logging
import random
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from .._clock import SYSTEM_CLOCK
from .._strangers import asked
from ..abc import DEFAULT_NAMESPACE, IdSegmentDistributor
from ..abc._ids import check_seconds
from ..errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from ..stores._arguments import check_step
from ..stores._watermark import HighWater
from ..stores.striped._health import Health
from ._table_distributor import TableIdSegmentDistributor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..abc import Clock

__all__ = ("STORE_TIMEOUT", "GroupIdSegmentDistributor", "Member")

# Three of these are below the 2 s after which a generator gives a call up by default.
STORE_TIMEOUT: Final = 0.6  # seconds

_logger = logging.getLogger("aiocosid")

D = TypeVar("D", bound=TableIdSegmentDistributor)
T = TypeVar("T")


class Member(Generic[D]):
    """One of the databases.

    Attributes:
        counter: the row there.
        health: whether the database answers.
        ended: why it is not asked any more, or None.
        is_bound: whether the row was looked at, and found to be sound.
    """

    __slots__ = ("counter", "ended", "health", "is_bound")

    def __init__(self, counter: D, health: Health) -> None:
        self.counter = counter
        self.health = health
        self.ended: StoreRolledBackError | None = None
        self.is_bound = False


class GroupIdSegmentDistributor(IdSegmentDistributor, Generic[D]):
    """A counter in several databases, of which any one is enough.

    Each object draws an order, and asks the first that answers; so many objects spread over the
    databases.  One that fails, or does not answer in time, is put into quarantine, for longer each
    time, and another is asked in the same call.  A database that is behind what this object has
    handed out is raised first, as far as that: ids rise, whichever grants them.

    A database whose number went backwards is not asked any more by this object.

    The rows of all databases that answer are read before the first grant, and that of one that was
    away before it is asked.  One that is no good is an error of the whole: what is wrong with it
    may be wrong with us, and the others' rows may not show it.  All are read anew after that.
    """

    __slots__ = ("_clock", "_members", "_order", "_water", "store", "store_timeout", "stride")

    def __init__(
        self,
        counters: Sequence[D],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        store_timeout: float = STORE_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Put counters side by side, which stay yours to close; nothing is sent yet.

        Args:
            counters: one for each database, all of one name and step.
            namespace: names the counter in messages and statistics, and nowhere else.
            store_timeout: seconds that one database has to answer, before the next is asked.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_seconds("store_timeout", store_timeout)
        alike = {(counter.name, counter.step, counter.step_limit) for counter in counters}
        if len(alike) != 1 or len({id(counter) for counter in counters}) < len(counters):
            expected = "one or more different counters, all of one name and step"
            raise InvalidArgumentError("counters", counters, expected=expected)
        first = counters[0]
        super().__init__(namespace=namespace, name=first.name, step=first.step)
        self.store = f"{first.store} x{len(counters)}"
        self.stride, self.store_timeout = first.stride, store_timeout
        self._members = tuple(Member(counter, Health(clock)) for counter in counters)
        self._order = random.sample(self._members, len(self._members))
        self._clock, self._water = clock, HighWater()

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the counters'
        """The most ids that one call may ask for."""
        return self._members[0].counter.step_limit

    async def next_max_id(self, step: int) -> int:
        """Take a segment from some database; see `IdSegmentDistributor.next_max_id`.

        A cancelled call, or one that has asked several, may have taken effect in each: gaps.

        Raises:
            InvalidArgumentError: ``step`` is no integer, below 1 or above `step_limit`.
            IdOverflowError: the ids of all databases are used up.
            StoreUnavailableError: no database answers; the last one's error is the cause.
            CorruptCounterError: a row is no good, or shares ids with another one; nothing was
                written, but of a row that has changed since it was read a range may be lost.
            StoreError: none answers, and a second attempt would not mend it.
            StoreRolledBackError: the numbers of all databases went backwards.
            ForkedError: the connections are the parent's.
        """
        check_step(step)
        self._water.ensure_own(repr(self))
        failed = await self._bind()
        above = self._water.sent() or 0
        errors = [*failed.values()]
        for member in self._turn():
            if member in failed:
                continue
            answer = await self._attempt(member, partial(self._granted, member, step, above))
            if not isinstance(answer, CosIdError):
                self.stride = member.counter.stride
                self._water.raise_to(answer)
                return answer
            errors.append(answer)
        raise self._nobody(errors)

    async def _bind(self) -> dict[Member[D], CosIdError]:
        """Look at the rows that were not looked at, before any id is granted; return who failed.

        Raises:
            CosIdError: a row is no good, or it is no failure of a database.
        """
        unbound = [each for each in self._turn() if not (each.is_bound or each.health.is_resting)]
        failed: dict[Member[D], CosIdError] = {}
        if not unbound:
            return failed
        wrong: list[CosIdError] = []

        async def bind(member: Member[D]) -> None:
            try:
                answer = await self._attempt(member, partial(self._look_at, member))
            except CosIdError as error:
                wrong.append(error)
            else:
                if answer is not None:
                    failed[member] = answer

        async with anyio.create_task_group() as group:
            for member in unbound:
                group.start_soon(bind, member)
        if wrong:
            raise wrong[0]
        return failed

    async def _look_at(self, member: Member[D]) -> None:
        """Raise if a row is no good."""
        await member.counter._look()
        member.is_bound = True

    def _turn(self) -> list[Member[D]]:
        asked = (member for member in self._order if member.ended is None)
        return sorted(asked, key=lambda member: member.health.rank)

    async def _attempt(self, member: Member[D], call: Callable[[], Awaitable[T]]) -> T | CosIdError:
        """Ask one database; return what it answers, or why it does not."""
        answer = await asked(
            call, store=member.counter.store, clock=self._clock, within=self.store_timeout
        )
        self._water.ensure_own(repr(self))  # suspended across a fork: it is the parent's
        self._note(member, answer)
        return answer

    async def _granted(self, member: Member[D], step: int, above: int) -> int:
        """Take ``step`` ids that are all above ``above``.

        One that is behind is asked twice: what was lost there shows only in a grant that was not
        raised.
        """
        counter = member.counter
        if not member.is_bound:  # still in quarantine, and the last resort
            await self._look_at(member)
        self._check()
        max_id = await counter.next_max_id(step)
        if max_id - (step - 1) * counter.stride <= above:
            max_id = await counter._next_above(step, above)
        self._check()  # the row may have changed
        return max_id

    def _check(self) -> None:
        """Raise if some database's ids may be another's as well, as far as rows were read."""

    def _note(self, member: Member[D], answer: object) -> None:
        """Take note of how a database did; raise what is no failure of it."""
        place = f"database {self._members.index(member)}"
        if not isinstance(answer, CosIdError):
            if member.health.answered():
                _logger.info("%r: %s answers again", self, place)
        elif isinstance(answer, StoreRolledBackError):
            member.ended = answer
            _logger.error("%r: %s is not asked any more: %s", self, place, answer)
        elif isinstance(answer, CorruptCounterError):
            for each in self._members:  # whichever of them is put right
                each.is_bound = False
            raise answer  # the others may share its ids
        elif not isinstance(answer, StoreError | IdOverflowError):
            raise answer
        elif member.health.failed(answer):
            _logger.warning("%r: %s fails, so others are asked: %s", self, place, answer)

    def _nobody(self, errors: list[CosIdError]) -> CosIdError:
        """Return the error for a call that no database has answered."""
        if not errors:
            ended = [member.ended for member in self._members if member.ended is not None]
            return ended[-1].again()
        if len(errors) == 1 or all(isinstance(error, IdOverflowError) for error in errors):
            return errors[-1]
        told = "; ".join(str(error) for error in errors)
        kind = StoreUnavailableError if any(error.retryable for error in errors) else StoreError
        nobody = kind(self.store, f"no database answers: {told}")
        nobody.__cause__ = errors[-1]
        return nobody

    def resume_above(self, reached: int) -> None:
        """Grant nothing at or below ``reached``, whichever database is asked."""
        self._water.raise_to(reached)

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: an engine was passed in, and is the parent's.
        """
        for member in self._members:
            await member.counter.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """Release what the counters have opened themselves."""
        async with AsyncExitStack() as stack:
            for member in self._members:
                stack.push_async_callback(member.counter.aclose)

    def _share_health(self, healths: Sequence[Health]) -> Any:  # noqa: ANN401 - this object
        """Have what one object finds out known to all of a store."""
        for member, health in zip(self._members, healths, strict=True):
            member.health = health
        return self
