"""SQL on a SQLAlchemy engine, for stores with their own tables, as in `aiocosid.compat`.

Requires the ``sqlalchemy`` extra.  A statement is a transaction of its own, on every driver.
"""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

from typing import TYPE_CHECKING

from ._engine import EngineExecutor as EngineExecutor
from ._engine import Outcome as Outcome
from ._engine import OwnEngineExecutor
from ._engine import SqlExecutor as SqlExecutor
from ._engine_url import DialectName as DialectName
from ._executor import PARAMETER as PARAMETER
from ._executor import Executor as Executor
from ._executor import Row as Row
from ._executor import Value as Value
from ._sql_errors import OutOfRangeError as OutOfRangeError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = (
    "PARAMETER",
    "DialectName",
    "EngineExecutor",
    "Executor",
    "OutOfRangeError",
    "Outcome",
    "Row",
    "SqlExecutor",
    "Value",
    "executor_of",
    "executor_on",
)


def executor_of(url: str) -> SqlExecutor:
    """Return an executor with its own engine, opened on first use, closed by `Executor.aclose`.

    Args:
        url: a URL of SQLAlchemy's, or one without a driver as for `aiocosid.connect`.

    Raises:
        InvalidArgumentError: the URL is malformed, or names an unsupported database.
        MissingExtraError: the driver is not installed.
    """
    return OwnEngineExecutor(url)


def executor_on(engine: AsyncEngine | SqlExecutor) -> SqlExecutor:
    """Return an executor on the user's engine, which it never disposes; or the given executor.

    Raises:
        InvalidArgumentError: it is no ``AsyncEngine``, or of a database that is not supported.
    """
    return engine if isinstance(engine, SqlExecutor) else EngineExecutor(engine)
