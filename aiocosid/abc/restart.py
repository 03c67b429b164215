"""What an instance keeps on its machine for its next start: the record, and where it is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, Self

from .checks import MAX_MS

__all__ = ("VOID", "Found", "RestartPlace", "RestartRecord")

DIGEST: Final = 16
"""Characters of the checksum in front of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """The bound of all ids that an instance issues before its next renewal.

    Attributes:
        renewal: names the renewal in the store, as `MachineSlot.renewal_of` does; several names
            are separated by ``|`` if each may be the last one because answers were lost.
        lock: names the lock file that the instance holds.
        boot: names the boot of the machine.
        boot_ms: the boot clock when the bound was set, milliseconds.
        bound_ms: the wall clock at that time, or the latest time of an earlier id of this instance,
            or the latest time that may be borrowed; unix milliseconds.
        floor_ms: no id of an earlier owner has a later time, unix milliseconds.
        until_ms: no id has a later time before the next record is written, unix milliseconds; -1
            if the instance may not start without its store.  Then the next three are unset, too.
        fence_ms: the fence that the store has confirmed, unix milliseconds.
        machine_id: the machine id.
        bits: its width.
    """

    renewal: str
    boot_ms: int
    bound_ms: int
    floor_ms: int
    until_ms: int = -1
    fence_ms: int = -1
    machine_id: int = -1
    bits: int = 0
    lock: str = ""
    boot: str = ""

    def text(self) -> str:
        """Return the record as it is stored: a checksum and JSON."""
        facts = json.dumps(asdict(self), separators=(",", ":"))
        return f"{_digest(facts)} {facts}\n"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse what `text` returned; return None for anything else."""
        digest, _, facts = text.removesuffix("\n").partition(" ")
        if digest != _digest(facts):
            return None
        found: Any = json.loads(facts)
        record = cls(**found)
        lowest = record.floor_ms, record.until_ms, record.fence_ms
        times = record.boot_ms, record.bound_ms, *(each + 1 for each in lowest)
        is_time = all(0 <= each <= MAX_MS for each in times)
        return record if is_time else None


VOID: Final = RestartRecord(renewal="", boot_ms=0, bound_ms=0, floor_ms=-1, until_ms=0)
"""Proves nothing: its writer has lost the machine id.  Ids must be above its floor, if any."""


def _digest(facts: str) -> str:
    return hashlib.sha256(facts.encode()).hexdigest()[:DIGEST]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a starting process finds on its machine.

    Attributes:
        record: the record that was stored last, or None.
        lock: names the lock file that the process holds now; empty if another process holds it.
        boot: names the boot of the machine; empty if it cannot be identified.
        boot_ms: the boot clock, read once the lock was held, milliseconds.
    """

    record: RestartRecord | None = None
    lock: str = ""
    boot: str = ""
    boot_ms: int = 0


class RestartPlace(Protocol):
    """Keeps the record of one instance; on a disk it is a `RestartFile`.

    Attributes:
        former: names the last renewal that the store is known to have, apart from a call of this
            process that took the id and lost its answer; None before the store was read.  The
            distributor sets it.
        renewal: names the last renewal of this process; the distributor sets it.
        found: what the process finds on its machine; the lease sets it.
        offline: seconds without the store for which ids may be issued; 0 for a usual lease.
        written: the last record of this process, or None.
    """

    written: RestartRecord | None
    former: str | None
    renewal: str
    found: Found | None
    offline: float

    def boot_ms(self) -> int:
        """Return the boot clock in milliseconds; never waits."""
        raise NotImplementedError

    async def take(self) -> Found:
        """Lock the place, and return what is there; the lock is empty if another process holds it.

        Raises:
            StoreError: a file cannot be read or created.
        """
        raise NotImplementedError

    async def write(self, record: RestartRecord) -> bool:
        """Replace the record, if the lock is held or can be taken; return whether it was replaced.

        Args:
            record: without the names of lock and boot, which the place adds.

        Raises:
            StoreError: a file cannot be written.
        """
        raise NotImplementedError

    async def leave(self) -> None:
        """Unlock the place; the record stays."""
        raise NotImplementedError
