"""Checks of both contracts for ids that many tasks take at once."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from functools import partial
from inspect import isawaitable
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from ..abc import IdGenerator

__all__ = (
    "assert_refusals",
    "assert_rising",
    "assert_unique",
    "at_once",
    "fresh_namespace",
    "refused",
    "storm",
    "take_at_once",
)

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")


def assert_rising(ids: Sequence[int], of: str) -> None:
    """Check that every id is a positive int above the previous one."""
    assert all(type(each) is int for each in ids), f"{of}: an id is not an int"
    assert not ids or ids[0] > 0, f"{of}: the first id is {ids[0]}, not positive"
    for before, after in pairwise(ids):
        assert before < after, f"{of}: {after} follows {before}"


def assert_unique(ids: Iterable[int], of: str) -> None:
    """Check that no id occurs twice."""
    twice = [each for each, times in Counter(ids).items() if times > 1]
    found = f"{sorted(twice)[:5]} and {len(twice)} in all"
    assert not twice, f"{of}: issued more than once: {found}"


async def refused(
    kind: type[E], told: str, call: Callable[..., object], *args: object, **options: object
) -> E:
    """Make a call that must raise an error of this kind, and return the error.

    Args:
        kind: the kind of error.
        told: the beginning of the failure's message, before the unexpected answer.
        call: a function, which may be asynchronous.
        *args: the arguments of the call.
        **options: the keyword arguments of the call.
    """
    try:
        answer = call(*args, **options)
        if isawaitable(answer):
            answer = await answer
    except kind as error:
        return error
    raise AssertionError(f"{told} {answer!r}, expected {kind.__name__}")


def assert_refusals(make: Callable[..., object], bad: Mapping[str, Mapping[str, object]]) -> None:
    """Check that each of these descriptions, keyed by its problem, is refused on creation."""
    for what, described in bad.items():
        try:
            make(**described)
        except InvalidArgumentError:
            continue
        raise AssertionError(f"a bad description was accepted: {what}")


def fresh_namespace() -> str:
    """Return an unused namespace."""
    return f"kit{uuid.uuid4().hex[:12]}"


async def at_once(calls: Iterable[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    """Make all calls concurrently, and return when all have ended."""
    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(call)


async def take_at_once(generators: Sequence[IdGenerator], *, workers: int, ids: int) -> list[int]:
    """Let ``workers`` tasks take ``ids`` ids each, round robin over generators; return all ids."""
    taken: list[list[int]] = [[] for _ in range(workers)]

    async def work(mine: list[int], generator: IdGenerator) -> None:
        for _ in range(ids):
            mine.append(await generator.next_id())  # noqa: PERF401 - the ids are kept if a later call fails

    each = enumerate(taken)
    await at_once(partial(work, mine, generators[n % len(generators)]) for n, mine in each)
    for number, mine in enumerate(taken):
        assert_rising(mine, f"worker {number}")
    every = [each for mine in taken for each in mine]
    assert_unique(every, f"{workers} workers")
    return every


async def storm(call: Callable[[T], Awaitable[object]], arguments: Sequence[T], seed: int) -> None:
    """Make a concurrent call for each argument, and cancel about half after a few loop turns.

    Only the seed decides which calls are cancelled, and when.
    """
    chance = random.Random(seed)  # noqa: S311 - the same storm every time

    async def struck(argument: T, turns: int | None) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                if turns is not None:
                    group.start_soon(cancel, scope, turns)
                await call(argument)
                group.cancel_scope.cancel()

    async def cancel(scope: anyio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await checkpoint()
        scope.cancel()

    turns = [chance.choice((None, chance.randrange(30))) for _ in arguments]
    await at_once(map(partial, repeat(struck), arguments, turns))
