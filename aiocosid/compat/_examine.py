"""What ``aiocosid migrate check`` reads in another system's table, and never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Examinable", "Examined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One counter of another system, and what its number means.

    Attributes:
        name: the counter's name in that system.
        stored: the number as it lies there; None if there is no integer.
        meaning: what the number says in that system, as a sentence.
        next_id: the first id of the next range, ours or another node's; None if there is none.
        problems: what is wrong with the row, each as a sentence; empty if it can be used.
    """

    name: str
    stored: int | None
    meaning: str
    next_id: int | None
    problems: tuple[str, ...] = ()


@runtime_checkable
class Examinable(Protocol):
    """A store that can say what lies in another system's tables."""

    async def examine(self) -> Sequence[Examined]:
        """Read all counters, ordered by name; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        raise NotImplementedError
