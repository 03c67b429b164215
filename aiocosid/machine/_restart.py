"""Whether a stable instance that was killed may begin before its time mark has passed.

An instance writes a record to its machine's disk after each renewal.  Its successor begins above
the record's bound, instead of above the time mark in the store, if four things hold:

* the record is of the last renewal that the store has: no later owner, and no later bound;
* the successor holds the very lock file that the writer of the record held: that process has ended;
* the machine was not booted since, so that both read one boot clock;
* the boot clock has not gone back, as it does when a machine is restored from a snapshot.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from .cells import MAX_MS

if TYPE_CHECKING:
    from .cells import Seat

__all__ = ("Found", "RestartRecord", "early_floor_ms", "latest_ms", "renewal_of")

MARGIN_MS: Final = 1000
"""Milliseconds that ids may be above the bound: the wall clock may be corrected by small steps."""

DIGEST: Final = 16
"""Characters of the checksum in front of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """The bound of all ids that an instance issues before its next renewal.

    Attributes:
        renewal: names the renewal in the store, as `renewal_of` does.
        lock: names the lock file that the instance holds.
        boot: names the boot of the machine.
        boot_ms: the boot clock when the bound was set, milliseconds.
        bound_ms: the wall clock at that time, or the latest time of an earlier id of this instance,
            or the latest one that may be borrowed; unix milliseconds.
        floor_ms: no id of an earlier owner has a later time, unix milliseconds.
    """

    renewal: str
    boot_ms: int
    bound_ms: int
    floor_ms: int
    lock: str = ""
    boot: str = ""

    def text(self) -> str:
        """Return the record as it is stored: a checksum and JSON."""
        facts = json.dumps(asdict(self), separators=(",", ":"))
        return f"{_digest(facts)} {facts}\n"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse what `text` returned; None for anything else."""
        digest, _, facts = text.removesuffix("\n").partition(" ")
        if digest != _digest(facts):
            return None
        found: Any = json.loads(facts)
        record = cls(**found)
        times = record.boot_ms, record.bound_ms, record.floor_ms + 1
        is_time = all(0 <= each <= MAX_MS for each in times)
        return record if is_time else None


def _digest(facts: str) -> str:
    return hashlib.sha256(facts.encode()).hexdigest()[:DIGEST]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a starting process finds on its machine.

    Attributes:
        record: the record that was stored last, or None.
        lock: names the lock file that the process holds now; empty if another one holds it.
        boot: names the boot of the machine; empty if it has none that can be told.
        boot_ms: the boot clock, read once the lock was held, milliseconds.
    """

    record: RestartRecord | None = None
    lock: str = ""
    boot: str = ""
    boot_ms: int = 0


def latest_ms(bound_ms: int, since_ms: int) -> int:
    """Return the latest time that ids may have so many milliseconds after a bound was set."""
    return bound_ms + since_ms + MARGIN_MS


def renewal_of(seat: Seat | None, instance: str) -> str:
    """Return the name of the last write to a machine id; empty if it is not the instance's.

    It differs after each renewal, each new owner, and each write by CosId.
    """
    note = seat.note if seat is not None else None
    if seat is None or note is None or not note.token or note.instance != instance:
        return ""
    if [each.instance for each in seat.owners] != [instance]:
        return ""
    return f"{note.token} {note.turn} {seat.stamp_ms}"


def early_floor_ms(found: Found, former: str) -> int | None:
    """Return the time that ids have to be above if the record proves it; else None.

    Args:
        found: what the process finds on its machine.
        former: names the store's last renewal before this process took the id.
    """
    record = found.record
    if record is None or not (former and found.lock and found.boot):
        return None
    is_last = record.renewal == former
    is_over = record.lock == found.lock
    is_same_boot = record.boot == found.boot and record.boot_ms <= found.boot_ms
    if not (is_last and is_over and is_same_boot):
        return None
    # Both readings are rounded down.
    since_ms = found.boot_ms + 1 - record.boot_ms
    return max(record.floor_ms, latest_ms(record.bound_ms, since_ms))
