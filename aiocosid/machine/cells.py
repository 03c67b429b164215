"""The state of a namespace's machine ids in a store: what the rules read and write.

A store keeps *cells*: values under keys, each read and compared as a whole.  Its backend reads them
into a `Snapshot`; the rules in `rules` decide what to change; the backend commits the `Changes` in
one atomic step, provided that every cell that the decision is based on still has the value that was
read.

Pure: values only.  aiocosid's own cells have the same text on every store, compact JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = (
    "ENDLESS_MS",
    "FORMAT",
    "MAX_MS",
    "CellBackend",
    "Changes",
    "Count",
    "Damage",
    "MachineRecord",
    "MachineSlot",
    "Marker",
    "NamespaceCount",
    "NamespaceRecord",
    "Owner",
    "ReadRequest",
    "Snapshot",
    "freed",
    "read_note",
    "token_of",
)

MAX_MS: Final = 2**53 - 1
"""The latest time that is stored, unix milliseconds: JSON and Lua represent it exactly."""

ENDLESS_MS: Final = 2**52
"""Milliseconds; a safe guard of this length never ends."""

FORMAT: Final = 2
"""The version of aiocosid's cells and keys; every version finds the marker at the same key."""

_FIRST_FORMAT: Final = 1
"""The version of a marker that names none."""

_KEYS: Final = {"marker_id": "epoch"}
"""Keys of fields that have another name in the stored JSON."""

_OMITTED: Final = {"region_code": 1}
"""Fields that the stored JSON contains only if their value differs from this."""


@dataclass(frozen=True, slots=True)
class Owner:
    """CosId's own cell of a machine id: its holder, and the holder's last renewal.

    Attributes:
        instance: the holder's instance id; empty if the id was released.
        stamp_ms: the holder's last renewal by its own clock, unix milliseconds.
    """

    instance: str
    stamp_ms: int


class _Cell:
    """A cell of aiocosid, stored as the JSON of its fields."""

    __slots__: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the cell's text, as it is stored."""
        found = {name: getattr(self, name) for name in self.__slots__}
        facts = {_KEYS.get(n, n): each for n, each in found.items() if each != _OMITTED.get(n)}
        return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse what `text` returned.

        Raises:
            ValueError: the text is something else.
        """
        try:
            found: Any = json.loads(text)
        except RecursionError:
            raise ValueError(text) from None
        if type(found) is not dict:
            raise ValueError(text)
        return cls.of(cast("dict[str, Any]", found))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return the cell of these fields; raise ValueError if one has another type."""
        names = {_KEYS.get(name, name): name for name in cls.__slots__}
        if facts.keys() | (names.keys() & _OMITTED) != names.keys():
            raise ValueError(facts)
        usual = cls()
        for key, value in facts.items():
            is_time = type(value) is int and -1 <= value <= MAX_MS
            is_right = type(value) is type(getattr(usual, names[key]))
            if not is_right or not (is_time or type(value) is not int):
                raise ValueError(facts)
        return cls(**{names[key]: value for key, value in facts.items()})


@dataclass(frozen=True, slots=True)
class MachineRecord(_Cell):
    """aiocosid's own cell about one machine id, alongside CosId's.

    Attributes:
        instance: the instance that it describes; the fields about it count only while it holds the
            id.
        stable: whether the instance keeps the id when it is closed, or stops renewing.
        fence_ms: no id was issued with a later time, unix milliseconds; -1 for none.
        token: the token of the call that was last granted the id; a caller with another token is
            outdated.
        version: counts the writes, so that no two values of the cell are ever equal.
        claimed: the quarantine in which the holder reclaimed the id, or empty.
        requested_ms: when the holder requested the id, by its own clock, if the id was reclaimed;
            otherwise the floor that a guest of a server found, and 0 without one.
    """

    instance: str = ""
    stable: bool = False
    fence_ms: int = -1
    token: str = ""
    version: int = 0
    claimed: str = ""
    requested_ms: int = 0


read_note: Final = lru_cache(maxsize=4096)(MachineRecord.read)
"""Parses a record, cached: of the many records that a grant reads, most have not changed."""


@dataclass(frozen=True, slots=True)
class NamespaceRecord(_Cell):
    """aiocosid's own cell about a namespace.

    Attributes:
        identity: the identity of the store for which this namespace is sound, or in quarantine.
        marker_id: the id of the store's marker at that time; empty if there was none.
        bits: the width of the machine ids, 1 to 31; 0 if none was granted yet.
        guard_ms: the longest safe guard ever named, 0 for none, `ENDLESS_MS` for no end.
        quarantine: the name of the running quarantine, or empty.
        since_ms: when the quarantine began, by the store's clock.
        gaps: whether numbers below the last new one were left out.
        is_new: whether the store had nothing at all when the quarantine began.
        region_code: the region whose machine ids are granted, its bits behind a 1; 1 for no
            regions.
    """

    identity: str = ""
    marker_id: str = ""
    bits: int = 0
    guard_ms: int = 0
    quarantine: str = ""
    since_ms: int = 0
    gaps: bool = False
    is_new: bool = False
    region_code: int = 1

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return the cell of these fields; raise ValueError if it cannot be one."""
        found = super(NamespaceRecord, cls).of(facts)
        is_width = 0 <= found.bits <= 31  # noqa: PLR2004 - MAX_MACHINE_BITS, of another room
        if not (is_width and 0 < found.region_code < max(2, 1 << found.bits)):
            raise ValueError(facts)
        return found


@dataclass(frozen=True, slots=True)
class Marker(_Cell):
    """The store's own cell: as long as it is there, nothing was lost since it was written.

    Attributes:
        identity: the identity of the store that it was written for; empty after a loss: counters
            may be created, but machine ids are in quarantine.
        marker_id: a new id each time the marker is written; empty, like the identity, if the marker
            only lets counters be created and says nothing about machine ids.
        format: the format version of cells and keys that the writing process uses.
    """

    identity: str = ""
    marker_id: str = ""
    format: int = FORMAT

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return the cell of these fields; for another version only the version is read."""
        is_first = set(facts) == {"identity", "epoch"}
        version = _FIRST_FORMAT if is_first else facts.get("format")
        if type(version) is int and version != FORMAT:
            return cls(format=version)
        return super(Marker, cls).of(facts)


@dataclass(frozen=True, slots=True)
class Count(_Cell):
    """How many machine ids of a namespace have a `MachineRecord`; stored alongside the marker.

    Attributes:
        marker_id: the id of the marker under which they were counted.
        ids: how many.
    """

    marker_id: str = ""
    ids: int = 0


@dataclass(frozen=True, slots=True)
class NamespaceCount(_Cell):
    """How many namespaces were ever granted a machine id; stored alongside the marker.

    It is not part of the marker's value, or each renewal would conflict with each new namespace.

    Attributes:
        number: how many.
    """

    number: int = 0


@dataclass(frozen=True, slots=True)
class MachineSlot:
    """One machine id: CosId's cell, and aiocosid's.

    Attributes:
        owners: its holder, or a released owner.  Usually one; several only where CosId's layout
            allows it; none if only the record is left.
        record: aiocosid's record, if there is one.
        seen_ms: when the record was last written (on ZooKeeper also CosId's cell), by the store's
            clock; -1 if that is not known.
        is_damaged: whether CosId's cell cannot be read; then the id counts as held, by an unknown
            instance.
    """

    owners: tuple[Owner, ...] = ()
    record: MachineRecord | None = None
    seen_ms: int = -1
    is_damaged: bool = False

    @property
    def holders(self) -> tuple[str, ...]:
        """The instance ids of its holders."""
        return tuple(each.instance for each in self.owners if each.instance)

    @property
    def is_held(self) -> bool:
        """Whether the id is held, as far as is known."""
        return self.is_damaged or any(each.instance for each in self.owners)

    @property
    def is_noted(self) -> bool:
        """Whether aiocosid granted it, and both cells are there."""
        return bool(self.record and self.record.token and (self.owners or self.is_damaged))

    @property
    def stamp_ms(self) -> int:
        """The latest stamp; -1 if there is none."""
        return max((each.stamp_ms for each in self.owners), default=-1)

    @property
    def fence_ms(self) -> int:
        """The fence; -1 if there is none."""
        return self.record.fence_ms if self.record is not None else -1

    @property
    def floor_ms(self) -> int:
        """The time that the next owner's ids must be above; -1 if the id never had an owner."""
        return max(self.stamp_ms, self.fence_ms)

    def renewal_of(self, instance: str, machine_id: int) -> str:
        """Return the name of the last write to the machine id; empty if it is not the instance's.

        It differs after each renewal, each new owner, and each write by CosId.
        """
        record = self.record_about(instance)
        if (
            record is None
            or not record.token
            or [each.instance for each in self.owners] != [instance]
        ):
            return ""
        return f"{record.token} {record.version} {self.stamp_ms} {machine_id}"

    def record_about(self, instance: str) -> MachineRecord | None:
        """Return the record if it describes that instance."""
        return self.record if self.record is not None and self.record.instance == instance else None


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged cell of CosId's, whose machine id is unknown.

    Attributes:
        place: the key, row or node.
        found: its content, shortened.
        instance: the instance that it belongs to, if that is known.
    """

    place: str
    found: str
    instance: str = ""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a decision must read.

    Attributes:
        instance: the instance whose own cell and machine id are read; empty for none.
        machine_id: a further machine id; None for none.
        is_complete: whether all machine ids of the namespace are read.
        sample: if not 0, that many takeable ids are enough instead, on a store where reading all is
            expensive: the first released ones, otherwise the lowest new ones.
        namespaces: whether `Snapshot.namespaces` and `Snapshot.counted` are also read; if a sample
            is enough, only where this namespace has no count, and the backend knows in time.
    """

    instance: str = ""
    machine_id: int | None = None
    is_complete: bool = False
    sample: int = 0
    namespaces: bool = False


@dataclass(slots=True)
class Snapshot:
    """The cells of a namespace at one moment, as a backend has read them.

    After a successful commit the backend updates it with `apply`, so that a renewal needs no
    further read.

    Attributes:
        namespace: the namespace.
        identity: identifies the store; it changes when the store is restarted empty, or restored.
        now_ms: the store's clock, milliseconds.
        marker: the store's marker, if it is there.
        space: the namespace's cell, if it is there.
        count: the count that is stored with the marker, if it is there.
        slots: machine ids by number, in the store's own order.
        own: the machine id that the asking instance's own cell names, if there is one.
        last_new: CosId's adder: the last machine id that was new; None on stores that have none.
        first_new: on those stores, the first number that is considered as new.
        is_complete: whether it contains all slots of the namespace.
        stamps_tell: whether stamps can be compared with ``now_ms``: False where there are no CosId
            peers, and only ``seen_ms`` shows whether an owner renews.
        damages: the damaged cells.
        raw: the backend's own values to compare at the commit.
        is_doubtful: whether the backend itself has detected that the store was rolled back.
        store: names the store in messages.
        cells: in a sample, the number of CosId's cells of all machine ids; otherwise -1.
        records: in a sample, the largest possible number of machine ids with a record; otherwise
            -1.
        namespaces: how many namespaces were ever counted, if that cell is there and was read.
        counted: how many namespaces have a count, if it was read; -1 if it was not; None on a store
            that cannot lose a namespace's count without its marker.
        moving: machine ids that had CosId's cell a moment ago: a CosId peer on ZooKeeper moves an
            id by removing one cell, then creating another.
    """

    namespace: str
    identity: str
    now_ms: int = 0
    marker: Marker | None = None
    space: NamespaceRecord | None = None
    count: Count | None = None
    slots: dict[int, MachineSlot] = field(default_factory=dict[int, MachineSlot])
    own: int | None = None
    last_new: int | None = None
    first_new: int = 0
    is_complete: bool = False
    stamps_tell: bool = True
    damages: tuple[Damage, ...] = ()
    raw: Any = None
    is_doubtful: bool = False
    store: str = "store"
    cells: int = -1
    records: int = -1
    namespaces: NamespaceCount | None = None
    counted: int | None = None
    moving: frozenset[int] = frozenset()

    @property
    def is_sample(self) -> bool:
        """Whether it contains only the caller's machine id and some that can be taken."""
        return self.cells >= 0 and not self.is_complete

    def knows(self, identity: str) -> bool:
        """Return whether a stored identity is this store's."""
        return identity == self.identity and not self.is_doubtful

    def narrowed(self, machine_id: int) -> Snapshot:
        """Return the part of the snapshot that the renewal of one machine id needs."""
        slots = {machine_id: self.slots[machine_id]} if machine_id in self.slots else {}
        return replace(self, slots=slots, is_complete=False, cells=-1)

    def counts_one_more(self, changes: Changes) -> bool:
        """Return whether the count can be incremented without comparing it, under the same marker.

        It can if exactly one more machine id gets a record, because its own cell is compared.  A
        process that counts all ids again also writes the namespace's cell or the marker, which are
        compared too.
        If the count were compared, processes that start at the same time would all conflict with
        each other.
        """
        old = self.count
        return old is not None and changes.count == Count(old.marker_id, old.ids + 1)

    def counts_one_namespace_more(self, changes: Changes) -> bool:
        """Return whether the number of namespaces can be incremented without comparing it.

        That is so if this namespace gets its first count; the commit compares that it has none yet.
        """
        old, new = self.namespaces, changes.namespaces
        is_first = self.count is None and changes.count is not None
        return is_first and old is not None and new == NamespaceCount(old.number + 1)

    @property
    def is_marked(self) -> bool:
        """Whether there is a marker that says something about machine ids."""
        return self.marker is not None and bool(self.marker.identity or self.marker.marker_id)

    def apply(self, changes: Changes) -> None:
        """Update the snapshot with changes that were committed."""
        self.marker = changes.marker or self.marker
        self.space = changes.space or self.space
        self.count = changes.count or self.count
        self.namespaces = changes.namespaces or self.namespaces
        self.slots.update(changes.slots)
        self.last_new = self.last_new if changes.last_new is None else changes.last_new
        if changes.instance in changes.own:
            self.own = changes.own[changes.instance]


@dataclass(slots=True)
class Changes:
    """What a decision writes.  Every written cell is compared; so are marker and space if present.

    A store whose snapshots have ``counted`` also writes and compares ``namespaces``.

    Attributes:
        instance: the instance that asks.
        marker: the store's new marker.
        space: the namespace's new cell.
        count: the new count.
        namespaces: how many namespaces are counted from now on.
        slots: the new slots: CosId's cell and aiocosid's.
        own: the new cells of instances: the machine id that an instance holds, or None to remove
            the cell.  Ignored on stores where CosId's cell has the instance as its key.
        last_new: CosId's new adder.
        signed: the machine id that is renewed; the time until it expires starts again.
        guard_ms: the safe guard of that instance.
    """

    instance: str = ""
    marker: Marker | None = None
    space: NamespaceRecord | None = None
    count: Count | None = None
    namespaces: NamespaceCount | None = None
    slots: dict[int, MachineSlot] = field(default_factory=dict[int, MachineSlot])
    own: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    last_new: int | None = None
    signed: int | None = None
    guard_ms: int = 0

    def __bool__(self) -> bool:
        """Return whether anything is written."""
        written = (self.marker, self.space, self.count, self.namespaces, self.last_new)
        return bool(self.slots or self.own) or any(each is not None for each in written)


class CellBackend(Protocol):
    """What a store must implement for machine ids."""

    label: str
    """The server or file in messages, without credentials."""

    name: str
    """The servers, without credentials."""

    address: str
    """The URL without the login; empty for a user's client."""

    fork_remedy: str
    """The remedy for a forked child, in messages."""

    is_local: bool
    """Whether it answers without suspending, so that calls need not take turns."""

    async def aopen(self) -> None:
        """Prepare for use in this process; it connects on first use.

        Raises:
            ForkedError: it uses a client of the parent process.
        """
        raise NotImplementedError

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        """Read a namespace's cells, all at one moment, or so that a commit detects changes.

        Raises:
            CorruptMachineStateError: a cell of aiocosid, or the asking instance's own, is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        raise NotImplementedError

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        """Write all changes, if the cells that the decision is based on are unchanged; else none.

        It compares the store's identity, the marker, the namespace's cell, and every written cell;
        a written cell that was absent must still be absent.  If it succeeds, it updates
        ``snapshot``.  It may safely be applied twice: the second time a compared cell has changed.

        A marker or a namespace's cell that was absent and is not written may exist by now, because
        SQL and ZooKeeper cannot compare that.  It is harmless.  A new marker says only that nothing
        was lost, and the next decision counts the ids again, including the one that was committed
        meanwhile.  An absent cell of the namespace is written by every decision that grants or
        renews an id; those that release one do not look at it.

        Returns:
            False if another commit came first: nothing was written.

        Raises:
            StoreError: the store refuses or cannot be reached; the commit may have succeeded.
        """
        raise NotImplementedError


def token_of(renewal: str) -> str:
    """Return the token in the name of a renewal."""
    return renewal.partition(" ")[0]


def freed(slot: MachineSlot, stamp_ms: int, **fields: Any) -> MachineSlot:  # noqa: ANN401 - fields of a record
    """Return a slot as released; its record names no instance."""
    record = slot.record or MachineRecord()
    record = replace(
        record, instance="", stable=False, claimed="", version=record.version + 1, **fields
    )
    return MachineSlot((Owner("", stamp_ms),), record, slot.seen_ms)
