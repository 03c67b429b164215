"""Leaf's files of a worker id: what they say, and how they are written.  Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import CorruptMachineStateError
from ...stores._arguments import MAX_MS

if TYPE_CHECKING:
    from ._place import Place

__all__ = ("JSON", "PROPERTIES", "STORE", "WorkerIdFile", "read_file", "written")

JSON: Final = "workerID.json"
"""The fork's, of its mode ``local``."""

PROPERTIES: Final = "workerID.properties"
"""Leaf's own, of its mode with ZooKeeper."""

STORE: Final = "leaf's state file"
EXPECTED: Final = "a worker id, and a time in milliseconds since 1970"


@dataclass(frozen=True, slots=True)
class WorkerIdFile:
    """What one says.

    Attributes:
        worker_id: the number.
        timestamp: the last time that was reported; -1 where there is none, as in Leaf's own.
    """

    worker_id: int
    timestamp: int


def read_file(path: str, name: str, text: str) -> WorkerIdFile:
    """Read a file.

    Args:
        path: where it lies, for an error.
        name: `JSON` or `PROPERTIES`.
        text: what is in it.

    Raises:
        CorruptMachineStateError: it is damaged.
    """
    found = _json(text) if name == JSON else _properties(text)
    if found is None:
        raise CorruptMachineStateError(STORE, place=path, found=repr(text), expected=EXPECTED)
    return found


def _json(text: str) -> WorkerIdFile | None:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, Any]", found)
    return _checked(fields.get("workId"), fields.get("timestamp"))


def _properties(text: str) -> WorkerIdFile | None:
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        timestamp = fields.get("maxTimestamp")  # Leaf's own has none
        return _checked(int(fields["workerID"]), -1 if timestamp is None else int(timestamp))
    except (KeyError, ValueError):
        return None


def _checked(worker_id: object, timestamp: object) -> WorkerIdFile | None:
    if type(worker_id) is not int or worker_id < 0:
        return None
    if type(timestamp) is not int or not -1 <= timestamp < MAX_MS:
        return None
    return WorkerIdFile(worker_id, timestamp)


def written(name: str, place: Place, state: WorkerIdFile) -> str:
    """Return the text of a file, in its own shape."""
    if name == PROPERTIES:
        return f"workerID={state.worker_id}\nmaxTimestamp={state.timestamp}\n"
    fields = {
        "ip": place.ip,
        "port": place.port,
        "workId": state.worker_id,
        "timestamp": state.timestamp,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
