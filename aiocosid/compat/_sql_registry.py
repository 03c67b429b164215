"""A registry of worker ids in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import StoreUnavailableError
from ._worker_ids import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..stores.sql import SqlExecutor

__all__ = ("SqlRegistry",)

ATTEMPTS: Final = 20  # a row has one writer, and for a moment two

T = TypeVar("T")


class SqlRegistry(Registry["SqlExecutor"]):
    """Worker ids in a table."""

    door: SqlExecutor

    @property
    def store(self) -> str:  # type: ignore[override]
        return self.door.label

    async def run(self, attempt: Callable[[SqlExecutor], Coroutine[Any, Any, T | None]]) -> T:
        for _ in range(ATTEMPTS):
            if (found := await attempt(self.door)) is not None:
                return found
        reason = f"others write the row of {self.instance_id.text} again and again"
        raise StoreUnavailableError(self.store, reason)
