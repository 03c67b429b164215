"""Counters and cells on etcd."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from ...abc import MAX_ID, Counter, ServerInfo
from ...errors import CorruptCounterError, CounterNotCreatedError
from ...machine.cells import ENDLESS_MS, MAX_MS, MachineSlot, NamespaceRecord, Snapshot
from ...machine.rules import quarantine_ms
from .._durability import ETCD as RULES
from .._durability import findings
from .._own_cells import Places, is_enough, quoted
from ..backend import MISSING, Backend, after_add, after_raise, counters_of
from ._link import STORE, existing, put, remove, span, unchanged, unwritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...machine.cells import Changes, Marker, ReadRequest
    from ._link import EtcdLink, Member, Message

__all__ = ("EtcdBackend",)

INTEGER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


class EtcdBackend(Backend):
    """One cluster.  Every change is a transaction that compares the values that were read.

    etcd has no readable clock, but it counts down leases on its leader's monotonic clock, so leases
    serve as the store's clock.  An owner's renewal is a key on a lease as long as its *own* safe
    guard; an owner without such a key has expired.  A quarantine is a key on a lease, and ends with
    the lease.  When another member becomes the leader, all leases start again, so no lease is ever
    shorter than it should be.

    A cluster that lost data is detected by its id, raft term and revision.  Term and revision never
    fall on a cluster that lost nothing.  The cells contain id and term, and each object remembers
    the highest revision that it has seen.
    """

    __slots__ = ("_known", "_reached", "_root", "_spares")

    has_clock = False

    link: EtcdLink

    order_risk = ""

    def __init__(self, link: EtcdLink, prefix: str) -> None:
        super().__init__(STORE, link, name=link.name)
        self._root = prefix
        self._known: dict[str, bytes] = {}  # the counters' values as this object last wrote them
        # Cluster, marker id and revision of each namespace.
        self._reached: dict[str, tuple[str, str, int]] = {}
        self._spares: dict[int, int] = {}  # unused leases, by their length in milliseconds

    async def ask_server(self) -> ServerInfo:
        version = await self.link.call(lambda member: member.version())
        return findings(RULES, ()).facts(f"etcd {version}")

    # Counters.

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        choose = partial(after_add, by=by, first=first, store=STORE, name=name)
        # The remembered value may be old; then the transaction fails.  It is used only once.
        return await self._change(name, choose, self._known, is_marked=True)

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        choose = partial(after_raise, above=above, create=create)
        max_id = await self._change(name, choose, {})
        return None if max_id == MISSING else Counter(namespaced_name=name, last_max_id=max_id)

    async def _change(
        self,
        name: str,
        choose: Callable[[int | None], int],
        known: dict[str, bytes],
        *,
        is_marked: bool = False,
    ) -> int:
        """Write the value that ``choose`` returns for the counter's value, if it differs.

        Args:
            name: the counter's name.
            choose: returns the value to write.
            known: the values that may be tried without reading first.
            is_marked: whether a missing counter is created only if the store has its marker.
        """
        key, marker = self._key(name), self._key("machine/store/marker")

        async def change(member: Member) -> int:
            value = known.pop(key, None) or _value((await member.read(key))[1])
            while True:
                found = _sound(key, value)
                chosen = choose(found)
                if chosen in {MISSING, found}:
                    return chosen
                text = b"%d" % chosen
                compares = [unchanged(key, value)]
                if is_creating := is_marked and value is None:
                    compares.append(existing(marker))
                reply = await member.write(compares, [put(key, text)], else_read=key)
                if reply.succeeded:
                    known[key] = text
                    return chosen
                value = _value(reply.responses[0].response_range.kvs)
                if is_creating and value is None and not (await member.read(marker))[1]:
                    raise CounterNotCreatedError(self.label, counter=name)
                await member.pause()

        return await self.link.call(change, key=key)

    async def peek(self, name: str) -> int | None:
        key = self._key(name)
        _, found = await self.link.call(lambda member: member.read(key), key=key)
        return _sound(key, _value(found))

    async def counters(self, prefix: str) -> Sequence[Counter]:
        root = self._key("")
        _, found = await self.link.call(lambda member: member.read(prefix=root + prefix))
        values = ((_text(each.key).removeprefix(root), _integer(each.value)) for each in found)
        # Only counters' keys have a dot.
        return counters_of((each for each in values if "." in each[0]), prefix)

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    # Cells.

    async def namespaces(self) -> Sequence[str]:
        root = self._key("machine/ns/")
        _, found = await self.link.call(lambda member: member.read(prefix=root, keys_only=True))
        start = self._key("machine/")
        return [*{EtcdPlaces.namespace_of(_text(each.key), start) for each in found}]

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        return await self.link.call(lambda member: self._read(member, namespace, need))

    async def _read(self, member: Member, namespace: str, need: ReadRequest) -> Snapshot:
        before = self._reached.get(namespace)
        snapshot = await self._find(member, EtcdPlaces(self._root, namespace), need)
        self._look_back(snapshot, before)
        await _tell_time(member, snapshot)
        return snapshot

    async def _find(self, member: Member, places: EtcdPlaces, need: ReadRequest) -> Snapshot:
        if need.is_complete and need.sample:
            return await _sample(member, places, replace(need, is_complete=False))
        prefix, further, counted = "", 0, -1
        if need.is_complete:  # read the count first, so it never exceeds the ids read
            prefix = places.root
            reply = await member.read_ranges(span(places.further, is_prefix=True, count_only=True))
            further = reply.responses[0].response_range.count
        header, found = await member.read(*places.needed(need), prefix=prefix)
        if need.namespaces:  # after the count, so the count never exceeds them
            reply = await member.read_ranges(span(places.counts, is_prefix=True, count_only=True))
            counted = reply.responses[0].response_range.count
        snapshot = places.read(header, found, need, further, counted=counted)
        if is_enough(snapshot, need):
            return snapshot
        return await self._find(member, places, replace(need, is_complete=True))

    def _look_back(self, snapshot: Snapshot, before: tuple[str, str, int] | None) -> None:
        """Mark a cluster as doubtful if its revision fell, unless a quarantine has begun.

        Args:
            snapshot: what was read.
            before: cluster, marker id and revision as they were known before the read.
        """
        reached = _reached(snapshot)
        is_behind = before is not None and before[:2] == reached[:2] and before[2] > reached[2]
        runs = snapshot.space is not None and snapshot.space.quarantine
        snapshot.is_doubtful = bool(is_behind and not runs)
        if not snapshot.is_doubtful:
            self._reached[snapshot.namespace] = reached

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        is_written = await self.link.call(EtcdCommit(snapshot, changes, self._spares).write)
        if is_written:
            self._reached[snapshot.namespace] = _reached(snapshot)
        return is_written


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _value(found: Sequence[Message]) -> bytes | None:
    return found[0].value if found else None


def _sound(key: str, value: bytes | None) -> int | None:
    """Return the number of a counter's value; None for a missing value.

    Raises:
        CorruptCounterError: the value has a form that this store never writes.
    """
    found = None if value is None else _integer(value)
    if value is not None and found is None:
        raise CorruptCounterError(STORE, counter=key, found=f"{value[:40]!r}")
    return found


def _integer(value: bytes) -> int | None:
    """Return a number of 0 to 2^63-1 in the form that this store writes; None for anything else."""
    # int() would also accept spaces, underscores, signs and any length.
    number = int(value) if INTEGER.fullmatch(value) else None
    return number if number is not None and number <= MAX_ID else None


def _reached(snapshot: Snapshot) -> tuple[str, str, int]:
    marker_id = snapshot.marker.marker_id if snapshot.marker is not None else ""
    return snapshot.identity.partition(" ")[0], marker_id, snapshot.raw.revision


async def _sample(member: Member, places: EtcdPlaces, need: ReadRequest) -> Snapshot:
    """Read the caller's own machine id, and some that were released or are new."""
    descending = {"sort_order": "DESCEND", "limit": 1, "keys_only": True}
    reply = await member.read_ranges(
        *(span(key) for key in places.needed(need)),
        span(places.free, is_prefix=True, limit=need.sample, keys_only=True),
        span(places.slots, is_prefix=True, **descending),
        span(places.further, is_prefix=True, count_only=True),
    )
    *parts, freed, slots, counts = (each.response_range for each in reply.responses)
    found = [each for part in parts for each in part.kvs]
    texts = [_text(each.value) for each in found if _text(each.key) == places.own(need.instance)]
    texts += [_text(each.key).removeprefix(places.free) for each in freed.kvs]
    if numbers := {int(each) for each in texts if each.isdecimal()}:
        keys = [key for each in numbers for key in (places.slot(each), places.alive(each))]
        found += (await member.read(*keys))[1]
    snapshot = places.read(reply.header, found, need, counts.count)
    snapshot.cells = snapshot.records = slots.count
    last = _text(slots.kvs[0].key).removeprefix(places.slots) if slots.kvs else ""
    snapshot.first_new = first = int(last) + 1 if last.isdecimal() else 0
    snapshot.slots.update((each, MachineSlot()) for each in range(first, first + need.sample))
    return snapshot


async def _tell_time(member: Member, snapshot: Snapshot) -> None:
    """Derive the store's time from the lease of the running quarantine."""
    lease, space = snapshot.raw.quarantine, snapshot.space
    if space is None or not space.quarantine:
        return
    snapshot.space, length_ms = replace(space, since_ms=0), quarantine_ms(space)
    seconds = await member.remaining(lease) if lease and length_ms < inf else -1
    if seconds >= 0:
        snapshot.now_ms = max(0, int(length_ms) - (seconds + 1) * 1000)
    elif lease is None or (lease and length_ms < inf):
        snapshot.now_ms = ENDLESS_MS  # the quarantine has ended, at an unknown time


ALIVE: Final = MAX_MS
"""The time of an owner's last renewal: etcd only shows whether the owner's lease has ended."""
LONGEST_LEASE: Final = 9_000_000_000
"""etcd's limit in seconds.  A longer lease is replaced by a key that never expires."""
MOST_SEATS: Final = 40
"""How many slots are compared individually: etcd allows 128 comparisons or changes in a
transaction.
"""


class EtcdSnapshot(Snapshot):
    """Identifies the cluster by its id and its raft term, which only falls if it was restored."""

    __slots__ = ()

    def knows(self, identity: str) -> bool:
        """Return whether a stored identity is this cluster's, which has not been restored since."""
        noted, cluster = identity.partition(" "), self.identity.partition(" ")
        is_later = noted[2].isdecimal() and int(noted[2]) <= int(cluster[2])
        return noted[0] == cluster[0] and is_later and not self.is_doubtful


class EtcdPlaces(Places):
    """The keys of one namespace, under ``<prefix>/machine/``.

    The namespace is written without a dot, so no counter can have such a key.

    Attributes:
        quarantine: a key that exists while a quarantine runs.
        lives: the prefix of the keys on the owners' leases.
        free: the prefix of the keys of machine ids that were released.
        further: the prefix of the keys that count machine ids on top of the stored count.
    """

    kind = EtcdSnapshot
    is_timed = False

    def __init__(self, prefix: str, namespace: str) -> None:
        super().__init__(STORE, f"{prefix}/machine/", namespace)
        self.quarantine = f"{self.root}quarantine"
        self.lives, self.free = f"{self.root}alive/", f"{self.root}free/"
        self.further = f"{prefix}/machine/store/further/{quoted(namespace)}/"

    def alive(self, machine_id: int) -> str:
        """Return the key on the lease of a machine id's owner."""
        return f"{self.lives}{machine_id:08d}"

    def freed(self, machine_id: int) -> str:
        """Return the key that marks a machine id as released."""
        return f"{self.free}{machine_id:08d}"

    def needed(self, need: ReadRequest) -> list[str]:
        """Return the keys to read, in addition to all keys below `root` if those are needed."""
        more = [] if need.is_complete else [self.quarantine]
        more += [self.alive(need.machine_id)] if need.machine_id is not None else []
        return [*super().needed(need), *more]

    def counted(self, machine_id: int) -> str:
        """Return the key that counts a machine id."""
        return f"{self.further}{machine_id:08d}"

    def read(
        self,
        header: Message,
        found: Iterable[Message],
        need: ReadRequest,
        further: int = 0,
        *,
        counted: int = -1,
    ) -> Snapshot:
        """Return the snapshot, at time 0 of the store's clock.

        Args:
            header: the reply's header.
            found: the keys that exist, with their values.
            need: what was requested.
            further: how many keys begin with `further`.
            counted: how many namespaces have a count; -1 if the number was not read.

        Raises:
            CorruptMachineStateError: a cell is damaged.
        """
        raw = EtcdRaw(self, header.revision)
        for each in found:
            key = each.key.decode(errors="replace")
            raw.cells[key], number = each.value, key.removeprefix(self.lives)
            if key == self.quarantine:
                raw.quarantine = each.lease
            elif key.startswith(self.lives) and number.isdecimal():
                raw.lives[int(number)] = each.lease
        seen = {self.slot(number): ALIVE for number in raw.lives}
        snapshot = self.snapshot(
            f"{header.cluster_id:x} {header.raft_term}",
            # An empty cell is damaged, not missing.
            {key: text or b" " for key, text in raw.cells.items()},
            {key: seen.get(key, -ALIVE) for key in raw.cells},
            need,
            raw=raw,
            counted=counted,
        )
        if snapshot.count is not None:
            snapshot.count = replace(snapshot.count, ids=snapshot.count.ids + further)
        return snapshot


@dataclass(slots=True)
class EtcdRaw:
    """The values that a commit compares.

    Attributes:
        places: the keys of the cells.
        revision: the cluster's revision when they were last read or written.
        cells: the values of the cells.
        lives: the leases of owners that have not expired, by machine id; 0 for a lease without end.
        quarantine: the lease of the quarantine's key; 0 for a lease without end, None if there is
            no key.
    """

    places: EtcdPlaces
    revision: int
    cells: dict[str, bytes] = field(default_factory=dict[str, bytes])
    lives: dict[int, int] = field(default_factory=dict[int, int])
    quarantine: int | None = None


class EtcdCommit:
    """The changes of a snapshot.  They may be sent again to another member that answers."""

    def __init__(self, snapshot: Snapshot, changes: Changes, spares: dict[int, int]) -> None:
        """Prepare the transaction.

        Args:
            snapshot: the snapshot that the changes are based on.
            changes: what to write.
            spares: unused leases, by their length in milliseconds.
        """
        self._snapshot = snapshot
        self._spares = spares
        self._changes = changes
        self._raw: EtcdRaw = snapshot.raw
        self._places = self._raw.places
        self._lives = dict(self._raw.lives)
        self._is_renewal = _grant(snapshot, changes) == _grant(changes, changes)
        if not self._is_renewal:
            self._note_term()
        self._bounds = self._bound_seats()
        self._cells = self._places.texts(changes)
        self._compared = {self._places.marker, self._places.space, *self._cells}
        self._counting = self._count()

    def _note_term(self) -> None:
        """Store the cluster's raft term; a lower term seen later means that it was restored."""
        snapshot, changes = self._snapshot, self._changes
        for name in ("marker", "space"):
            cell: Marker | NamespaceRecord | None = getattr(changes, name) or getattr(
                snapshot, name
            )
            is_older = cell is not None and cell.identity != snapshot.identity
            if cell is not None and is_older and snapshot.knows(cell.identity):
                setattr(changes, name, replace(cell, identity=snapshot.identity))

    def _bound_seats(self) -> list[Message]:
        """Leave out machine ids that are written only to be compared, if there are too many.

        A process that takes one of them meanwhile is still detected; one that takes it later is
        detected by the namespace's record.
        """
        before, slots = self._snapshot.slots, self._changes.slots
        if len(slots) <= MOST_SEATS:
            return []
        self._changes.slots = {
            number: slot
            for number, slot in slots.items()
            if number not in before or slot.owners != before[number].owners
        }
        return [unwritten(self._places.slots, self._raw.revision)]

    def _count(self) -> list[Message]:
        """Return the operations on the count: each further machine id has its own key."""
        places, changes = self._places, self._changes
        if changes.count is None:
            return []
        if changes.signed is None or not self._snapshot.counts_one_more(changes):
            self._bounds.append(unwritten(places.further, self._raw.revision))
            return [remove(places.further, is_prefix=True)]
        del self._cells[places.count]
        return [put(places.counted(changes.signed), b"")]

    async def write(self, member: Member) -> bool:
        """Send the transaction; if nothing has changed, bring the snapshot up to date."""
        raw, before = self._raw, self._raw.cells
        compares = [unchanged(key, before.get(key)) for key in self._compared] + self._bounds
        ops = [put(key, text) if text else remove(key) for key, text in self._cells.items()]
        ops += self._counting + self._mark_free()
        ops += await self._quarantine(member)
        reply = await self._sign(member, compares, ops)
        header, cluster = reply.header, self._snapshot.identity.partition(" ")[0]
        # The transaction compares only values, which may be the same on a restored cluster.
        is_behind = f"{header.cluster_id:x}" != cluster or header.revision <= raw.revision
        if not reply.succeeded or is_behind:
            return False
        self._snapshot.apply(self._changes)
        after = before | self._cells
        raw.cells = {key: after[key] for key in self._compared if after.get(key)}
        raw.lives, raw.revision = self._lives, header.revision
        return True

    def _mark_free(self) -> list[Message]:
        """Return the operations on the keys that mark ids as held or released."""
        ops: list[Message] = []
        for number, slot in self._changes.slots.items():
            before = self._snapshot.slots.get(number, MachineSlot())
            if not slot.is_held:
                ops.append(put(self._places.freed(number), b""))
                if self._lives.pop(number, None) is not None or number in self._raw.lives:
                    ops.append(remove(self._places.alive(number)))
            elif before.owners and not before.is_held:
                ops.append(remove(self._places.freed(number)))
        return ops

    async def _quarantine(self, member: Member) -> list[Message]:
        """Return the operations on the quarantine's key, if a quarantine begins or ends."""
        key, space = self._places.quarantine, self._changes.space
        before = self._snapshot.space or NamespaceRecord()
        runs = before.quarantine, before.guard_ms
        if space is None or (space.quarantine, space.guard_ms) == runs:
            return []
        if not space.quarantine:
            return [] if self._raw.quarantine is None else [remove(key)]
        left_ms = space.since_ms + quarantine_ms(space) - self._snapshot.now_ms
        return [put(key, space.quarantine.encode(), await _grant_lease(member, left_ms))]

    async def _sign(self, member: Member, compares: list[Message], ops: list[Message]) -> Message:
        """Write; where possible, a renewal extends the owner's lease in the same round trip."""
        number, guard_ms = self._changes.signed, self._changes.guard_ms
        if number is None:
            return await member.write(compares, ops)
        key, who = self._places.alive(number), self._changes.instance.encode()
        lease = self._lives.get(number, 0) if self._is_renewal else self._spares.pop(guard_ms, 0)
        if lease:
            signed = [*ops, put(key, who, lease)]
            reply, seconds = await member.write_and_keep(compares, signed, lease)
            if reply is not None and (not reply.succeeded or seconds * 1000 >= guard_ms):
                return self._settle(reply, number, lease)
            if reply is not None:  # the lease has ended since, or is too short
                slot = self._places.slot(number)
                compares, ops = [unchanged(slot, self._cells[slot])], []
        lease = await _grant_lease(member, guard_ms)
        reply = await member.write(compares, [*ops, put(key, who, lease)])
        return self._settle(reply, number, lease)

    def _settle(self, reply: Message, number: int, lease: int) -> Message:
        """Record whether a lease was used."""
        if reply.succeeded:
            self._lives[number] = lease
        elif lease and not self._is_renewal:
            self._spares[self._changes.guard_ms] = lease
        return reply


def _grant(of: Snapshot | Changes, changes: Changes) -> tuple[str, str] | None:
    """Return the holder of the machine id that is renewed, and the lease's token."""
    slot = of.slots.get(-1 if changes.signed is None else changes.signed)
    return (slot.record.instance, slot.record.token) if slot is not None and slot.record else None


async def _grant_lease(member: Member, duration_ms: float) -> int:
    """Return a new lease of at least that length, in whole seconds; 0 for a lease without end."""
    is_endless = duration_ms > LONGEST_LEASE * 1000
    return 0 if is_endless else await member.grant(ceil(duration_ms / 1000))
