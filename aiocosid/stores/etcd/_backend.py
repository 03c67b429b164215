"""Counters and cells on etcd."""

# ruff: noqa: ARG002 - nothing is given back here, so no grant is noted

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from ...abc import MAX_ID, Counter
from ...errors import CorruptCounterError
from ...machine._rules import quarantine_ms
from ...machine.cells import ENDLESS_MS, Seat
from .._backend import MISSING, Backend, Granted, after_add, after_raise
from .._own_cells import is_enough
from ._cells import EtcdCommit, EtcdPlaces
from ._driver import STORE
from ._member import put, span, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...machine.cells import Changes, Need, Snapshot
    from .._give_back import GrantNote
    from ._driver import Message
    from ._link import EtcdLink
    from ._member import Member

__all__ = ("EtcdBackend",)

INTEGER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


class EtcdBackend(Backend):
    """One cluster.  Every change is a transaction that compares what was read.

    etcd has no clock to read, but it counts down leases, by the monotonic clock of its leader: they
    are the store's clock here.  An owner's renewal is a key on a lease as long as its *own* safe
    guard; an owner without such a key has expired.  A quarantine is a key on a lease, and ends with
    it.  When another member becomes the leader, all leases start again: none is ever shorter than
    it should be.

    A cluster that lost data is detected by its id, its raft term and its revision, of which the
    last two never fall on a sound one: the cells contain the first two, and each object remembers
    the highest revision that it has seen.
    """

    __slots__ = ("_known", "_link", "_reached", "_root", "_spares")

    def __init__(self, link: EtcdLink, prefix: str) -> None:
        super().__init__(STORE)
        self._link = link
        self._root = prefix
        self._known: dict[str, bytes] = {}  # counters as this object wrote them last
        # By namespace: cluster, epoch, revision.
        self._reached: dict[str, tuple[str, str, int]] = {}
        self._spares: dict[int, int] = {}  # unused leases, by their length in milliseconds

    async def aopen(self) -> None:
        self._link.aopen()

    async def aclose(self) -> None:
        await self._link.aclose()

    # Counters.

    async def add(
        self, name: str, by: int, *, first: int | None, note: GrantNote | None = None
    ) -> Granted:
        choose = partial(after_add, by=by, first=first, store=STORE, name=name)
        # The remembered value may be old: then the transaction fails.  It is used once.
        return Granted(await self._change(name, choose, self._known))

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        choose = partial(after_raise, above=above, create=create)
        max_id = await self._change(name, choose, {})
        return None if max_id == MISSING else Counter(namespaced_name=name, last_max_id=max_id)

    async def _change(
        self, name: str, choose: Callable[[int | None], int], known: dict[str, bytes]
    ) -> int:
        """Write the value that ``choose`` returns for the counter's value, if it differs."""
        key = self._key(name)

        async def change(member: Member) -> int:
            value = known.pop(key, None) or _value((await member.read(key))[1])
            while True:
                found = None if value is None else _integer(value)
                if value is not None and found is None:
                    raise CorruptCounterError(STORE, counter=key, found=f"{value[:40]!r}")
                chosen = choose(found)
                if chosen in {MISSING, found}:
                    return chosen
                text = b"%d" % chosen
                reply = await member.write([unchanged(key, value)], [put(key, text)], else_read=key)
                if reply.succeeded:
                    known[key] = text
                    return chosen
                value = _value(reply.responses[0].response_range.kvs)
                await member.pause()

        return await self._link.call(change, key=key)

    async def counters(self, prefix: str) -> Sequence[Counter]:
        root = self._key("")
        _, found = await self._link.call(lambda member: member.read(prefix=root + prefix))
        values = {_text(each.key).removeprefix(root): _integer(each.value) for each in found}
        return [
            Counter(namespaced_name=name, last_max_id=value)
            for name, value in values.items()
            if "." in name and value is not None  # no other key of aiocosid has a dot
        ]

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    # Cells.

    async def namespaces(self) -> Sequence[str]:
        root = self._key("machine/ns/")
        _, found = await self._link.call(lambda member: member.read(prefix=root, keys_only=True))
        start = self._key("machine/")
        return [*{EtcdPlaces.namespace_of(_text(each.key), start) for each in found}]

    async def read(self, namespace: str, need: Need) -> Snapshot:
        return await self._link.call(lambda member: self._read(member, namespace, need))

    async def _read(self, member: Member, namespace: str, need: Need) -> Snapshot:
        before = self._reached.get(namespace)
        snapshot = await self._find(member, EtcdPlaces(self._root, namespace), need)
        self._look_back(snapshot, before)
        await _tell_time(member, snapshot)
        return snapshot

    async def _find(self, member: Member, places: EtcdPlaces, need: Need) -> Snapshot:
        if need.is_complete and need.sample:
            return await _sample(member, places, replace(need, is_complete=False))
        prefix, counted = "", 0
        if need.is_complete:  # the count is read first, so it is never above the ids that are read
            prefix = places.root
            reply = await member.read_ranges(span(places.counts, is_prefix=True, count_only=True))
            counted = reply.responses[0].response_range.count
        header, found = await member.read(*places.needed(need), prefix=prefix)
        snapshot = places.read(header, found, need, counted)
        if is_enough(snapshot, need):
            return snapshot
        return await self._find(member, places, replace(need, is_complete=True))

    def _look_back(self, snapshot: Snapshot, before: tuple[str, str, int] | None) -> None:
        """Mark a cluster as doubtful if its revision fell, unless a quarantine has begun.

        Args:
            snapshot: what was read.
            before: cluster, epoch and revision as they were known before the read.
        """
        reached = _reached(snapshot)
        is_behind = before is not None and before[:2] == reached[:2] and before[2] > reached[2]
        runs = snapshot.space is not None and snapshot.space.quarantine
        snapshot.is_doubtful = bool(is_behind and not runs)
        if not snapshot.is_doubtful:
            self._reached[snapshot.namespace] = reached

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        is_written = await self._link.call(EtcdCommit(snapshot, changes, self._spares).write)
        if is_written:
            self._reached[snapshot.namespace] = _reached(snapshot)
        return is_written


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _value(found: Sequence[Message]) -> bytes | None:
    return found[0].value if found else None


def _integer(value: bytes) -> int | None:
    """Return a number in the form that is written here, 0 to 2^63-1; None for anything else."""
    # int() would accept spaces, underscores, signs and any length as well.
    number = int(value) if INTEGER.fullmatch(value) else None
    return number if number is not None and number <= MAX_ID else None


def _reached(snapshot: Snapshot) -> tuple[str, str, int]:
    epoch = snapshot.marker.epoch if snapshot.marker is not None else ""
    return snapshot.identity.partition(" ")[0], epoch, snapshot.raw.revision


async def _sample(member: Member, places: EtcdPlaces, need: Need) -> Snapshot:
    """Read the asker's own machine id, and some that were given back or are new."""
    descending = {"sort_order": "DESCEND", "limit": 1, "keys_only": True}
    reply = await member.read_ranges(
        *(span(key) for key in places.needed(need)),
        span(places.free, is_prefix=True, limit=need.sample, keys_only=True),
        span(places.seats, is_prefix=True, **descending),
        span(places.counts, is_prefix=True, count_only=True),
    )
    *parts, freed, seats, counts = (each.response_range for each in reply.responses)
    found = [each for part in parts for each in part.kvs]
    texts = [_text(each.value) for each in found if _text(each.key) == places.own(need.instance)]
    texts += [_text(each.key).removeprefix(places.free) for each in freed.kvs]
    if numbers := {int(each) for each in texts if each.isdecimal()}:
        keys = [key for each in numbers for key in (places.seat(each), places.alive(each))]
        found += (await member.read(*keys))[1]
    snapshot = places.read(reply.header, found, need, counts.count)
    snapshot.cells = snapshot.notes = seats.count
    last = _text(seats.kvs[0].key).removeprefix(places.seats) if seats.kvs else ""
    snapshot.first_new = first = int(last) + 1 if last.isdecimal() else 0
    snapshot.seats.update((each, Seat()) for each in range(first, first + need.sample))
    return snapshot


async def _tell_time(member: Member, snapshot: Snapshot) -> None:
    """Derive the store's clock from the lease of the running quarantine."""
    lease, space = snapshot.raw.quarantine, snapshot.space
    if space is None or not space.quarantine:
        return
    snapshot.space, length_ms = replace(space, since_ms=0), quarantine_ms(space)
    seconds = await member.remaining(lease) if lease and length_ms < inf else -1
    if seconds >= 0:
        snapshot.now_ms = max(0, int(length_ms) - (seconds + 1) * 1000)
    elif lease is None or (lease and length_ms < inf):
        snapshot.now_ms = ENDLESS_MS  # it is over, at an unknown time
