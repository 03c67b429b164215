"""A store in the world: the shipped store and rules, over a server that forgets.

It keeps counters and cells as every server does, and loses them as some do.  What the statements
and scripts of a real server do is proved there.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from aiocosid.machine.cells import MachineSlot, Marker, Owner
from aiocosid.stores.backend import Backend
from aiocosid.stores.base import BackendStore
from aiocosid.stores.memory import MemoryBackend

from ._clock import START_NS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from aiocosid.abc import Counter
    from aiocosid.machine.cells import Changes, ReadRequest, Snapshot

    from ._faults import Faults
    from ._link import Link
    from ._node import Node
    from ._world import World

__all__ = ("SimulatedStore",)

EPOCH: Final = "initialised"


@dataclass(frozen=True)
class _Saved:
    """What lies in it at one moment."""

    counters: dict[str, int]
    cells: Any
    marker: Marker | None


class SimulatedStore:
    """One server in virtual time; each node has a store on a link of its own."""

    def __init__(self, world: World, *, history: int = 0) -> None:
        """Make an empty one, initialised.

        Args:
            world: where it runs; its clock is the server's.
            history: how many writes can be lost.
        """
        self._world = world
        self._history = history
        self._past: list[_Saved] = []
        self._lives = 0
        self.server = _Server(world)

    # For nodes.

    def store(self, node: Node, *, faults: Faults | None = None) -> BackendStore[Any]:
        """Return the store for the process that runs on a node.

        Args:
            node: where it is used.
            faults: what may go wrong on the way; the node's by default.
        """
        return _Store(_Linked(self, node, node.link(faults)))

    def wrote(self, before: _Saved | None) -> None:
        """Take note of what was there before a write."""
        if before is not None:
            self._past = [*self._past[1 - self._history :], before]

    def before(self) -> _Saved | None:
        """Return what lies there, if writes can be lost."""
        return self.save() if self._history else None

    # For the scenario.

    def save(self) -> _Saved:
        """Return all that lies there now."""
        server = self.server
        return deepcopy(_Saved(server._counters, server.cells, server.marker))

    def restore(self, saved: _Saved) -> None:
        """Put an older state in its place, on a server that is another one for that."""
        self._world.note("store", "is restored")
        self._put(saved)
        self.start_anew()

    def start_anew(self) -> None:
        """Be another server with the same content, as one that was started anew."""
        self._lives += 1
        self.server.identity = f"server {self._lives}"

    def lose(self, writes: int) -> None:
        """Fail over to one that has not seen the last writes.

        Args:
            writes: how many, at most ``history``.
        """
        kept = max(0, len(self._past) - writes)
        self._world.note("store", "loses", f"{len(self._past) - kept} writes")
        if kept < len(self._past):
            self._put(self._past[kept])
            del self._past[kept:]
        self.start_anew()

    def empty(self) -> None:
        """Lose all, as by FLUSHALL: it is the same server."""
        self._world.note("store", "is emptied")
        self._put(_Saved({}, {}, None))

    def empty_machines(self) -> None:
        """Lose what is beneath the marker, as by a DELETE of CosId's rows or a DEL of its keys."""
        self._world.note("store", "loses its machine ids")
        for cells in self.server.cells.values():
            for number, slot in cells.slots.items():
                cells.slots[number] = replace(slot, owners=())
            cells.raw = {}  # replaced, as snapshots have it

    def _put(self, saved: _Saved) -> None:
        found, server = deepcopy(saved), self.server
        server._counters, server.cells, server.marker = found.counters, found.cells, found.marker


class _Server(MemoryBackend):
    """What all nodes share; it tells the world's time."""

    __slots__ = ()

    stamps_tell = True

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self.marker = Marker(self.identity, EPOCH)

    def _now_ms(self) -> int:
        return START_NS // 1_000_000 + round(self._clock.monotonic() * 1000)


class _Store(BackendStore[Backend]):
    __slots__ = ()

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


class _Linked(Backend):
    """The server at the far end of a link."""

    __slots__ = ("_link", "_node", "_simulated")

    def __init__(self, simulated: SimulatedStore, node: Node, link: Link) -> None:
        super().__init__("simulated")
        self._simulated = simulated
        self._node = node
        self._link = link

    async def aopen(self) -> None:
        """Nothing to open."""

    async def aclose(self) -> None:
        """Nothing to close."""

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        async def operation() -> int:
            before = self._simulated.before()
            max_id = self._server.add_nowait(name, by, first=first)
            self._simulated.wrote(before)
            return max_id

        return await self._link.call(self.label, f"add({by})", operation)

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        return await self._link.call(
            self.label,
            f"raise_to({above})",
            lambda: self._server.raise_to(name, above, create=create),
        )

    async def counters(self, prefix: str) -> Sequence[Counter]:
        return await self._link.call(
            self.label, "counters()", lambda: self._server.counters(prefix)
        )

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        return await self._link.call(
            self.label, "read()", lambda: self._server.read(namespace, need)
        )

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        process = self._node._current()
        sent = deepcopy((snapshot, changes))

        async def operation() -> Snapshot | None:
            found, written = deepcopy(sent)
            before = self._simulated.before()
            if not await self._server.commit(found, written):
                return None
            self._simulated.wrote(before)
            for machine_id, floor_ms in _granted(*sent):
                self._node.world.ledger.granted(
                    found.namespace, machine_id, process, floor_ms=floor_ms
                )
            return found

        after = await self._link.call(self.label, "commit()", operation)
        if after is None:
            return False
        for each in fields(after):
            setattr(snapshot, each.name, getattr(after, each.name))
        return True

    async def namespaces(self) -> Sequence[str]:
        return await self._link.call(self.label, "namespaces()", self._server.namespaces)

    @property
    def _server(self) -> _Server:
        return self._simulated.server


def _granted(snapshot: Snapshot, changes: Changes) -> list[tuple[int, int]]:
    """Return which machine ids a commit hands out, each with its floor in milliseconds."""
    found: list[tuple[int, int]] = []
    for machine_id, slot in changes.slots.items():
        before = snapshot.slots.get(machine_id, MachineSlot())
        token = slot.record.token if slot.record is not None else ""
        if slot.holders and token != (before.record.token if before.record is not None else ""):
            found.append((machine_id, before.floor_ms))
    return found


# What CosId's peers do, on its own cells: by the owner's clock alone.


def peer_takes(
    server: MemoryBackend, namespace: str, instance: str, *, size: int, now_ms: int, dead_ms: int
) -> tuple[int, int] | None:
    """Hand a machine id to a peer: its own, one given back, a new one, or an expired one.

    Args:
        server: the server.
        namespace: the namespace.
        instance: the peer.
        size: how many machine ids there are.
        now_ms: its clock.
        dead_ms: who was heard of last at that time, or before, is dead.

    Returns:
        The machine id and its last stamp, or None if all are held.
    """
    cells = server.cells_of(namespace)
    slots = cells.slots
    order = [
        *(n for n in range(size) if n in slots and instance in slots[n].holders),
        *(n for n in range(size) if n in slots and slots[n].owners and not slots[n].is_held),
        *(n for n in range(size) if n not in slots or not slots[n].owners),
        *(n for n in range(size) if n in slots and slots[n].stamp_ms <= dead_ms),
    ]
    if not order:
        return None
    before = slots.get(order[0], MachineSlot())
    slots[order[0]] = replace(before, owners=(Owner(instance, max(before.stamp_ms, now_ms)),))
    return order[0], max(before.stamp_ms, now_ms)


def peer_guards(server: MemoryBackend, namespace: str, instance: str, now_ms: int) -> None:
    """Send a peer's renewal, if it still holds an id."""
    slots = server.cells_of(namespace).slots
    for number, slot in slots.items():
        if instance in slot.holders:
            slots[number] = replace(slot, owners=(Owner(instance, now_ms),))
