"""What the tests of the generator share."""

from __future__ import annotations

from typing import Final, TypeVar

from aiocosid.abc import MachineIdDistributor
from aiocosid.abc.events import Event
from aiocosid.stores.memory import MemoryStore

E = TypeVar("E", bound=Event)

FOREVER_MS: Final = 2**62  # a limit that no clock reaches


class Ear:
    """An instrument that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def machines(store: MemoryStore | None = None, **described: object) -> MachineIdDistributor:
    """Machine ids of a store in memory."""
    return (store or MemoryStore()).machine_id_distributor(**described)  # type: ignore[arg-type]
