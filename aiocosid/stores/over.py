"""The common part of stores over other stores: lifecycle, and calls that any of them can answer.

Closing ends running calls.  A call goes to one store after the other until one answers.
"""

from __future__ import annotations

import logging
import random
from abc import abstractmethod
from contextlib import AsyncExitStack
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

import anyio

from .._life.clock import call_bounded
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, IdSegmentDistributor, Store
from ..errors import (
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from ._connection import closed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ..abc import Clock, Counter
    from .counters import HighWater

__all__ = (
    "Closings",
    "FailOver",
    "StoreHealth",
    "StoreOverStores",
    "no_answer",
    "read_option",
    "read_parts",
)

FIRST_PAUSE: Final = 0.5  # seconds after the first failure; each further one doubles it
LAST_PAUSE: Final = 30.0  # seconds

_logger = logging.getLogger("aiocosid")

D = TypeVar("D", bound=IdSegmentDistributor)
T = TypeVar("T")


class Closings:
    """Counts closings, because a call that began before a closing must not reopen the stores.

    Attributes:
        count: the number of closings of this part and of the whole to which it belongs.
    """

    __slots__ = ("_own", "_whole")

    def __init__(self, whole: Closings | None = None) -> None:
        self._own = 0
        self._whole = whole

    @property
    def count(self) -> int:
        """How many closings were recorded, including those of the whole."""
        return self._own + (0 if self._whole is None else self._whole.count)

    def record(self) -> None:
        """Record a closing; all running calls end."""
        self._own += 1

    def watch(self, store: str) -> Callable[[], None]:
        """Return a function that raises after a closing, before a call reopens connections."""
        before = self.count

        def go_on() -> None:
            if self.count != before:
                raise closed(store)

        return go_on


class StoreOverStores(Store, Generic[D]):
    """Several stores as one; its distributors belong to one class and use these stores.

    Calls that a subclass does not combine go to its `_holder`.
    """

    __slots__ = ("_closings", "_owns_stores", "_stores")

    begins_counters = True

    def __init__(self, stores: Sequence[Store], *, owns_stores: bool) -> None:
        self._stores, self._owns_stores = tuple(stores), owns_stores
        self._closings = Closings()

    @property
    def parts(self) -> Sequence[Store]:
        """The stores that it combines, in their order."""
        return self._stores

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> D:
        """Return a distributor on all stores' connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return self._counter(namespace=namespace, name=name, offset=offset, step=step)

    @abstractmethod
    def _counter(self, **described: Any) -> D:  # noqa: ANN401 - the contract's options
        """Return a distributor that has what it needs of this store."""

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create what the root needs.

        Raises:
            StoreError: the root refuses or cannot be reached.
        """
        await self._holder().create_schema(disposable=disposable, after_loss=after_loss)

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the root's counters; each value is the last id of the latest span.

        Raises:
            StoreError: the root refuses or cannot be reached.
        """
        return await self._holder().counters(namespace=namespace)

    async def begin_counter(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, offset: int = 0
    ) -> int:
        """Create the root's counter, only under its marker; an existing counter stays unchanged.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            CounterNotCreatedError: the root was emptied or never initialised.
            StoreError: the root refuses or cannot be reached.
        """
        return await self._holder().begin_counter(namespace=namespace, name=name, offset=offset)

    @abstractmethod
    def _holder(self) -> Store:
        """Return the root: the store that keeps the counters and the machine ids.

        Raises:
            UnsupportedByStoreError: no single store keeps them.
        """

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child, with new connections.

        Raises:
            ForkedError: a user's client belongs to the parent process.
        """
        for store in self._stores:
            await store.aopen()

    async def aclose(self) -> None:
        """Close the stores if it owns them, as after ``connect(url)``.

        Running calls end with `StoreUnavailableError`.
        """
        if self._owns_stores:
            self._closings.record()
            async with AsyncExitStack() as stack:
                for store in self._stores:
                    stack.push_async_callback(store.aclose)


class StoreHealth:
    """The health of one store, shared by all distributors of the whole.

    Attributes:
        failures: failed calls so far.
        last_error: the error of the last failed call; None after a successful call.
    """

    __slots__ = ("_again_at", "_clock", "_in_a_row", "failures", "last_error")

    def __init__(self, clock: Clock) -> None:
        """Start with a healthy store."""
        self.failures: int = 0
        self.last_error: CosIdError | None = None
        self._clock = clock
        self._again_at = -inf
        self._in_a_row = 0

    @property
    def is_resting(self) -> bool:
        """Whether the store is in a cooldown."""
        return self._again_at > self._clock.monotonic()

    @property
    def rank(self) -> float:
        """Stores with a lower rank are called first; all without a cooldown have the same rank."""
        return self._again_at if self.is_resting else -inf

    def failed(self, error: CosIdError) -> bool:
        """Start a cooldown, longer than the last; return whether it is the first in a row.

        A running cooldown is not extended, because several calls may have failed at once, or no
        other store may be left.
        """
        is_first = self.last_error is None
        self.failures += 1
        self.last_error = error
        now = self._clock.monotonic()
        if now >= self._again_at:
            pause = min(LAST_PAUSE, FIRST_PAUSE * 2 ** min(self._in_a_row, 10))
            self._in_a_row += 1
            # The pause is random, so that processes do not retry together.
            self._again_at = now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return is_first

    def answered(self) -> bool:
        """End the cooldown; return whether there was one."""
        was_down = self.last_error is not None
        self.last_error = None
        self._in_a_row, self._again_at = 0, -inf
        return was_down


class FailOverMember(Protocol):
    """One of the stores; its text names the store in messages.

    Attributes:
        counter: the counter in this store.
        health: whether the store answers.
        ended: the error after which the store is no longer called, or None.
    """

    health: StoreHealth
    ended: StoreRolledBackError | None

    @property
    def counter(self) -> IdSegmentDistributor:
        """The counter in this store."""
        raise NotImplementedError


class Whole(Protocol):
    """The store to which the members belong."""

    clock: Clock
    store_timeout: float


M = TypeVar("M", bound=FailOverMember)


class FailOver(Generic[M]):
    """The stores of one counter, in a random order for each object.

    Attributes:
        order: the stores, with the home store first.
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
            whole: the combined store, with the time within which each store must answer, and the
                clock.
            water: the counter's high water, which tells whether the process has forked.
            of: the whole counter in messages.
            judge: returns whether an error is not a failure of the store, which did answer; raises
                the error if no other store may be called after it.
        """
        # The order is random, so that the objects of a failed home spread over the other stores.
        self.order: Sequence[M] = random.sample(members, len(members))
        self._whole, self._water, self._of, self._judge = whole, water, of, judge

    def candidates(self) -> list[M]:
        """Return the stores in the order to ask: home, others, and last those in a cooldown."""
        usable = (member for member in self.order if member.ended is None)
        return sorted(usable, key=lambda member: member.health.rank)

    async def ask(self, member: M, call: Callable[[], Awaitable[T]]) -> T | CosIdError:
        """Ask one store; return its result, or the error of its failure.

        Raises:
            CosIdError: the error is not a failure of the store.
        """
        whole = self._whole
        answer = await call_bounded(
            call, store=member.counter.store, clock=whole.clock, within=whole.store_timeout
        )
        self._water.ensure_own(self._of)  # after a fork, the range belongs to the parent
        if not isinstance(answer, CosIdError) or self._judge(answer):
            if member.health.answered():
                _logger.info("%s: %s answers again", self._of, member)
        elif not isinstance(answer, StoreError | IdOverflowError):
            raise answer
        elif isinstance(answer, StoreRolledBackError):
            member.ended = answer
            _logger.error("%s: %s is no longer used: %s", self._of, member, answer)
        elif member.health.failed(answer):
            _logger.warning("%s: %s is failing, so others are called: %s", self._of, member, answer)
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
        errors: the errors of the stores that were asked, at least one.
    """
    reasons = "; ".join(str(each).removesuffix(f"; {each.remedy}") for each in errors)
    kind = StoreUnavailableError if any(error.retryable for error in errors) else StoreError
    error = kind(store, f"{what}: {reasons}", remedy=errors[-1].remedy)
    error.__cause__ = errors[-1]
    return error


def read_parts(
    url: str,
    scheme: str,
    options: Mapping[str, Callable[[str], Any]],
    *,
    needs: AbstractSet[str],
    form: str,
) -> tuple[list[str], dict[str, Any]]:
    """Return the store URLs that a multi-store URL contains, in order, and its other options.

    Args:
        url: for example ``striped:?store=URL&store=URL``, percent-encoded.
        scheme: the beginning of the URL.
        options: the function that reads each allowed option's text, by name; each may occur once.
        needs: the required names.
        form: the URL's form in messages.

    Raises:
        InvalidArgumentError: the URL is malformed; it is not shown, because it may contain
            passwords.
    """
    found, _, query = url.partition(":")
    given = parse_qsl(query.removeprefix("?").replace("+", "%2B"), keep_blank_values=True)
    urls = [text for name, text in given if name == "store"]
    texts = {name: text for name, text in given if name in options}
    is_known = len(urls) + len(texts) == len(given) and needs <= {name for name, _ in given}
    if found.lower() != scheme or not query.startswith("?") or not is_known:
        raise InvalidArgumentError("url", f"{scheme}:...", f"must look like {form}")
    return urls, {name: read_option(name, text, options[name]) for name, text in texts.items()}


def read_option(name: str, text: str, kind: Callable[[str], Any]) -> Any:  # noqa: ANN401 - depends on the kind
    """Read an option of a URL.

    Raises:
        InvalidArgumentError: the text is not a number of that kind.
    """
    try:
        return kind(text)
    except ValueError:
        raise InvalidArgumentError(name, text, "must be a number") from None
