"""Checks that a generator's ids are even under ``id % n``, as sharded tables require."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from ..abc.checks import check_integer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..abc import IdGenerator

__all__ = ("assert_even",)


async def assert_even(
    generator: IdGenerator,
    divisor: int,
    *,
    count: int = 10_000,
    at_most: float | None = None,
    pause: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Fail unless the remainders of a generator's ids are even, like CosId's ``ModSpec``.

    Args:
        generator: an open generator.
        divisor: the number of shards, at least 2.
        count: the number of ids to take, one by one.
        at_most: the highest population standard deviation of the counts of the remainders, from
            ``count / divisor``; by default 1 % of that.
        pause: awaited after each id, for a low load: ``partial(clock.advance, 0.01)`` with a
            `ManualClock` gives 100 ids per second.

    Raises:
        AssertionError: the remainders are uneven; the error says how often each one occurred.
        InvalidArgumentError: an argument is outside its range.
    """
    check_integer("divisor", divisor, at_least=2)
    check_integer("count", count, at_least=divisor)
    found = [0] * divisor
    for _ in range(count):
        found[await generator.next_id() % divisor] += 1
        if pause is not None:
            await pause()
    even = count / divisor
    limit = even / 100 if at_most is None else at_most
    deviation = sqrt(sum((each - even) ** 2 for each in found) / divisor)
    if deviation > limit:
        counts = ", ".join(f"{rest}: {each}" for rest, each in enumerate(found))
        raise AssertionError(
            f"the remainders by {divisor} are uneven: standard deviation {deviation:.1f} "
            f"(maximum {limit:.1f}), of {count} ids {counts}"
        )
