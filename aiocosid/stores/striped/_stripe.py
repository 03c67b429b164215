"""One store's part of a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...errors import (
    CorruptCounterError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from ._residue_class import SUFFIX, UNIT, ResidueClass
from ._statistics import StripeStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...abc import IdSegmentDistributor, Store
    from ._health import StoreHealth

__all__ = ("MisplacedError", "Stripe", "UnopenedError")


MOST_OPENINGS: Final = 5


class MisplacedError(StoreError):
    """A store is at another place than before; asking another store does not help."""


class UnopenedError(StoreUnavailableError):
    """A store's counter is new, and waits for the other stores; the store has not failed."""


class Stripe:
    """The residue class of one store.

    Attributes:
        counter: the store's own counter.
        health: whether the store answers.
        ended: the error after which it is not asked any more, or None.
        is_new: whether it may not grant yet, because not every store was reached.
    """

    __slots__ = (
        *("_name", "_residue", "_raises", "_seen", "_segments", "_store"),
        *("counter", "ended", "health", "is_new"),
    )

    def __init__(
        self, store: Store, whole: IdSegmentDistributor, residue: ResidueClass, health: StoreHealth
    ) -> None:
        """Describe its part of a whole counter; nothing is sent yet."""
        self.counter: IdSegmentDistributor = store.segment_distributor(
            namespace=whole.namespace,
            name=f"{whole.name}{SUFFIX}",
            offset=residue.first(whole.offset),
            step=UNIT,
        )
        self.health = health
        self.ended: StoreRolledBackError | None = None
        self._store, self._residue, self._name = store, residue, whole.name
        self.is_new = False
        self._seen = -1  # the highest value of the counter; below 0 if it was never seen
        self._segments = self._raises = 0

    @property
    def is_bound(self) -> bool:
        """Whether its counter was read: then the store contains its place."""
        return self._seen >= 0

    @property
    def last_id(self) -> int:
        """The highest of its ids that is known to have been granted; 0 for none."""
        return self._residue.last_id(self._seen) if self.is_bound else 0

    async def bind(self) -> None:
        """Write the place to the store, and check it; costs one id.

        It happens before any store grants an id: a store without a place could get another one
        later.
        """
        await self._advance(1)

    async def open(self, above: int) -> None:
        """Let a new counter grant ids, once every store has its place.

        Args:
            above: the highest id that any of them is known to have granted; a lost counter looks
                new.
        """
        for _ in range(MOST_OPENINGS):
            if self.is_new:  # other processes may advance it at the same time
                above = await self.raise_to(above + self._residue.width)

    async def grant(self, step: int, *, above: int, go_on: Callable[[], None]) -> int:
        """Take ``step`` ids that are all above ``above``; return the last one.

        A counter that is behind is raised first, not added to: several processes at the same time
        would add the distance several times, and then every other store would be behind.

        Args:
            step: the number of ids.
            above: the last id that was handed out.
            go_on: raises if no further call is allowed.
        """
        ids = await self._advance(step)
        if self.is_new:
            reason = (
                f"{self._residue} is new, and grants nothing before every store was reached once"
            )
            raise UnopenedError(self.counter.store, reason)
        if ids[0] <= above:
            go_on()
            self._raises += 1
            await self.raise_to(above)
            go_on()
            ids = await self._advance(step)
        if ids[0] <= above:
            raise self._went_back(ids[0], above + 1)
        self._segments += 1
        return ids[-1]

    async def raise_to(self, above: int) -> int:
        """Make it grant only ids above ``above``; return the last id granted, or ``above``.

        Only for a bound store: it overwrites the place in the counter.
        """
        raised = await self._store.set_floor(
            namespace=self.counter.namespace,
            name=self.counter.name,
            above=self._residue.floor(above),
        )
        value = raised.last_max_id
        self.is_new = self.is_new and ResidueClass.noted_in(value) != (self._residue, False)
        return max(above, self._residue.last_id(value))

    async def _advance(self, step: int) -> range:
        due = self._seen + step * UNIT
        try:
            value = await self.counter.next_max_id(step * UNIT)
        except StoreRolledBackError as error:
            last = self._residue.last_id
            raise self._went_back(last(error.seen), last(error.expected)) from error
        self._check(value)
        if value < due:
            raise self._went_back(self._residue.last_id(value), self._residue.last_id(due))
        self._seen = max(self._seen, value)
        return self._residue.ids(value, step)

    def _check(self, value: object) -> None:
        """Raise unless the value is one of this place."""
        found, is_new = ResidueClass.noted_in(value) if type(value) is int else (None, False)
        if self._residue == found:
            self.is_new = is_new
            return
        store, counter = self.counter.store, self.counter.namespaced_name
        if found is None:
            text = f"{value!r}, which ends in no place and number of stores"
            raise CorruptCounterError(store, counter=counter, found=text)
        raise MisplacedError(
            store,
            f"{counter!r} is {found}, and was asked for as {self._residue}: name the same stores "
            "in the same order; for more or fewer stores use another name for the counter, with "
            "an offset above every id",
        )

    def _went_back(self, seen: int, expected: int) -> StoreRolledBackError:
        return StoreRolledBackError(
            str(self),
            namespace=self.counter.namespace,
            name=self._name,
            seen=seen,
            expected=expected,
        )

    def __str__(self) -> str:
        return f"{self.counter.store}, {self._residue}"

    def statistics(self) -> StripeStatistics:
        """Return its statistics."""
        last_error = self.ended or self.health.last_error
        return StripeStatistics(
            store=self.counter.store,
            place=self._residue.number,
            is_healthy=last_error is None,
            has_ended=self.ended is not None,
            segments=self._segments,
            raises=self._raises,
            failures=self.health.failures,
            last_error=last_error,
        )
