"""Several independent stores that share one sequence of ids: any one of them is enough.

Each store has its own residue class, as with tinyid's delta and remainder, or Flickr's tickets.  So
the stores need no connection to each other, and no two of them can grant the same id.

The counter of a store counts in hundreds; its last two digits are the store's place and the number
of stores.  1,200,013 means 12,000 at place 1 of 3; its last id is 12,000 * 3 - 1 = 35,999.  Each
grant therefore shows its place: if the stores' order or number has changed, the grant that would
have repeated an id detects it.

A counter is new, and grants nothing, until one process has reached every store.  Until then the
last two digits are swapped, as in 1,031.  Otherwise an empty store that is added while the others
cannot be reached would grant their ids.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from .._life.clock import SYSTEM_CLOCK
from ..abc import DEFAULT_NAMESPACE, MAX_ID, Counter, Store
from ..abc.checks import check_integer, check_seconds
from ..errors import (
    CorruptCounterError,
    CosIdError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from .counters import WatchedDistributor
from .over import Closings, FailOver, StoreHealth, StoreOverStores, no_answer, read_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..abc import Clock, IdSegmentDistributor

__all__ = ("StripeStatistics", "StripedStatistics", "StripedStore")

MOST_OPENINGS: Final = 5


class MisplacedError(StoreError):
    """A store is at a different place than before; calling another store does not help."""


class UnopenedError(StoreUnavailableError):
    """A store's counter is new and waits for the other stores; the store itself has not failed."""


class Stripe:
    """The residue class of one store.

    Attributes:
        counter: the store's own counter.
        health: whether the store answers.
        ended: the error after which the store is no longer called, or None.
        is_new: whether the counter may not grant ids yet, because not every store was reached.
    """

    __slots__ = (
        *("_name", "_residue", "_raises", "_seen", "_segments", "_store"),
        *("counter", "ended", "health", "is_new"),
    )

    def __init__(
        self, store: Store, whole: IdSegmentDistributor, residue: ResidueClass, health: StoreHealth
    ) -> None:
        """Describe a store's share of a counter; nothing is sent yet."""
        self.counter: IdSegmentDistributor = store.segment_distributor(
            namespace=whole.namespace,
            name=f"{whole.name}{SUFFIX}",
            offset=residue.first(whole.offset),
            step=UNIT,
        )
        self.health = health
        self.ended: StoreRolledBackError | None = None
        self._store, self._residue, self._name = store, residue, whole.name
        self.is_new: bool = False
        self._seen = -1  # the counter's highest value; negative if never seen
        self._segments = self._raises = 0

    @property
    def is_bound(self) -> bool:
        """Whether the counter was read; then the store contains its place."""
        return self._seen >= 0

    @property
    def last_id(self) -> int:
        """The highest of its ids that is known to be granted; 0 for none."""
        return self._residue.last_id(self._seen) if self.is_bound else 0

    async def bind(self) -> None:
        """Write the place to the store, and check it; this costs one id.

        This happens before any store grants an id, because a store without a place could get
        another place later.
        """
        await self._advance(1)

    async def open(self, above: int) -> None:
        """Let a new counter grant ids, once every store has its place.

        Args:
            above: the highest id that any store is known to have granted; a lost counter looks new.
        """
        for _ in range(MOST_OPENINGS):
            if self.is_new:  # other processes may advance the counter at the same time
                above = await self.raise_to(above + self._residue.width)

    async def grant(self, step: int, *, above: int, go_on: Callable[[], None]) -> int:
        """Reserve ``step`` ids that are all above ``above``; return the last one.

        A counter that is behind is first raised instead of added to: several concurrent processes
        would add the distance several times, and then every other store would be behind.

        Args:
            step: the number of ids.
            above: the last id that was issued.
            go_on: raises if no further call is allowed.
        """
        ids = await self._advance(step)
        if self.is_new:
            reason = "is new, and grants nothing until every store has been reached once"
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
        """Let it grant only ids above ``above``; return the last id granted, or ``above``.

        Call it only for a bound store, because it overwrites the place in the counter.
        """
        raised = await self._store.set_floor(
            namespace=self.counter.namespace,
            name=self.counter.name,
            above=self._residue.floor(above),
            create=False,  # `bind` created it, under the store's marker
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
        """Raise unless the value belongs to this place."""
        found, is_new = ResidueClass.noted_in(value) if type(value) is int else (None, False)
        if self._residue == found:
            self.is_new = is_new
            return
        store, counter = self.counter.store, self.counter.namespaced_name
        if found is None:
            text = f"{value!r}, which does not end in a place and a number of stores"
            raise CorruptCounterError(store, counter=counter, found=text)
        raise MisplacedError(
            store,
            f"{counter!r} is {found}, but was requested as {self._residue}",
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
        """Return the store's statistics."""
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
"""The suffix of the counter's name in each store, so that a generator on that store alone has
another counter.
"""

UNIT: Final = 100
"""The amount by which a store's counter advances for each id."""

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
        """Return the first value of a new counter, which grants no ids up to ``offset``."""
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
        """Return the last id granted when the counter has that value; 0 for none."""
        return max(0, self.ids(value, 1)[0])

    @classmethod
    def noted_in(cls, value: int) -> tuple[ResidueClass | None, bool]:
        """Return the place in a value, or None if it has none, and whether the counter is new."""
        digits = divmod(value % UNIT, 10)
        number, width = sorted(digits)
        is_named = value >= 0 and number < width >= FEWEST_STORES
        return cls(number, width) if is_named else None, digits == (width, number)

    def __str__(self) -> str:
        return f"place {self.number} of {self.width}"


def highest_id(width: int) -> int:
    """Return the highest id that every one of ``width`` striped stores can reach."""
    return (MAX_ID // UNIT - 3) * width


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeStatistics:
    """The state of one of the stores of a `StripedStore`'s distributor.

    Attributes:
        store: the kind of store.
        place: its place in the list, from 0.
        is_healthy: whether its last call succeeded.
        has_ended: whether its counter went backwards; the store is then no longer called.
        segments: segments that it granted.
        raises: how often its counter was raised because it was behind the others.
        failures: failed calls, including those of other counters of the `StripedStore`.
        last_error: its last error; None after a successful call.
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
        home: the place of the store that is called first.
    """

    stores: tuple[StripeStatistics, ...]
    home: int


class StripedIdSegmentDistributor(WatchedDistributor):
    """A counter in several independent stores, of which any one is enough.

    Of ``n`` stores, the one at place ``i`` has the ids ``i + 1``, ``i + 1 + n``, ``i + 1 + 2n`` and
    so on, above the offset, and counts them under ``{namespace}.{name}~striped``.  So the segments
    have a `stride` of ``n``.

    Each object has a home store, chosen at random, and calls it as long as it answers, so that
    objects spread over the stores.  A store that fails or does not answer in time gets a cooldown,
    which grows each time, and the same request goes to another store.  If a store is behind the ids
    that this object has issued, its counter is raised first, so ids rise, whichever store they come
    from.

    With a `region`, an object calls only the store of that place, and the others only to begin a
    new counter.  So data centres with one store each need no connection to each other.

    A new counter grants nothing until one object has reached all stores.  So all stores must be
    reachable at the first start, and when one store replaces another.  A `GroupedSegmentId` has a
    new counter for each group.

    An object stops calling a store whose counter went backwards.  Only an object that has seen the
    higher value can detect this, so each store must be durable by itself.

    A cancelled call, or one that reached several stores, may have taken effect in each of them and
    leave gaps.  A call raises `IdOverflowError` if every store's counter would pass 2^63-1, at 92
    million billion ids; `StoreUnavailableError` if no store answers, with the last store's error as
    the cause; another `StoreError` if a retry cannot help, or if a store is at a different place
    than before; `StoreRolledBackError` if the counters of all stores went backwards; and any store
    error that does not come from the store's server.
    """

    __slots__ = ("_asked", "_closings", "_fail_over", "_home", "_stripes", "stride")

    store = "striped"
    order_risk = "each of its stores counts by itself"

    def __init__(self, store: StripedStore, closings: Closings, **described: Any) -> None:  # noqa: ANN401 - the contract's options
        """Describe a counter in several stores; nothing is sent yet.

        Args:
            store: the striped store.
            closings: the closings of this counter and of the striped store.
            **described: as for `aiocosid.abc.IdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or one of the stores is itself
                striped.
        """
        super().__init__(**described)
        check_integer("offset", self.offset, at_least=0, at_most=highest_id(len(store.residues)))
        self._closings = closings
        self._stripes = tuple(
            Stripe(each, self, residue, health)
            for each, residue, health in zip(store.parts, store.residues, store.health, strict=True)
        )
        if any(each.counter.stride != 1 for each in self._stripes):
            rule = "must grant contiguous ranges of any length"
            raise InvalidArgumentError("stores", store.parts, rule)
        self.stride: int = len(self._stripes)
        self._fail_over = FailOver(
            self._stripes, store, self._water, of=repr(self), judge=_is_unopened
        )
        self._home, self._asked = self._stripes.index(self._fail_over.order[0]), self._stripes
        if store.region is not None:  # no other store is called for ids
            self._home, self._asked = store.region, (self._stripes[store.region],)

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the stores'
        """The maximum number of ids that every store grants in one call."""
        limits = [each.counter.step_limit for each in self._stripes]
        known = [limit // UNIT for limit in limits if limit is not None]
        return min(known) if known else None

    async def _grant(self, step: int) -> int:
        """Reserve a segment in one of the stores."""
        go_on = self._closings.watch(self.store)
        await self._bind()
        baseline = self._water.baseline() or 0
        errors: list[CosIdError] = []
        for stripe in [each for each in self._fail_over.candidates() if each in self._asked]:
            go_on()
            call = partial(stripe.grant, step, above=baseline, go_on=go_on)
            answer = await self._fail_over.ask(stripe, call)
            if not isinstance(answer, CosIdError):
                return answer
            errors.append(answer)
        raise self._no_answer(errors)

    async def _bind(self) -> None:
        """Write its place to every store before any of them grants an id.

        A store that cannot be reached gets its place when it is next asked.  New counters are
        opened once all stores have their places.  This object's ids begin above all counters; a
        counter that was lost and looks new is raised as well.
        """
        if self._asked != self._stripes:
            own = [each for each in self._asked if not each.is_bound]
            await self._fail_over.ask_at_once({each: each.bind for each in own})
            if not self._asked[0].is_new:
                return
        unbound = [each for each in self._due() if not each.is_bound]
        await self._fail_over.ask_at_once({each: each.bind for each in unbound})
        for stripe in unbound:
            self._water.raise_to(stripe.last_id)
        if all(each.is_bound for each in self._stripes):
            above = max(self._water.baseline() or 0, *(each.last_id for each in self._stripes))
            new = [each for each in self._due() if each.is_new]
            calls = {each: partial(each.open, above) for each in new}
            await self._fail_over.ask_at_once(calls)

    def _due(self) -> list[Stripe]:
        """Return the stores to bind before a grant: none in a cooldown, if another can grant."""
        can_grant = any(each.is_bound and not each.is_new for each in self._asked)
        return [
            each
            for each in self._fail_over.candidates()
            if not (can_grant and each.health.is_resting)
        ]

    def _no_answer(self, errors: list[CosIdError]) -> CosIdError:
        """Return the error for a call that no store has answered."""
        ended = [stripe.ended for stripe in self._asked if stripe.ended is not None]
        if len(ended) == len(self._asked):
            return ended[-1].again()
        if all(isinstance(error, IdOverflowError) for error in errors):
            return IdOverflowError(self.namespaced_name, limit=highest_id(self.stride))
        return no_answer(self.store, "no store answers", errors)

    async def begin(self) -> int:
        """Create the counter in each store; return its offset, or the last id if it exists."""
        for stripe in self._stripes:  # all of them, before any can grant
            await stripe.bind()
        last = max(stripe.last_id for stripe in self._stripes)
        is_new = all(stripe.is_new for stripe in self._stripes)
        for stripe in self._stripes:
            await stripe.open(last)
        return self.offset if is_new else last

    async def raise_to(self, above: int) -> int:
        """Raise the counter in each store; return the highest last id, at least ``above``."""
        for stripe in self._stripes:  # all of them, before any can grant
            await stripe.bind()
        return max([above, *[await stripe.raise_to(above) for stripe in self._stripes]])

    def statistics(self) -> StripedStatistics:
        """Return the statistics of this object so far."""
        stores = tuple(stripe.statistics() for stripe in self._stripes)
        return StripedStatistics(stores=stores, home=self._home)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child, with new connections.

        Raises:
            ForkedError: a client was passed in and belongs to the parent process.
        """
        for stripe in self._stripes:
            await stripe.counter.aopen()
        await super().aopen()

    async def aclose(self) -> None:
        """Release what the stores' distributors themselves opened; the stores stay open."""
        self._closings.record()
        async with AsyncExitStack() as stack:
            for stripe in self._stripes:
                stack.push_async_callback(stripe.counter.aclose)

    def __repr__(self) -> str:
        """Show the counter, the step and the number of stores."""
        return f"<{type(self).__name__} {self.namespaced_name} step={self.step} x{self.stride}>"


def _is_unopened(error: CosIdError) -> bool:
    if isinstance(error, MisplacedError):
        raise error
    return isinstance(error, UnopenedError)


# Three times this fits into the default 2 s timeout of a generator's call.
STORE_TIMEOUT: Final = 0.6  # seconds

EXPECTED: Final = (
    "striped:?store=URL&store=URL, percent-encoded, perhaps with store_timeout=SECONDS and region=N"
)


class StripedStore(StoreOverStores[StripedIdSegmentDistributor]):
    """Counters in several independent stores, of which any one is enough.

    It grants no machine ids, because they need one store that decides.

    Attributes:
        store_timeout: seconds within which a store must answer.
        region: the place of the only store that is called for ids; None for all of them.
        residues: the residue class of each store.
        health: the health of each store, shared by all distributors.
        clock: the time source.
    """

    __slots__ = ("clock", "health", "region", "residues", "store_timeout")

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        store_timeout: float = STORE_TIMEOUT,
        region: int | None = None,
        owns_stores: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Combine stores; nothing is sent yet.

        Args:
            stores: two to nine stores with separate data, always the same number in the same order:
                each counter contains its place and the number of stores, and refuses other values.
                The stores must support `Store.set_floor`.
            store_timeout: seconds for which to wait for a store before calling the next one.
            region: the place in ``stores`` of this process's region.  Only that store is called for
                ids, so the regions need no connection to each other once a counter has begun.
            owns_stores: whether `aclose` closes the stores.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        _check_stores(stores)
        check_seconds("store_timeout", store_timeout)
        if region is not None:
            check_integer("region", region, at_least=0, at_most=len(stores) - 1)
        self.region: int | None = region
        super().__init__(stores, owns_stores=owns_stores)
        self.residues: list[ResidueClass] = [
            ResidueClass(number, len(stores)) for number in range(len(stores))
        ]
        self.health: list[StoreHealth] = [StoreHealth(clock) for _ in stores]
        self.store_timeout: float = store_timeout
        self.clock: Clock = clock

    @classmethod
    def from_url(cls, url: str, *, store_from_url: Callable[[str], Store]) -> Self:
        """Combine the stores of a URL, which are closed together with this one.

        Args:
            url: ``striped:?store=URL&store=URL``, each percent-encoded; ``store_timeout``, in
                seconds, and ``region`` may follow.
            store_from_url: creates each store: `aiocosid.store_from_url`.

        Raises:
            InvalidArgumentError: the URL, or one of the URLs in it, is malformed.
            MissingExtraError: a store's driver is not installed.
        """
        options: dict[str, Callable[[str], Any]] = {"store_timeout": float, "region": int}
        urls, given = read_parts(url, "striped", options, needs={"store"}, form=EXPECTED)
        return cls([*map(store_from_url, urls)], owns_stores=True, **given)

    def __repr__(self) -> str:
        """Show the stores, without credentials."""
        return f"<{type(self).__name__} {' '.join(repr(store) for store in self._stores)}>"

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create what each store needs.

        Raises:
            StoreError: a store refuses or cannot be reached; the stores before it are ready.
        """
        for store in self._stores:
            await store.create_schema(disposable=disposable, after_loss=after_loss)

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the striped counters, each with the highest id of all stores.

        Raises:
            StoreError: a store refuses or cannot be reached; the other stores cannot replace its
                answer.
        """
        found: dict[str, int] = {}
        for store, residue in zip(self._stores, self.residues, strict=True):
            for counter in await store.counters(namespace=namespace):
                name, value = counter.namespaced_name, counter.last_max_id
                if name.endswith(SUFFIX) and ResidueClass.noted_in(value) == (residue, False):
                    name = name.removesuffix(SUFFIX)
                    found[name] = max(found.get(name, 0), residue.last_id(value))
        return [Counter(namespaced_name=name, last_max_id=found[name]) for name in sorted(found)]

    async def begin_counter(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, offset: int = 0
    ) -> int:
        """Create a counter in each store, only under its marker; this costs one id in each.

        An existing counter continues above its ids.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CounterNotCreatedError: a store was emptied or never initialised.
            StoreError: a store refuses, cannot be reached, or is at a different place.
        """
        counter = self.segment_distributor(namespace=namespace, name=name, offset=offset)
        return await counter.begin()

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, create: bool = True
    ) -> Counter:
        """Raise a counter in each store where it is lower or missing; this costs one id in each.

        A cancelled or failed call may have taken effect in some stores.  Repeat it; this is safe.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: no store has such a counter, and ``create`` is False.
            StoreError: a store refuses, cannot be reached, or is at a different place.
        """
        check_integer("above", above, at_least=0, at_most=highest_id(len(self.residues)))
        counter = self.segment_distributor(namespace=namespace, name=name)
        if not create:
            known = {each.namespaced_name for each in await self.counters(namespace=namespace)}
            if counter.namespaced_name not in known:
                raise CounterMissingError("striped", counter=counter.namespaced_name)
        highest = await counter.raise_to(above)
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=highest)

    def _counter(self, **described: Any) -> StripedIdSegmentDistributor:  # noqa: ANN401 - the contract's options
        return StripedIdSegmentDistributor(self, Closings(self._closings), **described)

    def _holder(self) -> NoReturn:
        reason, remedy = "it hands out no machine ids", "use a single store, such as one of these"
        raise UnsupportedByStoreError(StripedIdSegmentDistributor.store, reason, remedy=remedy)


def _check_stores(stores: Any) -> None:  # noqa: ANN401 - any argument
    """Raise `InvalidArgumentError` unless they are two to nine different stores."""
    given: list[Any] = list(stores) if type(stores) in {list, tuple} else []
    are_stores = all(isinstance(each, Store) for each in given)
    if not are_stores or not FEWEST_STORES <= len(given) <= MOST_STORES:
        rule = f"must be a list of {FEWEST_STORES} to {MOST_STORES} stores"
        raise InvalidArgumentError("stores", stores, rule)
    if len({id(each) for each in given}) < len(given):
        raise InvalidArgumentError("stores", stores, "must all be distinct")
