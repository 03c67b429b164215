"""The record that a stable instance keeps on its machine, to begin early after a crash."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from .._life import fork
from .._life.clock import boot_ms
from ..abc.checks import check_seconds, check_text
from ..abc.restart import VOID, Found, RestartPlace, RestartRecord
from ..errors import InvalidArgumentError, MachineIdInUseError, StoreError
from .files import LockFile, in_thread, read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc.leases import RestartOptions

__all__ = ("RestartFile", "RestartPlace", "restart_file")

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
OFFSETS: Final = Path("/proc/self/timens_offsets")
"""How far the boot clock of this time namespace is from the machine's; absent on old kernels."""

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class RestartFile:
    """A record and a lock file, both named after store, namespace and instance.

    The lock file is never replaced or removed, and the record names it.  If a user removes it while
    its owner runs, a second process locks a new file, whose name differs from the record's.

    Attributes:
        former: see `RestartPlace`.
        renewal: see `RestartPlace`.
        found: see `RestartPlace`.
        offline: see `RestartPlace`.
        written: see `RestartPlace`.
    """

    __slots__ = (
        *("__weakref__", "_boot", "_calls", "_inherit", "_lock", "_mutex", "_path"),
        *("former", "found", "offline", "renewal", "written"),
    )

    def __init__(
        self,
        directory: Path,
        *,
        store: str,
        namespace: str,
        instance: str,
        offline: float = 0.0,
        inherit: Callable[[], RestartRecord | None] = lambda: None,
    ) -> None:
        """Set the paths of the files; nothing is read yet.

        Args:
            directory: the directory of the files.
            store: names the store.
            namespace: the namespace of the instance.
            instance: the instance.
            offline: see `RestartPlace`.
            inherit: returns what another system has left; called in a worker thread, where there
                was never a record.
        """
        self.offline: float = offline
        self._inherit = inherit
        key = hashlib.sha256(f"{store}\0{namespace}\0{instance}".encode()).hexdigest()[:32]
        self.written: RestartRecord | None = None
        self.former: str | None = None
        self.renewal: str = ""
        self.found: Found | None = None
        self._path = directory / f"aiocosid.{key}.restart"
        self._lock = LockFile(directory / f"aiocosid.{key}.restart.lock")
        self._boot = ""
        self._mutex = Lock()
        self._calls = 0  # of write and leave; a thread of an earlier call does nothing
        fork.watch(self)

    def boot_ms(self) -> int:
        """Return the operating system's boot clock in milliseconds."""
        return boot_ms()

    async def take(self) -> Found:
        """Lock the files, and read the record and the clock; see `RestartPlace.take`."""
        return await in_thread(partial(self._take, self._calls))

    async def write(self, record: RestartRecord) -> bool:
        """Replace the record; see `RestartPlace.write`.  A cancelled call may have done so.

        It never does so after a later call: the older record may be below ids issued since.
        """
        self._calls += 1
        return await in_thread(partial(self._write, self._calls, record))

    async def leave(self) -> None:
        """Unlock the files; a call that is still running in a thread becomes void."""
        self._calls += 1
        self.written = self.former = None
        await in_thread(self._release)

    def _take(self, call: int) -> Found:
        with self._mutex:
            # If an earlier opening in this process was not closed, the lock is still held.  Then,
            # as after a reboot, it is unknown for how long that opening issued ids.
            was_held, is_locked = self._lock.is_held, self._is_locked(call)
            text = read_text(self._path)
            record = self._inherit() if text is None and is_locked else None
            if text is not None:
                # Even a damaged record shows that ids were issued since another system left.
                record = RestartRecord.read(text) or VOID
            return Found(
                record=record,
                lock=self._lock.name() if is_locked else "",
                boot="" if was_held else self._boot,
                boot_ms=boot_ms(),
            )

    def _write(self, call: int, record: RestartRecord) -> bool:
        if not self._mutex.acquire(blocking=False):
            return False  # a hanging disk blocks one thread, not one for each renewal
        try:
            if not self._is_locked(call) or not (self._boot or record.until_ms >= 0):
                return False
            named = replace(record, lock=self._lock.name(), boot=self._boot)
            write_text(self._path, named.text())
            # If the lock file was removed meanwhile, another process may have read the old record.
            is_there = self._lock.is_intact()
            self.written = record if is_there else None
            return is_there
        finally:
            self._mutex.release()

    def _is_locked(self, call: int) -> bool:
        """Lock the file unless it is held; return whether it is held, and still at its path."""
        if call != self._calls:
            return False
        if self._lock.is_held and not self._lock.is_intact():
            self._lock.release()  # a user has removed the file
        if not self._lock.is_held:
            try:
                self._lock.acquire(str(self._path))
            except MachineIdInUseError:
                return False
            self._boot = _boot_name()
        return True

    def _release(self) -> None:
        with self._mutex:
            self._lock.release()

    def _forget(self) -> None:
        self._lock.abandon()  # in a forked child, whose parent holds the lock
        self._mutex = Lock()  # a thread of the parent may have held the old one
        self.written = None


def restart_file(
    options: RestartOptions,
    *,
    interval: float,
    store: str,
    address: str,
    namespace: str,
    instance: str,
    inherit: Callable[[], RestartRecord | None] = lambda: None,
) -> RestartFile | None:
    """Return where an instance keeps its record; None without a ``state_dir``.

    Args:
        options: the directory, and how long the instance may be without the store.
        interval: seconds between two renewals.
        store: the kind of store.
        address: where it is; empty for a user's client, which may be another one next time.
        namespace: the namespace of the instance.
        instance: the instance.
        inherit: see `RestartFile`.

    Raises:
        InvalidArgumentError: ``offline`` is outside its range, or what it needs is missing; or
            ``state_dir`` is empty.
    """
    state_dir, offline = options.state_dir, options.offline
    if state_dir is not None:
        check_text("state_dir", os.fspath(state_dir))
    check_seconds("offline", offline, or_zero=True)
    if offline and (state_dir is None or offline <= interval):
        rule = f"requires a state_dir, and must be longer than the interval of {interval:g} s"
        raise InvalidArgumentError("offline", offline, rule)
    if offline and not address:  # the id may be another instance's in another store
        rule = (
            "must be 0 with a client of your own, which does not identify the store; connect with "
            "a URL instead"
        )
        raise InvalidArgumentError("offline", offline, rule)
    if state_dir is None:
        return None
    return RestartFile(
        Path(state_dir),
        store=f"{store} {address}",
        namespace=namespace,
        instance=instance,
        offline=offline,
        inherit=inherit,
    )


def _boot_name() -> str:
    """Return a name for this boot and the clock that counts its time; empty if there is none."""
    boot_id = (_system_text(BOOT_ID) or "").strip()
    offsets = _system_text(OFFSETS) or ""
    return " ".join([boot_id, *offsets.split()]) if UUID.fullmatch(boot_id) else ""


def _system_text(path: Path) -> str | None:
    try:
        return read_text(path)
    except StoreError:  # the file is hidden in this container
        return None
