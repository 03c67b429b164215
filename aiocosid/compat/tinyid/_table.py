"""The rows of ``tiny_id_info``: which ids are theirs, what is wrong with them.  Pure."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Final, TypeAlias

from .._table import CounterTable, as_integer, number, shown

if TYPE_CHECKING:
    from .._table import DialectName, TableRow

__all__ = ("TINY_ID_INFO", "Class", "class_of", "share_ids")

Class: TypeAlias = "tuple[int, int]"
"""A delta, and the remainder modulo that."""

_MYSQL: Final = """
CREATE TABLE IF NOT EXISTS tiny_id_info (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  biz_type varchar(63) NOT NULL DEFAULT '',
  begin_id bigint(20) NOT NULL DEFAULT '0',
  max_id bigint(20) NOT NULL DEFAULT '0',
  step int(11) DEFAULT '0',
  delta int(11) NOT NULL DEFAULT '1',
  remainder int(11) NOT NULL DEFAULT '0',
  create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  version bigint(20) NOT NULL DEFAULT '0',
  PRIMARY KEY (id),
  UNIQUE KEY uniq_biz_type (biz_type)
) ENGINE=InnoDB"""

_COLUMNS: Final = """
  id {key},
  biz_type varchar(63) NOT NULL DEFAULT '' UNIQUE,
  begin_id bigint NOT NULL DEFAULT 0,
  max_id bigint NOT NULL DEFAULT 0,
  step integer DEFAULT 0,
  delta integer NOT NULL DEFAULT 1,
  remainder integer NOT NULL DEFAULT 0,
  create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
  version bigint NOT NULL DEFAULT 0
"""

_POSTGRESQL: Final = f"""
DO $$
BEGIN
  IF to_regclass('tiny_id_info') IS NULL THEN
    PERFORM pg_advisory_xact_lock(hashtext('aiocosid'));
    CREATE TABLE IF NOT EXISTS tiny_id_info ({_COLUMNS.format(key="bigserial PRIMARY KEY")});
  END IF;
END
$$"""

_SQLITE: Final = (
    f"CREATE TABLE IF NOT EXISTS tiny_id_info ({_COLUMNS.format(key='integer PRIMARY KEY')})"
)


class _TinyIdInfo(CounterTable):
    """A row grants the ids above ``max_id`` that are ``remainder`` modulo ``delta``."""

    __slots__ = ()

    def _guards(self, dialect: DialectName) -> list[str]:
        # What tinyid takes for NULL.
        return [
            f"COALESCE(delta, 1) = {number('delta', dialect)}",
            f"COALESCE(remainder, 0) = {number('remainder', dialect)}",
        ]

    def _read_besides(self) -> tuple[str, ...]:
        return ("COALESCE(delta, 1)", "COALESCE(remainder, 0)")

    def next_id(self, row: TableRow) -> int | None:
        last, found = self.last_id(row), class_of(row)
        if last is None or found is None:
            return None
        delta, remainder = found
        return last + 1 + (remainder - last - 1) % delta

    def meaning(self, row: TableRow) -> str:
        found = class_of(row)
        if self.last_id(row) is None or found is None or found[0] == 1:
            return CounterTable.meaning(self, row)
        return f"the end of the last segment, of the ids that are {found[1]} modulo {found[0]}"

    def problems(self, row: TableRow) -> tuple[str, ...]:
        wrong = CounterTable.problems(self, row)
        delta = as_integer(row.delta)
        if delta is None or delta < 1:
            return (*wrong, f"delta is {shown(row.delta)}; it has to be at least 1")
        if class_of(row) is None:
            allowed = f"from 0 to {delta - 1}, below delta"
            return (*wrong, f"remainder is {shown(row.remainder)}; it has to be {allowed}")
        return wrong


def class_of(row: TableRow) -> Class | None:
    """Return a row's delta and remainder, or None if there is no id of such a class."""
    delta, remainder = as_integer(row.delta), as_integer(row.remainder)
    if delta is None or remainder is None or not 0 <= remainder < delta:
        return None
    return delta, remainder


def share_ids(one: Class, other: Class) -> bool:
    """Tell whether some ids are of both."""
    return (other[1] - one[1]) % gcd(one[0], other[0]) == 0


TINY_ID_INFO: Final = _TinyIdInfo(
    table="tiny_id_info",
    key="biz_type",
    value="max_id",
    ahead=0,
    width=63,
    step="step",
    touched="update_time",
    also="version = version + 1",
    create={"mysql": _MYSQL, "postgresql": _POSTGRESQL, "sqlite": _SQLITE},
)
