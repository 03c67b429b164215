"""Machine ids on stores that CosId does not support: each cell is a text under its own key."""

from __future__ import annotations

import re
from collections import Counter as Tally
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

from ..errors import CorruptMachineStateError
from ..machine.cells import (
    MAX_MS,
    Count,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceCount,
    NamespaceRecord,
    Owner,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..machine.cells import Changes, ReadRequest

__all__ = ("Places", "ShardedPlaces", "is_enough", "leave_out_compared", "quoted")

SLOT: Final = re.compile(r"(.+)\n(-1|[0-9]{1,16})(?:\n(-?[0-9]{1,16}))?")

SHARDS: Final = 64

C = TypeVar("C", Count, Marker, NamespaceCount, MachineRecord, NamespaceRecord)


def quoted(name: str) -> str:
    """Return a name as one word of a key, with letters, digits and ``-_~%`` only."""
    return quote(name, safe="").replace(".", "%2E")


def is_enough(snapshot: Snapshot, need: ReadRequest) -> bool:
    """Return whether a decision can be based on what was read.

    It cannot if only one machine id was read and another instance holds that id, or the caller
    holds another id.
    """
    holders = {holder for slot in snapshot.slots.values() for holder in slot.holders}
    is_elsewhere = snapshot.own not in {None, need.machine_id}
    return need.is_complete or not (is_elsewhere or holders - {need.instance})


def leave_out_compared(snapshot: Snapshot, changes: Changes) -> None:
    """Leave out machine ids that are written only to be compared."""
    changes.slots = {
        number: slot
        for number, slot in changes.slots.items()
        if slot.owners != snapshot.slots.get(number, MachineSlot()).owners
    }


class Places:
    """The keys of the cells of one namespace.

    Attributes:
        namespace: the namespace.
        root: the prefix of the keys that end with the namespace.
        marker: the key of the store's marker, which is the same in every version, whatever else
            changes.
        namespaces: the key of the number of namespaces, next to the marker.
        counts: the prefix of the counts of all namespaces.
        space: the key of the namespace's own cell.
        count: the key of the namespace's count, which is stored with the marker.
        slots: the prefix of the keys of machine ids.
    """

    kind: type[Snapshot] = Snapshot
    """The class of the snapshots."""
    is_timed = True
    """Whether the store knows when a key was written; otherwise it detects expired owners another
    way.
    """

    def __init__(self, store: str, start: str, namespace: str) -> None:
        """Build the keys.

        Args:
            store: the store in messages.
            start: the prefix of all keys; its last character separates the words of a key.
            namespace: the namespace.
        """
        part, name = start[-1], quoted(namespace)
        self._store = store
        self.namespace = namespace
        self.root = f"{start}ns{part}{name}{part}"
        self.marker = f"{start}store{part}marker"
        self.namespaces = f"{start}store{part}namespaces"
        self.counts = f"{start}store{part}count{part}"
        self.count = f"{self.counts}{name}"
        self.space, self.slots = f"{self.root}space", f"{self.root}id{part}"
        self._owns = f"{self.root}own{part}"

    @staticmethod
    def namespace_of(key: str, start: str) -> str:
        """Return the namespace of a key that begins with the `root`."""
        return unquote(key.removeprefix(start).split(start[-1])[1])

    def slot(self, machine_id: int) -> str:
        """Return the key of a machine id."""
        return f"{self.slots}{machine_id:08d}"

    def own(self, instance: str) -> str:
        """Return the key of the cell that holds an instance's machine id."""
        return f"{self._owns}{quoted(instance)}"

    def needed(self, need: ReadRequest) -> list[str]:
        """Return the keys to read, in addition to all keys below `root` if those are needed."""
        keys = [self.marker, self.count]
        keys += [self.namespaces] if need.namespaces else []
        if not need.is_complete:
            keys += [self.space]
            keys += [self.own(need.instance)] if need.instance else []
            keys += [self.slot(need.machine_id)] if need.machine_id is not None else []
        return keys

    def texts(self, changes: Changes) -> dict[str, bytes]:
        """Return the texts to write; an empty text removes the key.

        A machine id's text is its record, which names the owner, its stamp and, unless this is a
        renewal, the time of the last renewal.
        """
        cells = {
            self.marker: changes.marker,
            self.namespaces: changes.namespaces,
            self.space: changes.space,
            self.count: changes.count,
        }
        texts = {key: cell.text() for key, cell in cells.items() if cell is not None}
        for number, slot in changes.slots.items():
            is_new = number == changes.signed or not self.is_timed
            seen = "" if is_new else f"\n{slot.seen_ms}"
            texts[self.slot(number)] = (
                f"{(slot.record or MachineRecord()).text()}\n{slot.stamp_ms}{seen}"
            )
        for instance, own in changes.own.items():
            texts[self.own(instance)] = "" if own is None else str(own)
        return {key: text.encode() for key, text in texts.items()}

    def snapshot(
        self,
        identity: str,
        texts: Mapping[str, bytes],
        written_ms: Mapping[str, int],
        need: ReadRequest,
        **options: Any,  # noqa: ANN401 - a snapshot's fields
    ) -> Snapshot:
        """Return the snapshot of the values that were read.

        Args:
            identity: the store's identity.
            texts: the text of each key; an empty text for a missing key.
            written_ms: when each text was written, on the store's clock.
            need: what was requested.
            options: further fields of the snapshot.

        Raises:
            CorruptMachineStateError: a cell is damaged.
        """
        own = texts.get(self.own(need.instance), b"")
        return self.kind(
            self.namespace,
            identity,
            marker=self._cell(Marker, self.marker, texts.get(self.marker, b"")),
            space=self._cell(NamespaceRecord, self.space, texts.get(self.space, b"")),
            count=self._cell(Count, self.count, texts.get(self.count, b"")),
            namespaces=self._cell(NamespaceCount, self.namespaces, texts.get(self.namespaces, b"")),
            slots={
                int(key.removeprefix(self.slots)): self._slot(key, texts[key], written_ms[key])
                for key in sorted(texts)
                if key.startswith(self.slots) and texts[key] and key[len(self.slots) :].isdecimal()
            },
            own=int(own) if own.isdigit() else None,
            is_complete=need.is_complete,
            stamps_tell=False,
            store=self._store,
            **options,
        )

    def _cell(self, kind: type[C], key: str, text: bytes) -> C | None:
        try:
            return kind.read(text.decode()) if text else None
        except ValueError:
            raise self._damage(key, text) from None

    def _slot(self, key: str, text: bytes, written_ms: int) -> MachineSlot:
        found = SLOT.fullmatch(text.decode(errors="replace"))
        record = self._cell(MachineRecord, key, found[1].encode()) if found else None
        if found is None or record is None or int(found[2]) > MAX_MS:
            raise self._damage(key, text)
        return MachineSlot(
            (Owner(record.instance, int(found[2])),), record, int(found[3] or written_ms)
        )

    def _damage(self, key: str, text: bytes) -> CorruptMachineStateError:
        expected = "a cell as aiocosid writes it"
        return CorruptMachineStateError(self._store, place=key, found=repr(text), expected=expected)


class ShardedPlaces(Places):
    """Keys whose count is spread over many cells, so that few concurrent grants conflict.

    Each cell counts the machine ids of one remainder; the keys begin with `count`.
    """

    def needed(self, need: ReadRequest) -> list[str]:
        """Return the keys to read, in addition to all keys below `count` and `root` if needed."""
        return [key for key in super().needed(need) if key != self.count]

    def spread_texts(
        self, snapshot: Snapshot, changes: Changes, before: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Return `texts`, with the changed counts of the cells instead of the single count."""
        texts = self.texts(changes)
        if changes.count is not None:
            del texts[self.count]
            slots = snapshot.slots | changes.slots
            noted = Tally(number % SHARDS for number, slot in slots.items() if slot.is_noted)
            for shard in range(SHARDS):
                key, ids = self._shard(shard), noted[shard]
                text = Count(changes.count.marker_id, ids).text().encode()
                found = before.get(key, b"")
                # A namespace without ids also counts.
                is_first = snapshot.count is None and shard == 0
                if text != found and (ids or found or is_first):
                    texts[key] = text
        return texts

    def total(self, texts: Mapping[str, bytes]) -> bytes:
        """Return the text of the sum of all counts that were written under the current marker."""
        marker = self._cell(Marker, self.marker, texts.get(self.marker, b""))
        marker_id = marker.marker_id if marker is not None else ""
        keys = [self._shard(shard) for shard in range(SHARDS)]
        counts = [self._cell(Count, key, texts.get(key, b"")) for key in keys]
        ids = [each.ids for each in counts if each is not None and each.marker_id == marker_id]
        return Count(marker_id, sum(ids)).text().encode() if ids else b""

    def _shard(self, number: int) -> str:
        return f"{self.count}{self.root[-1]}{number}"
