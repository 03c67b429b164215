"""Several independent stores as one, with all their counters."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self
from urllib.parse import parse_qsl

from ..._life.clock import SYSTEM_CLOCK
from ...abc import DEFAULT_NAMESPACE, Counter, Store
from ...abc.checks import check_integer, check_seconds
from ...errors import (
    CosIdError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    UnsupportedByStoreError,
)
from .._watermark import WatchedDistributor
from ..fail_over import FailOver, no_answer
from ..over import Closings, StoreOverStores
from ._stripe import (
    FEWEST_STORES,
    MOST_STORES,
    SUFFIX,
    UNIT,
    MisplacedError,
    ResidueClass,
    StoreHealth,
    Stripe,
    StripedStatistics,
    UnopenedError,
    highest_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...abc import Clock

__all__ = ("StripedIdSegmentDistributor", "StripedStore", "read_url")


class StripedIdSegmentDistributor(WatchedDistributor):
    """A counter in several independent stores, of which any one is enough.

    Of ``n`` stores the one at place ``i`` has the ids ``i + 1``, ``i + 1 + n``, ``i + 1 + 2n`` and
    so on, above the offset, and counts them under ``{namespace}.{name}~striped``.  So its segments
    have a `stride` of ``n``.

    Each object has a home store, chosen at random, and asks it as long as it answers; so many
    objects spread over the stores.  A store that fails, or does not answer in time, gets a
    cooldown, longer each time, and the same call asks another store.  If a store is behind the ids
    that this object has handed out, its counter is raised first: ids rise, whichever store they
    come from.

    A new counter grants nothing until one object has reached all stores: the first start needs them
    all, and so does a store that replaces another one.  A `GroupedSegmentId` has a new counter for
    each group.

    An object stops asking a store whose counter went backwards; only an object that has seen the
    higher value can detect that.  So each store has to be durable by itself.

    A cancelled call, or one that has asked several stores, may have taken effect in each of them
    and leave gaps.  It raises `IdOverflowError` if every store's counter would pass 2^63-1, at 92
    million billion ids; `StoreUnavailableError` if no store answers, with the last store's error as
    the cause; another `StoreError` if a retry cannot help, or a store is at another place than
    before; `StoreRolledBackError` if the counters of all stores went backwards; and a store's
    errors that do not come from its server.
    """

    __slots__ = ("_closings", "_fail_over", "_home", "_stripes", "stride")

    store = "striped"
    order_risk = "each of its stores counts by itself"

    def __init__(self, store: StripedStore, closings: Closings, **described: Any) -> None:  # noqa: ANN401 - a contract's
        """Describe a counter in several stores; nothing is sent yet.

        Args:
            store: the whole.
            closings: of this counter, and of the whole.
            **described: as for `aiocosid.abc.IdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or a store is striped itself.
        """
        super().__init__(**described)
        check_integer("offset", self.offset, at_least=0, at_most=highest_id(len(store.residues)))
        self._closings = closings
        self._stripes = tuple(
            Stripe(each, self, residue, health)
            for each, residue, health in zip(store.parts, store.residues, store.health, strict=True)
        )
        if any(each.counter.stride != 1 for each in self._stripes):
            expected = "stores that grant contiguous ranges of any length"
            raise InvalidArgumentError("stores", store.parts, expected=expected)
        self.stride = len(self._stripes)
        self._fail_over = FailOver(
            self._stripes, store, self._water, of=repr(self), judge=_is_unopened
        )
        self._home = self._stripes.index(self._fail_over.order[0])

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the stores'
        """The maximum number of ids that every store grants in one call."""
        limits = [each.counter.step_limit for each in self._stripes]
        known = [limit // UNIT for limit in limits if limit is not None]
        return min(known) if known else None

    async def _grant(self, step: int) -> int:
        """Take a segment from one of the stores."""
        go_on = self._closings.watch(self.store)
        await self._bind()
        baseline = self._water.baseline() or 0
        errors: list[CosIdError] = []
        for stripe in self._fail_over.turn():
            go_on()
            call = partial(stripe.grant, step, above=baseline, go_on=go_on)
            answer = await self._fail_over.ask(stripe, call)
            if not isinstance(answer, CosIdError):
                return answer
            errors.append(answer)
        raise self._no_answer(errors)

    async def _bind(self) -> None:
        """Write its place to every store, before any of them grants an id.

        A store that cannot be reached gets its place when it is next asked.  New counters are
        opened once all stores have theirs.  This object's ids begin above all counters: one that
        was lost, and looks new, is raised as well.
        """
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
        can_grant = any(each.is_bound and not each.is_new for each in self._stripes)
        return [
            each for each in self._fail_over.turn() if not (can_grant and each.health.is_resting)
        ]

    def _no_answer(self, errors: list[CosIdError]) -> CosIdError:
        """Return the error for a call that no store has answered."""
        ended = [stripe.ended for stripe in self._stripes if stripe.ended is not None]
        if len(ended) == len(self._stripes):
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
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: a client was passed in, and is the parent's.
        """
        for stripe in self._stripes:
            await stripe.counter.aopen()
        await super().aopen()

    async def aclose(self) -> None:
        """Release what the stores' distributors have opened themselves; the stores stay open."""
        self._closings.note()
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


# Three of these are below the default 2 s timeout of a generator's call.
STORE_TIMEOUT: Final = 0.6  # seconds

EXPECTED: Final = "striped:?store=URL&store=URL, percent-encoded; store_timeout=SECONDS may follow"


class StripedStore(StoreOverStores[StripedIdSegmentDistributor]):
    """Counters in several independent stores, of which any one is enough.

    It hands out no machine ids: they need one store that decides.

    Attributes:
        store_timeout: seconds that one store has to answer.
        residues: the residue class of each store.
        health: the health of each store, shared by all distributors.
        clock: time.
    """

    __slots__ = ("clock", "health", "residues", "store_timeout")

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        store_timeout: float = STORE_TIMEOUT,
        owns_stores: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Combine stores; nothing is sent yet.

        Args:
            stores: two to nine stores with separate data, always the same number in the same order:
                each counter contains its place and their number, and refuses another one.  They
                have to support `Store.set_floor`.
            store_timeout: seconds that one store has to answer, before the next is asked.
            owns_stores: whether `aclose` closes them.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        _check_stores(stores)
        check_seconds("store_timeout", store_timeout)
        super().__init__(stores, owns_stores=owns_stores)
        self.residues: list[ResidueClass] = [
            ResidueClass(number, len(stores)) for number in range(len(stores))
        ]
        self.health: list[StoreHealth] = [StoreHealth(clock) for _ in stores]
        self.store_timeout: float = store_timeout
        self.clock: Clock = clock

    @classmethod
    def from_url(cls, url: str, *, open_store: Callable[[str], Store]) -> Self:
        """Combine the stores of a URL, which are closed with this one.

        Args:
            url: ``striped:?store=URL&store=URL``, each percent-encoded; ``store_timeout`` may
                follow, in seconds.
            open_store: opens each of them: `aiocosid.open_store`.

        Raises:
            InvalidArgumentError: the URL, or one within, is malformed.
            MissingExtraError: a store's driver is not installed.
        """
        urls, store_timeout = read_url(url)
        stores = [open_store(each) for each in urls]
        return cls(stores, store_timeout=store_timeout, owns_stores=True)

    def __repr__(self) -> str:
        """Show the stores, without credentials."""
        return f"<{type(self).__name__} {' '.join(repr(store) for store in self._stores)}>"

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create what each store needs.

        Raises:
            StoreError: a store refuses or cannot be reached; those before it are ready.
        """
        for store in self._stores:
            await store.create_schema(disposable=disposable, after_loss=after_loss)

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the striped counters, each with the highest id of all stores.

        Raises:
            StoreError: a store refuses or cannot be reached; the others cannot replace its answer.
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
        """Create a counter in each store, under its marker only; costs an id in each.

        One that exists goes on above its ids.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CounterNotCreatedError: a store was emptied, or never initialised.
            StoreError: a store refuses, cannot be reached, or is at another place.
        """
        counter = self.segment_distributor(namespace=namespace, name=name, offset=offset)
        return await counter.begin()

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, create: bool = True
    ) -> Counter:
        """Raise a counter in each store where it is lower or missing; costs an id in each.

        A cancelled or failed call may have taken effect in some stores: repeat it, which is safe.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: no store has such a counter, and ``create`` is False.
            StoreError: a store refuses, cannot be reached, or is at another place.
        """
        check_integer("above", above, at_least=0, at_most=highest_id(len(self.residues)))
        counter = self.segment_distributor(namespace=namespace, name=name)
        if not create:
            known = {each.namespaced_name for each in await self.counters(namespace=namespace)}
            if counter.namespaced_name not in known:
                raise CounterMissingError("striped", counter=counter.namespaced_name)
        highest = await counter.raise_to(above)
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=highest)

    def _counter(self, **described: Any) -> StripedIdSegmentDistributor:  # noqa: ANN401 - a contract's
        return StripedIdSegmentDistributor(self, Closings(self._closings), **described)

    def _holder(self) -> NoReturn:
        reason, remedy = "it hands out no machine ids", "use a single store, such as one of these"
        raise UnsupportedByStoreError(StripedIdSegmentDistributor.store, reason, remedy=remedy)


def _check_stores(stores: Any) -> None:  # noqa: ANN401 - whatever was given
    """Raise `InvalidArgumentError` unless they are two to nine different stores."""
    given: list[Any] = list(stores) if type(stores) in {list, tuple} else []
    are_stores = all(isinstance(each, Store) for each in given)
    if not are_stores or not FEWEST_STORES <= len(given) <= MOST_STORES:
        expected = f"a list of {FEWEST_STORES} to {MOST_STORES} stores"
        raise InvalidArgumentError("stores", stores, expected=expected)
    if len({id(each) for each in given}) < len(given):
        raise InvalidArgumentError("stores", stores, expected="each of them another one")


def read_url(url: str) -> tuple[list[str], float]:
    """Return the stores' URLs in their order, and the seconds that one has to answer.

    Raises:
        InvalidArgumentError: it is malformed; it is not shown, as it may hold passwords.
    """
    scheme, _, query = url.partition(":")
    given = parse_qsl(query.removeprefix("?").replace("+", "%2B"), keep_blank_values=True)
    stores = [text for name, text in given if name == "store"]
    timeouts = [text for name, text in given if name == "store_timeout"]
    is_known = len(stores) + len(timeouts) == len(given) and len(timeouts) <= 1
    if scheme.lower() != "striped" or not query.startswith("?") or not stores or not is_known:
        raise InvalidArgumentError("url", "striped:...", expected=EXPECTED)
    try:
        return stores, float(timeouts[0]) if timeouts else STORE_TIMEOUT
    except ValueError:
        raise InvalidArgumentError("store_timeout", timeouts[0], expected="a number") from None
