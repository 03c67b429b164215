"""What the numbers of Hibernate's nodes mean, and where a URL says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ...abc._ids import check_integer
from ...errors import InvalidArgumentError
from ...stores._engine import OwnEngineExecutor
from .._table import CounterTable
from .._table_distributor import url_of_engine
from .._url import check_one_of, split_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...stores._engine import SqlExecutor

__all__ = ("INCREMENT", "OPTIONS", "Convention", "Optimizer", "Source", "check_dialect", "read_url")

Optimizer = Literal["pooled-lo", "pooled"]
"""What ``hibernate.id.optimizer.pooled.preferred`` says; ``pooled`` without it."""

Source = Literal["table", "sequence"]
"""Where the numbers are: ``GenerationType.TABLE`` or ``GenerationType.SEQUENCE``."""

INCREMENT: Final = 50
"""Hibernate's own ``allocationSize``."""

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS hibernate_sequences (
  sequence_name varchar(255) NOT NULL,
  next_val bigint,
  PRIMARY KEY (sequence_name)
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How the nodes of one application take their ids."""

    optimizer: Optimizer | None = None
    increment: int = INCREMENT
    store_last_used: bool = True
    source: Source = "table"

    def __post_init__(self) -> None:
        if self.optimizer is not None:
            check_one_of("optimizer", self.optimizer, ("pooled-lo", "pooled"))
        check_one_of("source", self.source, ("table", "sequence"))
        check_integer("increment", self.increment, at_least=1, at_most=2**31 - 1)

    def ensure_told(self) -> None:
        """Raise unless it is known what a number means."""
        if self.optimizer is None:
            expected = "'pooled-lo' or 'pooled' (Hibernate's default), as the nodes have it"
            raise InvalidArgumentError("optimizer", None, expected=expected)

    @property
    def table(self) -> CounterTable:
        """Where the numbers are, and how far they are above the last id."""
        ahead = 0 if self.store_last_used else 1
        if self.optimizer == "pooled":
            ahead += self.increment - 1  # what a node reads is the end of its range
        return CounterTable(
            table="hibernate_sequences",
            key="sequence_name",
            value="next_val",
            ahead=ahead,
            width=255,
            create={"mysql": _CREATE, "postgresql": _CREATE, "sqlite": _CREATE},
        )


def _truth(text: str) -> bool:
    check_one_of("store_last_used", text, ("true", "false"))
    return text == "true"


OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "optimizer": str,
    "increment": int,
    "store_last_used": _truth,
    "source": str,
}


def read_url(url: str) -> tuple[SqlExecutor, Convention]:
    place, options = split_options(url_of_engine(url, "hibernate"), OPTIONS)
    return OwnEngineExecutor(place), Convention(**options)


def check_dialect(executor: SqlExecutor) -> None:
    if executor.dialect_name == "sqlite":
        raise InvalidArgumentError(
            "url", "sqlite", expected="PostgreSQL or MariaDB: with sequences"
        )
