"""The backend on Redis or Valkey: counters on CosId's own keys, and the cells of machine ids.

``cosid:{<namespace>}:itc_idx`` (instance -> machine id|stamp), ``:revert`` (machine id -> stamp)
and ``:adder`` are CosId's; ``:note`` (machine id -> record), ``:seen`` (machine id -> when the
record was written, by the server's clock) and ``:space`` are aiocosid's.  The store's marker and
the counts of all namespaces are in ``aiocosid:marker``; on a cluster each count is in its
namespace's slot.

One script reads all of them, or a sample, and returns the sampled numbers and their total.  A
replica may answer only reads that take no id; for all other reads the first argument is 1.

Another script commits.  Its arguments are the server's identity as it was read, and for each cell
the number of its key, the field or '', the value that was read, and the value to write.  A value is
preceded by ``=``; '' means no value, and leaves the cell unchanged; ``-`` removes the cell; ``+``
adds one to a count of the same epoch, whatever its value.  The script compares everything before
its first write.  With each record it writes the time on the server's clock.  It returns 1, or 0 if
something has changed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ...abc import MAX_ID, Counter
from ...errors import (
    CorruptCounterError,
    CorruptMachineStateError,
    CounterMissingError,
    CounterNotCreatedError,
    StoreAuthenticationError,
)
from ...machine.cells import (
    MAX_MS,
    Changes,
    Count,
    Damage,
    MachineSlot,
    Marker,
    NamespaceRecord,
    Owner,
    Snapshot,
    read_note,
)
from ..backend import Backend, counters_of
from ._demands import STORE, durability_of, facts_of
from ._link import UNDECODED, Grants, script_of, text_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from ...abc import ServerInfo
    from ...machine.cells import ReadRequest
    from .._durability import DurabilityCheck
    from ._link import RedisLink

__all__ = ("ADD", "COMMIT", "RAISE", "READ", "CellCodec", "RedisBackend")

PREFIX, SUFFIX = "cosid:{", "}.adder"
BATCH: Final = 500  # keys in one request
INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")

READ: Final = script_of("server", "cells_read")
COMMIT: Final = script_of("server", "cells_commit")

ENTRIES, POOL, NOTES, SEEN, MARKER, ADDER, SPACE = range(1, 8)  # the scripts' KEYS
SUFFIXES: Final = ("itc_idx", "revert", "note", "seen", "count", "adder", "space")
TELLING: Final = tuple(f"}}:{each}" for each in ("itc_idx", "revert", "note", "space"))

Cell: TypeAlias = "tuple[int, bytes]"  # key and field; no field if the key is a string

MARKER_KEY: Final = b"aiocosid:marker"

MARKED: Final[Cell] = MARKER, b"store"
SPACED: Final[Cell] = SPACE, b""
ADDED: Final[Cell] = ADDER, b""

DIGITS: Final = re.compile(rb"[0-9]{1,16}")

T = TypeVar("T")

# Add ARGV[1] and return the sum.  A missing counter is created at ARGV[2]; if ARGV[2] is '', the
# counter is not created, and nil is returned.  A last key, if given, is the marker's; without a
# marker no counter is created, and '' is returned.
ADD: Final = script_of("counter_add")

# Raise to ARGV[1], or keep a higher value.  A missing counter is created unless ARGV[2] is ''.
# INCRBY by 0 refuses a value that is not an integer.
RAISE: Final = script_of("counter_raise")

ANY_KEY: Final = b"aiocosid"
"""A key that selects which server of a cluster is asked about itself."""

HIDDEN: Final = "the server hides its identity, which shows whether it lost data ({})"
ALLOW: Final = "allow it to the user: ACL SETUSER ... +info"


class RedisBackend(Backend):
    """One server, one cluster, or servers under Sentinel, on a link that the store closes."""

    __slots__ = ("_grants", "durability", "has_marker")

    link: RedisLink

    order_risk = "it replicates asynchronously, so two masters may grant ids during a fail-over"

    def __init__(self, link: RedisLink) -> None:
        super().__init__(STORE, link, name=link.name)
        self.has_marker = not link.is_cluster
        self.durability: DurabilityCheck = link.durability
        self._grants = Grants(link.durability, durability_of)

    async def ask_server(self) -> ServerInfo:
        return await self.link.call(lambda client: facts_of(client, ANY_KEY), key=ANY_KEY)

    # Counters.

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        if first is None:
            return await self._add(name, by, None)
        if self.has_marker:
            try:
                return await self._add(name, by, first)
            except StoreAuthenticationError:
                # The user may not read the marker, but an existing counter still works.
                with suppress(CounterMissingError):
                    return await self._add(name, by, None)
                raise
        try:
            return await self._add(name, by, None)
        except CounterMissingError:
            # The marker is in another slot, and may vanish between this round trip and the next.
            if not await self.is_counting():
                raise CounterNotCreatedError(self.label, counter=name) from None
        return await self._add(name, by, first)

    async def _add(self, name: str, by: int, first: int | None) -> int:
        keys: tuple[bytes, ...] = (_key_of(name),)
        if first is not None and self.has_marker:
            keys = *keys, MARKER_KEY
        given = by, b"" if first is None else first
        max_id = await self.link.run(ADD, keys, *given, counter=name, grants=self._grants)
        if max_id is None:
            raise CounterMissingError(self.label, counter=name)
        if not max_id:
            raise CounterNotCreatedError(self.label, counter=name)
        return int(max_id)

    async def is_counting(self) -> bool:
        return bool(await self._marked("HEXISTS"))

    async def mark_counters(self) -> None:
        await self._marked("HSETNX", Marker().text().encode())

    def _marked(self, command: str, *given: bytes) -> Awaitable[Any]:
        sent = command, MARKER_KEY, b"store", *given
        return self.link.call(
            lambda client: client.execute_command(*sent, **UNDECODED), key=MARKER_KEY
        )

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        given = above, b"1" if create else b""
        value = await self.link.run(RAISE, (_key_of(name),), *given, counter=name)
        return None if value is None else Counter(namespaced_name=name, last_max_id=int(value))

    async def counters(self, prefix: str) -> Sequence[Counter]:
        found = await self.link.call(_counters, may_last=True)
        return counters_of(found.items(), prefix)

    async def peek(self, name: str) -> int | None:
        key = _key_of(name)
        value: bytes | None = await self.link.call(
            lambda client: client.execute_command("GET", key, **UNDECODED), counter=name, key=key
        )
        if value is not None and _integer(value) is None:
            raise CorruptCounterError(STORE, counter=key.decode(), found=f"{value[:40]!r}")
        return _integer(value)

    # Cells: the whole namespace, or a sample, in one script.

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        codec = CellCodec(namespace, is_cluster=self.link.is_cluster)
        sample = need.sample if need.is_complete else 0
        given = int(bool(need.instance)), codec.count_field, need.instance.encode(), sample
        tag, *reply = await self.link.run(READ, codec.keys, *given)
        if tag == b"damaged":
            key, kind = map(text_of, reply)
            raise CorruptMachineStateError(STORE, place=key, found=f"a {kind}")
        if not tag:
            raise StoreAuthenticationError(STORE, HIDDEN.format(text_of(reply[0])), remedy=ALLOW)
        return codec.snapshot([tag, *reply], need.instance)

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        codec = CellCodec(snapshot.namespace, is_cluster=self.link.is_cluster)
        given, after = codec.arguments(snapshot, changes)
        reply = await self.link.run(COMMIT, codec.keys, *given)
        if not isinstance(reply, int):
            raise StoreAuthenticationError(STORE, HIDDEN.format(text_of(reply[1])), remedy=ALLOW)
        if reply:
            snapshot.apply(changes)
            snapshot.raw = after
        return bool(reply)

    async def namespaces(self) -> Sequence[str]:
        async def scan(client: Any) -> set[str]:  # noqa: ANN401 - the driver's
            # On a cluster the driver scans all masters.
            keys = client.scan_iter(match=f"{PREFIX}*}}:*", count=BATCH, **UNDECODED)
            names = {namespace_of(text_of(key)) async for key in keys}
            return {name for name in names if name is not None}

        return list(await self.link.call(scan, may_last=True))


def _key_of(name: str) -> bytes:
    return f"{PREFIX}{name}{SUFFIX}".encode()


async def _counters(client: Any) -> dict[str, int]:  # noqa: ANN401 - the driver's
    # On a cluster the driver scans all masters; a key may occur twice.
    scanned = client.scan_iter(match=f"{PREFIX}*{SUFFIX}", count=BATCH, **UNDECODED)
    ordered = list({key async for key in scanned})
    found: dict[str, int] = {}
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        for key, value in zip(batch, await _values(client, batch), strict=True):
            name, max_id = key.decode(errors="ignore"), _integer(value)
            if name.encode() == key and max_id is not None:
                found[name.removeprefix(PREFIX).removesuffix(SUFFIX)] = max_id
    return found


async def _values(client: Any, keys: list[bytes]) -> list[bytes | None]:  # noqa: ANN401 - the driver's
    # MGET returns nil for a value that is not a string, instead of an error.
    if not hasattr(client, "nodes_manager"):
        found: list[bytes | None] = await client.execute_command("MGET", *keys, **UNDECODED)
        return found
    pipeline = client.pipeline()  # the keys are spread over many slots
    for key in keys:
        pipeline.execute_command("MGET", key, **UNDECODED)
    return [value for (value,) in await pipeline.execute()]


def _integer(value: bytes | None) -> int | None:
    # Parse a number as the server does: int() would also accept spaces, underscores and any length.
    if value is None or INTEGER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if -MAX_ID - 1 <= number <= MAX_ID else None


def namespace_of(key: str) -> str | None:
    """Return the namespace whose machine ids a key is about; None for other keys."""
    if not key.startswith(PREFIX) or not key.endswith(TELLING):
        return None
    return key[len(PREFIX) : key.rindex("}:")]


class CellCodec:
    """Reads and writes the cells of one namespace.

    Attributes:
        keys: the KEYS argument of both scripts.
        count_field: the field of the count, next to the store's marker.
    """

    __slots__ = ("_namespace", "_single", "count_field", "keys")

    def __init__(self, namespace: str, *, is_cluster: bool) -> None:
        self._namespace = namespace
        names = [f"{PREFIX}{namespace}}}:{suffix}" for suffix in SUFFIXES]
        if not is_cluster:
            names[MARKER - 1] = MARKER_KEY.decode()
        self.keys = tuple(name.encode() for name in names)
        self.count_field = f"count:{namespace}".encode()
        self._single = MARKED, (MARKER, self.count_field), SPACED, ADDED

    # Reading.

    def snapshot(self, reply: list[Any], instance: str) -> Snapshot:
        """Return the snapshot from the script's reply.

        Raises:
            CorruptMachineStateError: a cell of aiocosid's, the adder, or the instance's entry is
                damaged.
        """
        here, _, now_ms, store, count, adder, space, *hashes = reply
        sampled, cells, records = hashes[4:] or ((), -1, -1)
        single = zip(self._single, (store, count, space, adder), strict=True)
        raw = {cell: value for cell, value in single if value is not None}
        for key, flat in zip((ENTRIES, POOL, NOTES, SEEN), hashes, strict=False):
            raw |= {(key, field): flat[i + 1] for i, field in enumerate(flat) if not i % 2}
        slots = defaultdict(MachineSlot, {int(number): MachineSlot() for number in sampled})
        damages = tuple(self._put_owners(slots, raw, instance))
        self._put_notes(slots, raw)
        return Snapshot(
            self._namespace,
            text_of(here),
            now_ms=int(now_ms),
            marker=self._own(Marker.read, raw, MARKED),
            space=self._own(NamespaceRecord.read, raw, SPACED),
            count=self._own(Count.read, raw, (MARKER, self.count_field)),
            slots=dict(slots),
            # CosId's adder begins at -1.
            last_new=-1 if adder in {None, b"-1"} else self._whole(ADDED, adder),
            is_complete=cells < 0,
            damages=damages,
            raw=raw,
            store=STORE,
            cells=cells,
            records=records,
        )

    def _put_owners(
        self, slots: defaultdict[int, MachineSlot], raw: Mapping[Cell, bytes], instance: str
    ) -> Iterator[Damage]:
        """Read CosId's hashes, in order; yield damaged entries whose machine id is unknown."""
        for cell, value in raw.items():
            key, field = cell
            if key not in {ENTRIES, POOL}:
                continue
            who, state = (field, value) if key == ENTRIES else (b"", field + b"|" + value)
            number, owner = _read_state(who, state)
            if owner is None and who and who == instance.encode():
                raise self._damaged(cell, value)
            if number is None:
                yield Damage(self._key_of(cell), repr(text_of(value)), text_of(who))
            elif owner is None:
                slots[number] = replace(slots[number], is_damaged=True)
            else:
                owners = *slots[number].owners, owner
                slots[number] = replace(slots[number], owners=owners)

    def _put_notes(self, slots: defaultdict[int, MachineSlot], raw: Mapping[Cell, bytes]) -> None:
        for cell, value in raw.items():
            key, field = cell
            if key in {NOTES, SEEN}:
                number = self._whole(cell, field)
                slot = slots[number]
                record = self._own(read_note, raw, cell) if key == NOTES else slot.record
                seen_ms = self._whole(cell, value) if key == SEEN else slot.seen_ms
                slots[number] = MachineSlot(slot.owners, record, seen_ms, slot.is_damaged)

    def _own(self, read: Callable[[str], T], raw: Mapping[Cell, bytes], cell: Cell) -> T | None:
        if (value := raw.get(cell)) is None:
            return None
        try:
            return read(value.decode())
        except ValueError:
            raise self._damaged(cell, value, expected="a cell as aiocosid writes it") from None

    def _whole(self, cell: Cell, digits: bytes) -> int:
        if not DIGITS.fullmatch(digits) or int(digits) > MAX_MS:
            raise self._damaged(cell, digits, expected="an integer")
        return int(digits)

    def _key_of(self, cell: Cell) -> str:
        key, field = text_of(self.keys[cell[0] - 1]), text_of(cell[1])
        return f"{key}[{field}]" if cell[1] else key

    def _damaged(self, cell: Cell, found: bytes, **details: str) -> CorruptMachineStateError:
        key = self._key_of(cell)
        return CorruptMachineStateError(STORE, place=key, found=repr(text_of(found)), **details)

    # Writing.

    def arguments(self, snapshot: Snapshot, changes: Changes) -> tuple[list[bytes | int], Any]:
        """Return the script's arguments, and the values of the compared cells after the commit."""
        raw: Mapping[Cell, bytes] = snapshot.raw
        written = self._written(snapshot, changes)
        after = {cell: raw.get(cell) for cell in (MARKED, SPACED)} | written
        # This order detects a missing right of the user before any machine id is written.
        order = sorted(after, key=lambda cell: (cell[1] != b"", after[cell] is not None))
        given: list[bytes | int] = [snapshot.identity.encode()]
        counted = self._single[1] if snapshot.counts_one_more(changes) else None
        for cell in order:
            value = written.get(cell)
            new = (b"-" if value is None else b"=" + value) if cell in written else b""
            if cell == counted:
                new = b"+"
            before = raw.get(cell)
            given += [*cell, b"" if before is None else b"=" + before, new]
        return given, {cell: value for cell, value in after.items() if value is not None}

    def _written(self, snapshot: Snapshot, changes: Changes) -> dict[Cell, bytes | None]:
        cells = changes.marker, changes.count, changes.space
        ours = zip(self._single[:3], cells, strict=True)
        written: dict[Cell, bytes | None] = {
            cell: own.text().encode() for cell, own in ours if own is not None
        }
        if changes.last_new is not None:
            written[ADDED] = b"%d" % changes.last_new
        # Another program may have written bytes that are not UTF-8; those are escaped in the text.
        fields = {text_of(field): field for key, field in snapshot.raw if key == ENTRIES}
        for number, slot in changes.slots.items():
            # Remove all cells of this id, except those that are written again for this or another
            # id.
            before = snapshot.slots.get(number, MachineSlot())
            numbered = ((key, b"%d" % number) for key in (POOL, NOTES))
            for cell in (*dict(_cells_of(number, before, fields)), *numbered):
                written.setdefault(cell, None)
            written |= _cells_of(number, slot, fields)
        return written


def _read_state(instance: bytes, state: bytes) -> tuple[int | None, Owner | None]:
    """Read ``machine id|stamp``: the machine id and its owner; None for a damaged part."""
    number, _, stamp = state.partition(b"|")
    if not DIGITS.fullmatch(number) or int(number) > MAX_MS:
        return None, None
    if not DIGITS.fullmatch(stamp) or int(stamp) > MAX_MS:
        return int(number), None
    return int(number), Owner(text_of(instance), int(stamp))


def _cells_of(
    number: int, slot: MachineSlot, fields: Mapping[str, bytes]
) -> Iterable[tuple[Cell, bytes]]:
    field = b"%d" % number
    for owner in slot.owners:
        if owner.instance:
            who = fields.get(owner.instance) or owner.instance.encode()
            yield (ENTRIES, who), b"%d|%d" % (number, owner.stamp_ms)
        else:
            yield (POOL, field), b"%d" % owner.stamp_ms
    if slot.record is not None:
        yield (NOTES, field), slot.record.text().encode()
