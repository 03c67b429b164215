"""Whether the stores answer: each is sent one small request twice a second.

Requests and pages read the latest result, so that none of them waits for a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from ..errors import CosIdError, StoreUnavailableError
from ..stores.inspection import label_of, ping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Clock, Store

__all__ = ("Pulse",)

PAUSE: Final = 0.5  # seconds between two requests to one store
ANSWER: Final = 1.5  # seconds within which a store must answer


class Pulse:
    """The latest answers of a service's stores.

    Attributes:
        failing: why a store does not answer, by its label: a text without hosts and users.
        since: the monotonic time of a store's last answer, or of the first request to it.
        took: seconds that a store's last answer took, by its label.
        asked: the number of stores.
    """

    __slots__ = ("_clock", "asked", "failing", "since", "took")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failing: dict[str, str] = {}
        self.since: dict[str, float] = {}
        self.took: dict[str, float] = {}
        self.asked: int = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether no store answers."""
        return 0 < self.asked <= len(self.failing)

    async def beat(self, stores: Sequence[Store]) -> None:
        """Send requests to the stores, each in its own task, until this task is cancelled."""
        self.asked = len(stores)
        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(self._watch, store)

    async def _watch(self, store: Store) -> None:
        label = label_of(store)
        self.since[label] = self._clock.monotonic()
        while True:
            began = self._clock.monotonic()
            why = await self._ask(store)
            if why:
                self.failing[label] = why
                self.took.pop(label, None)
            else:
                self.failing.pop(label, None)
                now = self.since[label] = self._clock.monotonic()
                self.took[label] = now - began
            await self._clock.sleep(PAUSE)

    async def _ask(self, store: Store) -> str:
        """Return why a store does not answer; empty if it does."""
        found: list[str] = []
        with self._clock.move_on_after(ANSWER):
            found.append(await _answer(store))
        return found[0] if found else f"no answer in {ANSWER:g} s"


async def _answer(store: Store) -> str:
    try:
        await ping(store)
    except CosIdError as error:
        is_away = error.retryable or isinstance(error, StoreUnavailableError)
        return type(error).__name__ if is_away else ""  # a refusal is an answer
    except Exception as error:  # noqa: BLE001 - any error of a user's own store
        return type(error).__name__
    return ""
