"""Leaf's registry without a server: the fork's mode ``local``, a map and a file."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import unquote

from ... import _fork
from ...abc import InstanceId, MachineGrant
from ...errors import InvalidArgumentError, StoreError
from ...machine import ManualMachineIdDistributor
from ...machine._files import read_text, write_text
from ...machine._storage import in_thread
from .._worker_store import WorkerIdStore
from ._place import WORKER_IDS_ALONE, Place, check_leaf_name, split_url
from ._stamped import INTERVAL
from ._state_file import JSON, PROPERTIES, STORE, WorkerIdFile, read_file, written

if TYPE_CHECKING:
    import os

    from ...abc import MachineIdDistributor

__all__ = ("LeafLocalMachineIdDistributor", "LeafLocalStore")

SCHEME: Final = "leaf-local"


class LeafLocalMachineIdDistributor(ManualMachineIdDistributor):
    """The worker id of an address in ``leaf.snowflake.local.workIdMap``, with Leaf's state file.

    The map counts.  A file that names another number is an error, and not, as in the fork, what
    counts instead.  The file's time is the floor, and is raised every 3 s to the time up to which
    ids may be issued.

    A second process of this ``name`` and host that was given the number gets `MachineIdInUseError`,
    on whatever port; the lock and the mark lie in the directory above the file's.  Nothing is known
    of other hosts: that their maps are equal is for whoever writes them to see to.  Nor does an old
    node lock: stop the one of this address first.
    """

    __slots__ = ("_directory", "_floor_ms", "_place")

    def __init__(
        self,
        work_id_map: Mapping[str, int] | str,
        *,
        name: str,
        ip: str,
        port: int | str,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """Describe who asks; nothing is read or locked yet.

        Args:
            work_id_map: the worker ids of all hosts by ``ip:port``, or the JSON of it; no number
                twice.
            name: Leaf's ``leaf.name``.
            ip: this process's address; none is guessed.
            port: this process's, 1 to 65535; Leaf's ``leaf.snowflake.port``.
            directory: Java's ``java.io.tmpdir``, by default the system's directory for temporary
                files.  That may be emptied when the system starts, and the floor with it.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the map lacks the address.
        """
        place = Place.of(ip, port)
        root = Path(tempfile.gettempdir() if directory is None else directory)
        self._place, self._floor_ms = place, -1
        self._directory = root / check_leaf_name(name) / "leafconf" / place.port
        super().__init__(
            _number_of(work_id_map, place),
            namespace=f"leaf.{name}"[:91],
            instance_id=InstanceId(str(place)),
            state_dir=self._directory.parent,  # of all ports: maps may disagree
            interval=INTERVAL,
        )

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Describe who asks by a URL; see `LeafLocalStore.from_url`.

        Raises:
            InvalidArgumentError: the URL is malformed, or lacks something.
        """
        place, told = split_url(url, SCHEME, ("name", "ip", "port", "map"))
        scheme, _, path = place.partition("://")
        if scheme != "file" or "?" in path:
            expected = f"one that begins with {SCHEME}+file://, and has no other options"
            raise InvalidArgumentError("url", f"{SCHEME}+...", expected=expected)
        told["work_id_map"] = told.pop("map")
        return cls(**told, directory=unquote(path) or None)

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Lock the number, and read the floor.

        Raises:
            InvalidArgumentError: the number does not fit ``bits``.
            MachineIdInUseError: another object or process on this host holds it.
            CorruptMachineStateError: a file is damaged.
            StoreError: a file names another number, or cannot be read or written.
            ForkedError: the number is the parent's.
        """
        grant = await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        try:
            found = await in_thread(self._read_all)
        except StoreError:
            await super().revert(grant.machine_id, last_ms=-1)
            raise
        floors = [each.timestamp for each in found.values()]
        self._floor_ms = max(grant.floor_ms, *floors, -1)
        return MachineGrant(grant.machine_id, self._floor_ms)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Raise the mark, and the time in Leaf's file; neither is lowered by this.

        Raises:
            MachineIdLostError: it is not locked by this object.
            StoreError: a file names another number, or cannot be written.
            ForkedError: the number is the parent's.
        """
        await super().guard(machine_id, now_ms=now_ms, mark_ms=mark_ms)
        await in_thread(partial(self._write_all, max(now_ms, mark_ms), may_lower=False))

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Lower the time to the last that was used, and unlock; nothing if it is not ours.

        Raises:
            StoreError: a file cannot be written.
        """
        if machine_id == self.machine_id and last_ms >= 0 and self._born == _fork.generation:
            least = max(last_ms, self._floor_ms)
            await in_thread(partial(self._write_all, least, may_lower=True))
        await super().revert(machine_id, last_ms=last_ms)

    # In a worker thread, as it blocks.

    def _read_all(self) -> dict[str, WorkerIdFile]:
        found: dict[str, WorkerIdFile] = {}
        for name in (JSON, PROPERTIES):
            path = self._directory / name
            text = read_text(path)
            if text is None:
                continue
            state = found[name] = read_file(str(path), name, text)
            if state.worker_id != self.machine_id:
                reason = (
                    f"{path} names worker id {state.worker_id}, and workIdMap {self.machine_id} "
                    f"for {self._place}; correct the map, or remove the file if nobody uses "
                    f"{state.worker_id} any more"
                )
                raise StoreError(STORE, reason)
        return found

    def _write_all(self, time_ms: int, *, may_lower: bool) -> None:
        """Write the files that there are, or the fork's, if the number is locked."""
        if not self._held._lock.is_intact():
            return
        found = self._read_all() or {JSON: WorkerIdFile(self.machine_id, -1)}
        for name, state in found.items():
            if may_lower or time_ms > state.timestamp:
                text = written(name, self._place, WorkerIdFile(self.machine_id, time_ms))
                write_text(self._directory / name, text)


class LeafLocalStore(WorkerIdStore):
    """A map and a file, as a store of machine ids alone."""

    __slots__ = ()

    _why = WORKER_IDS_ALONE

    def __init__(
        self,
        work_id_map: Mapping[str, int] | str,
        *,
        name: str,
        ip: str,
        port: int | str,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """Describe it; nothing is read yet.

        Args:
            work_id_map: as for `LeafLocalMachineIdDistributor`, and so are the others.
            name: likewise.
            ip: likewise.
            port: likewise.
            directory: likewise.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the map lacks the address.
        """
        machine: MachineIdDistributor = LeafLocalMachineIdDistributor(
            work_id_map, name=name, ip=ip, port=port, directory=directory
        )
        super().__init__(machine)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Describe it by a URL; nothing is read yet.

        Args:
            url: the directory, and the rest in its query, percent-encoded:
                ``leaf-local+file:///tmp?name=shop&ip=10.0.0.1&port=8080&map={"10.0.0.1:8080":1}``.

        Raises:
            InvalidArgumentError: the URL is malformed, or lacks something.
        """
        made = cls.__new__(cls)
        WorkerIdStore.__init__(made, LeafLocalMachineIdDistributor.from_url(url))
        return made


def _number_of(work_id_map: Mapping[str, int] | str, place: Place) -> int:
    """Return the number of an address, if the map is one."""
    found: Any = work_id_map
    if isinstance(found, str):
        try:
            found = json.loads(found, object_pairs_hook=_unique)
        except ValueError:
            found = None
    expected = 'each "ip:port" once with a number from 0 on, and no number twice'
    is_map = isinstance(found, Mapping)
    table = dict(cast("Mapping[Any, Any]", found)) if is_map else {}
    numbers = [each for each in table.values() if type(each) is int and each >= 0]
    keys = [key for key in table if isinstance(key, str) and re.fullmatch(r".+:[0-9]{1,5}", key)]
    if not table or not len({*numbers}) == len(keys) == len(table):
        raise InvalidArgumentError("work_id_map", work_id_map, expected=expected)
    if str(place) not in table:
        expected = f"one that has {str(place)!r}, which is this process"
        raise InvalidArgumentError("work_id_map", work_id_map, expected=expected)
    number: int = table[str(place)]
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)
