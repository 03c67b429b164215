"""A history of one process: every call, every lease, with their times; for tests/evidence/check.py.

What the lines mean is written there, because whoever checks them needs no other file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from aiocosid.abc import IdGenerator
from aiocosid.abc.events import Event, MachineIdGuarded, SegmentFetched
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeLayout

HISTORY: Final = ".jsonl"
TAIL: Final = 1 << 16  # bytes of a history, more than its last call has

Run: TypeAlias = tuple[int, int]


def runs_of(ids: Sequence[int]) -> list[Run]:
    """Return the same ids in the same order, as runs of consecutive ones."""
    runs: list[Run] = []
    _gather(ids, 0, len(ids), runs)
    return runs


def _gather(ids: Sequence[int], start: int, end: int, runs: list[Run]) -> None:
    """Append the runs of a slice: at once if it is one, else half by half."""
    if end - start == 1:
        one, last = True, ids[start]
    else:
        last = ids[start] + end - start - 1
        # The ends alone would not see what is wrong between them.
        one = ids[end - 1] == last and list(range(ids[start], last + 1)) == ids[start:end]
    if not one:
        middle = (start + end) // 2
        _gather(ids, start, middle, runs)
        _gather(ids, middle, end, runs)
    elif runs and runs[-1][1] + 1 == ids[start]:
        runs[-1] = (runs[-1][0], last)
    else:
        runs.append((ids[start], last))


def last_call(path: Path) -> list[Any]:
    """Return the last call of a history, as it is written there; one of no ids if it has none."""
    if path.exists():
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            for line in reversed(file.read().splitlines(keepends=True)):
                if line.startswith(b'["call"') and line.endswith(b"\n"):
                    found: list[Any] = json.loads(line)
                    return found
    return ["call", 0, 0, 0]


class History:
    """A file of lines, each written at once and before its ids are used.

    A kill -9 loses at most the one being written.  Ids that were not written were not used.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def put(self, line: object) -> None:
        """Append a line; an OSError leaves nothing of it."""
        data = f"{json.dumps(line, separators=(',', ':'))}\n".encode()
        before = os.fstat(self._file).st_size
        if os.write(self._file, data) != len(data):
            os.ftruncate(self._file, before)
            raise OSError("a line was not written")

    def happened(self, kind: str, *facts: object) -> None:
        """Append something that happens now."""
        self.put([kind, time.monotonic_ns(), time.time_ns() // 1_000_000, *facts])

    def called(self, begin: int, runs: list[Run]) -> None:
        """Append a call that ends now, and its ids."""
        end, wall = time.monotonic_ns(), time.time_ns() // 1_000_000
        self.put(["call", begin, end, wall, *(end for run in runs for end in run)])


class RecordedGenerator:
    """A generator whose calls and leases are written down, before a caller gets the ids.

    Made before the generator is opened, for what is leased meanwhile; `is_open` says that it is.

    Attributes:
        taken: how many ids it has given.
    """

    def __init__(self, history: History, layout: SnowflakeLayout, *, leased: bool) -> None:
        self._history = history
        self._layout = layout
        self._inner: IdGenerator | None = None
        self._lease: MachineIdLease | None = None
        self._early: list[SegmentFetched] = []
        self._highest = self.taken = 0
        self._marks: dict[int, int] = {}  # of machine ids: up to when they are ours
        self._is_over = not leased  # nothing is written of leases any more

    def is_open(self, inner: IdGenerator, lease: MachineIdLease | None) -> None:
        """Begin to take ids of a generator that is open, and of its lease if it has one."""
        self._inner, self._lease = inner, lease
        for event in self._early:
            self.on_event(event)
        if lease is not None and lease.limit_ms() >= 0:
            self._leased_until(lease, lease.limit_ms())

    async def next_id(self) -> int:
        """Take one id."""
        begin = time.monotonic_ns()
        taken = await self._opened.next_id()
        self._called(begin, [(taken, taken)])
        return taken

    async def next_ids(self, n: int) -> list[int]:
        """Take several ids."""
        begin = time.monotonic_ns()
        taken = await self._opened.next_ids(n)
        self._called(begin, runs_of(taken))
        return taken

    def next_id_nowait(self) -> int:
        """Take one id without waiting."""
        begin = time.monotonic_ns()
        taken = self._opened.next_id_nowait()
        self._called(begin, [(taken, taken)])
        return taken

    @property
    def _opened(self) -> IdGenerator:
        assert self._inner is not None
        return self._inner

    def _called(self, begin: int, runs: list[Run]) -> None:
        self._history.called(begin, runs)
        self.taken += sum(last - first + 1 for first, last in runs)
        self._highest = max(self._highest, runs[-1][1])

    def on_event(self, event: Event) -> None:
        """Write down what the store has granted."""
        if self._is_over:
            return  # what comes now is used by nobody
        if self._inner is None:
            self._early += [event] if isinstance(event, SegmentFetched) else []
        elif isinstance(event, SegmentFetched):
            self._history.happened("lease", 0, event.max_id - event.count + 1, event.max_id)
        elif isinstance(event, MachineIdGuarded) and self._lease is not None:
            self._leased_until(self._lease, event.fence_ms)

    def _leased_until(self, lease: MachineIdLease, fence_ms: int) -> None:
        machine_id = lease.machine_id
        first_ms = max(lease.floor_ms + 1, lease.taken_ms, self._marks.get(machine_id, -1) + 1)
        if first_ms <= fence_ms:
            self._history.happened("lease", machine_id, first_ms, fence_ms)
            self._marks[machine_id] = fence_ms

    def end(self) -> None:
        """Write down that a machine id is the store's again; before the generator is closed.

        Whether the store takes it or not, and learns of it or not: it is not ours from now on.
        """
        if self._is_over:
            return
        self._is_over = True
        if self._lease is not None and (machine_id := self._lease.machine_id) >= 0:
            last = self._layout.parse(self._highest)
            first_ms = last.timestamp_ms + 1 if last.machine_id == machine_id else 0
            self._history.happened("return", machine_id, first_ms)
