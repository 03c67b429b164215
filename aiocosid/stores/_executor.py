"""Runs the statements of the SQL stores on a driver's connection or pool."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from .._life import fork
from .._life.fork import NotCopyable
from ..errors import StoreError, WrongLoopError
from ._connection import CALL_TIMEOUT, translate_errors
from ._sql_errors import as_store_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._connection import Connection

__all__ = (
    "CONNECT_TIMEOUT",
    "MAX_CONNECTIONS",
    "PARAMETER",
    "TEAR_TIMEOUT",
    "Executor",
    "PoolExecutor",
    "Row",
    "Value",
)

CONNECT_TIMEOUT: Final = 1.5  # seconds, for all hosts: below the 2 s of a generator's call
TEAR_TIMEOUT: Final = 0.5  # seconds that a driver may delay a cancelled caller
MAX_CONNECTIONS: Final = 4  # of a pool of ours; further calls wait

PARAMETER: Final = re.compile(r"(?<!:):([a-z]\w*)")
"""A parameter by its name, in a statement that has casts."""

Row = Any
"""A driver's row; its columns by number."""

_Pool = Any  # the drivers' own annotations are incomplete
_Session = Any

Value = str | int
"""The value of a parameter."""


class Executor(NotCopyable, ABC):
    """Runs one statement on a connection, the user's or its own, and returns its rows.

    With a `Dialect` it is all that a driver needs to become a store.

    A statement is a transaction of its own, and is durable when the call returns.  A cancelled call
    may have taken effect; no later call gets its reply.

    Attributes:
        label: names the server or file in messages, without credentials.
    """

    __slots__ = ("__weakref__", "_connection", "label")

    def __init__(self, label: str, connection: Connection[Any]) -> None:
        self.label: str = label
        self._connection = connection

    @abstractmethod
    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run one statement and return all its rows.

        Args:
            statement: in the driver's own notation.
            **values: by name.

        Raises:
            OutOfRangeError: a result does not fit its column.
            StoreUnavailableError: the store cannot be reached or does not answer.
            StoreError: the store refuses.
            ForkedError: the connection is the parent process's.
            WrongLoopError: the connection is in use on another event loop.
        """

    async def create_file(self) -> None:
        """Create the database's file if it is missing; do nothing for a server."""

    async def aopen(self) -> None:
        """Get ready in this process; it connects at the first statement.

        Raises:
            ForkedError: the connection is the user's, and was created in the parent process.
        """
        await self._connection.aopen()

    async def aclose(self) -> None:
        """Close the connections that this executor has opened; the next statement opens a new one.

        Raises:
            WrongLoopError: it is in use on another event loop.
        """
        await self._connection.aclose()


class PoolExecutor(Executor):
    """Runs on a driver's pool, whose connections run one statement at a time each."""

    __slots__ = ()

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        pool = await self._connection.ready()
        if pool._loop is not asyncio.get_running_loop():
            raise WrongLoopError("the pool")
        if pool._closing or pool._closed:
            raise StoreError(self.label, "the pool is closed", remedy="give it an open one")
        meaning = partial(as_store_error, self.label)
        with translate_errors(meaning), anyio.fail_after(CALL_TIMEOUT):
            return await self._fetch(pool, statement, values)

    async def _fetch(self, pool: _Pool, statement: str, values: Mapping[str, Value]) -> list[Row]:
        generation = fork.generation
        connection = await self._acquire(pool)
        try:
            # The process may have forked while this waited.
            fork.ensure_own(generation, f"the connection to {self.label}")
            rows = await self._run(connection, statement, values)
        except BaseException as error:
            if generation == fork.generation:
                await self._release(pool, connection, error)
            else:
                fork.abandoned.append(connection)
            raise
        await self._release(pool, connection, None)
        return rows

    # What a driver's subclass implements.

    async def _acquire(self, pool: _Pool) -> _Session:
        """Take a connection from the pool, or open one."""
        return await pool.acquire()

    @abstractmethod
    async def _run(
        self, connection: _Session, statement: str, values: Mapping[str, Value]
    ) -> list[Row]:
        """Run a statement."""

    @abstractmethod
    async def _release(
        self, pool: _Pool, connection: _Session, error: BaseException | None
    ) -> None:
        """Return a connection to the pool, or drop it if its statement failed or was cancelled."""
