"""What opening a provider may create in its stores."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from .._life.clock import SYSTEM_CLOCK
from ..abc.checks import DISPOSABLE
from ..errors import InvalidArgumentError, UnsupportedByStoreError

if TYPE_CHECKING:
    from ..abc import Store
    from ..abc.checks import Create

__all__ = ("create_in",)

_NO_MEMORY: Final = (
    "False for a store that cannot tell new from emptied: run 'aiocosid init --store URL' once; or "
    "a day such as '2026-12-31', until which it is created; or 'disposable' for tests"
)


def _today() -> date:
    return datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC).date()


async def create_in(store: Store, create: Create) -> None:
    """Create what was never there in a store, as far as ``create`` allows it.

    Raises:
        InvalidArgumentError: ``create`` is True, and the store cannot tell new from emptied.
        SchemaDroppedError: what is missing was there.
        StoreNotEmptyError: the store has no marker, but counters or machine ids.
        StoreError: the store refuses or cannot be reached.
    """
    if create is False:
        return
    from ..abc.stores import is_disposable

    if create is True and not (store.has_witness or is_disposable()):
        raise InvalidArgumentError("create", create, expected=_NO_MEMORY)
    if create not in {True, DISPOSABLE} and _today() > date.fromisoformat(str(create)):
        return
    await store.aopen()  # it may be the parent process's
    await store.create_schema(disposable=create == DISPOSABLE)
    if not (store.has_witness or create == DISPOSABLE):
        try:
            await store.initialize()
        except UnsupportedByStoreError:
            return  # it keeps no marker
