"""What an operator sees of the machine ids on Redis or Valkey, and does about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...abc import Machine, MachineMarker
from ...abc._ids import check_integer, check_text
from ...abc._machine import NAME_WIDTH, bits_in_use, check_machine_bits, check_safe_guard
from ...errors import InvalidArgumentError
from ._errors import translated
from ._machine import MAX_MACHINE_ID
from ._machine_scripts import (
    BITS,
    ENTRIES,
    LIST,
    MARK,
    MARKER,
    PREFIX,
    REVERT,
    MachineKeys,
    ask,
    guard_ms,
    seconds_of,
    text_of,
)
from ._scripts import UNDECODED

if TYPE_CHECKING:
    from ._link import Link

__all__ = ("machine_bits", "machine_markers", "machines", "mark_machines", "revert_machine")

TAKEN_AWAY: Final = -2  # instead of the time of the last id

BATCH: Final = 500  # keys looked at in one step of a scan
COLUMNS: Final = 5  # texts that the listing has for a machine id


async def machines(link: Link, namespace: str | None) -> list[Machine]:
    """Return the machine ids of a namespace, or of all on the server, by namespace and number."""
    if namespace is None:
        namespaces = await _namespaces(link, ENTRIES)
    else:
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        namespaces = {namespace}
    return [each for name in sorted(namespaces) for each in await _machines(link, name)]


async def _namespaces(link: Link, suffixes: tuple[str, ...]) -> set[str]:
    async def scan(client: Any) -> set[str]:  # noqa: ANN401 - the driver's
        # On a cluster the driver goes through all masters.
        keys = client.scan_iter(match=f"{PREFIX}*}}:*", count=BATCH, **UNDECODED)
        names = {MachineKeys.namespace_of(text_of(key), suffixes) async for key in keys}
        return {name for name in names if name is not None}

    with translated():
        return await link.call(scan, may_last=True)


async def _machines(link: Link, namespace: str) -> list[Machine]:
    _, texts = await ask(link, LIST, MachineKeys(namespace))
    rows = (texts[start : start + COLUMNS] for start in range(0, len(texts), COLUMNS))
    found = [
        Machine(
            namespace=namespace,
            machine_id=int(machine_id),
            instance_id=instance_id,
            last_timestamp_ms=int(stamp),
            mark_ms=int(mark),
            stable=stable == "1",
        )
        for machine_id, instance_id, stamp, mark, stable in rows
    ]
    return sorted(found, key=lambda each: each.machine_id)


async def revert_machine(link: Link, namespace: str, machine_id: int) -> None:
    """Take a machine id from its owner; one who took it in the meantime keeps it.

    Raises:
        InvalidArgumentError: nobody holds it.
        StoreError: the server refuses or cannot be reached.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
    holders = [
        each.instance_id
        for each in await _machines(link, namespace)
        if each.machine_id == machine_id and each.instance_id
    ]
    if not holders:
        expected = f"one that somebody holds in namespace {namespace!r}"
        raise InvalidArgumentError("machine_id", machine_id, expected=expected)
    for holder in holders:
        await ask(
            link, REVERT, MachineKeys(namespace), holder.encode(), machine_id, TAKEN_AWAY, 0, b""
        )


async def machine_bits(link: Link, namespace: str, *, change_to: int | None = None) -> int | None:
    """Return the width that is noted, None if there is none; change it first if that is asked for.

    Raises:
        MachineIdInUseError: it is to be changed, and somebody holds a machine id.
        MachineIdQuarantineError: the server may have forgotten who does.
        InvalidArgumentError: an argument is outside its range.
        CorruptMachineStateError: the note is damaged; nothing was written.
        StoreError: the server refuses or cannot be reached.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    if change_to is not None:
        check_machine_bits(change_to)
    wanted = b"" if change_to is None else change_to
    named = 0  # no safe guard, by who holds no id
    found, answer = await ask(link, BITS, MachineKeys(namespace), wanted, named)
    noted, *holders = answer
    bits = int(noted) if noted else None
    if found == "held":
        raise bits_in_use(namespace, bits, holders)
    return bits


async def mark_machines(
    link: Link, namespace: str, *, is_new: bool, safe_guard: float | None
) -> MachineMarker:
    """Write the marker if it is missing, or in any case.

    Raises:
        InvalidArgumentError: the namespace is no text, or too long.
        StoreError: the server refuses, cannot be reached, or hides who it is.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    named = check_safe_guard(safe_guard)
    wish, guard = b"new" if is_new else b"mark", guard_ms(named) if named else 0
    _, (state, left) = await ask(link, MARK, MachineKeys(namespace), wish, guard)
    return MachineMarker(namespace=namespace, is_new=state == "new", seconds_left=seconds_of(left))


async def machine_markers(link: Link, namespace: str | None) -> list[MachineMarker]:
    """Return the marker of a namespace, or all on the server, by namespace."""
    if namespace is None:
        namespaces = await _namespaces(link, MARKER)
    else:
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        namespaces = {namespace}
    found: list[MachineMarker] = []
    for name in sorted(namespaces):
        _, (state, left) = await ask(link, MARK, MachineKeys(name), b"look")
        if state != "none":
            found.append(MachineMarker(namespace=name, seconds_left=seconds_of(left)))
    return found
