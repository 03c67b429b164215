"""tinyid's counters in several databases, as a store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..._clock import SYSTEM_CLOCK
from .._group import STORE_TIMEOUT
from .._group_store import GroupStore
from ._group import TinyidGroupIdSegmentDistributor
from ._segments import TinyidStore
from ._table import Class, class_of, share_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...abc import Clock
    from .._examine import Examined

__all__ = ("TinyidGroupStore",)


class TinyidGroupStore(GroupStore[TinyidStore]):
    """The ``biz_type`` rows of several of tinyid's databases, of which any one is enough."""

    __slots__ = ()

    scheme = "tinyid"
    group = TinyidGroupIdSegmentDistributor

    def __init__(
        self,
        engines: Sequence[AsyncEngine],
        *,
        store_timeout: float = STORE_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Work on your own engines, which stay yours to close; nothing is sent yet.

        Args:
            engines: one for each of tinyid's databases.
            store_timeout: seconds that one database has to answer, before the next is asked.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._gather(dict(enumerate(map(TinyidStore, engines))), store_timeout, clock)

    @classmethod
    def _open_at(
        cls,
        urls: Sequence[str],
        told: Mapping[str, str],  # noqa: ARG003 - nothing
    ) -> Mapping[int, TinyidStore]:
        return dict(enumerate(map(TinyidStore.from_url, urls)))

    async def examine(self) -> Sequence[Examined]:
        """Read all rows of all databases and say what they mean; nothing is written.

        Names have the database's number behind them, as ``order@1``.  That two databases have ids
        in common is a problem of the later one.

        Raises:
            StoreError: a database refuses or cannot be reached, or a table is missing.
        """
        found: list[Examined] = []
        classes: dict[str, list[tuple[int, Class]]] = {}
        for index, store in self._stores.items():
            for row in await store._rows():
                examined, own = store._examined(row), class_of(row)
                known = classes.setdefault(row.name, [])
                problems = examined.problems + tuple(
                    f"database {other} has ids of {theirs[1]} modulo {theirs[0]}: some are the same"
                    for other, theirs in known
                    if own and share_ids(own, theirs)
                )
                if own:
                    known.append((index, own))
                next_id = None if problems else examined.next_id
                name = f"{examined.name}@{index}"
                found.append(replace(examined, name=name, next_id=next_id, problems=problems))
        return found
