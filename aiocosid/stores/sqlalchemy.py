"""Counters and machine ids on a SQLAlchemy engine.  Requires the ``sqlalchemy`` extra.

The tables and statements are those of the stores in `postgres`, `mysql` and `sqlite`: processes
that use these and ones that use an engine share a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from ._durability import DurabilityCheck
from ._engine import EngineExecutor, OwnEngineExecutor
from ._engine_url import text_of
from ._metadata import schema_metadata as schema_metadata  # noqa: PLC0414 - re-exported
from ._mysql import MYSQL
from ._postgres import POSTGRES, without_durability
from ._sql import SqlBackend
from ._sqlite import SQLITE, check_version
from .base import BackendStore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ._durability import Durability
    from ._engine import SqlExecutor

__all__ = ("SqlAlchemyStore", "schema_metadata")

_DIALECTS: Final = {"mysql": MYSQL, "postgresql": POSTGRES, "sqlite": SQLITE}


class SqlAlchemyStore(BackendStore[SqlBackend]):
    """Counters and machine ids in the database of an engine, in CosId's tables and one of our own.

    Runs on asyncio.  Each grant is a transaction of its own on a connection of its own, never part
    of one of yours: an id stays handed out when the transaction that uses it is rolled back.
    `create_schema` creates the tables; tables that CosId has created work as well.
    """

    __slots__ = ()

    def __init__(self, engine: AsyncEngine, *, durability: Durability = "warn") -> None:
        """Use your own engine; nothing is sent yet.

        Args:
            engine: your own engine, which is never disposed here.  PostgreSQL by asyncpg or
                psycopg, MySQL and MariaDB by asyncmy or aiomysql, or a SQLite file by aiosqlite.
                Its pool needs a spare connection while your transactions hold theirs.
            durability: what to do about a database whose settings may lose grants: ``"warn"`` in
                the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: the engine is not supported, or ``durability`` is none of the
                words; an engine whose transactions all share one connection, as on ``:memory:``, is
                refused.
        """
        self._backend = _backend_on(EngineExecutor(engine), DurabilityCheck(durability, engine))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use an engine of its own, with up to four connections; again after `aclose`.

        Args:
            url: a URL of SQLAlchemy's: ``postgresql+asyncpg``, ``postgresql+psycopg``,
                ``mysql+asyncmy``, ``mysql+aiomysql`` or ``sqlite+aiosqlite``. ``durability=refuse``
                after the ``?`` is as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed, or names an unsupported database.
            MissingExtraError: its driver is not installed.
            UnsupportedRuntimeError: the driver is not installed, and no extra of aiocosid has it.
        """
        plain, durability = without_durability(text_of(url))
        return cls._on(_backend_on(OwnEngineExecutor(plain), DurabilityCheck(durability)), plain)


def _backend_on(sql: SqlExecutor, check: DurabilityCheck) -> SqlBackend:
    if sql.dialect_name == "sqlite":
        check_version()
    return SqlBackend(sql, _DIALECTS[sql.dialect_name], check)
