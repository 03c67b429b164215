"""Counters and machine ids in the database of a SQLAlchemy engine; needs the extra ``sqlalchemy``.

The tables and statements are those of the stores in `postgres`, `mysql` and `sqlite`: processes
that use these and ones that use an engine share a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from ._durability import DurabilityCheck
from ._engine import EngineExecutor, OwnEngineExecutor
from ._engine_url import text_of
from ._mysql import MYSQL
from ._postgres import POSTGRES, without_durability
from ._sql import SqlBackend
from ._sqlite import SQLITE, check_version
from ._store import BackendStore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ._durability import Durability
    from ._engine import SqlExecutor

__all__ = ("SqlAlchemyStore",)

_DIALECTS: Final = {"mysql": MYSQL, "postgresql": POSTGRES, "sqlite": SQLITE}


class SqlAlchemyStore(BackendStore[SqlBackend]):
    """Counters and machine ids in the database of an engine, in CosId's tables and one of our own.

    Runs on asyncio.  Each grant is a transaction of its own on a connection of its own, never part
    of one of yours: an id stays handed out when the transaction that uses it is rolled back.
    The tables are created by `create_schema`; those that CosId has made will do.
    """

    __slots__ = ()

    def __init__(self, engine: AsyncEngine, *, durability: Durability = "warn") -> None:
        """Work on your own engine; nothing is sent yet.

        Args:
            engine: stays yours to dispose of.  PostgreSQL by asyncpg or psycopg, MySQL and MariaDB
                by asyncmy or aiomysql, or a SQLite file by aiosqlite.  Its pool needs a connection
                to spare while your transactions hold theirs.
            durability: what to do about a database whose settings may lose grants: ``"warn"`` in
                the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: it is no engine that will do, or ``durability`` none of the words;
                an engine is refused whose transactions all share one connection, as on
                ``:memory:``.
        """
        self._work_on(EngineExecutor(engine), DurabilityCheck(durability, engine))

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
        plain, durability = without_durability(text_of(url))
        store = cls.__new__(cls)
        store._work_on(OwnEngineExecutor(plain), DurabilityCheck(durability))
        return store

    def _work_on(self, sql: SqlExecutor, check: DurabilityCheck) -> None:
        if sql.dialect_name == "sqlite":
            check_version()
        self._backend = SqlBackend(sql, _DIALECTS[sql.dialect_name], check)
