"""Counters and machine ids on one ZooKeeper deployment."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ...abc import Counter, ServerInfo
from ...errors import (
    CorruptCounterError,
    CorruptMachineStateError,
    CounterNotCreatedError,
    InvalidArgumentError,
)
from ...machine.cells import (
    MAX_MS,
    Count,
    Damage,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceCount,
    NamespaceRecord,
    Owner,
    Snapshot,
)
from ...machine.distributor import MAX_MACHINE_ID
from ...machine.rules import RELEASE_STAMP_MARGIN
from .._durability import ZOOKEEPER as RULES
from .._durability import findings
from ..backend import MISSING, Backend, after_add, after_raise, counters_of
from .tree import (
    ANY,
    COSID,
    OURS,
    STORES_OWN,
    Node,
    ZookeeperLink,
    create,
    delete,
    expect,
    name_of,
    node_of,
    own_node_of,
    path_of,
    text_of,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...abc import IdSegmentDistributor
    from ...machine.cells import Changes, ReadRequest
    from .tree import Change, Nodes

__all__ = ("Cells", "ZookeeperBackend")

WIDTH: Final = 8  # bytes of a big-endian Java ``long``
LOCKER: Final = "-locker"  # the suffix of Curator's mutex


class ZookeeperBackend(Backend):
    """CosId's nodes below ``/cosid``, and aiocosid's below ``/aiocosid``.

    A range is reserved as in Curator's ``DistributedAtomicLong``: read the node, write it if its
    version is unchanged, and otherwise repeat.  After many conflicts Curator uses a mutex below
    ``...-locker``, which only saves attempts: writes under the mutex also compare the version.  So
    aiocosid needs no mutex.

    The nodes of machine ids are not ephemeral: an id expires after the safe guard without a
    renewal, on the clock of ZooKeeper's leader.  Still, once its session was interrupted, a lease
    issues no ids until a renewal that was sent after the interruption has succeeded.

    ZooKeeper keeps confirmed writes when its leader fails.  It loses them if its data is removed,
    or restored from a copy.  Each holder of an id detects a restored copy at its next renewal,
    because its last confirmed write is missing.
    """

    __slots__ = ("_written",)

    link: ZookeeperLink

    order_risk = ""

    def __init__(self, link: ZookeeperLink) -> None:
        super().__init__(link.label, link)
        self._written: dict[tuple[str, int], int] = {}  # last transaction of each namespace and id

    @property
    def session(self) -> int:
        """The session's number, which changes at the moment of each interruption."""
        return self.link.session

    async def ask_server(self) -> ServerInfo:
        facts = await super().ask_server()
        return findings(RULES, ()).facts(facts.version)

    # Counters.

    def check_counter(self, counter: IdSegmentDistributor) -> None:
        """Refuse a name that ends in ``-locker``."""
        if counter.name.endswith(LOCKER):
            rule = f"must be a string that does not end in {LOCKER!r}: Curator keeps a lock there"
            raise InvalidArgumentError("name", counter.name, rule)

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        add = partial(after_add, by=by, first=first, store=self.label, name=name)
        return await self._change(name, add, is_marked=True)

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        max_id = await self._change(name, partial(after_raise, above=above, create=create))
        return None if max_id == MISSING else Counter(namespaced_name=name, last_max_id=max_id)

    async def _change(
        self, name: str, change: Callable[[int | None], int], *, is_marked: bool = False
    ) -> int:
        """Write and return ``change(value)`` of a counter, whose value is None if it is missing.

        Args:
            name: the counter's name.
            change: returns the value to write for the present one.
            is_marked: whether a missing counter is created only if the store has its marker.
        """
        path = f"{COSID}/{path_of(name)}"

        async def attempt(nodes: Nodes) -> int | None:
            (node,) = await nodes.get(path)
            before = self._value(path, node)
            after = change(before)
            if after in {MISSING, before}:
                return after
            is_creating = is_marked and before is None
            marked = [("check", MARKER, (ANY,))] if is_creating else []
            is_done = await nodes.commit(*marked, write(path, after.to_bytes(WIDTH, "big"), node))
            if is_done is None and is_creating and (await nodes.get(MARKER)) == [None]:
                raise CounterNotCreatedError(self.label, counter=name)
            return None if is_done is None else after

        return await self.link.until_done(attempt)

    async def peek(self, name: str) -> int | None:
        path = f"{COSID}/{path_of(name)}"
        (node,) = await self.link.call(lambda nodes: nodes.get(path))
        return self._value(path, node)

    def _value(self, path: str, node: Node | None) -> int | None:
        # A node without data is not a counter, but the parent of a name with a slash.
        if node is None or (not node.data and node.children):
            return None
        data = node.data
        if (value := _integer(data)) is None:
            found = (
                f"{len(data)} bytes"
                if len(data) != WIDTH
                else f"{int.from_bytes(data, 'big', signed=True)}"
            )
            raise CorruptCounterError(self.label, counter=path, found=found)
        return value

    async def counters(self, prefix: str) -> Sequence[Counter]:
        def is_no_counter(name: str) -> bool:
            return name.startswith("__") or name.endswith(LOCKER)

        found = await self.link.call(lambda nodes: nodes.walk(COSID, skip=is_no_counter))
        names = (text_of(path.removeprefix(f"{COSID}/")) for path in found)
        values = (_integer(node.data) for node in found.values())
        return counters_of(zip(names, values, strict=True), prefix)

    # Cells.

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        cells = Cells(self.label, namespace)
        found = await self.link.call(lambda nodes: cells.read(nodes, need))
        for (of, number), written in self._written.items():
            if of == namespace and (found.is_complete or number in found.slots):
                # A confirmed write is missing: the server was restored to an older state.
                found.is_doubtful |= cells.node(cells.record(number)).changed < written
        return found

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        cells, namespace, is_doubtful = snapshot.raw, snapshot.namespace, snapshot.is_doubtful
        if not await self.link.call(lambda nodes: cells.commit(nodes, snapshot, changes)):
            return False
        for of, number in tuple(self._written):
            if of == namespace and (is_doubtful or number in changes.slots):
                del self._written[of, number]
        if changes.signed is not None:
            record = cells.node(cells.record(changes.signed))
            self._written[namespace, changes.signed] = record.changed
        return True

    async def namespaces(self) -> Sequence[str]:
        async def find(nodes: Nodes) -> set[str]:
            found = await nodes.walk(COSID, skip=lambda name: name.startswith("__"))
            paths = [path for path, node in found.items() if node.children]
            used = await nodes.get(*(f"{path}/{ENTRIES}" for path in paths))
            theirs = zip(paths, used, strict=True)
            ours = {*await nodes.children(OURS)} - STORES_OWN
            return {
                *(text_of(path.removeprefix(f"{COSID}/")) for path, node in theirs if node),
                *(name_of(name, own_node_of) for name in ours),
            }

        return list(await self.link.call(find))


CLOCK: Final = f"{OURS}/clock"  # written to get the server's time
MARKER: Final = f"{OURS}/marker"
NAMESPACES: Final = f"{OURS}/namespaces"
COUNTS: Final = f"{OURS}/counts"
ENTRIES: Final = "__itc_idx"

ADDER_WIDTH: Final = 4  # bytes of a big-endian Java ``int``
SHOWN: Final = 100  # how many characters of a damaged value are shown

ABSENT: Final = Node(b"", -1, 0, 0, -1, 0, 0)

_STATE: Final = re.compile(rb"([0-9]{1,10})\|([0-9]{1,16})")
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}|0[0-9]{7}")

C = TypeVar("C", Marker, NamespaceRecord, Count, NamespaceCount, MachineRecord)


def _integer(data: bytes) -> int | None:
    """Return a counter's value; None if it is damaged."""
    value = int.from_bytes(data, "big", signed=True)
    return value if len(data) == WIDTH and value >= 0 else None


class Cells:
    """The paths of one namespace, and their nodes as they were read.

    Attributes:
        entries: CosId's path with a node for each instance that holds an id.
        adder: CosId's node with the number of ids that were ever granted as new.
        pool: CosId's path with a node for each id that was released.
        space: aiocosid's record of the namespace.  It has a child that is named after the
            transaction that created it, so a replacement of this node does not have that child.
        records: aiocosid's path with a node for each id that it granted.
        count: aiocosid's node with the number of those records.
        nodes: the nodes by path; None for a missing node.
        damages: the damaged entries.
        is_old: whether nodes were written since the read, so the namespace's record may be another
            one by now.
    """

    def __init__(self, label: str, namespace: str) -> None:
        self._label, self._namespace = label, namespace
        theirs, own_name = f"{COSID}/{path_of(namespace)}", own_node_of(namespace)
        self.entries = f"{theirs}/{ENTRIES}"
        self.adder = f"{theirs}/__counter"
        self.pool = f"{theirs}/__revert"
        self.space = f"{OURS}/{own_name}/space"
        self.records = f"{OURS}/{own_name}/notes"
        self.count = f"{COUNTS}/{own_name}"
        self.nodes: dict[str, Node | None] = {}
        self.damages: list[Damage] = []
        self.is_old = False
        self._is_guarded = False

    def record(self, machine_id: int) -> str:
        """Return the path of an id's record."""
        return f"{self.records}/{machine_id:08}"

    def owned(self, machine_id: int, instance: str) -> str:
        """Return the path of the entry of an instance's id; without an instance, of the pool's."""
        if not instance:
            return f"{self.pool}/{machine_id}"
        nested = f"{self.entries}/{instance}"  # CosId's path of an instance with a slash
        is_there = _state(self.node(nested))[:1] == (machine_id,)
        return nested if is_there else f"{self.entries}/{node_of(instance)}"

    def node(self, path: str) -> Node:
        """Return a node as it was read; `ABSENT` if it was missing."""
        return self.nodes.get(path) or ABSENT

    @property
    def barrier(self) -> str:
        """The path of the child that only this record of the namespace has."""
        return f"{self.space}/{self.node(self.space).created:x}"

    # From nodes to a snapshot.

    async def read(self, nodes: Nodes, need: ReadRequest) -> Snapshot:
        """Read the namespace; a commit detects changes during the read.

        Raises:
            CorruptMachineStateError: one of aiocosid's cells, or CosId's adder, is damaged.
        """
        is_sample = need.is_complete and need.sample > 0
        own = [f"{self.entries}/{node_of(need.instance)}"] if need.instance else []
        # Every grant writes these nodes.  The count is read before the nodes with which it is
        # compared, and the adder last.
        shared = self.count, self.records, self.pool, self.entries, self.adder
        # The number of namespaces is read before the namespaces that have a count, with which it is
        # compared.
        counted = (NAMESPACES, COUNTS) if need.namespaces else ()
        paths = [OURS, MARKER, self.space, *counted, *shared, *own]
        now_ms, found = await nodes.sync_and_read(CLOCK, *paths)
        self.nodes = dict(zip(paths, found, strict=True))
        numbers = {number for number, _ in self._owners(own)}
        numbers |= {need.machine_id} if need.machine_id is not None else set()
        noted = pooled = numbers
        if need.is_complete:
            pooled = _numbers(await nodes.children(self.pool))
        if is_sample:
            new, more = self._last_new() + 1, max(1, need.sample - len(pooled))
            numbers |= {*sorted(pooled)[: need.sample], *range(new, new + more)}
            pooled &= numbers
        elif need.is_complete or (numbers and not need.instance):  # the entries have other names
            entries = await nodes.walk(self.entries)
            self.nodes |= entries
            own += entries
            noted = numbers | _numbers(await nodes.children(self.records))
        paths = [*map(self.record, noted), *(self.owned(each, "") for each in pooled)]
        paths += shared if is_sample else ()  # read again to reduce conflicts
        if (space := self.node(self.space)) is not ABSENT:
            paths.append(self.barrier)
        self.nodes |= zip(paths, await nodes.get(*paths), strict=True)
        self._is_guarded = self.node(self.barrier) is not ABSENT
        if not self._is_guarded and space is not ABSENT:
            done = await nodes.commit(expect(self.space, space), create(self.barrier, b""))
            self._is_guarded = done is not None
        is_used_up = is_sample and not pooled and self._last_new() + 1 not in numbers
        are_taken = pooled and all(self.node(self.owned(each, "")) is ABSENT for each in pooled)
        if is_used_up or (need.is_complete and are_taken):
            return await self.read(nodes, need)  # others have created a node meanwhile
        self.damages.clear()
        owners: defaultdict[int, list[Owner]] = defaultdict(list)
        for number, owner in self._owners(own):
            owners[number].append(owner)
        cells = self.node(self.entries).children + self.node(self.pool).children
        return Snapshot(
            self._namespace,
            f"{self.node(OURS).created:x}",
            now_ms=now_ms,
            marker=self._cell(Marker, MARKER),
            space=self._cell(NamespaceRecord, self.space),
            count=self._cell(Count, self.count),
            namespaces=self._cell(NamespaceCount, NAMESPACES),
            counted=self.node(COUNTS).children if need.namespaces else -1,
            slots={
                number: self._slot(number, owners[number])
                for number in sorted({*owners, *numbers, *noted, *pooled})
            },
            last_new=self._last_new(),
            is_complete=need.is_complete and not is_sample,
            damages=tuple(self.damages),
            raw=self,
            is_doubtful=self._is_doubtful(),
            store=self._label,
            cells=cells if is_sample else -1,
            records=self.node(self.records).children,
        )

    def _is_doubtful(self) -> bool:
        """Return whether CosId's nodes were removed or created again after aiocosid's."""
        space, marker, entries = map(self.node, (self.space, MARKER, self.entries))
        if entries is ABSENT:
            return space.changed > marker.changed
        return space is not ABSENT and entries.created > max(space.changed, marker.changed)

    def _last_new(self) -> int:
        """Return the last machine id that was granted as new; -1 if there was none."""
        node = self.node(self.adder)
        count = int.from_bytes(node.data, "big", signed=True)
        if node is not ABSENT and (len(node.data) != ADDER_WIDTH or count < 0):
            raise self._damaged(self.adder, "a number of machine ids in 4 bytes")
        return count - 1

    def _cell(self, kind: type[C], path: str) -> C | None:
        """Read one of aiocosid's cells; None if it does not exist."""
        node = self.node(path)
        try:
            return kind.read(node.data.decode()) if node is not ABSENT else None
        except ValueError:
            raise self._damaged(path, f"the {kind.__name__} of this library") from None

    def _damaged(self, path: str, expected: str) -> CorruptMachineStateError:
        found = repr(self.node(path).data)[:SHOWN]
        return CorruptMachineStateError(self._label, place=path, found=found, expected=expected)

    def _owners(self, paths: list[str]) -> Iterator[tuple[int, Owner]]:
        """Yield machine ids and owners from these entries; record damaged ones."""
        for path in sorted({*paths}):
            node, name = self.node(path), path.removeprefix(f"{self.entries}/")
            instance = name if "/" in name else name_of(name)
            if state := _state(node):
                yield state[0], Owner(instance, state[1])
            elif node is not ABSENT and (node.data or not node.children):
                # Otherwise it is CosId's parent node for an instance with a slash.
                self.damages.append(Damage(path, repr(node.data)[:SHOWN], instance))

    def _slot(self, number: int, owners: list[Owner]) -> MachineSlot:
        path, pooled = self.record(number), self.node(self.owned(number, ""))
        state = _state(pooled)
        is_damaged = pooled is not ABSENT and state[:1] != (number,)
        returned = [Owner("", state[1])] if state and not is_damaged else []
        entries = (self.owned(number, each.instance) for each in owners)
        seen_ms = max(self.node(each).changed_ms for each in (path, *entries))
        record = self._cell(MachineRecord, path)
        return MachineSlot((*owners, *returned), record, seen_ms, is_damaged)

    # And back.

    async def commit(self, nodes: Nodes, snapshot: Snapshot, changes: Changes) -> bool:
        """Write all changes if nothing has changed, else none; then bring the snapshot up to date.

        A node that was removed and created again starts again at version 0.  So a node is written
        before it is removed, which shows whether it is still the node that was read.  If it is
        another node, its owner may have issued ids until now, and the next owner must begin above
        them.  After a minute, all versions may belong to other nodes, if a namespace was removed
        and written again.  So the child of the namespace's record is compared as well; without that
        child, nothing is written that is based on reads from before the last commit.
        """
        if self.is_old:
            return False
        wanted = self._wanted(snapshot, changes)
        if self.nodes.get(self.entries, ...) is None and (changes.space or changes.slots):
            await nodes.ensure(self.entries, self.pool, self.records)
        compared = ((path, self.nodes[path]) for path in (MARKER, self.space) if path not in wanted)
        ops = [expect(path, node) for path, node in compared if node is not None]
        ops += [("check", self.barrier, (ANY,))] if self._is_guarded else []
        for path, data in wanted.items():
            ops += _changed(path, data, self.nodes.get(path))
        results = await nodes.commit(*ops)
        if results is None:
            return False
        fixed = MARKER, self.space, self.count, self.adder
        kept = {path: self.nodes.get(path) for path in (*fixed, *wanted)}
        is_other = False
        for (what, path, arguments), result in zip(ops, results, strict=True):
            if what == "set_data":
                kept[path] = node = Node.of((arguments[0], result))
                is_other |= self.node(path).created not in {0, node.created}
            elif what == "delete":
                kept[path] = None
        now_ms = max(node.changed_ms for node in kept.values() if node is not None)
        if is_other:
            after = self._states(changes.slots, now_ms + RELEASE_STAMP_MARGIN)
            await nodes.commit(*(("set_data", path, (data, ANY)) for path, data in after.items()))
            return False
        self.nodes, self.is_old = kept, not self._is_guarded
        for number, slot in changes.slots.items():
            seen_ms = self.node(self.record(number)).changed_ms
            changes.slots[number] = replace(slot, seen_ms=seen_ms)
        snapshot.apply(changes)
        snapshot.now_ms = max(snapshot.now_ms, now_ms)
        snapshot.is_doubtful &= changes.space is None
        return True

    def _wanted(self, snapshot: Snapshot, changes: Changes) -> dict[str, bytes | None]:
        """Return the new data of the nodes by path; None removes a node."""
        before = {number: snapshot.slots.get(number, MachineSlot()) for number in changes.slots}
        wanted: dict[str, bytes | None] = dict.fromkeys(self._states(before))
        wanted |= self._states(changes.slots)
        records = {self.record(number): slot.record for number, slot in changes.slots.items()}
        ours = {
            MARKER: changes.marker,
            NAMESPACES: changes.namespaces,
            self.space: changes.space,
            self.count: changes.count,
        }
        for path, cell in (*ours.items(), *records.items()):
            if cell is not None:
                wanted[path] = cell.text().encode()
        if changes.last_new is not None:
            count = min(changes.last_new + 1, MAX_MACHINE_ID)
            wanted[self.adder] = count.to_bytes(ADDER_WIDTH, "big")
        return wanted

    def _states(self, slots: dict[int, MachineSlot], above_ms: int = 0) -> dict[str, bytes]:
        """Return the data of CosId's nodes of machine ids, by path."""
        return {
            self.owned(number, each.instance): b"%d|%d" % (number, max(each.stamp_ms, above_ms))
            for number, slot in slots.items()
            for each in slot.owners
        }


def _numbers(names: list[str]) -> set[int]:
    found = {int(name) for name in names if _NUMBER.fullmatch(name)}
    return {number for number in found if number <= MAX_MACHINE_ID}


def _state(node: Node) -> tuple[int, ...]:
    """Read CosId's ``machine_id|last_timestamp_ms``; empty for anything else."""
    match = _STATE.fullmatch(node.data)
    state = (int(match[1]), int(match[2])) if match else (MAX_MACHINE_ID + 1, 0)
    return state if state[0] <= MAX_MACHINE_ID and state[1] <= MAX_MS else ()


def _changed(path: str, data: bytes | None, node: Node | None) -> list[Change]:
    """Return the operations that write a node; a new node is written twice, to get its time."""
    if node is None:
        return [] if data is None else [create(path, data), ("set_data", path, (data, 0))]
    if data is None:
        written = replace(node, version=node.version + 1)
        return [write(path, node.data, node), delete(path, written)]
    return [expect(path, node) if data == node.data else write(path, data, node)]
