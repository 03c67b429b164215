"""How many ids threads take at once, and how long they may buffer them."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from .._life.callers import MAX_BATCH
from .._life.clock import SYSTEM_CLOCK
from ..abc.checks import check_integer, check_seconds
from ..errors import IdOverflowError, InvalidArgumentError
from ..generators.text import StringIdGenerator
from ..segment import SegmentChainId, SegmentId
from ..segment.chain import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..abc import AnyGenerator, Clock, IdConverter

__all__ = (
    "DEFAULT_BATCH",
    "check_batch",
    "check_make",
    "check_order",
    "check_timeout",
    "grow_old",
    "ids_of",
    "step_of",
)

DEFAULT_BATCH: Final = 1000  # ids, unless the step is smaller
AGE_LIMIT: Final = 0.1  # seconds that an id containing a time may stay buffered


def check_make(make: object, what: str) -> None:
    """Raise unless the object can be called."""
    if not callable(make):
        raise InvalidArgumentError("make", make, f"must be a function that returns {what}")


def check_batch(batch: object) -> None:
    """Raise unless threads can take that many ids at once."""
    if batch is not None:
        check_integer("batch", batch, at_least=1, at_most=MAX_BATCH)


def check_order(generator: object, batch: int) -> None:
    """Raise if the generator is strict and threads would take its ids ahead of use."""
    if batch > 1 and getattr(generator, "strict", False):
        rule = "must be 1 for a strict generator: buffered ids would come after higher ones"
        raise InvalidArgumentError("batch", batch, rule)
    if (inner := getattr(generator, "_inner", None)) is not None:
        check_order(inner, batch)


def check_timeout(timeout: object) -> None:
    """Raise unless a thread can wait for that long."""
    check_seconds("timeout", timeout, at_most=threading.TIMEOUT_MAX)


async def ids_of(generator: AnyGenerator, n: int, missing: int) -> list[int] | list[str]:
    """Take ``n`` ids; if the counter ends before that, take those that the caller still needs."""
    try:
        return await generator.next_ids(n)
    except IdOverflowError:
        if n == missing:
            raise
        return await generator.next_ids(missing)  # fewer ids are left than a batch


def step_of(generator: AnyGenerator) -> int:
    """Return the step of a generator whose ids may stay buffered for any time; otherwise 1."""
    inner: object = generator
    if type(generator) is StringIdGenerator and _is_timeless(generator.converter):
        inner = generator.inner
    if isinstance(inner, SegmentChainId | SegmentId) and inner._options.lifetime == FOREVER:
        return inner.statistics().step
    return 1


def _is_timeless(converter: IdConverter) -> bool:
    """Whether all wrapped converters are known not to depend on the time of writing."""
    found: IdConverter | None = converter
    while found is not None and vars(type(found)).get("is_timeless", False):
        found = getattr(found, "inner", None)
    return found is None


async def grow_old(piece: Iterator[Any], clock: Clock = SYSTEM_CLOCK) -> None:
    """Drop a batch after `AGE_LIMIT`."""
    try:
        await clock.sleep(AGE_LIMIT)
    finally:  # even if the loop ends before that
        deque(piece, 0)  # its holder finds it empty
