"""The store of a broker: counters that are reserved in large spans and split in memory.

One process can do this for all processes of a host, and is then the only one that uses the
underlying store.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from .._life import fork
from .._life.clock import SYSTEM_CLOCK
from .._life.component import open_in, why_unusable
from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE, IdSegmentDistributor, Store
from ..abc.checks import check_above, check_step
from ..abc.options import takes
from ..errors import (
    ClosedError,
    CosIdError,
    InvalidArgumentError,
    NotOpenError,
    SegmentUnavailableError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from ..provider import IdProvider
from ..provider.specs import GeneratorSpec
from ..segment.generator import reached, resume
from ..segment.run_chain import RunChain
from ..stores.over import StoreOverStores
from ._options import SpanOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from ..abc import Counter
    from ..provider.specs import GeneratorHost

__all__ = ("SpanDistributor", "SpanStore")

COUNTERS_KEPT: Final = 10_000


class SpanDistributor(NotCopyable, IdSegmentDistributor):
    """A counter of the underlying store, whose segments are cut from spans in memory.

    All distributors that one `SpanStore` creates for a counter cut from the same spans, each
    segment above the previous one.  A cancelled call leaves a gap.
    """

    __slots__ = ("_bought", "_cut", "_root")

    store = "span"
    order_risk = "each process that leases spans hands out ids of a different span at the same time"

    def __init__(
        self,
        root: Store,
        bought: Collection[str],
        cut: Callable[[SpanDistributor, int], Awaitable[int]],
        **described: Any,  # noqa: ANN401 - the contract's options
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            root: the underlying store.
            bought: the counters from which this process has reserved ids.
            cut: cuts a segment and returns its last id.
            **described: as for `aiocosid.abc.IdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the root does not grant
                contiguous ranges.
        """
        super().__init__(**described)
        self._root, self._bought, self._cut = root, bought, cut
        beneath = _root_counter(root, self, 1)
        if beneath.stride != 1 or beneath.step_limit is not None:
            raise InvalidArgumentError("root", root, "must grant contiguous ranges of any length")

    async def next_max_id(self, step: int) -> int:
        """Cut a segment; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        Raises:
            InvalidArgumentError: ``step`` is not an integer, or is below 1.
            IdOverflowError: the counter has fewer ids left than ``step``.
            StoreUnavailableError: no ids are buffered, and the underlying store does not answer in
                time.
            StoreError: no ids are buffered, and the underlying store refuses.
            StoreRolledBackError: the underlying store lost writes; raised until
                `SpanStore.set_floor` has raised the counter.
        """
        check_step(step)
        return await self._cut(self, step)

    @property
    def is_in_hand(self) -> bool:
        """Whether this process has reserved ids of the counter, and so knows its position."""
        return self.namespaced_name in self._bought

    async def peek(self) -> int | None:
        """Return the last id that any process has reserved; None if the counter is missing.

        Raises:
            UnsupportedByStoreError: the root cannot read a counter without changing it.
            StoreError: the root refuses or cannot be reached.
        """
        return await _root_counter(self._root, self, 1).peek()


class SpanStore(StoreOverStores[SpanDistributor]):
    """A store whose counters are reserved in another store in spans, and split in memory.

    Spans grow with the measured rate, so that the buffered ids last for ``endurance`` seconds.  Ids
    that are buffered when the process ends or is killed are a gap; the next process begins above
    them.  Machine ids, markers and the counters' values are kept in the root.

    Attributes:
        root: the underlying store.
        largest: the maximum ids in a span; a larger segment is one call to the root.
    """

    __slots__ = ("_chains", "_opens", "_options", "_process", "_provider", "largest", "root")

    @takes(SpanOptions)
    def __init__(self, root: Store, options: SpanOptions, /) -> None:
        """Describe the store; nothing is sent yet.

        Args:
            root: the underlying store, whose counters must grant contiguous ranges of any length.
            options: the keyword arguments of `SpanOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__((root,), owns_stores=options.owns_root)
        self.root: Store = root
        self.largest: int = options.largest
        self._options = options
        clock = options.clock or SYSTEM_CLOCK
        self._provider = IdProvider(root, instrument=options.instrument, clock=clock)
        self._chains: OrderedDict[str, RunChain] = OrderedDict()
        self._opens = anyio.Lock()
        self._process = fork.generation

    def __repr__(self) -> str:
        """Show the root, without credentials."""
        return f"<{type(self).__name__} on {repr(self.root).strip('<>')}>"

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return what is buffered for each counter, ready for JSON; never waits."""
        return self._provider.statistics()

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, create: bool = True
    ) -> Counter:
        """Raise the root's counter to ``above`` if it is lower or missing; discard buffered ids.

        A cancelled or failed call may have taken effect in the root while ids below ``above`` are
        still buffered.  Repeat the call; this is safe.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: there is no such counter, and ``create`` is False.
            StoreError: the root refuses or cannot be reached.
        """
        check_above(above)
        raised = await self.root.set_floor(
            namespace=namespace, name=name, above=above, create=create
        )
        await self._drop(raised.namespaced_name)
        return raised

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child, without buffered ids.

        Raises:
            ForkedError: the root uses a client of the parent process.
        """
        if self._process != fork.generation:
            self._process, self._opens = fork.generation, anyio.Lock()
            self._chains.clear()
        async with self._opens:
            if why_unusable(self._provider) is not None:
                await super().aopen()
                self._chains.clear()
                await open_in(self._provider, None)

    async def aclose(self) -> None:
        """Discard the buffered ids, which become a gap; close the root if it is owned."""
        try:
            await self._provider.aclose()
        finally:
            self._chains.clear()
            await super().aclose()

    # Cutting.

    async def _cut(self, counter: SpanDistributor, step: int) -> int:
        if step > self.largest:
            return await self._bought_directly(counter, step)
        while True:
            try:
                chain = self._chains.get(counter.namespaced_name)
                over = None if chain is None else why_unusable(chain)
                if isinstance(over, StoreRolledBackError):
                    raise over.again()  # raised until the floor has been raised
                if chain is None or over is not None:
                    chain = await self._opened(counter)
                else:
                    self._chains.move_to_end(counter.namespaced_name)
                return (await chain.next_run(step))[-1]
            except ClosedError as error:
                # The floor was raised, or the chain was unused for long, so a new chain is opened.
                if why_unusable(self._provider) is not None:
                    raise StoreUnavailableError(
                        counter.store, "it is closed", remedy="open it again"
                    ) from error
            except SegmentUnavailableError as error:
                raise _as_store_error(counter.store, error) from error

    async def _bought_directly(self, counter: SpanDistributor, step: int) -> int:
        """Make one call to the root; then discard the buffered ids, which are lower."""
        key = counter.namespaced_name
        distributor, chain = _root_counter(self.root, counter, 1), self._chains.get(key)
        floors = self._provider._host.floors
        in_hand = None if chain is None else reached(chain)
        floor: int = max(in_hand or 0, floors.get(("counter", key)) or 0)
        if floor:
            distributor.resume_above(floor)
        max_id = await distributor.next_max_id(step)
        await self._drop(key)
        floors["counter", key] = max(max_id, floors.get(("counter", key)) or 0)
        return max_id

    async def _opened(self, counter: SpanDistributor) -> RunChain:
        """Open the chain of a counter, above all ids that this process has reserved earlier."""
        if why_unusable(self._provider) is not None or self._process != fork.generation:
            await self.aopen()
        key = counter.namespaced_name

        def make(host: GeneratorHost, name: str) -> RunChain:
            distributor = _root_counter(self.root, counter, self._options.span)
            chain = RunChain(distributor, **host.with_defaults(self._options.of_chains()))
            resume(chain, host.floors.get(("counter", name)))
            return chain

        spec = GeneratorSpec(RunChain.__name__, "spans", make, resumes="counter")
        chain = self._chains[key] = await self._provider._named(key, spec)
        if len(self._chains) > COUNTERS_KEPT:
            # Only a chain without waiters is closed, or else the new one: chains with waiters would
            # close each other for ever.
            idle = (each for each, other in self._chains.items() if not other._opening.line)
            await self._drop(next(idle, key))
        return chain

    def _counter(self, **described: Any) -> SpanDistributor:  # noqa: ANN401 - the contract's options
        return SpanDistributor(self.root, self._chains, self._cut, **described)

    async def _drop(self, key: str) -> None:
        """Discard the buffered ids of a counter; running calls start again."""
        self._chains.pop(key, None)
        with suppress(InvalidArgumentError, ClosedError, NotOpenError):  # already closed
            await self._provider.remove(key)

    def _holder(self) -> Store:
        return self.root


def _root_counter(root: Store, counter: IdSegmentDistributor, step: int) -> IdSegmentDistributor:
    return root.segment_distributor(
        namespace=counter.namespace, name=counter.name, offset=counter.offset, step=step
    )


def _as_store_error(store: str, error: SegmentUnavailableError) -> CosIdError:
    """Return the error of a call: the root's own error, or that the root did not answer in time."""
    cause = error.__cause__
    return (
        cause.again() if isinstance(cause, StoreError) else StoreUnavailableError(store, str(error))
    )
