"""Whether a stable instance that was killed may begin before its fence, or without its store.

An instance writes a record to its machine's disk with each renewal.  Its successor begins above
the record's bound, instead of above the fence in the store, if four things hold:

* The record belongs to the last renewal that the store has, so there was no later owner and no
  later bound.  At most, the id was taken since and never renewed, so that no id was issued under
  it.
* The successor holds the very lock file that the writer of the record held, so that process has
  ended.
* The machine was not rebooted since, so both processes read the same boot clock.
* The boot clock has not gone back, as it does when a machine is restored from a snapshot.

An instance that may start without its store issues no id before the record is on the disk, and none
above the record's own fence.  A successor may begin above that fence even after a reboot, if its
lock file is the writer's, and therefore not a copy.  While the store cannot be reached, it may
issue ids up to the fence that the store has confirmed: the next owner of the machine id begins
above it.

A record may also be made from what another system's process has left.  The store does not know the
ids of such a start until the first renewal; until then only the record bounds them.

Pure.
"""

from __future__ import annotations

from typing import Final

from ..abc.restart import Found, RestartRecord
from .cells import token_of

__all__ = (
    "early_floor_ms",
    "has_proof",
    "is_last",
    "is_still_its",
    "latest_ms",
    "least_floor_ms",
    "offline_floor_ms",
    "unconfirmed_record",
    "unconfirmed_since_ms",
)

MARGIN_MS: Final = 500
"""Milliseconds that ids may be above the bound, since the wall clock may be slewed."""

NAME_PARTS: Final = 4
"""Parts of a renewal's name: token, version, stamp and machine id."""
STAMP: Final = 2

UNCONFIRMED: Final = "unconfirmed"
"""The first word of the name of a start that the store does not know of."""


def latest_ms(bound_ms: int, since_ms: int) -> int:
    """Return the latest time that ids may have that many milliseconds after a bound was set."""
    return bound_ms + since_ms + MARGIN_MS


def is_last(renewal: str, former: str | None) -> bool:
    """Return whether the owner that made a renewal is the last one that has issued ids.

    Args:
        renewal: its name.
        former: names the last write to the machine id; None if that is unknown.  It may be the
            write of a call that took the id next: no ids are issued under a machine id that was
            taken and never renewed.
    """
    if not renewal or former is None or renewal == former:
        return bool(renewal) and former is not None
    if "|" in renewal:
        return any(is_last(each, former) for each in renewal.split("|"))
    return _next_token(renewal, former) not in {"", token_of(renewal)}


def _next_token(renewal: str, former: str) -> str:
    """Return the token of ``former`` if it directly follows ``renewal``; else an empty text."""
    names = renewal.split(" "), former.split(" ")
    if any(len(each) != NAME_PARTS for each in names):
        return ""
    (_, turn, _, number), (token, next_turn, _, same_number) = names
    return token if same_number == number and int(next_turn) == int(turn) + 1 else ""


def is_still_its(record: RestartRecord, former: str | None) -> bool:
    """Return whether no process but the record's writer is known to have had the machine id since.

    Args:
        record: what the process finds on its machine; its writer could start without its store.
        former: names the last write to the machine id before this process may have taken it; None
            if the store has not answered.
    """
    return former is None or is_last(record.renewal, former) or _is_renewed(record, former)


def _is_renewed(record: RestartRecord, former: str) -> bool:
    """Return whether its writer has renewed once more, or an operator has raised the floor since.

    A write by CosId is neither: it does not count versions.
    """
    return _next_token(record.renewal, former) == token_of(record.renewal) != ""


def early_floor_ms(found: Found, former: str | None) -> int | None:
    """Return the time that ids must be above if the record proves it; otherwise None.

    Args:
        found: what the process finds on its machine.
        former: names the store's last renewal before this process took the id, or None.
    """
    record = found.record
    if record is None or former is None:
        return None
    floor_ms = _floor_ms(found, record)
    if is_last(record.renewal, former):
        return floor_ms
    # A writer that could start without its store issued no id after a renewal before that renewal's
    # record was on the disk.  An operator's command raises the stamp.
    if floor_ms is None or record.until_ms < 0 or not _is_renewed(record, former):
        return None
    return max(floor_ms, int(former.split(" ")[STAMP]))


def has_proof(found: Found | None, renewal: str, former: str) -> bool:
    """Return whether the process that last had the machine id has ended, or is this one.

    Args:
        found: what this process finds on its machine; None if it keeps nothing there.
        renewal: names the last renewal of this process; empty before the first.
        former: names the store's last renewal.
    """
    early_ms = None if found is None else early_floor_ms(found, former)
    return early_ms is not None or is_last(renewal, former)


def offline_floor_ms(found: Found, bits: int, now_ms: int) -> int | None:
    """Return the time that ids must be above if the store need not be asked; otherwise None.

    Args:
        found: what the process finds on its machine.
        bits: the width of the machine id.
        now_ms: the wall clock, milliseconds.
    """
    record = found.record
    if record is None or record.until_ms < 0 or record.bits != bits or record.fence_ms <= now_ms:
        return None
    return _floor_ms(found, record)


def unconfirmed_record(
    machine_id: int, bits: int, *, last_ms: int, now_ms: int, offline: float
) -> RestartRecord:
    """Return a record of an id that permanently belongs to this machine in another system.

    Args:
        machine_id: the id.
        bits: its width.
        last_ms: ids must be above that time.
        now_ms: the wall clock; ids end ``offline`` seconds later, unless the store has confirmed
            the id by then.
        offline: seconds without the store.
    """
    return RestartRecord(
        renewal=f"{UNCONFIRMED} {max(now_ms, last_ms)} {machine_id}",
        boot_ms=0,
        bound_ms=last_ms,
        floor_ms=last_ms,
        until_ms=last_ms,
        fence_ms=now_ms + int(offline * 1000),
        machine_id=machine_id,
        bits=bits,
    )


def unconfirmed_since_ms(renewal: str, machine_id: int) -> int:
    """Return since when an id has been used without the store; -1 if the store has confirmed it.

    Then the store has no later write.  It is also -1 for another id.  After a ``|``, the name may
    contain the names of writes that were sent and not answered.
    """
    name, *facts = renewal.partition("|")[0].split(" ")
    return int(facts[0]) if name == UNCONFIRMED and facts[1:] == [str(machine_id)] else -1


def least_floor_ms(found: Found) -> int:
    """Return the time that ids must be above even if the store does not say so; -1 for none."""
    record = found.record
    if record is None or not record.renewal:
        return -1 if record is None else record.floor_ms
    if not record.renewal.startswith(UNCONFIRMED):
        return -1
    floor_ms = _floor_ms(found, record)
    return record.until_ms if floor_ms is None else floor_ms


def _floor_ms(found: Found, record: RestartRecord) -> int | None:
    """Return a time that no id of the record's writer is above; None if that is unknown."""
    if not found.lock:
        return None
    is_over = record.lock == found.lock
    # After a reboot a disk may have another number.  An inherited record has no lock.
    is_copy = record.lock != "" and _file_of(record.lock) != _file_of(found.lock)
    floors = [] if record.until_ms < 0 or is_copy else [record.until_ms]
    is_same_boot = bool(found.boot) and record.boot == found.boot
    if is_over and is_same_boot and record.boot_ms <= found.boot_ms:
        # Both readings are rounded down.
        since_ms = found.boot_ms + 1 - record.boot_ms
        floors.append(latest_ms(record.bound_ms, since_ms))
    return max(record.floor_ms, min(floors)) if floors else None


def _file_of(lock: str) -> str:
    """Return the part of a lock's name that a reboot does not change."""
    return lock.rpartition(":")[2]
