"""What an operator sees of the machine ids on ZooKeeper, and does about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...abc import Machine, MachineMarker
from ...abc._ids import check_integer, check_text
from ...abc._machine import NAME_WIDTH, bits_in_use, check_machine_bits, check_safe_guard
from ...errors import InvalidArgumentError
from ._machine_keep import TAKEN_AWAY, give_back
from ._machine_nodes import ENTRIES, MachineNodes
from ._machine_texts import MAX_MACHINE_ID, Marker, guard_ms
from ._paths import COSID, OURS, name_of, node_of, text_of

if TYPE_CHECKING:
    from ._link import Link
    from ._nodes import Nodes

__all__ = (
    "machine_bits",
    "machine_markers",
    "machines",
    "mark_machines",
    "revert_machine",
    "set_machine_bits",
)


async def machines(link: Link, namespace: str | None) -> list[Machine]:
    """Return the machine ids of a namespace, or of all, by namespace and number."""
    if namespace is not None:
        check_text("namespace", namespace, at_most=NAME_WIDTH)

    async def read(nodes: Nodes) -> list[Machine]:
        names = await _namespaces(nodes) if namespace is None else [namespace]
        return [each for name in names for each in await _machines(nodes, MachineNodes(name))]

    return await link.call(read)


async def _namespaces(nodes: Nodes) -> list[str]:
    found = await nodes.walk(COSID, skip=lambda name: name.startswith("__"))
    paths = [path for path, node in found.items() if node.children]
    used = await nodes.get(*(f"{path}/{ENTRIES}" for path in paths))
    return sorted(
        text_of(path.removeprefix(f"{COSID}/"))
        for path, entries in zip(paths, used, strict=True)
        if entries is not None
    )


async def _machines(nodes: Nodes, at: MachineNodes) -> list[Machine]:
    entries = await at.all_entries(nodes)
    held = {each.machine_id for each in entries}
    entries += (each for each in await at.all_pooled(nodes) if each.machine_id not in held)
    noted = await at.notes_on(nodes, *(each.machine_id for each in entries))
    found = [
        Machine(
            namespace=at.namespace,
            machine_id=each.machine_id,
            instance_id=each.instance,
            last_timestamp_ms=each.stamp_ms,
            mark_ms=note.mark_ms,
            stable=bool(each.instance) and note.is_stable and note.holder == each.instance,
        )
        for each in entries
        for note in (noted[each.machine_id].note,)
    ]
    return sorted(found, key=lambda each: (each.machine_id, each.instance_id))


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
        for each in await machines(link, namespace)
        if each.machine_id == machine_id and each.instance_id
    ]
    if not holders:
        expected = f"one that somebody holds in namespace {namespace!r}"
        raise InvalidArgumentError("machine_id", machine_id, expected=expected)
    at = MachineNodes(namespace)
    for holder in holders:

        async def attempt(nodes: Nodes, holder: str = holder) -> bool | None:
            return await give_back(
                nodes,
                at,
                instance=holder,
                machine_id=machine_id,
                last_ms=TAKEN_AWAY,
                is_stable=False,
                token="",
            )

        await link.until_done(attempt)


async def machine_bits(link: Link, namespace: str) -> int | None:
    """Return the width that is noted, None if there is none."""
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    at = MachineNodes(namespace)

    async def read(nodes: Nodes) -> int | None:
        (node,) = await nodes.get(at.marker)
        return Marker.of(at.marker, node).bits

    return await link.call(read)


async def set_machine_bits(link: Link, namespace: str, bits: int) -> None:
    """Change the width, while nobody holds a machine id.

    Raises:
        MachineIdInUseError: somebody does; nothing was written.
        MachineIdQuarantineError: the tree may have forgotten who does.
        InvalidArgumentError: an argument is outside its range.
        CorruptMachineStateError: a node is damaged; nothing was written.
        StoreError: the server refuses or cannot be reached.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    check_machine_bits(bits)
    at = MachineNodes(namespace)

    async def attempt(nodes: Nodes) -> bool | None:
        look = await at.look(nodes)
        if look.marker.bits == bits:
            return True
        left = await at.quarantine(nodes, look, 0)
        if left is None:
            return None
        if left:
            raise at.quarantined(left)
        if holders := [each.instance for each in await at.all_entries(nodes)]:
            raise bits_in_use(namespace, look.marker.bits, holders)
        look.marker.bits = bits
        return None if await nodes.commit(at.marked(look)) is None else True

    await link.until_done(attempt)


async def mark_machines(
    link: Link, namespace: str, *, is_new: bool, safe_guard: float | None
) -> MachineMarker:
    """Write the marker if it is missing, or in any case.

    Raises:
        InvalidArgumentError: the namespace is no text, or too long, or the safe guard no time.
        StoreError: the server refuses or cannot be reached.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    named = check_safe_guard(safe_guard)
    guard = guard_ms(named) if named else 0
    at = MachineNodes(namespace)

    async def attempt(nodes: Nodes) -> MachineMarker | None:
        look = await at.look(nodes)
        marker, is_written = look.marker, is_new or look.marker_node is None
        left: float | None = 0.0
        if is_written:
            marker.guard_ms = guard
            marker.sound(look.identity)
        else:
            # One that runs is not prolonged by somebody who holds no id.
            runs = marker.identity == look.identity and marker.since_ms is not None
            left = await at.quarantine(nodes, look, 0 if runs else guard)
            if not left:
                marker.remember(guard)
        if left is None or (not left and await nodes.commit(at.seen(look)) is None):
            return None
        return MachineMarker(namespace=namespace, is_new=is_written, seconds_left=left)

    return await link.until_done(attempt)


async def machine_markers(link: Link, namespace: str | None) -> list[MachineMarker]:
    """Return the marker of a namespace, or all, by namespace; writes nothing."""
    if namespace is not None:
        check_text("namespace", namespace, at_most=NAME_WIDTH)

    async def read(nodes: Nodes) -> list[MachineMarker]:
        names = await nodes.children(OURS) if namespace is None else [node_of(namespace)]
        found = [await _marker(nodes, MachineNodes(name_of(name))) for name in names]
        known = [each for each in found if each is not None]
        return sorted(known, key=lambda each: each.namespace)

    return await link.call(read)


async def _marker(nodes: Nodes, at: MachineNodes) -> MachineMarker | None:
    node, entries, clock = await nodes.get(at.marker, at.entries, at.clock)
    if node is None:
        return None
    marker = Marker.of(at.marker, node)
    # The newest time that the server has told: nothing is written to ask for a newer one.
    clock_ms = 0 if clock is None else clock.changed_ms
    if entries is None or f"{entries.born:x}" != marker.identity:
        marker.since_ms = clock_ms  # it has not begun, because nobody has asked yet
    return MachineMarker(namespace=at.namespace, seconds_left=marker.left(clock_ms))
