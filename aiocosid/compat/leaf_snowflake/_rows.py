"""Leaf's table of worker ids: its statements, and what a row says.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...errors import CorruptMachineStateError
from ...stores._arguments import MAX_MS
from .._table import as_integer
from ._stamped import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("CREATE", "INSERT", "OLDEST", "READ", "SELECT", "WRITE", "entry_of")

CREATE: Final = """
CREATE TABLE IF NOT EXISTS leaf_workerid_alloc (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  ip varchar(127) DEFAULT NULL,
  port varchar(127) DEFAULT NULL,
  ip_port varchar(127) NOT NULL,
  max_timestamp bigint(20) DEFAULT NULL,
  create_time timestamp NULL DEFAULT NULL,
  update_time timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id),
  UNIQUE KEY idx_ipport (ip_port)
) ENGINE=InnoDB AUTO_INCREMENT=0"""

_ROW: Final = "SELECT id, max_timestamp, ip_port FROM leaf_workerid_alloc"

SELECT: Final = f"{_ROW} WHERE ip_port = :place"
READ: Final = f"{_ROW} WHERE id = :id"

# 0, not NULL: a fork node that starts under the address cannot read that.
INSERT: Final = """
INSERT INTO leaf_workerid_alloc (ip, port, ip_port, max_timestamp, create_time, update_time)
VALUES (:ip, :port, :place, 0, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)
ON DUPLICATE KEY UPDATE ip_port = ip_port"""

OLDEST: Final = """
SELECT ip_port, (SELECT MAX(id) FROM leaf_workerid_alloc), id
FROM leaf_workerid_alloc ORDER BY max_timestamp, id LIMIT 20"""

WRITE: Final = """
UPDATE leaf_workerid_alloc SET max_timestamp = :new
WHERE id = :id AND ip_port = :place AND max_timestamp <=> :found"""


def entry_of(store: str, row: Sequence[Any]) -> Entry:
    """Read a row as `SELECT` answers it.

    Raises:
        CorruptMachineStateError: it holds no worker id, or no time.
    """
    worker_id, stamp, owner = as_integer(row[0]), as_integer(row[1]), str(row[2])
    place = f"leaf_workerid_alloc of {owner}"
    if worker_id is None or worker_id < 0:
        expected = "a worker id, at least 0"
        raise CorruptMachineStateError(store, place=place, found=f"{row[0]!r}", expected=expected)
    if row[1] is None:
        return Entry(worker_id=worker_id, stamp=-1, owner=owner)
    if stamp is None or not 0 <= stamp < MAX_MS:
        expected = "a max_timestamp in milliseconds since 1970"
        raise CorruptMachineStateError(store, place=place, found=f"{row[1]!r}", expected=expected)
    return Entry(worker_id=worker_id, stamp=stamp, owner=owner)
