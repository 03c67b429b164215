"""tinyid's tables ``tiny_id_info`` and ``tiny_id_token``.  Requires the ``sqlalchemy`` extra.

tinyid (Didi) keeps one row for each ``biz_type``.  ``max_id`` is the upper end of the last segment:
a grant owns those ids in ``(old, new]`` that are ``remainder`` modulo ``delta``.  So several
databases can serve one ``biz_type``, each with its own remainder.  Old tinyid servers can run at
the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from .._life.clock import SYSTEM_CLOCK
from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE
from ._group import STORE_TIMEOUT, GroupStore
from ._table import CounterTable, create_table
from ._table_store import TableStore, of_row, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..abc import Clock
    from ._table_distributor import TableDistributor

__all__ = ("REFRESH_INTERVAL", "TinyidGroupStore", "TinyidStore", "TinyidTokens")

REFRESH_INTERVAL: Final = 60.0
"""Seconds for which tokens are cached; tinyid reads them every minute."""

_TOKENS: Final = "SELECT token, biz_type FROM tiny_id_token"

_COLUMNS: Final = """
  id {number},
  biz_type varchar(63) NOT NULL DEFAULT '',
  begin_id bigint NOT NULL DEFAULT 0, max_id bigint NOT NULL DEFAULT 0,
  step int DEFAULT 0, delta int NOT NULL DEFAULT 1, remainder int NOT NULL DEFAULT 0,
  create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  version bigint NOT NULL DEFAULT 0,
  CONSTRAINT uniq_biz_type UNIQUE (biz_type)
"""


_TOKEN_TABLE: Final = create_table(
    "tiny_id_token",
    """
  id {number},
  token varchar(255) NOT NULL DEFAULT '', biz_type varchar(63) NOT NULL DEFAULT '',
  remark varchar(255) NOT NULL DEFAULT '',
  create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00'
""",
)


class TinyidStore(TableStore):
    """The ``biz_type`` rows of one of tinyid's databases, on any SQLAlchemy engine.

    A row's ``delta`` is the `stride`: a call for ``step`` ids gets that many ids that are
    ``remainder`` modulo ``delta``, and ``max_id`` rises by ``step * delta``.  tinyid reads the row
    and then compares ``max_id`` and ``version``; here one statement raises both, so neither system
    can interrupt the other's update.  A change of a row's delta or remainder applies from the next
    segment on.

    A row whose own ``step`` is below 1 is refused too, because a tinyid server would stop there or
    go backwards.
    """

    scheme = "tinyid"
    table: ClassVar[CounterTable] = CounterTable(
        table="tiny_id_info",
        key="biz_type",
        value="max_id",
        width=63,
        step="step",
        classes=True,
        touched="update_time",
        also="version = version + 1",
        create=create_table("tiny_id_info", _COLUMNS),
        remedy="create it by an INSERT, like tinyid's own rows, or correct the name",
    )

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Create ``tiny_id_info`` and ``tiny_id_token`` as tinyid ships them, if they are missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await super().create_schema(disposable=disposable, after_loss=after_loss)
        await self._rows.executor.run(_TOKEN_TABLE[self._rows.executor.dialect_name])

    async def biz_type(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> TableDistributor:
        """Return a distributor with a tinyid server's number of ids per segment.

        Args:
            name: the ``biz_type``.
            namespace: the counter's namespace, used only in messages and statistics.

        Raises:
            CounterMissingError: there is no such row.
            CorruptCounterError: the row cannot be used.
            StoreError: the store refuses or cannot be reached.
        """
        asking = self.segment_distributor(namespace=namespace, name=name)
        return of_row(self, await asking.row(), namespace)


class TinyidGroupStore(GroupStore):
    """The ``biz_type`` rows of several of tinyid's databases, of which any one is enough.

    tinyid chooses a random database for each segment; this store uses the same one as long as it
    answers.  All databases have the same delta and different remainders.
    """

    one: ClassVar[type[TableStore]] = TinyidStore

    def __init__(
        self,
        engines: Sequence[AsyncEngine],
        *,
        store_timeout: float = STORE_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Use your own engines, which the store never closes; nothing is sent yet.

        Args:
            engines: one engine for each of tinyid's databases.
            store_timeout: seconds for which to wait for a database before calling the next one.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._gather(dict(enumerate(map(TinyidStore, engines))), store_timeout, clock)


class TinyidTokens(NotCopyable):
    """The permissions in ``tiny_id_token``, read on demand and at most every 60 s.

    A token is never part of a message, a log line or a ``repr``.
    """

    def __init__(self, store: TinyidStore, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Read from a store, which this object does not close; nothing is sent yet."""
        self._store, self._clock = store, clock
        self._allowed: frozenset[tuple[str, str]] = frozenset()
        self._read_at: float | None = None

    async def allows(self, token: str | None, biz_type: str | None) -> bool:
        """Return whether a token may take ids of a ``biz_type``; False if either is missing.

        Raises:
            StoreError: the table cannot be read, and was not read in the last 60 s.
        """
        if not token or not biz_type:
            return False
        asked_at = self._clock.monotonic()
        if self._read_at is None or asked_at - self._read_at >= REFRESH_INTERVAL:
            done = await rows_of(self._store).executor.run(_TOKENS)
            self._allowed = frozenset((row[0], row[1]) for row in done.rows)
            self._read_at = asked_at
        return (token, biz_type) in self._allowed

    def __repr__(self) -> str:
        """Show the database, but no token."""
        return f"<{type(self).__name__} {self._store!r}>"
