"""The state of a namespace's machine ids as it lies in a store: what the rules read and write.

A store keeps *cells*: values under keys, each read and compared as a whole.  Its backend reads them
into a `Snapshot`; the rules (`_rules`) decide what is to change; the backend commits the `Changes`
in one atomic step, if every cell that the decision rested on still has the value that was read.

Pure: values only.  The texts of our own cells are the same on every store, compact JSON.
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
    "MAX_MS",
    "CellBackend",
    "Changes",
    "Count",
    "Damage",
    "Marker",
    "Need",
    "Note",
    "Owner",
    "Seat",
    "Snapshot",
    "Space",
    "freed",
    "read_note",
)

MAX_MS: Final = 2**53 - 1
"""The latest time that is kept, unix milliseconds: what JSON and Lua hold exactly."""

ENDLESS_MS: Final = 2**52
"""Milliseconds; a safe guard that is as long has no end."""


@dataclass(frozen=True, slots=True)
class Owner:
    """CosId's own cell of a machine id: who holds it, and when that one was heard of last.

    Attributes:
        instance: the holder's instance id; empty if the id was given back.
        stamp_ms: the holder's last sign of life by its own clock, unix milliseconds.
    """

    instance: str
    stamp_ms: int


@dataclass(frozen=True, slots=True)
class Note:
    """Our own cell beside CosId's, about one machine id.

    Attributes:
        instance: of whom it speaks; what it says of it counts only while that one holds the id.
        stable: whether that one keeps the id when it is closed, or silent.
        mark_ms: no id was issued with a later time, unix milliseconds; -1 for none.
        token: of the call that handed the id out last; who comes with another one is late.
        turn: counts the writes, so that no two values of the cell are ever equal.
        claimed: the name of the quarantine in which the holder asserted the id, or empty.
        born_ms: when the holder asked for the id, by its clock, if it was asserted.
    """

    instance: str = ""
    stable: bool = False
    mark_ms: int = -1
    token: str = ""
    turn: int = 0
    claimed: str = ""
    born_ms: int = 0

    def text(self) -> str:
        """Return it as it is stored."""
        return _text(self)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote.

        Raises:
            ValueError: it is something else.
        """
        return cls(**_facts(text, cls()))


read_note: Final = lru_cache(maxsize=4096)(Note.read)
"""Reads a note; of the many that a hand-out looks at most are as they were."""


@dataclass(frozen=True, slots=True)
class Space:
    """Our own cell about a namespace.

    Attributes:
        identity: of the store for which this namespace is sound, or in quarantine.
        epoch: of the store's marker at that time; empty if there was none.
        bits: how wide the machine ids are, 1 to 31; 0 if none was handed out yet.
        guard_ms: the longest safe guard that was ever named, 0 for none, `ENDLESS_MS` for no end.
        quarantine: the name of the quarantine that runs, or empty.
        since_ms: when it began, by the store's clock.
        gaps: whether numbers below the last new one were left out.
        is_new: whether nothing at all was there when the quarantine began.
    """

    identity: str = ""
    epoch: str = ""
    bits: int = 0
    guard_ms: int = 0
    quarantine: str = ""
    since_ms: int = 0
    gaps: bool = False
    is_new: bool = False

    def text(self) -> str:
        """Return it as it is stored."""
        return _text(self)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote.

        Raises:
            ValueError: it is something else.
        """
        found = cls(**_facts(text, cls()))
        if not 0 <= found.bits <= 31:  # noqa: PLR2004 - MAX_MACHINE_BITS, of another room
            raise ValueError(text)
        return found


@dataclass(frozen=True, slots=True)
class Marker:
    """The store's own cell: a store that has it has forgotten nothing since it was written.

    Attributes:
        identity: of the store that it was written for.
        epoch: another one each time that it is written.
    """

    identity: str = ""
    epoch: str = ""

    def text(self) -> str:
        """Return it as it is stored."""
        return _text(self)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote.

        Raises:
            ValueError: it is something else.
        """
        return cls(**_facts(text, cls()))


@dataclass(frozen=True, slots=True)
class Count:
    """How many machine ids of a namespace bear a note of ours; lies with the store's marker.

    Attributes:
        epoch: of the marker under which they were counted.
        ids: how many.
    """

    epoch: str = ""
    ids: int = 0

    def text(self) -> str:
        """Return it as it is stored."""
        return _text(self)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote.

        Raises:
            ValueError: it is something else.
        """
        return cls(**_facts(text, cls()))


@dataclass(frozen=True, slots=True)
class Seat:
    """One machine id: CosId's cell, and ours.

    Attributes:
        owners: who holds it, or gave it back.  One as a rule; several only where CosId's layout
            allows it; none if only our note is left.
        note: our note, if there is one.
        seen_ms: when the note was written last, by the store's clock; -1 if that is not known.
        is_damaged: whether CosId's cell cannot be read: it counts as held, by nobody we know.
    """

    owners: tuple[Owner, ...] = ()
    note: Note | None = None
    seen_ms: int = -1
    is_damaged: bool = False

    @property
    def holders(self) -> tuple[str, ...]:
        """The instance ids of those who hold it."""
        return tuple(each.instance for each in self.owners if each.instance)

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it, as far as is known."""
        return self.is_damaged or any(each.instance for each in self.owners)

    @property
    def is_noted(self) -> bool:
        """Whether one of us was handed it, and both cells are there."""
        return bool(self.note and self.note.token and (self.owners or self.is_damaged))

    @property
    def stamp_ms(self) -> int:
        """The latest stamp; -1 if there is none."""
        return max((each.stamp_ms for each in self.owners), default=-1)

    @property
    def mark_ms(self) -> int:
        """The time mark; -1 if there is none."""
        return self.note.mark_ms if self.note is not None else -1

    @property
    def floor_ms(self) -> int:
        """Above which time the next owner's ids have to be; -1 if nobody had it."""
        return max(self.stamp_ms, self.mark_ms)

    def note_about(self, instance: str) -> Note | None:
        """Return our note if it speaks of that instance."""
        return self.note if self.note is not None and self.note.instance == instance else None


@dataclass(frozen=True, slots=True)
class Damage:
    """A cell of CosId's that cannot be read, and of which no machine id is known.

    Attributes:
        place: the key, row or node.
        found: what it holds, shortened.
        instance: whose entry it is, if that is known.
    """

    place: str
    found: str
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """What a decision has to see.

    Attributes:
        instance: whose cell of its own, and whose machine id; empty for none.
        machine_id: this one too; None for no other.
        is_complete: all machine ids of the namespace.
        sample: so many of those that might be taken are enough instead, if not 0, on a store where
            a read of all is dear: the first given back, else the lowest new ones.
    """

    instance: str = ""
    machine_id: int | None = None
    is_complete: bool = False
    sample: int = 0


@dataclass(slots=True)
class Snapshot:
    """The cells of a namespace at one moment, as a backend has read them.

    After a commit that was carried out the backend brings it up to date (`apply`), so that a
    renewal needs no further read.

    Attributes:
        namespace: the namespace.
        identity: which store this is now: another one after it was started anew, or restored.
        now_ms: the store's clock, milliseconds.
        marker: the store's marker, if it is there.
        space: the namespace's cell, if it is there.
        count: the count that lies with the marker, if it is there.
        seats: machine ids by number, in the store's own order.
        own: the machine id that the asking instance's own cell names, if there is one.
        last_new: CosId's adder: the last machine id that was new; None on stores that have none.
        first_new: where those begin instead that are looked at as new ones.
        is_complete: whether all seats of the namespace are here.
        stamps_tell: whether stamps can be compared with ``now_ms``: False where no peer of CosId's
            is, and only ``seen_ms`` tells who is silent.
        damages: what cannot be read.
        raw: the backend's own: what it has to compare.
        is_doubtful: whether the backend has found by its own means that the store was put back.
        store: names the store in messages.
        cells: of a sample: how many cells of CosId's there are, of whatever machine id; else -1.
        notes: of a sample: how many machine ids have a note at most; else -1.
    """

    namespace: str
    identity: str
    now_ms: int = 0
    marker: Marker | None = None
    space: Space | None = None
    count: Count | None = None
    seats: dict[int, Seat] = field(default_factory=dict[int, Seat])
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
    notes: int = -1

    @property
    def is_sample(self) -> bool:
        """Whether only the asker's machine id and some that might be taken are here."""
        return self.cells >= 0 and not self.is_complete

    def knows(self, identity: str) -> bool:
        """Tell whether a noted identity is this store's."""
        return identity == self.identity and not self.is_doubtful

    def narrowed(self, machine_id: int) -> Snapshot:
        """Return what a renewal of one machine id goes on from."""
        seats = {machine_id: self.seats[machine_id]} if machine_id in self.seats else {}
        return replace(self, seats=seats, is_complete=False, cells=-1)

    def counts_one_more(self, changes: Changes) -> bool:
        """Tell whether the count may be added to, whatever it is by now under the same epoch.

        One more machine id bears a note, whose cell is compared.  Whoever counts anew writes the
        cell of the namespace or the marker as well, which are.  Else of those who start at once
        each would have to begin again for every other one.
        """
        old = self.count
        return old is not None and changes.count == Count(old.epoch, old.ids + 1)

    def apply(self, changes: Changes) -> None:
        """Be as after a commit of these changes."""
        self.marker = changes.marker or self.marker
        self.space = changes.space or self.space
        self.count = changes.count or self.count
        self.seats.update(changes.seats)
        self.last_new = self.last_new if changes.last_new is None else changes.last_new
        if changes.instance in changes.own:
            self.own = changes.own[changes.instance]


@dataclass(slots=True)
class Changes:
    """What a decision writes.  Every written cell is compared; marker and space are in any case.

    Attributes:
        instance: who asks.
        marker: the store's marker anew.
        space: the namespace's cell anew.
        count: the count anew.
        seats: machine ids as they are to be; CosId's cell and ours.
        own: cells of instances: the machine id that an instance holds, None to remove the cell.
            Nothing is to be done where CosId's own cell is keyed by the instance.
        last_new: CosId's adder anew.
        signed: of whom a sign of life is given, which starts the clock of its silence.
        guard_ms: the safe guard of who gives it.
    """

    instance: str = ""
    marker: Marker | None = None
    space: Space | None = None
    count: Count | None = None
    seats: dict[int, Seat] = field(default_factory=dict[int, Seat])
    own: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    last_new: int | None = None
    signed: int | None = None
    guard_ms: int = 0

    def __bool__(self) -> bool:
        """Tell whether anything is written."""
        written = (self.marker, self.space, self.count, self.last_new)
        return bool(self.seats or self.own) or any(each is not None for each in written)


class CellBackend(Protocol):
    """What a store has to be able to do for machine ids."""

    label: str
    """Names the server or file in messages, without credentials."""

    fork_remedy: str
    """What to do in a forked child."""

    is_local: bool
    """Whether it answers without a suspension, so that nobody need take turns."""

    async def aopen(self) -> None:
        """Get ready in this process; connects on first use.

        Raises:
            ForkedError: it lives on a client of the parent process.
        """
        raise NotImplementedError

    async def read(self, namespace: str, need: Need) -> Snapshot:
        """Read a namespace's cells, all at one moment or so that a commit finds out.

        Raises:
            CorruptMachineStateError: a cell of ours, or the asking instance's own, is damaged.
            StoreError: the store refuses or cannot be reached.
        """
        raise NotImplementedError

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        """Write all, or nothing: only if what the decision rested on has the value that was read.

        Compared are the store's identity, the marker, the namespace's cell, and every written cell;
        a cell that was absent has to be absent still.  Carried out, it brings ``snapshot`` up to
        date.  Safe to be applied twice: the second time what is compared has changed.

        Returns:
            False if others were faster: nothing was written.

        Raises:
            StoreError: the store refuses or cannot be reached; it may have been carried out.
        """
        raise NotImplementedError


def _text(cell: Note | Space | Marker | Count) -> str:
    facts = {name: getattr(cell, name) for name in cell.__slots__}
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


def _facts(text: str, like: Note | Space | Marker | Count) -> Mapping[str, Any]:
    """Read the fields of a cell; each has the type that it has in ``like``."""
    try:
        found: Any = json.loads(text)
    except RecursionError:
        raise ValueError(text) from None
    if type(found) is not dict:
        raise ValueError(text)
    facts = cast("dict[str, Any]", found)
    if facts.keys() != set(like.__slots__):
        raise ValueError(text)
    for name, value in facts.items():
        is_time = type(value) is int and -1 <= value <= MAX_MS
        if type(value) is not type(getattr(like, name)) or not (is_time or type(value) is not int):
            raise ValueError(text)
    return facts


def freed(seat: Seat, stamp_ms: int, **fields: Any) -> Seat:  # noqa: ANN401 - fields of a note
    """Return a seat as given back, with its note about nobody."""
    note = seat.note or Note()
    note = replace(note, instance="", stable=False, claimed="", turn=note.turn + 1, **fields)
    return Seat((Owner("", stamp_ms),), note, seat.seen_ms)
