"""One store's part of a counter: its ids, its health and its statistics.

The counter of a store counts in hundreds; its last two digits are the store's place, and the number
of stores.  1,200,013 is 12,000 for place 1 of 3; its last id is 12,000 * 3 - 1 = 35,999.  So each
grant shows its place: if the stores' order or number has changed, the step that would have repeated
an id detects it.

A counter is new, and grants nothing, until one process has reached every store: until then the two
digits are swapped, 1,031.  Otherwise an empty store that is added while the others cannot be
reached would grant their ids.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from ...abc import MAX_ID
from ...errors import CorruptCounterError, StoreError, StoreRolledBackError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...abc import Clock, IdSegmentDistributor, Store
    from ...errors import CosIdError

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
            reason = "is new, and grants nothing before every store was reached once"
            raise UnopenedError(
                self.counter.store, f"{self._residue} {reason}", remedy="make every store reachable"
            )
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
            create=False,  # `bind` did, under the store's marker
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
            f"{counter!r} is {found}, and was asked for as {self._residue}",
            remedy="name the same stores in the same order; for more or fewer stores use another "
            "name for the counter, with an offset above every id",
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


SUFFIX: Final = "~striped"
"""The suffix of the counter's name in each store: a generator on that store alone has another
counter.
"""

UNIT: Final = 100
"""The amount that a store's counter advances for each id."""

FEWEST_STORES: Final = 2

MOST_STORES: Final = 9
"""The place and the number of stores have one digit each."""


@dataclass(frozen=True, slots=True)
class ResidueClass:
    """A store's place among those that share a counter.

    Attributes:
        number: the place, from 0.
        width: the number of stores, 2 to 9.
    """

    number: int
    width: int

    @property
    def code(self) -> int:
        """The last two digits of the counter."""
        return self.number * 10 + self.width

    def first(self, offset: int) -> int:
        """Return the first value of a new counter: it grants no ids up to ``offset``."""
        new_code = self.width * 10 + self.number
        return self.floor(offset) - self.code + new_code

    def floor(self, above: int) -> int:
        """Return the lowest value after which all ids are above ``above``."""
        return max(0, (above - self.number - 1) // self.width + 1) * UNIT + self.code

    def ids(self, value: int, step: int) -> range:
        """Return the ids of the grant of ``step`` ids that ended with a value."""
        last = (value // UNIT - 1) * self.width + self.number + 1
        return range(last - (step - 1) * self.width, last + 1, self.width)

    def last_id(self, value: int) -> int:
        """Return the last id that was granted when the counter has that value; 0 for none."""
        return max(0, self.ids(value, 1)[0])

    @classmethod
    def noted_in(cls, value: int) -> tuple[ResidueClass | None, bool]:
        """Return the place in a value, None if there is none; and whether the counter is new."""
        digits = divmod(value % UNIT, 10)
        number, width = sorted(digits)
        is_named = value >= 0 and number < width >= FEWEST_STORES
        return cls(number, width) if is_named else None, digits == (width, number)

    def __str__(self) -> str:
        return f"place {self.number} of {self.width}"


def highest_id(width: int) -> int:
    """Return the highest id that each of so many stores can count to."""
    return (MAX_ID // UNIT - 3) * width


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeStatistics:
    """One of the stores of a `StripedStore`'s distributor.

    Attributes:
        store: the kind of store.
        place: its place in the list, from 0.
        is_healthy: whether its last call succeeded.
        has_ended: whether its counter went backwards; then it is not asked any more.
        segments: segments that it granted.
        raises: how often its counter was raised because it was behind the others.
        failures: failed calls, including those of other counters of the `StripedStore`.
        last_error: its last error; None after an answer.
    """

    store: str
    place: int
    is_healthy: bool
    has_ended: bool
    segments: int
    raises: int
    failures: int
    last_error: CosIdError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StripedStatistics:
    """The state of a `StripedStore`'s distributor at one moment; it counts its own calls.

    Attributes:
        stores: one entry for each store, in their order.
        home: the place of the store that is asked first.
    """

    stores: tuple[StripeStatistics, ...]
    home: int


FIRST_PAUSE: Final = 0.5  # seconds after the first failure, doubled by each further one
LAST_PAUSE: Final = 30.0  # seconds


class StoreHealth:
    """The health of one store; the distributors of one `StripedStore` share it.

    Attributes:
        failures: failed calls so far.
        last_error: the error of the last failed call; None after an answer.
    """

    __slots__ = ("_again_at", "_clock", "_in_a_row", "failures", "last_error")

    def __init__(self, clock: Clock) -> None:
        """Begin with a healthy store."""
        self.failures: int = 0
        self.last_error: CosIdError | None = None
        self._clock = clock
        self._again_at = -inf
        self._in_a_row = 0

    @property
    def is_resting(self) -> bool:
        """Whether it is in a cooldown."""
        return self._again_at > self._clock.monotonic()

    @property
    def rank(self) -> float:
        """Stores with a lower rank are asked first; all without a cooldown have the same rank."""
        return self._again_at if self.is_resting else -inf

    def failed(self, error: CosIdError) -> bool:
        """Begin a cooldown, longer than the one before; return whether it is the first in a row.

        A running cooldown is not extended: several calls may have failed at once, or no other store
        is left.
        """
        is_first = self.last_error is None
        self.failures += 1
        self.last_error = error
        now = self._clock.monotonic()
        if now >= self._again_at:
            pause = min(LAST_PAUSE, FIRST_PAUSE * 2 ** min(self._in_a_row, 10))
            self._in_a_row += 1
            # Random, to differ from other processes.
            self._again_at = now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return is_first

    def answered(self) -> bool:
        """End the cooldown; return whether there was one."""
        was_away = self.last_error is not None
        self.last_error = None
        self._in_a_row, self._again_at = 0, -inf
        return was_away
