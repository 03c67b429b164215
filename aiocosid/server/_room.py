"""Limits concurrent answers with many ids, which take megabytes until the client has read them."""

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
"""The maximum ids of an answer that is not limited."""

PLACES: Final = 6
"""Maximum concurrent answers with many ids; one with 100,000 ids takes 4 MB."""

PATIENCE: Final = 2.0  # seconds


class Room:
    """The places for long answers in one process."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)

    async def take(self, count: int) -> Callable[[], None] | None:
        """Wait for a place for an answer; return its release function, None if the ids are few.

        Raises:
            Problem: other answers occupy all places, and their clients read slowly.
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
        """Return an answer with ``count`` ids, which keeps its place until it is read.

        Args:
            count: the number of ids.
            take: takes the ids, and returns the body.
            content_type: the body's content type.

        Raises:
            Problem: as for `take`.
            CosIdError: as for taking the ids.
        """
        release = await self.take(count)
        try:
            return HttpAnswer(await take(), content_type, release=release)
        except BaseException:
            if release is not None:
                release()
            raise
