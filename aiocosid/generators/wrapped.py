"""Generators that wrap another one."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from .._life import fork
from .._life.callers import in_stretches
from .._life.clock import SYSTEM_CLOCK, call_bounded
from .._life.component import Component
from .._life.delegating import DelegatingLifecycle
from ..abc import IdGenerator, Statistics
from ..abc.checks import check_integer
from ..errors import ForkedError, IdOverflowError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..abc import AnyGenerator, IdSegmentDistributor, Store

__all__ = (
    "MAX_INT32",
    "DelegatingGenerator",
    "IntegerIdGenerator",
    "UncertaintyIdGenerator",
    "WrappedGenerator",
    "WrappedStatistics",
)

G = TypeVar("G", bound=IdGenerator)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedStatistics(Statistics):
    """The statistics of a generator that wraps another one.

    Attributes:
        actual: the statistics of the wrapped generator.
    """

    actual: Statistics

    def as_tree(self) -> dict[str, object]:
        """Return kind and ``actual`` in the format of CosId's actuator, ready for JSON."""
        return {"kind": self.kind, "actual": self.actual.as_tree()}


class DelegatingGenerator(DelegatingLifecycle, Generic[G, T]):
    """Issues ids that are derived from the wrapped generator's ids; a subclass says how."""

    __slots__ = ("__weakref__", "_inner", "_source")

    _stretch: ClassVar[int]
    """Ids between two loop turns, about a millisecond."""

    _one: Callable[[int], T]
    """Returns the id that is derived from one of the wrapped generator's."""

    def __init__(self, inner: G) -> None:
        self._inner: G = inner
        self._source: Any = inner  # the source of the ids: it, or its `with_group`

    def _many(self, ids: Sequence[int]) -> list[T]:
        """Return the ids that are derived from some ids."""
        return list(map(self._one, ids))

    async def next_id(self) -> T:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        return self._one(await self._source.next_id())

    async def next_ids(self, n: int) -> list[T]:
        """Return exactly ``n`` ids, or none; see `aiocosid.abc.IdGenerator.next_ids`."""
        return await self._made_of(self._source.next_ids(n))

    async def _made_of(self, ids_of: Awaitable[Sequence[int]]) -> list[T]:
        process = fork.generation
        ids = await in_stretches(await ids_of, self._many, self._stretch)
        if process != fork.generation:
            raise ForkedError(repr(self))
        return ids

    def next_id_nowait(self) -> T:
        """Return the next buffered id; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        return self._one(self._source.next_id_nowait())


class WrappedGenerator(DelegatingGenerator[IdGenerator, int], IdGenerator):
    """Opens and closes with the wrapped generator; a subclass changes or checks its ids."""

    __slots__ = ()

    def __init__(self, generator: IdGenerator) -> None:
        if not isinstance(generator, IdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("generator", generator, "must be an IdGenerator")
        super().__init__(generator)

    def statistics(self) -> WrappedStatistics:
        """Return a frozen snapshot of both; cheap, and never waits."""
        actual = self._inner.statistics()
        return WrappedStatistics(
            kind=type(self).__name__, namespace=actual.namespace, name=actual.name, actual=actual
        )

    def __repr__(self) -> str:
        """Show the wrapped generator."""
        return f"<{type(self).__name__} on {self._inner!r}>"

    def _overflow(self, limit: int) -> IdOverflowError:
        actual = self._inner.statistics()
        return IdOverflowError(f"{actual.namespace}.{actual.name}", limit=limit)


MAX_INT32: Final = 2**31 - 1
"""The highest signed 32-bit integer, as in SQL's ``integer`` and Java's ``int``."""


class IntegerIdGenerator(WrappedGenerator):
    """Issues the ids of another generator as long as they fit 32 bits.

    CosId's IntegerIdGenerator.  Above 2^31-1 every call raises `IdOverflowError`; an id is never
    truncated.  If a batch would end above it, the whole batch is refused, and its ids are a gap.
    """

    __slots__ = ()

    _stretch = 100_000  # only copies: half a second for the largest batch

    @property
    def with_group(self) -> IntegerIdGenerator:
        """The same ids as `GroupedId`, if the wrapped generator is a `GroupedSegmentId`."""
        view, inner = IntegerIdGenerator(self._inner), self._source
        view._source = inner.with_group
        return view

    def _one(self, new_id: int) -> int:
        if new_id > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return new_id

    def _many(self, ids: Sequence[int]) -> list[int]:
        self._one(ids[-1])
        return [*ids]


WORD: Final = 8  # bytes

CALL_TIMEOUT: Final = 5.0  # seconds

FROZEN: Final = 40
"""Bits below the stored width in its counter, so that a trillion processes can open the generator.
"""


async def _check_bits(record: IdSegmentDistributor, bits: int) -> None:
    """Raise if the first process that ever opened the generator used another number of bits.

    This is one atomic step, because a counter begins above the offset of the process that creates
    it.
    """
    call = partial(record.next_max_id, 1)
    answer = await call_bounded(call, store=record.store, clock=SYSTEM_CLOCK, within=CALL_TIMEOUT)
    if not isinstance(answer, int):
        raise answer
    if (found := answer >> FROZEN) != bits:
        rule = (
            f"must be {found}: the store records that width in counter {record.namespaced_name!r}"
        )
        raise InvalidArgumentError("bits", bits, rule)


class UncertaintyIdGenerator(WrappedGenerator):
    """Appends random bits to the ids of another generator.

    CosId's UncertaintyIdGenerator.  The ids stay unique and rising.  The chance of guessing the
    next id from one id is only ``1 / 2**bits``, but ``id >> bits`` still shows roughly how many ids
    there are.  Unlike in CosId, the bits come from the operating system's secure source.

    Attributes:
        bits: random bits in each id.
    """

    __slots__ = ("_limit", "bits")

    _stretch = 4000

    def __init__(self, generator: IdGenerator, bits: int, *, store: Store | None = None) -> None:
        """Wrap a generator.

        Args:
            generator: a generator that is not open; without ``store`` it may also be open, and must
                then stay open while this one is used.
            bits: random bits in each id, 1 to 62.  The wrapped generator's ids may be at most
                ``2**(63 - bits) - 1``; above that, calls raise `IdOverflowError`.
            store: the store that records the bits, in a counter ``{name}~bits``: opening with other
                bits raises `InvalidArgumentError`, in any process.  They are not recorded with
                None, or in a store whose counters an operator creates.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(generator)
        check_integer("bits", bits, at_least=1, at_most=62)
        self.bits: int = bits
        self._limit = 2 ** (63 - bits) - 1
        if store is not None and store.begins_counters:
            actual = generator.statistics()
            record = store.segment_distributor(
                namespace=actual.namespace, name=f"{actual.name}~bits", offset=bits << FROZEN
            )
            found: AnyGenerator = generator
            while isinstance(found, WrappedGenerator):
                found = found.inner
            if isinstance(found, Component):  # otherwise it is a user's own class
                found._before = partial(_check_bits, record, bits)

    def _one(self, new_id: int) -> int:
        return self._many((new_id,))[0]

    def _many(self, ids: Sequence[int]) -> list[int]:
        if ids[-1] > self._limit:
            raise self._overflow(self._limit)
        bits, rest = self.bits, 64 - self.bits
        noise = memoryview(secrets.token_bytes(WORD * len(ids))).cast("Q")
        return [each << bits | random >> rest for each, random in zip(ids, noise, strict=True)]
