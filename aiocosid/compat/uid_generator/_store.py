"""uid-generator's database, as a store."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Self

from ...abc import DEFAULT_NAMESPACE, InstanceId
from ...stores._engine import EngineExecutor, OwnEngineExecutor
from .._examine import Examined
from .._table import as_integer
from .._table_distributor import url_of_engine
from .._worker_store import NoCounters
from ._worker_node import (
    INTERVAL,
    SCHEME,
    WORKER_NODE,
    WorkerNodeMachineIdDistributor,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...stores._engine import SqlExecutor

__all__ = ("UidGeneratorStore",)

DEFAULT_BITS: Final = 22
"""Of a worker id in uid-generator's default layout."""

EXAMINE: Final = "SELECT COUNT(*), MIN(ID), MAX(ID) FROM WORKER_NODE"


class UidGeneratorStore(NoCounters):
    """uid-generator's database: worker ids, on any SQLAlchemy engine.  It has no counters."""

    __slots__ = ("_executor",)

    _why = "uid-generator has no counters"

    def __init__(self, engine: AsyncEngine) -> None:
        """Work on your own engine, which stays yours to close; nothing is sent yet.

        Raises:
            InvalidArgumentError: it is no ``AsyncEngine``, or of a database that is not supported.
        """
        self._executor: SqlExecutor = EngineExecutor(engine)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

        Args:
            url: the database's, such as ``mysql://user:password@host/uid``, with or without
                ``uid-generator+`` before it.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: the driver is not installed.
        """
        made = cls.__new__(cls)
        made._executor = OwnEngineExecutor(url_of_engine(url, SCHEME))
        return made

    def __repr__(self) -> str:
        """Name the database, without credentials."""
        return f"<{type(self).__name__} {self._executor.label}>"

    @property
    def _where(self) -> str:
        return self._executor.label

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = inf,  # noqa: ARG002 - ids are for good
        interval: float = INTERVAL,  # noqa: ARG002 - nobody gives signs of life
        host: str | None = None,
        port: str | int | None = None,
        container: bool | None = None,
    ) -> WorkerNodeMachineIdDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            namespace: as for `WorkerNodeMachineIdDistributor`, and so are the others.
            instance_id: likewise.
            safe_guard: not used.
            interval: not used.
            host: likewise.
            port: likewise.
            container: likewise.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return WorkerNodeMachineIdDistributor._on(
            self._executor,
            namespace=namespace,
            instance_id=instance_id,
            place=place_of(host, port, container=container),
        )

    async def create_schema(self) -> None:
        """Create ``WORKER_NODE`` as uid-generator ships it, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._executor.run(WORKER_NODE[self._executor.dialect_name])

    async def examine(self) -> Sequence[Examined]:
        """Say how many starts there were, and what the next one gets; nothing is written.

        That is one above the highest row: an estimate, as the database counts for itself.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        (row,) = (await self._executor.run(EXAMINE)).rows
        count, lowest, highest = map(as_integer, row)
        problems: list[str] = []
        if lowest is not None and lowest < 1:
            problems.append(f"a row has ID {lowest}; worker ids are above 0")
        if highest is not None and highest >> DEFAULT_BITS:
            problems.append(
                f"worker ids above {(1 << DEFAULT_BITS) - 1} do not fit uid-generator's default "
                f"of {DEFAULT_BITS} bits"
            )
        next_id = (highest or 0) + 1
        meaning = f"the worker id of the last of {count} starts, not given again"
        return [
            Examined(
                name="WORKER_NODE",
                stored=highest,
                meaning=meaning if highest is not None else "no start yet",
                next_id=next_id,
                problems=tuple(problems),
            )
        ]

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the engine was passed in, and is the parent's.
        """
        await self._executor.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; an engine that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        await self._executor.aclose()
