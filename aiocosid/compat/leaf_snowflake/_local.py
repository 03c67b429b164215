"""Leaf's registry without a server: the fork's mode ``local``, a map and a file."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import unquote

from ..._life import fork
from ..._life.clock import SYSTEM_CLOCK
from ...abc import InstanceId, MachineGrant
from ...abc.checks import MAX_MS
from ...errors import CorruptMachineStateError, InvalidArgumentError, StoreError
from ...machine import ManualMachineIdDistributor
from ...machine.files import in_thread, read_text, write_text
from ...machine.restart import unconfirmed_record
from .._url import split_options
from .._worker_ids import WorkerIdStore
from ._address import INTERVAL, NAMED, WHY, WORKER_BITS, LeafAddress, check_leaf_name

if TYPE_CHECKING:
    import os

    from ...abc.restart import RestartRecord
    from .._url import Options

__all__ = ("LeafLocalStore",)


class _Local(ManualMachineIdDistributor):
    """The locked worker id of an address in the map, with Leaf's state file."""

    def __init__(self, number: int, name: str, address: LeafAddress, directory: Path) -> None:
        self._address, self._floor_ms, self._directory = address, -1, directory
        super().__init__(
            number,
            namespace=f"leaf.{name}"[:91],
            instance_id=InstanceId(str(address)),
            state_dir=directory.parent,  # shared by all ports, because maps may disagree
            interval=INTERVAL,
        )

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Lock the number, and read the floor.

        Raises:
            InvalidArgumentError: the number does not fit ``bits``.
            MachineIdInUseError: another object or process on this host holds it.
            CorruptMachineStateError: a file is damaged.
            StoreError: a file names another number, or cannot be read or written.
            ForkedError: the number belongs to the parent process.
        """
        grant = await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        try:
            found = await in_thread(self._read_all)
        except StoreError:
            await super().release(grant.machine_id, last_ms=-1)
            raise
        self._floor_ms = max(grant.floor_ms, *found.values(), -1)
        return MachineGrant(grant.machine_id, self._floor_ms)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Raise the fence, and the time in Leaf's file; neither is ever lowered here.

        Raises:
            MachineIdLostError: this object has not locked the number.
            StoreError: a file names another number, or cannot be written.
            ForkedError: the number belongs to the parent process.
        """
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)
        await in_thread(partial(self._write_all, max(now_ms, fence_ms), may_lower=False))

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Lower the time to the last one used, and unlock; do nothing if the number is not ours.

        Raises:
            StoreError: a file cannot be written.
        """
        if (
            machine_id == self.machine_id
            and last_ms >= 0
            and self._fork_generation == fork.generation
        ):
            least = max(last_ms, self._floor_ms)
            await in_thread(partial(self._write_all, least, may_lower=True))
        await super().release(machine_id, last_ms=last_ms)

    # Blocking methods, which run in a worker thread.

    def _read_all(self) -> dict[str, int]:
        """Return the times in the existing files, by name."""
        found: dict[str, int] = {}
        for name in (JSON, PROPERTIES):
            path = self._directory / name
            if (text := read_text(path)) is None:
                continue
            number, found[name] = read_file(str(path), name, text)
            if number != self.machine_id:
                map_has = f"workIdMap gives {self._address} the worker id {self.machine_id}"
                remedy = f"correct the map, or remove the file if no server uses {number} now"
                reason = f"{path} names worker id {number}, but {map_has}"
                raise StoreError(STORE, reason, remedy=remedy)
        return found

    def _write_all(self, time_ms: int, *, may_lower: bool) -> None:
        """Write the existing files, or the fork's file, if the number is locked."""
        if not self._held._lock.is_intact():
            return
        for name, found_ms in (self._read_all() or {JSON: -1}).items():
            if may_lower or time_ms > found_ms:
                text = written(name, self._address, self.machine_id, time_ms)
                write_text(self._directory / name, text)


class LeafLocalStore(WorkerIdStore):
    """The worker id of an address in ``leaf.snowflake.local.workIdMap``, with Leaf's state file.

    The map decides.  A file with another number is an error; in the fork it would override the map.
    The file's time is the floor; every 3 s it is raised to the time up to which ids may be issued.

    A second process with this ``name`` and number on this host gets `MachineIdInUseError`, on any
    port; the lock and the fence are in the directory above the file's directory.  Other hosts are
    not checked, so make sure that all maps are equal.  Old nodes do not lock, so first stop the
    node with this address.
    """

    scheme = "leaf-local"
    options: ClassVar[Options] = {**NAMED, "map": str}
    why = WHY

    def __init__(
        self,
        work_id_map: Mapping[str, int] | str,
        *,
        name: str,
        ip: str,
        port: int | str,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """Describe the instance; nothing is read or locked yet.

        Args:
            work_id_map: the worker ids of all hosts by ``ip:port``, or its JSON; no number may
                occur twice.
            name: Leaf's ``leaf.name``.
            ip: this process's address, which is never guessed.
            port: this process's port, 1 to 65535; Leaf's ``leaf.snowflake.port``.
            directory: Java's ``java.io.tmpdir``, by default the system's directory for temporary
                files.  The system may empty that directory when it starts; then the floor is lost.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the map lacks the address.
        """
        address = LeafAddress.of(ip, port)
        root = directory_of(
            tempfile.gettempdir() if directory is None else directory, name, address
        )
        self._door = self._machine = _Local(_number_of(work_id_map, address), name, address, root)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Describe the instance with a URL; nothing is read yet.

        Args:
            url: the directory, with all else in the query, percent-encoded:
                ``leaf-local+file:///tmp?name=shop&ip=10.0.0.1&port=8080&map={"10.0.0.1:8080":1}``.

        Raises:
            InvalidArgumentError: the URL is malformed or incomplete.
        """
        address, options = split_options(url, cls.scheme, cls.options, needs_all=True)
        scheme, _, path = address.partition("://")
        if scheme != "file" or "?" in path:
            rule = f"must begin with {cls.scheme}+file:// and have no other options"
            raise InvalidArgumentError("url", f"{cls.scheme}+...", rule)
        return cls(options.pop("map"), directory=unquote(path) or None, **options)


def directory_of(root: str | os.PathLike[str], name: str, address: LeafAddress) -> Path:
    """Return the directory of Leaf's files for a port, under Java's ``java.io.tmpdir``."""
    return Path(root) / check_leaf_name(name) / "leafconf" / address.port


def _number_of(work_id_map: Mapping[str, int] | str, address: LeafAddress) -> int:
    """Return the number of an address, if the argument is a valid map."""
    found: Any = work_id_map
    with suppress(ValueError):
        found = json.loads(found, object_pairs_hook=_unique) if isinstance(found, str) else found
    table: Mapping[Any, Any] = found if isinstance(found, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]
    rule = 'must give each "ip:port" one number of at least 0, and no number twice'
    numbers = [each for each in table.values() if type(each) is int and each >= 0]
    keys = [key for key in table if isinstance(key, str) and re.fullmatch(r".+:[0-9]{1,5}", key)]
    is_sound = table and len({*numbers}) == len(keys) == len(table)
    if not is_sound or str(address) not in table:
        if is_sound:
            rule = f"has no number for {str(address)!r}, which is this process; add it"
        raise InvalidArgumentError("work_id_map", work_id_map, rule)
    return int(table[str(address)])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


JSON: Final = "workerID.json"  # the fork's file in mode local
PROPERTIES: Final = "workerID.properties"  # Leaf's own file in its mode with ZooKeeper
STORE: Final = "leaf's state file"
EXPECTED: Final = "a worker id, and a time in milliseconds since 1970"


def read_file(path: str, name: str, text: str) -> tuple[int, int]:
    """Return the worker id in a file, and its time; -1 for a missing value.

    Args:
        path: the file's path, for errors.
        name: `JSON` or `PROPERTIES`.
        text: the file's content.

    Raises:
        CorruptMachineStateError: the file is damaged.
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
            # Leaf's own file has no time.
            worker_id, timestamp = int(fields["workerID"]), int(fields.get("maxTimestamp", "-1"))
    is_sound = type(worker_id) is int and worker_id >= 0 and type(timestamp) is int
    if not is_sound or not -1 <= timestamp < MAX_MS:
        raise CorruptMachineStateError(STORE, place=path, found=repr(text), expected=EXPECTED)
    return worker_id, timestamp


def record_of_leaf(directory: Path, offline: float) -> RestartRecord | None:
    """Return an address's record from the file that the fork's ``zk_normal`` left; blocks.

    It returns None if the file proves nothing: Leaf's own file has no time, and Leaf servers that
    start at the same time on an empty registry all take number 0.

    Args:
        directory: the directory of the file.
        offline: seconds for which ids may be issued based on the record.

    Raises:
        CorruptMachineStateError: the file is damaged.
        StoreError: the file cannot be read.
    """
    path = directory / PROPERTIES
    text = read_text(path)
    number, last_ms = (0, -1) if text is None else read_file(str(path), PROPERTIES, text)
    if number == 0 or number >> WORKER_BITS or last_ms < 0:
        return None
    now_ms = SYSTEM_CLOCK.now_ms()
    return unconfirmed_record(number, WORKER_BITS, last_ms=last_ms, now_ms=now_ms, offline=offline)


def leave_to_leaf(directory: Path, address: LeafAddress, worker_id: int, until_ms: int) -> None:
    """Replace the file with which a Leaf node starts if ZooKeeper does not answer; blocks.

    Leaf reads the number.  The fork also reads the time: it fails without one, and waits until it
    has passed.

    Args:
        directory: the directory of the file.
        address: the address of the node.
        worker_id: its number in ZooKeeper.
        until_ms: the time up to which ids may be issued.

    Raises:
        StoreError: the file cannot be written.
    """
    write_text(directory / PROPERTIES, written(PROPERTIES, address, worker_id, until_ms))


def written(name: str, address: LeafAddress, worker_id: int, timestamp: int) -> str:
    """Return the text of a file, in the file's own format."""
    if name == PROPERTIES:
        return f"workerID={worker_id}\nmaxTimestamp={timestamp}\n"
    fields = {"ip": address.ip, "port": address.port, "workId": worker_id, "timestamp": timestamp}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
