"""The contracts of text: what converts an id, and what hands out ids as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from anyio.abc import TaskStatus

    from ._statistics import Statistics

__all__ = ("IdConverter", "TextIdGenerator")


class IdConverter(ABC):
    """Writes an id as text and reads it back.  Holds no state that changes, and never truncates.

    Attributes:
        is_timeless: whether the text of an id is the same whenever it is written, provided that
            this holds for an ``inner`` converter too.  Threads may then take a thousand texts at
            once and keep them.  It counts for the very class that states it, not for its
            subclasses.
    """

    __slots__ = ()

    is_timeless: ClassVar[bool] = False

    @abstractmethod
    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id.

        Raises:
            InvalidIdError: the converter has no text for this id; it never shortens one.
        """

    @abstractmethod
    def as_int(self, text: str, /) -> int:
        """Return the id of a text, so that ``as_int(as_str(id)) == id``.

        Raises:
            InvalidIdError: it is no text that `as_str` writes.
        """

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids, in their order; never waits.

        Raises:
            InvalidIdError: as `as_str`, for the first id without a text.
        """
        return list(map(self.as_str, ids))

    def as_tree(self) -> dict[str, Any]:
        """Return ``kind`` and settings, ready for JSON, as CosId's actuator shows them."""
        return {"kind": type(self).__name__}


class TextIdGenerator(ABC):
    """The contract of a generator whose ids are text: `IdGenerator`'s, with `str` for `int`.

    Whether the texts sort as they were made is the kind's own promise.
    """

    __slots__ = ()

    @abstractmethod
    async def next_id(self) -> str:
        """Return the next id as text; see `IdGenerator.next_id`."""

    @abstractmethod
    async def next_ids(self, n: int) -> list[str]:
        """Return exactly ``n`` ids as text; see `IdGenerator.next_ids`."""

    @abstractmethod
    def next_id_nowait(self) -> str:
        """Return the next id as text if one is in hand; see `IdGenerator.next_id_nowait`."""

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return a frozen picture of the generator; cheap, and never waits."""

    @abstractmethod
    async def run(self, *, task_status: TaskStatus[Any] = ...) -> None:
        """Open in the calling task and stay; see `IdGenerator.run`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the generator; see `IdGenerator.aclose`."""

    async def __aenter__(self) -> Self:
        """Open the generator; returns when it can hand out ids."""
        raise NotImplementedError

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the generator."""
        await self.aclose()
