"""Waiting in async tests for what gives no event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ._process import POLL

T = TypeVar("T")


async def eventually(
    attempt: Callable[[], Awaitable[T]],
    *errors: type[Exception],
    deadline: float = 15.0,
) -> T:
    """The first result that is not False; the given errors, and AssertionError, mean 'not yet'.

    TimeoutError after the deadline, caused by the last of those errors.
    """
    not_yet: tuple[type[Exception], ...] = (AssertionError, *errors)
    last: Exception | None = None
    try:
        async with asyncio.timeout(deadline):
            while True:
                try:
                    result = await attempt()
                except not_yet as exc:
                    last = exc
                else:
                    if result is not False:
                        return result
                await asyncio.sleep(POLL)
    except TimeoutError as exc:
        raise TimeoutError(f"not within {deadline} s") from (last or exc)
