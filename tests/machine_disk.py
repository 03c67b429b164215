"""A machine's disk and boot clock in memory, for instances that keep a restart record there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from aiocosid.abc.restart import VOID, Found, RestartRecord


@dataclass
class Disk:
    """What the processes of one machine share.

    Attributes:
        monotonic: seconds that the machine runs; they go on while a process is stopped.
        boot: the name of the boot.
        text: the record as it is stored.
        holder: tells whether the process that locked the file runs; None if nobody did.
        lock: the number of the lock file.
        is_lost: whether writes fail.
        behind: seconds that the boot clock is behind ``monotonic``.
    """

    monotonic: Callable[[], float]
    boot: str = "boot-1"
    text: str = ""
    holder: Callable[[], bool] | None = None
    lock: int = 1
    is_lost: bool = False
    behind: float = -10_000.0
    files: count[int] = field(default_factory=lambda: count(2))

    @property
    def is_locked(self) -> bool:
        return self.holder is not None and self.holder()

    def remove_lock(self) -> None:
        """Remove the lock file; the next process locks another one."""
        self.lock, self.holder = next(self.files), None

    def boot_anew(self) -> None:
        """Restart the machine."""
        self.boot, self.holder = f"boot-{next(self.files)}", None


class MemoryPlace:
    """A `RestartPlace` on a disk, for one process.

    Args:
        disk: the machine's.
        is_alive: tells whether the process runs.
        offline: seconds without the store for which ids may be issued.
        inherit: returns what another system has left.
    """

    def __init__(
        self,
        disk: Disk,
        is_alive: Callable[[], bool],
        offline: float = 0.0,
        inherit: Callable[[], RestartRecord | None] = lambda: None,
    ) -> None:
        self._inherit = inherit
        self.written: RestartRecord | None = None
        self.former: str | None = None
        self.renewal = ""
        self.found: Found | None = None
        self.offline = offline
        self._disk, self._is_alive = disk, is_alive
        self._lock = 0

    def boot_ms(self) -> int:
        return int((self._disk.monotonic() - self._disk.behind) * 1000)

    async def take(self) -> Found:
        was_held, is_locked, text = bool(self._lock), self._has_lock(), self._disk.text
        record = self._inherit() if is_locked and not text else None
        if text:
            record = RestartRecord.read(text) or VOID
        lock, boot = f"file {self._lock}" if is_locked else "", "" if was_held else self._disk.boot
        return Found(record=record, lock=lock, boot=boot, boot_ms=self.boot_ms())

    async def write(self, record: RestartRecord) -> bool:
        if self._disk.is_lost or not self._has_lock():
            return False
        named = replace(record, lock=f"file {self._lock}", boot=self._disk.boot)
        self._disk.text = named.text()
        self.written = record
        return True

    async def leave(self) -> None:
        if self._lock == self._disk.lock and self._disk.holder is self._is_alive:
            self._disk.holder = None
        self._lock, self.former = 0, None

    def _has_lock(self) -> bool:
        disk = self._disk
        if disk.is_locked and disk.holder is not self._is_alive:
            return False
        if not disk.is_locked:
            disk.holder, self._lock = self._is_alive, disk.lock
        return self._lock == disk.lock
