"""The nodes of one namespace of machine ids, and what is read of them before anything is written.

Whoever changes who holds which writes the marker, if it is still as it was read.  So none of ours
comes between another's reading and writing; and CosId's, which knows no marker, is noticed by the
versions of the nodes that it writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import MachineIdQuarantineError
from ._errors import STORE
from ._machine_texts import Entry, Marker, Note
from ._nodes import expect, write
from ._paths import COSID, OURS, name_of, node_of, path_of

if TYPE_CHECKING:
    from ._nodes import Change, Node, Nodes

__all__ = ("ENTRIES", "MARKER", "Look", "MachineNodes")

ENTRIES: Final = "__itc_idx"
MARKER: Final = "marker"
_POOLED: Final = re.compile("0|[1-9][0-9]{0,9}")


@dataclass(slots=True)
class Look:
    """What was read of a namespace in one go.

    Attributes:
        clock_ms: the server's clock.
        identity: of the tree.
        marker: what the marker says, and then what it is to say.
        marker_node: as it was read.
        nodes: what else was asked for, in this order.
    """

    clock_ms: int
    identity: str
    marker: Marker
    marker_node: Node | None
    nodes: list[Node | None]

    @property
    def is_as_read(self) -> bool:
        """Whether the marker is to say what it says."""
        return self.marker_node is not None and self.marker_node.data == self.marker.data()


class MachineNodes:
    """Where everything of one namespace lies.

    Attributes:
        namespace: which one.
        entries: CosId's, below it a node for each instance that holds an id.
        counter: CosId's, how many ids were new once.
        pool: CosId's, below it a node for each id that was given back.
        marker: ours.
        clock: ours, written to be told the server's time.
    """

    __slots__ = ("_notes", "clock", "counter", "entries", "marker", "namespace", "pool")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        theirs = f"{COSID}/{path_of(namespace)}"
        ours = f"{OURS}/{node_of(namespace)}"
        self.entries = f"{theirs}/{ENTRIES}"
        self.counter = f"{theirs}/__counter"
        self.pool = f"{theirs}/__revert"
        self.marker = f"{ours}/{MARKER}"
        self.clock = f"{ours}/clock"
        self._notes = f"{ours}/notes"

    def entry(self, instance: str) -> str:
        """Return the path of an instance's entry."""
        return f"{self.entries}/{node_of(instance)}"

    def pooled(self, machine_id: int) -> str:
        """Return the path of an id that was given back."""
        return f"{self.pool}/{machine_id}"

    def note(self, machine_id: int) -> str:
        """Return the path of what we note of an id."""
        return f"{self._notes}/{machine_id}"

    async def look(self, nodes: Nodes, *paths: str) -> Look:
        """Read the marker, and nodes beside it; what all need is made where it is missing."""
        wanted = self.marker, self.entries, *paths
        while (found := await nodes.look(self.clock, *wanted)) is None or found[1][1] is None:
            await nodes.ensure(self.entries, self.pool, self.clock, self._notes)
        clock_ms, (marker, entries, *others) = found
        identity = "" if entries is None else f"{entries.born:x}"
        return Look(clock_ms, identity, Marker.of(self.marker, marker), marker, others)

    async def all_entries(self, nodes: Nodes) -> list[Entry]:
        """Return who holds which, by instance."""
        found = await nodes.walk(self.entries, skip=lambda _: False)
        # CosId makes several nodes of an instance with a slash; those above the last are empty.
        return [
            Entry.of(path, node, self._instance_at(path))
            for path, node in found.items()
            if node.data
        ]

    def _instance_at(self, path: str) -> str:
        name = path.removeprefix(f"{self.entries}/")
        return name if "/" in name else name_of(name)

    async def pooled_numbers(self, nodes: Nodes) -> list[int]:
        """Return which were given back."""
        return sorted(
            int(name) for name in await nodes.children(self.pool) if _POOLED.fullmatch(name)
        )

    async def all_pooled(self, nodes: Nodes) -> list[Entry]:
        """Return what was given back, by number."""
        found = await nodes.walk(self.pool, skip=lambda name: not _POOLED.fullmatch(name))
        pooled = [Entry.of(path, node) for path, node in found.items()]
        return sorted(pooled, key=lambda each: each.machine_id)

    async def notes_on(self, nodes: Nodes, *machine_ids: int) -> dict[int, Noted]:
        """Return what is noted on machine ids."""
        paths = [self.note(each) for each in machine_ids]
        read = await nodes.get(*paths)
        return {
            machine_id: Noted(path, node, Note.of(path, node))
            for machine_id, path, node in zip(machine_ids, paths, read, strict=True)
        }

    async def quarantine(self, nodes: Nodes, look: Look, guard: int) -> float | None:
        """Begin, prolong or end a quarantine, whichever is due.

        That one has ended is for the caller to write, with what it changes besides.

        Args:
            nodes: the tree.
            look: what was read; the marker in it is changed.
            guard: the safe guard in milliseconds of who asks; 0 for who holds no id.

        Returns:
            The seconds that are left; 0.0 if none runs, None if somebody else was faster.
        """
        left = look.marker.look(look.identity, look.clock_ms, guard)
        if left and not look.is_as_read and await nodes.commit(self.marked(look)) is None:
            return None
        return left

    def quarantined(self, left: float) -> MachineIdQuarantineError:
        """Return the error."""
        return MachineIdQuarantineError(STORE, namespace=self.namespace, seconds_left=left)

    def marked(self, look: Look) -> Change:
        """Have the marker written, whether or not it says something new: nobody came between."""
        return write(self.marker, look.marker.data(), look.marker_node)

    def seen(self, look: Look) -> Change:
        """Have it checked only, if it says nothing new."""
        node = look.marker_node
        return expect(self.marker, node) if node and look.is_as_read else self.marked(look)


@dataclass(slots=True)
class Noted:
    """A note, to be changed and written.

    Attributes:
        path: where it lies.
        node: as it was read.
        note: what it is to say.
    """

    path: str
    node: Node | None
    note: Note

    def change(self) -> Change:
        """Have it written."""
        return write(self.path, self.note.data(), self.node)
