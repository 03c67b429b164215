"""Leaf's files of a worker id: what they say, and how they are written.  Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..._checks import MAX_MS
from ...errors import CorruptMachineStateError

if TYPE_CHECKING:
    from ._address import LeafAddress

__all__ = ("JSON", "PROPERTIES", "STORE", "read_file", "written")

JSON: Final = "workerID.json"  # the fork's, of its mode local
PROPERTIES: Final = "workerID.properties"  # Leaf's own, of its mode with ZooKeeper
STORE: Final = "leaf's state file"
EXPECTED: Final = "a worker id, and a time in milliseconds since 1970"


def read_file(path: str, name: str, text: str) -> tuple[int, int]:
    """Return the worker id that a file names, and its time; -1 where there is none.

    Args:
        path: where it lies, for an error.
        name: `JSON` or `PROPERTIES`.
        text: what is in it.

    Raises:
        CorruptMachineStateError: it is damaged.
    """
    worker_id: Any = None
    timestamp: Any = None
    with suppress(ValueError, TypeError, KeyError):
        if name == JSON:
            fields: Any = json.loads(text)
            worker_id, timestamp = fields["workId"], fields["timestamp"]
        else:
            lines = (line.strip() for line in text.splitlines())
            pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
            fields = {key.strip(): value.strip() for key, _, value in pairs}
            # Leaf's has no time.
            worker_id, timestamp = int(fields["workerID"]), int(fields.get("maxTimestamp", "-1"))
    is_sound = type(worker_id) is int and worker_id >= 0 and type(timestamp) is int
    if not is_sound or not -1 <= timestamp < MAX_MS:
        raise CorruptMachineStateError(STORE, place=path, found=repr(text), expected=EXPECTED)
    return worker_id, timestamp


def written(name: str, address: LeafAddress, worker_id: int, timestamp: int) -> str:
    """Return the text of a file, in its own shape."""
    if name == PROPERTIES:
        return f"workerID={worker_id}\nmaxTimestamp={timestamp}\n"
    fields = {"ip": address.ip, "port": address.port, "workId": worker_id, "timestamp": timestamp}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
