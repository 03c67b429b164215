"""Every history of a small world, step by step, with the shipped rules of machine ids.

A world is a store, its clock, and a few instances.  An instance reads, decides by `rules`, and
commits; between any two steps anything else may happen: another instance's step, time, a crash, a
reply that is lost, a commit that comes late, a store that is emptied in part, restored, or started
anew, a clock that is set, a peer of CosId's.  States that were met before are not followed again.

Time goes in steps of ten seconds.  A safe guard is three of them, and what an owner issues is one
id a step, with its wall clock for a time: the same machine id and time twice is the repeat that
must not be.  Nor may two leases of one machine id be good at one time, although the mark would keep
their ids apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, NamedTuple

from aiocosid.errors import CosIdError
from aiocosid.machine import rules
from aiocosid.machine.cells import (
    Changes,
    Count,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceRecord,
    Owner,
    Snapshot,
)
from aiocosid.machine.rules import Caller, Decision, GrantReceipt

__all__ = ("Budget", "Found", "World", "explore")

STEP_MS: Final = 10_000
GUARD_MS: Final = 30_000
LEASE_STEPS: Final = 2.7  # 0.9 of the safe guard
LEAD_MS: Final = 15_000
BITS: Final = 1
BEGIN: Final = 100  # the first step, so that no time is below 0


class Cells(NamedTuple):
    """What lies in the store."""

    identity: int
    marker: Marker | None
    space: NamespaceRecord | None = None
    counted: Count | None = None
    slots: tuple[tuple[int, MachineSlot], ...] = ()
    own: tuple[tuple[str, int], ...] = ()


class Pending(NamedTuple):
    """A call that has read and not committed yet."""

    kind: str
    cells: Cells
    read_at: int
    asked_at: int
    is_complete: bool


class Fetch(NamedTuple):
    """A commit that was sent, and may be carried out now, later, or never."""

    cells: Cells
    changes: Frozen


class Frozen(NamedTuple):
    """`Changes` that can be compared and hashed."""

    marker: Marker | None
    space: NamespaceRecord | None
    counted: Count | None
    slots: tuple[tuple[int, MachineSlot], ...]
    own: tuple[tuple[str, int | None], ...]


class Instance(NamedTuple):
    """One process; a new life after a crash."""

    text: str
    stable: bool = False
    life: int = 0
    is_up: bool = True
    taken: GrantReceipt | None = None
    token: str = ""
    known: tuple[Cells, int] | None = None  # what a renewal goes on from
    machine_id: int = -1
    floor_ms: int = -1
    fence_ms: int = -1
    ends_at: float = -1.0
    last_ms: int = -1
    pending: Pending | None = None
    calls: int = 0
    offset: int = 0  # steps that its wall clock is ahead


class Peer(NamedTuple):
    """A process of CosId's: it knows stamps, and nothing of ours."""

    machine_id: int = -1
    signed_at: int = -1
    is_up: bool = True
    last_ms: int = -1


class Budget(NamedTuple):
    """What may still happen."""

    steps: int = 4
    crashes: int = 0
    lost: int = 0
    late: int = 0
    wipes: int = 0
    inits: int = 0
    restarts: int = 0
    restores: int = 0
    clock_steps: int = 0
    store_clock_steps: int = 0
    returns: int = 0
    peers: int = 0
    calls: int = 3
    """Of each instance in each life."""


class World(NamedTuple):
    """One state."""

    at: int
    store_ahead: int
    cells: Cells
    instances: tuple[Instance, ...]
    budget: Budget
    issued: frozenset[tuple[int, int]] = frozenset()
    fetches: tuple[Fetch, ...] = ()
    saved: Cells | None = None
    peer: Peer | None = None
    repeat: str = ""

    def store_ms(self) -> int:
        """Return the store's clock."""
        return (self.at + self.store_ahead) * STEP_MS


@dataclass
class Found:
    """What an exploration has come to."""

    states: int = 0
    repeats: list[str] = field(default_factory=list[str])
    handed_out: int = 0
    quarantines: int = 0


def explore(
    budget: Budget,
    *,
    texts: str = "abc",
    stable: str = "",
    is_tight: bool = False,
    is_marked: bool = True,
    limit: int = 10_000_000,
    stop_at_first: bool = True,
) -> Found:
    """Follow every history within a budget, breadth first.

    Args:
        budget: what may happen.
        texts: the instances.
        stable: those of them that are stable.
        is_tight: whether one of the two ids is held by somebody for ever, so that all want one.
        is_marked: whether the store has a marker; otherwise only the namespace is sound.
        limit: of states, to be sure of an end.
        stop_at_first: whether the first repeat is the end.
    """
    _decide_on.cache_clear()  # the rules may be others now
    instances = tuple(Instance(text, text in stable) for text in texts)
    cells = Cells(0, Marker("0", "e0"))
    if not is_marked:
        cells = Cells(0, None, NamespaceRecord("0", bits=1))
    if is_tight:
        held = MachineSlot(
            (Owner("z", 1),),
            MachineRecord("z", stable=True, token="z", version=1),  # noqa: S106 - no secret
            1,
        )
        cells = cells._replace(
            counted=Count("e0" if is_marked else "", 1), slots=((1, held),), own=(("z", 1),)
        )
    first = World(BEGIN, 0, cells, instances, budget)
    met, todo, found = {first}, [first], Found()
    while todo and found.states < limit:
        further: list[World] = []
        for world in todo:
            found.states += 1
            for after in successors(world):
                if after.repeat:
                    found.repeats.append(after.repeat)
                    if stop_at_first:
                        return found
                    continue
                known = len(met)
                met.add(after)
                if len(met) > known:  # hashed once
                    further.append(after)
        todo = further
    found.handed_out = sum(any(each.machine_id >= 0 for each in w.instances) for w in met)
    found.quarantines = sum(bool(w.cells.space and w.cells.space.quarantine) for w in met)
    return found


# What may happen next.


def successors(world: World) -> Iterator[World]:
    """Give all states that may be next."""
    budget = world.budget
    if budget.steps:
        yield _time(world)
    for number, each in enumerate(world.instances):
        yield from _steps(world, number, each)
    for number, fetch in enumerate(world.fetches):
        landed = world._replace(fetches=world.fetches[:number] + world.fetches[number + 1 :])
        yield landed
        cells = commit(world, fetch.cells, fetch.changes)
        if cells is not None:
            yield landed._replace(cells=cells)
    yield from _mishaps(world)
    if world.peer is not None or budget.peers:
        yield from _peer_steps(world)


def _time(world: World) -> World:
    after = world._replace(at=world.at + 1, budget=_less(world.budget, "steps"))
    for number in range(len(after.instances)):
        after = _issue(after, number)
    return _peer_issues(after)


def _less(budget: Budget, name: str) -> Budget:
    return budget._replace(**{name: getattr(budget, name) - 1})


def _with(world: World, number: int, instance: Instance) -> World:
    instances = list(world.instances)
    instances[number] = instance
    return world._replace(instances=tuple(instances))


def _wall_ms(world: World, each: Instance) -> int:
    return (world.at + each.offset) * STEP_MS


def _issue(world: World, number: int) -> World:
    """Have an instance issue an id, if it may now."""
    each = world.instances[number]
    now_ms = _wall_ms(world, each)
    may = each.is_up and each.machine_id >= 0 and world.at < each.ends_at
    if not may or not max(each.floor_ms, each.last_ms) < now_ms <= each.fence_ms:
        return world
    stamp = each.machine_id, now_ms
    after = _with(world, number, each._replace(last_ms=now_ms))
    if stamp in world.issued:
        return after._replace(repeat=f"{each.text} repeats {stamp}")
    return after._replace(issued=world.issued | {stamp})


def _steps(world: World, number: int, each: Instance) -> Iterator[World]:
    budget = world.budget
    if not each.is_up:
        return
    if budget.crashes and each.calls:
        dead = Instance(each.text, each.stable, each.life + 1, offset=each.offset)
        yield _with(world._replace(budget=_less(budget, "crashes")), number, dead)
    if budget.clock_steps and each.calls:
        for by in (-1, 1):
            stepped = each._replace(offset=each.offset + by)
            yield _with(world._replace(budget=_less(budget, "clock_steps")), number, stepped)
    if each.pending is None:
        # Those who have not begun are alike but for their names: they begin in order.
        is_due = each.calls or each.life or all(o.calls or o.life for o in world.instances[:number])
        if each.calls < budget.calls and is_due:
            yield _ask(world, number, each, "take" if each.machine_id < 0 else "renew")
        if each.machine_id >= 0 and budget.returns:
            after = world._replace(budget=_less(budget, "returns"))
            # Whoever gives back issues nothing from then on.
            silent = each._replace(ends_at=-1.0, known=None)
            yield _ask(after, number, silent, "return")
        return
    yield from _decide(world, number, each, each.pending)


def _ask(world: World, number: int, each: Instance, kind: str) -> World:
    cells, read_at, is_complete = world.cells, world.store_ms(), True
    if kind == "renew" and each.known is not None:
        (cells, read_at), is_complete = each.known, False
    pending = Pending(kind, cells, read_at, world.at, is_complete)
    return _with(world, number, each._replace(pending=pending, known=None, calls=each.calls + 1))


def _snapshot(pending: Pending, text: str, machine_id: int) -> Snapshot:
    cells = pending.cells
    slots = dict(cells.slots)
    if not pending.is_complete:
        slots = {key: slot for key, slot in slots.items() if key == machine_id}
    return Snapshot(
        "ns",
        str(cells.identity),
        now_ms=pending.read_at,
        marker=cells.marker,
        space=cells.space,
        count=cells.counted,
        slots=slots,
        own=dict(cells.own).get(text),
        is_complete=pending.is_complete,
    )


def _decision(world: World, each: Instance, pending: Pending) -> Decision:
    is_good = pending.asked_at < each.ends_at and world.at < each.ends_at
    # What it does not look at: fewer questions differ.
    asking = each._replace(pending=None, known=None, ends_at=-1.0)
    return _decide_on(asking, pending, _wall_ms(world, each), _mark_ms(world, each), is_good)


@cache
def _decide_on(
    each: Instance, pending: Pending, now_ms: int, fence_ms: int, is_good: bool
) -> Decision:
    snapshot = _snapshot(pending, each.text, each.machine_id)
    nonce = f"{each.text}{each.life}.{each.calls}"
    caller = Caller(each.text, each.stable, GUARD_MS, nonce=nonce)
    try:
        if pending.kind == "take":
            return rules.hand_out(
                snapshot, caller, bits=BITS, now_ms=now_ms, latest_ms=2**52, token=nonce
            )
        if pending.kind == "return":
            last_ms = max(each.last_ms + 1, each.floor_ms)
            return rules.give_back(
                snapshot, caller, each.machine_id, last_ms=last_ms, token=each.token
            )
        return rules.renew(
            snapshot,
            caller,
            each.machine_id,
            now_ms=now_ms,
            fence_ms=fence_ms,
            token=each.token,
            taken=each.taken if is_good else None,
        )
    except CosIdError as error:
        return Decision(error=error)


def _mark_ms(world: World, each: Instance) -> int:
    return max(each.fence_ms, each.floor_ms, _wall_ms(world, each) + LEAD_MS)


def _decide(world: World, number: int, each: Instance, pending: Pending) -> Iterator[World]:
    decision = _decision(world, each, pending)
    if decision.need is not None:
        again = Pending(pending.kind, world.cells, world.store_ms(), pending.asked_at, True)
        yield _with(world, number, each._replace(pending=again))
        return
    idle = _with(world, number, each._replace(pending=None))
    changes = freeze(decision.changes)
    if not decision.changes:
        yield _told(world, number, each, decision, world.cells)
        return
    cells = commit(world, pending.cells, changes)
    if cells is None:
        yield idle  # others were faster: it asks again, or something else happens first
    else:
        yield _told(world._replace(cells=cells), number, each, decision, cells)
        if world.budget.lost:
            yield idle._replace(cells=cells, budget=_less(world.budget, "lost"))
    if world.budget.late:
        fetch = Fetch(pending.cells, changes)
        yield idle._replace(fetches=(*world.fetches, fetch), budget=_less(world.budget, "late"))


def _told(world: World, number: int, each: Instance, decision: Decision, cells: Cells) -> World:
    """Have an instance go on from the answer to its call."""
    pending = each.pending
    assert pending is not None
    after = each._replace(pending=None)
    if pending.kind == "return":
        return _with(
            world,
            number,
            Instance(each.text, each.stable, each.life, offset=each.offset, calls=each.calls),
        )
    if decision.error is not None:
        if type(decision.error).__name__ == "MachineIdLostError":
            after = after._replace(machine_id=-1, ends_at=-1.0, taken=None, known=None)
        return _with(world, number, after)
    if pending.kind == "take":
        grant = decision.answer
        token = f"{each.text}{each.life}.{each.calls}"
        taken = GrantReceipt(grant.machine_id, _wall_ms(world, each), BITS, token)
        floor_ms = max(grant.floor_ms, each.last_ms)
        after = after._replace(
            machine_id=grant.machine_id,
            floor_ms=floor_ms,
            fence_ms=-1,
            ends_at=-1.0,
            taken=taken,
            token=token,
            known=(cells, pending.read_at),
        )
        return _with(world, number, after)
    is_good = pending.asked_at < each.ends_at
    if is_good and not world.at < each.ends_at:
        return _with(world, number, after)  # its answer came after the lease had ended
    fence_ms = _mark_ms(world, each)
    after = after._replace(
        ends_at=pending.asked_at + LEASE_STEPS, fence_ms=fence_ms, known=(cells, pending.read_at)
    )
    return _issue(_alone(_with(world, number, after), number), number)


def _alone(world: World, number: int) -> World:
    """Find out whether two leases of one machine id are good at one time."""
    each = world.instances[number]
    for other in world.instances:
        is_other = other.text != each.text and other.machine_id == each.machine_id
        if is_other and other.is_up and world.at < other.ends_at:
            return world._replace(repeat=f"{each.text} and {other.text} hold {each.machine_id}")
    return world


def commit(world: World, read: Cells, changes: Frozen) -> Cells | None:
    """Write all if nothing that counts has changed since it was read; None if it has."""
    now = world.cells
    if (
        now.identity != read.identity
        or _conflicts(now.marker, read.marker, changes.marker)
        or _conflicts(now.space, read.space, changes.space)
    ):
        return None
    counted = changes.counted
    if counted is not None and now.counted != read.counted:
        counted = _one_more(now.counted, read.counted, counted)
        if counted is None:
            return None
    slots, before = dict(now.slots), dict(read.slots)
    for key, slot in changes.slots:
        if _value(slots.get(key)) != _value(before.get(key)):
            return None
        slots[key] = replace(slot, seen_ms=world.store_ms())
    own, was = dict(now.own), dict(read.own)
    for text, machine_id in changes.own:
        if own.get(text) != was.get(text):
            return None
        own.pop(text, None)
        if machine_id is not None:
            own[text] = machine_id
    return Cells(
        now.identity,
        changes.marker or now.marker,
        changes.space or now.space,
        counted or now.counted,
        tuple(sorted(slots.items())),
        tuple(sorted(own.items())),
    )


def _conflicts(
    now: Marker | NamespaceRecord | None,
    read: Marker | NamespaceRecord | None,
    written: Marker | NamespaceRecord | None,
) -> bool:
    """Return whether a cell has changed; an absent one is compared only if it is written.

    Some stores cannot compare more.
    """
    return now != read and (read is not None or written is not None)


def _one_more(now: Count | None, read: Count | None, written: Count) -> Count | None:
    """Add one to what the count is by now, where that is allowed; None where it is not."""
    if now is None or read is None or written != Count(read.marker_id, read.ids + 1):
        return None
    return replace(now, ids=now.ids + 1) if now.marker_id == read.marker_id else None


def _value(slot: MachineSlot | None) -> tuple[tuple[Owner, ...], MachineRecord | None] | None:
    return None if slot is None else (slot.owners, slot.record)


def freeze(changes: Changes) -> Frozen:
    """Return changes that can be hashed."""
    return Frozen(
        changes.marker,
        changes.space,
        changes.count,
        tuple(sorted(changes.slots.items())),
        tuple(sorted(changes.own.items())),
    )


# What may go wrong with the store.


WIPES: Final[dict[str, Callable[[Cells], Cells]]] = {
    "all": lambda cells: Cells(cells.identity, None),
    "all but the marker": lambda cells: Cells(cells.identity, cells.marker, counted=cells.counted),
    "the machine ids": lambda cells: cells._replace(
        slots=tuple((key, replace(slot, owners=())) for key, slot in cells.slots), own=()
    ),
    "the notes": lambda cells: cells._replace(
        slots=tuple((key, replace(slot, record=None)) for key, slot in cells.slots)
    ),
    "the marker": lambda cells: cells._replace(marker=None, counted=None),
}


def _mishaps(world: World) -> Iterator[World]:
    budget, cells = world.budget, world.cells
    if budget.wipes:
        for wipe in WIPES.values():
            wiped = wipe(cells)
            if wiped != cells:
                yield world._replace(cells=wiped, budget=_less(budget, "wipes"))
    yield from _inits(world)
    if budget.restarts:
        another = cells._replace(identity=cells.identity + 1)
        yield world._replace(cells=another, budget=_less(budget, "restarts"))
    if budget.restores:
        if world.saved is None:
            yield world._replace(saved=cells)
        elif world.saved != cells:
            restored = world.saved._replace(identity=cells.identity + 1)
            yield world._replace(cells=restored, saved=None, budget=_less(budget, "restores"))
    if budget.store_clock_steps:
        for by in (-1, 1):
            after = world._replace(budget=_less(budget, "store_clock_steps"))
            yield after._replace(store_ahead=world.store_ahead + by)


def _inits(world: World) -> Iterator[World]:
    cells = world.cells
    if world.budget.inits and cells.marker is None:
        marked = cells._replace(marker=Marker(str(cells.identity), "e1"))
        yield world._replace(cells=marked, budget=_less(world.budget, "inits"))


# CosId's peer, as its JDBC distributor: own, given back, new, expired by its stamp.


PEER: Final = "java"


def _peer_steps(world: World) -> Iterator[World]:
    peer, budget = world.peer, world.budget
    if peer is None:
        found = _peer_takes(world)
        if found is not None:
            yield found
        return
    if not peer.is_up:
        return
    if peer.signed_at < world.at:
        yield _peer_guards(world, peer)
    if budget.crashes:
        dead = peer._replace(is_up=False)
        yield world._replace(peer=dead, budget=_less(budget, "crashes"))


def _peer_takes(world: World) -> World | None:
    slots, now_ms = dict(world.cells.slots), world.at * STEP_MS
    ids = range(1 << BITS)
    returned = [key for key in ids if key in slots and slots[key].owners and not slots[key].is_held]
    new = [key for key in ids if key not in slots or not slots[key].owners]
    expired = [
        key
        for key in ids
        if key in slots and slots[key].is_held and slots[key].stamp_ms <= now_ms - GUARD_MS
    ]
    if not (key := next(iter((*returned, *new, *expired)), None)) and key != 0:
        return None
    assert key is not None
    before = slots.get(key, MachineSlot())
    if before.stamp_ms >= now_ms:
        return None  # it refuses to begin while the stamp lies ahead of its clock
    slots[key] = replace(before, owners=(Owner(PEER, now_ms),))
    peer = Peer(key, world.at)
    after = world._replace(
        cells=world.cells._replace(slots=tuple(sorted(slots.items()))),
        peer=peer,
        budget=_less(world.budget, "peers"),
    )
    return _peer_issues(after)


def _peer_guards(world: World, peer: Peer) -> World:
    """Sign, if the row is still its own; else it goes on without end, as CosId does: not here."""
    slots, now_ms = dict(world.cells.slots), world.at * STEP_MS
    slot = slots.get(peer.machine_id, MachineSlot())
    if PEER not in slot.holders:
        return world._replace(peer=peer._replace(is_up=False))
    slots[peer.machine_id] = replace(slot, owners=(Owner(PEER, now_ms),))
    cells = world.cells._replace(slots=tuple(sorted(slots.items())))
    return world._replace(cells=cells, peer=peer._replace(signed_at=world.at))


def _peer_issues(world: World) -> World:
    """Have the peer issue an id, if it has signed lately: that is all that CosId promises."""
    peer = world.peer
    if peer is None or not peer.is_up or world.at - peer.signed_at >= LEASE_STEPS:
        return world
    now_ms = world.at * STEP_MS
    if now_ms <= peer.last_ms:
        return world
    stamp = peer.machine_id, now_ms
    after = world._replace(peer=peer._replace(last_ms=now_ms))
    if stamp in world.issued:
        return after._replace(repeat=f"{PEER} repeats {stamp}")
    return after._replace(issued=world.issued | {stamp})
