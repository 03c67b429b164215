"""The read-only check of another system's tables for ``aiocosid migrate check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Examinable", "Examined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One counter of another system, and the meaning of its number.

    Attributes:
        name: the counter's name in that system.
        stored: the number in the table; None if it is no integer.
        meaning: the meaning of the number in that system, as a sentence.
        next_id: the first id of the next range, ours or another node's; None if there is none.
        problems: the problems of the row, each as a sentence; empty if it can be used.
    """

    name: str
    stored: int | None
    meaning: str
    next_id: int | None
    problems: tuple[str, ...] = ()


@runtime_checkable
class Examinable(Protocol):
    """A store that can check another system's tables."""

    async def examine(self) -> Sequence[Examined]:
        """Read all counters, ordered by name; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        raise NotImplementedError
