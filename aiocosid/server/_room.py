"""Room for answers with many ids, of which one takes megabytes until its reader has it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ._http import JSON, HttpAnswer
from ._problems import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ("Room",)

FEW: Final = 1000
"""Ids of an answer that needs no room."""

PLACES: Final = 6
"""Answers with many ids at a time: one of 100,000 takes 4 MB."""

PATIENCE: Final = 2.0  # seconds


class Room:
    """The places of a process."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)

    async def take(self, count: int) -> Callable[[], None] | None:
        """Wait for a place for so many ids; return what gives it back, None if they are few.

        Raises:
            Problem: others have taken all of them, and take their time to read.
        """
        if count <= FEW:
            return None
        try:
            await asyncio.wait_for(self._places.acquire(), PATIENCE)
        except TimeoutError:
            detail = f"there is no room just now for answers with more than {FEW} ids"
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise Problem(status, "busy", detail, retry_after=1.0) from None
        return self._places.release

    async def answer(
        self, count: int, take: Callable[[], Awaitable[bytes]], content_type: bytes = JSON
    ) -> HttpAnswer:
        """Return an answer with so many ids, which keeps its place until it is read.

        Args:
            count: how many.
            take: takes them, and returns the body.
            content_type: its type.

        Raises:
            Problem: as `take`.
            CosIdError: as taking them.
        """
        release = await self.take(count)
        try:
            return HttpAnswer(await take(), content_type, release=release)
        except BaseException:
            if release is not None:
                release()
            raise
