"""What opening a provider may create in its stores."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from ..abc._store import is_disposable
from ..errors import InvalidArgumentError, UnsupportedByStoreError

if TYPE_CHECKING:
    from ..abc import Store

__all__ = ("DISPOSABLE", "Create", "check_create", "create_in")

Create: TypeAlias = bool | str
"""False, True, ``"disposable"``, or the last day on which something is created, ``YYYY-MM-DD``."""

DISPOSABLE: Final = "disposable"

_EXPECTED: Final = "False, True, 'disposable', or the last day to create, such as '2026-12-31'"
_NO_MEMORY: Final = (
    "False for a store that cannot tell new from emptied: run 'aiocosid init --store URL' once; or "
    "a day such as '2026-12-31', until which it is created; or 'disposable' for tests"
)


def check_create(create: object) -> Create:
    """Return the value of ``create``.

    Raises:
        InvalidArgumentError: it is none of those.
    """
    if isinstance(create, bool) or create == DISPOSABLE:
        return create
    if isinstance(create, str):
        try:
            date.fromisoformat(create)
        except ValueError:
            pass
        else:
            return create
    raise InvalidArgumentError("create", create, expected=_EXPECTED)


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
    if create is True and not (store.has_witness or is_disposable()):
        raise InvalidArgumentError("create", create, expected=_NO_MEMORY)
    is_over = create not in {True, DISPOSABLE} and datetime.now(UTC).date() > date.fromisoformat(
        str(create)
    )
    if is_over:
        return
    await store.aopen()  # it may be the parent process's
    await store.create_schema(disposable=create == DISPOSABLE)
    if not (store.has_witness or create == DISPOSABLE):
        try:
            await store.initialize()
        except UnsupportedByStoreError:
            return  # it keeps no marker
