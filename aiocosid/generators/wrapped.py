"""Generators that wrap another one."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from anyio.lowlevel import checkpoint

from .._life import fork
from .._life.clock import SYSTEM_CLOCK, call_bounded
from .._life.component import Component
from .._life.delegating import DelegatingLifecycle
from ..abc import IdGenerator, Statistics
from ..abc.checks import check_integer
from ..errors import ForkedError, IdOverflowError, InvalidArgumentError

if TYPE_CHECKING:
    from ..abc import AnyGenerator, IdSegmentDistributor, Store

__all__ = (
    "MAX_INT32",
    "IntegerIdGenerator",
    "UncertaintyIdGenerator",
    "WrappedGenerator",
    "WrappedStatistics",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedStatistics(Statistics):
    """The statistics of a generator that wraps another one.

    Attributes:
        actual: the statistics of the wrapped generator.
    """

    actual: Statistics

    def as_tree(self) -> dict[str, object]:
        """Return kind and ``actual``, as CosId's actuator shows them, ready for JSON."""
        return {"kind": self.kind, "actual": self.actual.as_tree()}


class WrappedGenerator(DelegatingLifecycle, IdGenerator):
    """Opens and closes with the wrapped generator; a subclass changes or checks its ids."""

    __slots__ = ("__weakref__", "_inner")

    def __init__(self, generator: IdGenerator) -> None:
        if not isinstance(generator, IdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("generator", generator, expected="an IdGenerator")
        self._inner: IdGenerator = generator

    def statistics(self) -> WrappedStatistics:
        """Return a frozen snapshot of both; cheap, and never waits."""
        actual = self._inner.statistics()
        return WrappedStatistics(
            kind=type(self).__name__, namespace=actual.namespace, name=actual.name, actual=actual
        )

    def __repr__(self) -> str:
        """Say what is inside."""
        return f"<{type(self).__name__} on {self._inner!r}>"

    def _overflow(self, limit: int) -> IdOverflowError:
        actual = self._inner.statistics()
        return IdOverflowError(f"{actual.namespace}.{actual.name}", limit=limit)


MAX_INT32: Final = 2**31 - 1
"""The highest id of a signed 32-bit integer, as SQL's ``integer`` and Java's ``int``."""


class IntegerIdGenerator(WrappedGenerator):
    """Hands out the ids of another generator as long as they fit 32 bits.

    CosId's IntegerIdGenerator.  Above 2^31-1 every call raises `IdOverflowError`; an id is never
    truncated.  If a batch would end above it, the whole batch is refused, and its ids are a gap.
    """

    __slots__ = ()

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        new_id = await self._inner.next_id()
        if new_id > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return new_id

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, all or nothing; see `aiocosid.abc.IdGenerator.next_ids`."""
        ids = await self._inner.next_ids(n)
        if ids[-1] > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return ids

    def next_id_nowait(self) -> int:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        new_id = self._inner.next_id_nowait()
        if new_id > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return new_id


STRETCH: Final = 4000
"""Ids between two turns of the event loop, about a millisecond."""

WORD: Final = 8  # bytes

CALL_TIMEOUT: Final = 5.0  # seconds

FROZEN: Final = 40
"""Bits below the frozen width in a counter of it, so that a trillion processes may open."""


async def _check_bits(record: IdSegmentDistributor, bits: int) -> None:
    """Raise if the first process that ever opened the generator had other bits.

    One atomic step, for a counter begins above the offset of the process that creates it.
    """
    call = partial(record.next_max_id, 1)
    answer = await call_bounded(call, store=record.store, clock=SYSTEM_CLOCK, within=CALL_TIMEOUT)
    if not isinstance(answer, int):
        raise answer
    if (found := answer >> FROZEN) != bits:
        expected = f"{found}: the store has them in counter {record.namespaced_name!r}"
        raise InvalidArgumentError("bits", bits, expected=expected)


class UncertaintyIdGenerator(WrappedGenerator):
    """Appends random bits to the ids of another generator.

    CosId's UncertaintyIdGenerator.  The ids stay unique and rising.  The chance to guess the next
    id from one id is only ``1 / 2**bits``, but ``id >> bits`` still shows about how many ids there
    are.  The bits come from the operating system's secure source, unlike CosId's.

    Attributes:
        bits: random bits of each id.
    """

    __slots__ = ("_limit", "bits")

    def __init__(self, generator: IdGenerator, bits: int, *, store: Store | None = None) -> None:
        """Wrap a generator.

        Args:
            generator: not open, or without ``store`` open for as long as this one is used.
            bits: random bits of each id, 1 to 62.  The wrapped generator's ids may be at most
                ``2**(63 - bits) - 1``; above that, calls raise `IdOverflowError`.
            store: keeps the bits, in a counter ``{name}~bits``: opening with other bits raises
                `InvalidArgumentError`, in any process.  Nothing keeps them with None, or in a store
                whose counters an operator creates.

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
            if isinstance(found, Component):  # else it is a user's own
                found._before = partial(_check_bits, record, bits)

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        return self._blurred([await self._inner.next_id()])[0]

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, all or nothing; see `aiocosid.abc.IdGenerator.next_ids`."""
        process = fork.generation
        ids = await self._inner.next_ids(n)
        blurred = self._blurred(ids[:STRETCH])
        for start in range(STRETCH, n, STRETCH):
            await checkpoint()
            blurred += self._blurred(ids[start : start + STRETCH])
        if process != fork.generation:
            raise ForkedError(repr(self))
        return blurred

    def next_id_nowait(self) -> int:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        return self._blurred([self._inner.next_id_nowait()])[0]

    def _blurred(self, ids: list[int]) -> list[int]:
        if ids[-1] > self._limit:
            raise self._overflow(self._limit)
        bits, rest = self.bits, 64 - self.bits
        noise = memoryview(secrets.token_bytes(WORD * len(ids))).cast("Q")
        return [each << bits | random >> rest for each, random in zip(ids, noise, strict=True)]
