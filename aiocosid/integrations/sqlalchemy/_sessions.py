"""Ids before the flush."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.util import await_only

from ...models import ensure_ids, id_fields

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session

    from ...abc import Provider

__all__ = ("assign_ids", "assign_ids_before_flush")


async def assign_ids(session: AsyncSession, provider: Provider | None = None) -> int:
    """Fill the empty ids of the objects that were added to a session and not flushed yet.

    For keys that are needed before the flush.  See `aiocosid.models.ensure_ids`; objects whose
    class has no id of ours are left alone.

    Args:
        session: whose ``new`` objects to fill.
        provider: where to look for the generators; the default one if none is given.

    Returns:
        How many ids were given.

    Raises:
        CosIdError: as `aiocosid.models.ensure_ids`.
    """
    return await ensure_ids(_with_fields(session.sync_session), provider)


def assign_ids_before_flush(
    sessions: async_sessionmaker[Any], provider: Provider | None = None
) -> None:
    """Have every flush of a factory's sessions begin with `assign_ids`.

    Then fields marked `CosId` need no column default, and one ``next_ids(n)`` serves all statements
    of the flush.  It gives the factory a ``sync_session_class`` of its own.

    Args:
        sessions: the factory; sessions that it has created already are not changed.
        provider: where to look for the generators; the default one if none is given.
    """
    base = sessions.kw.get("sync_session_class", sessions.class_.sync_session_class)
    own: type[Session] = type(base.__name__, (base,), {})
    sessions.configure(sync_session_class=own)

    def fill(session: Session, _context: object, _instances: object) -> None:
        objects = _with_fields(session)
        if objects:
            await_only(ensure_ids(objects, provider))

    event.listen(own, "before_flush", fill)


def _with_fields(session: Session) -> list[object]:
    """List the new objects whose class has an id of ours."""
    objects = list(session.new)
    fields = {model: id_fields(model) for model in set(map(type, objects))}
    return [each for each in objects if fields[type(each)]]
