"""Counters in the database of a SQLAlchemy engine.  Requires the ``sqlalchemy`` extra.

The tables and statements are those of the stores in `postgres`, `mysql` and `sqlite`: processes
that use these and ones that use an engine share a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
)
from ._engine import EngineExecutor, OwnEngineExecutor
from ._engine_store import EngineStoreExecutor
from ._engine_url import text_of
from ._postgres import durability_of
from ._sql import SqlIdSegmentDistributor, SqlStore
from ._sql_machine_client import SqlMachineClient
from ._sql_machines import SqlMachineIdDistributor

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..abc import InstanceId
    from ._durability import Durability
    from ._executor import Executor
    from ._machine_tables import MachineDialect
    from ._sql_dialect import Dialect

__all__ = (
    "SqlAlchemyIdSegmentDistributor",
    "SqlAlchemyMachineIdDistributor",
    "SqlAlchemyStore",
)


class SqlAlchemyIdSegmentDistributor(SqlIdSegmentDistributor):
    """A counter in the database of an engine, in CosId's table ``cosid``.

    Runs on asyncio.  Each grant is a transaction of its own on a connection of its own, never part
    of one of yours: an id stays handed out when the transaction that uses it is rolled back.
    The table is created by `SqlAlchemyStore.create_schema`; one that CosId has made will do.
    """

    __slots__ = ("dialect",)

    dialect: Dialect

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        durability: Durability = "warn",
    ) -> None:
        """Describe a counter on your own engine; nothing is sent yet.

        Args:
            engine: stays yours to dispose of.  PostgreSQL by asyncpg or psycopg, MySQL and MariaDB
                by asyncmy or aiomysql, or a SQLite file by aiosqlite.  Its pool needs a connection
                to spare while your transactions hold theirs.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            durability: what to do about a database whose settings may lose grants: ``"warn"`` in
                the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: an argument is outside its range; an engine is refused whose
                transactions all share one connection, as on ``:memory:``.
            NameTooLongError: ``{namespace}.{name}`` is longer than 100 characters.
        """
        executor = _borrowed(engine, durability)
        self.dialect = executor.dialects.segments
        super().__init__(executor, namespace=namespace, name=name, offset=offset, step=step)

    @classmethod
    def _on(cls, executor: Executor, **described: Any) -> Self:  # noqa: ANN401 - as for __init__
        made = super()._on(executor, **described)
        made.dialect = _of(executor).dialects.segments
        return made

    @classmethod
    def _own(cls, url: str) -> Executor:
        return _own(url)


class SqlAlchemyMachineIdDistributor(SqlMachineIdDistributor):
    """The machine ids of one namespace in the database of an engine.

    Runs on asyncio.  Both tables, CosId's ``cosid_machine`` and ``aiocosid_machine`` beside it, are
    created by `SqlAlchemyStore.create_schema`.
    """

    __slots__ = ("machine_dialect",)

    machine_dialect: MachineDialect

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        durability: Durability = "warn",
    ) -> None:
        """Describe who asks on your own engine; nothing is sent yet.

        Args:
            engine: as for `SqlAlchemyIdSegmentDistributor`.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            durability: what to do about settings that may lose who holds which id; as for
                `SqlAlchemyIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        executor = _borrowed(engine, durability)
        self.machine_dialect = executor.dialects.machines
        super().__init__(
            executor,
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    @classmethod
    def _on(cls, executor: Executor, **described: Any) -> Self:  # noqa: ANN401 - as for __init__
        made = cls.__new__(cls)
        made.machine_dialect = _of(executor).dialects.machines
        SqlMachineClient.__init__(made, executor, **described)
        return made

    @classmethod
    def _own(cls, url: str) -> Executor:
        return _own(url)


class SqlAlchemyStore(SqlStore):
    """The counters in the database of one engine."""

    __slots__ = ()

    distributor = SqlAlchemyIdSegmentDistributor
    machine_distributor = SqlAlchemyMachineIdDistributor

    def __init__(self, engine: AsyncEngine, *, durability: Durability = "warn") -> None:
        """Work on your own engine, which stays yours to dispose of; nothing is sent yet.

        Args:
            engine: as for `SqlAlchemyIdSegmentDistributor`.
            durability: what to do about a database whose settings may lose grants; see there.

        Raises:
            InvalidArgumentError: it is no engine that will do, or ``durability`` none of the words.
        """
        super().__init__(_borrowed(engine, durability))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on an engine of its own, of up to four connections, made anew after `aclose`.

        Args:
            url: as SQLAlchemy understands it: ``postgresql+asyncpg``, ``postgresql+psycopg``,
                ``mysql+asyncmy``, ``mysql+aiomysql`` or ``sqlite+aiosqlite``.
                ``durability=refuse`` after the ``?`` is as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no database that will do.
            MissingExtraError: its driver is not installed.
            UnsupportedRuntimeError: so it is, and no extra of ours brings it.
        """
        return cls._on(_own(url))

    @property
    def _dialect(self) -> Dialect:
        return _of(self._executor).dialects.segments

    @property
    def _machine_dialect(self) -> MachineDialect:
        return _of(self._executor).dialects.machines


def _borrowed(engine: AsyncEngine, durability: Durability) -> EngineStoreExecutor:
    return EngineStoreExecutor(EngineExecutor(engine), durability, engine)


def _own(url: str) -> EngineStoreExecutor:
    plain, durability = durability_of(text_of(url))
    return EngineStoreExecutor(OwnEngineExecutor(plain), durability)


def _of(executor: Executor) -> EngineStoreExecutor:
    if not isinstance(executor, EngineStoreExecutor):
        raise TypeError(executor)
    return executor
