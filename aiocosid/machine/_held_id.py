"""A machine id held by a lock of the operating system, and its files.

Everything here blocks: `ManualMachineIdDistributor` calls it in worker threads.  A call may still
run after its caller was cancelled and has requested something else; the counters `takings` and
`leavings` void such a late call.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from .._life import fork
from ..abc import MAX_ID
from ..abc.checks import MAX_MACHINE_BITS
from ..abc.machines import WIDTH_EXPECTED, check_same_bits
from ..errors import (
    ClosedError,
    CorruptMachineStateError,
    InvalidArgumentError,
    MachineIdLostError,
)
from .files import STORE, LockFile, create_text, read_text, remove, write_text

if TYPE_CHECKING:
    from pathlib import Path

    from ..abc import InstanceId

__all__ = ("NOT_FOUND", "HeldId", "MachineState", "StateFiles")

MAX_NAMESPACE: Final = 150
"""Bytes of a namespace in a file name; a longer namespace is hashed."""

WIDTHS: Final = {str(bits) for bits in range(1, MAX_MACHINE_BITS + 1)}


class HeldId:
    """The lock, the fence and, for a stable instance, CosId's state file of one machine id.

    The fence is in a file of its own, because a Java peer refuses to start if the stamp of its
    state file is more than half a second ahead.

    Attributes:
        takings: how often the id was requested; a release that was requested before the last time
            is void.
        leavings: how often the id was released or closed; a request from before the last time is
            void.
    """

    __slots__ = (
        *("__weakref__", "_bits_path", "_floor_ms", "_instance_id", "_lock", "_machine_id"),
        *("_mark_ms", "_fence_path", "_mutex", "_namespace", "_state", "_states"),
        *("leavings", "takings"),
    )

    def __init__(
        self, *, namespace: str, machine_id: int, instance_id: InstanceId, directory: Path
    ) -> None:
        self._namespace = namespace
        self._machine_id = machine_id
        self._instance_id = instance_id
        of_namespace = f"aiocosid.{_file_name_part(namespace)}"
        key = f"{of_namespace}.{machine_id}"
        self._bits_path = directory / f"{of_namespace}.bits"
        self._lock = LockFile(directory / f"{key}.lock")
        self._fence_path = directory / f"{key}.mark"
        self._states = StateFiles(directory)
        self._state = MachineState(machine_id, -1)
        self._mark_ms = self._floor_ms = -1
        self._mutex = Lock()
        self.takings = self.leavings = 0
        fork.watch(self)

    def take(self, bits: int, now_ms: int, *, leavings: int) -> int:
        """Lock the id unless this object holds it; return the time that its ids must be above.

        Raises:
            ClosedError: the id was released or closed after this call was requested.
            MachineBitsMismatchError: the namespace has another width; nothing was written.
            MachineIdInUseError: another object or process holds it.
            StoreError: a file cannot be read or written, or is damaged.
        """
        with self._mutex:
            if leavings != self.leavings:
                raise ClosedError(self._label())
            has_width = self._has_width(bits)
            if not self._lock.is_held:
                self._lock.acquire(self._label())
                try:
                    self._read()
                    if not has_width:
                        self._note_width(bits)
                    self._show(now_ms)
                except BaseException:
                    self._lock.release()
                    raise
            # The lock may have been held already, and ids up to the fence issued meanwhile.
            self._floor_ms = max(self._floor_ms, self._mark_ms)
            return self._floor_ms

    def renew(self, now_ms: int, fence_ms: int) -> None:
        """Raise the fence, and the stamp that CosId reads.

        Raises:
            MachineIdLostError: this object does not hold the id.
            StoreError: a file cannot be written.
        """
        with self._mutex:
            if not self._lock.is_held:
                raise self._lost("this object does not hold its lock")
            if not self._lock.is_intact():
                raise self._lost(f"its lock file {self._lock.path} was removed")
            if fence_ms > self._mark_ms:
                self._write_mark(fence_ms)
            self._show(now_ms)

    def give_back(self, last_ms: int, *, takings: int) -> None:
        """Lower the fence to the time of the last id, and unlock; do nothing if it is not held.

        The stamp that CosId reads is raised to that time.

        Raises:
            StoreError: a file cannot be written; the id is unlocked anyway.
        """
        with self._mutex:
            if not self._lock.is_held or takings != self.takings:
                return
            try:
                if last_ms >= 0 and self._lock.is_intact():
                    # Not below the former owner's last time, since our own ids are above it.
                    last_ms = max(last_ms, self._floor_ms)
                    self._show(last_ms)  # first: CosId ignores the fence, and ids may be borrowed
                    self._write_mark(last_ms)
            finally:
                self._lock.release()

    def release(self, *, takings: int) -> None:
        """Unlock the id, and leave the fence as it is."""
        with self._mutex:
            if takings == self.takings:
                self._lock.release()

    def _forget(self) -> None:
        self._lock.abandon()  # in a forked child, without the mutex: a thread may have held it

    def _has_width(self, bits: int) -> bool:
        """Whether the directory has a width for the namespace; raise if it is a different one."""
        text = read_text(self._bits_path)
        if text is None:
            return False
        if text not in WIDTHS:
            place, found = str(self._bits_path), repr(text[:60])
            raise CorruptMachineStateError(STORE, place=place, found=found, expected=WIDTH_EXPECTED)
        remedy = f"remove {self._bits_path}"
        check_same_bits(self._namespace, bits, int(text), remedy=remedy)
        return True

    def _note_width(self, bits: int) -> None:
        if not create_text(self._bits_path, str(bits)):
            self._has_width(bits)  # another process was faster

    def _read(self) -> None:
        self._mark_ms = self._read_mark()
        self._state = MachineState(self._machine_id, -1)
        if self._instance_id.stable:
            state = self._states.get(self._namespace, self._instance_id)
            if state.machine_id == self._machine_id:  # otherwise the id was changed since
                self._state = state
        self._floor_ms = max(self._mark_ms, self._state.last_timestamp_ms)

    def _read_mark(self) -> int:
        text = read_text(self._fence_path)
        if text is None:
            return -1
        try:
            # The text ends with a line break.  A file that was cut short has none, and its fence
            # would be too low.
            mark = MachineState.parse(text.removesuffix("\n")) if text.endswith("\n") else None
        except InvalidArgumentError:
            mark = None
        if mark is None or mark.machine_id != self._machine_id:
            place, found = str(self._fence_path), repr(text[:60])
            raise CorruptMachineStateError(STORE, place=place, found=found)
        return mark.last_timestamp_ms

    def _write_mark(self, fence_ms: int) -> None:
        write_text(self._fence_path, f"{MachineState(self._machine_id, fence_ms)}\n")
        self._mark_ms = fence_ms

    def _show(self, now_ms: int) -> None:
        """Write the state file that CosId keeps for a stable instance; its time never goes back."""
        if self._instance_id.stable and now_ms > self._state.last_timestamp_ms:
            state = MachineState(self._machine_id, now_ms)
            self._states.set(self._namespace, self._instance_id, state)
            self._state = state

    def _label(self) -> str:
        return f"machine id {self._machine_id} of namespace {self._namespace!r}"

    def _lost(self, reason: str) -> MachineIdLostError:
        return MachineIdLostError(self._namespace, self._machine_id, reason=reason)


def _file_name_part(namespace: str) -> str:
    part = url_base64(namespace)
    if len(part) <= MAX_NAMESPACE:
        return part
    return hashlib.sha256(namespace.encode()).hexdigest()


# What an instance stores about its machine id from one process to the next.

MAX_FILE_NAME: Final = 255
"""Bytes, on nearly every file system."""


class StateFiles:
    """One small file per instance, with the names and in the format of CosId on Java.

    Unlike CosId's, a file is replaced atomically, so a crash leaves no partial file.  It is read to
    its end, and a second line counts as damage.  An empty file, which CosId may leave in a crash,
    counts as no file.  The methods block, so call them in worker threads.
    """

    __slots__ = ("directory",)

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, namespace: str, instance_id: InstanceId) -> MachineState:
        """Read the file, or CosId's older one, whose name has no stable flag; or `NOT_FOUND`.

        Raises:
            CorruptMachineStateError: what is stored is damaged.
            StoreError: it cannot be read.
        """
        path = self.path(namespace, instance_id)
        text = read_text(path)
        if text is None and (legacy := self._legacy(namespace, instance_id)) is not None:
            path, text = legacy, read_text(legacy)
        return NOT_FOUND if text is None else _parsed(path, text)

    def set(self, namespace: str, instance_id: InstanceId, state: MachineState) -> None:
        """Replace the file, and remove the older one.

        Raises:
            InvalidArgumentError: the state is `NOT_FOUND`.
            StoreError: it cannot be written.
        """
        write_text(self.path(namespace, instance_id), str(_worth_keeping(state)))
        self._remove_legacy(namespace, instance_id)

    def remove(self, namespace: str, instance_id: InstanceId) -> None:
        """Remove the file, and the older one."""
        remove(self.path(namespace, instance_id))
        self._remove_legacy(namespace, instance_id)

    def path(self, namespace: str, instance_id: InstanceId) -> Path:
        """Return the path: ``v2.NAMESPACE.INSTANCE.STABLE``, the first two parts in base64."""
        words = (url_base64(namespace), url_base64(instance_id.text))
        return self.directory / ".".join(["v2", *words, str(instance_id.stable).lower()])

    def _remove_legacy(self, namespace: str, instance_id: InstanceId) -> None:
        if (legacy := self._legacy(namespace, instance_id)) is not None:
            remove(legacy)

    def _legacy(self, namespace: str, instance_id: InstanceId) -> Path | None:
        name = b64encode(f"{namespace}__{instance_id.text}".encode()).decode()
        # CosId uses plain base64 here, so it could never write a name that contains a slash.
        return None if "/" in name or len(name) > MAX_FILE_NAME else self.directory / name


def url_base64(text: str) -> str:
    """Return a text as in CosId's file names: base64 for URLs, without padding."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parsed(path: Path, text: str) -> MachineState:
    line = text.removesuffix("\n").removesuffix("\r")
    if not line:
        return NOT_FOUND
    try:
        return MachineState.parse(line)
    except InvalidArgumentError:
        found = repr(text[:60])
        raise CorruptMachineStateError(STORE, place=str(path), found=found) from None


def _worth_keeping(state: MachineState) -> MachineState:
    if state.machine_id < 0:
        raise InvalidArgumentError("state", state, "must have a machine_id of at least 0")
    return state


MAX_MACHINE_ID: Final = 2**MAX_MACHINE_BITS - 1

TEXT: Final = re.compile(r"([+-]?[0-9]{1,20})\|([+-]?[0-9]{1,20})")
"""What Java's ``Integer.parseInt`` and ``Long.parseLong`` accept, except forms that no program
writes.
"""


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine id as it is stored.

    Two states are equal only if both numbers are, unlike CosId's.

    Attributes:
        machine_id: the number, or -1 where there is none.
        last_timestamp_ms: the owner's last renewal, unix time in milliseconds, or -1.
    """

    machine_id: int
    last_timestamp_ms: int

    def __str__(self) -> str:
        """Write it as CosId does: ``machine_id|last_timestamp_ms``."""
        return f"{self.machine_id}|{self.last_timestamp_ms}"

    @classmethod
    def parse(cls, text: str) -> MachineState:
        """Read ``machine_id|last_timestamp_ms``.

        Raises:
            InvalidArgumentError: the text is anything else; its ``value`` is what was found.
        """
        found = TEXT.fullmatch(text)
        numbers = (int(found[1]), int(found[2])) if found else (-2, -2)
        if not (-1 <= numbers[0] <= MAX_MACHINE_ID and -1 <= numbers[1] <= MAX_ID):
            raise InvalidArgumentError("machine state", text, "must be machine_id|timestamp_ms")
        return cls(*numbers)


NOT_FOUND: Final = MachineState(-1, -1)
"""No state is stored; CosId's ``MachineState.NOT_FOUND``."""
