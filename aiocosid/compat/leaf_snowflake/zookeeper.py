"""Leaf's registries in ZooKeeper: its own, ``zk_normal``, and the fork's ``zk_recycle``.

Requires the ``zookeeper`` extra.
"""

# ruff: noqa: ANN401 - the driver has no types

from __future__ import annotations

import json
import os
import random
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from ...abc.checks import MAX_MS, check_integer, check_text
from ...errors import (
    CorruptMachineStateError,
    LeafWorkerIdsUsedUpError,
    MachineIdOverflowError,
    StoreAuthenticationError,
)
from ...machine.files import in_thread
from ...stores.zookeeper.tree import (
    ANY,
    OURS,
    STORE,
    NoAuthError,
    Nodes,
    OwnedLink,
    as_link,
    create,
    delete,
    node_of,
    write,
)
from .._stamps import claim_stamp
from .._worker_ids import Entry, Registry, WorkerIdStore, examine_registry
from ._address import INTERVAL, NAMED, OFFLINE, WHY, WORKER_BITS, LeafAddress, check_leaf_name
from ._local import directory_of, leave_to_leaf, record_of_leaf

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from ...errors import CosIdError
    from ...stores.zookeeper.tree import Node, ZookeeperLink
    from .._table import Examined
    from .._url import Options

__all__ = ("LeafZkNormalStore", "LeafZkRecycleStore")

_MAX_BITS: Final = 31
_ROOT: Final = "/snowflake"  # Leaf's PREFIX_ZK_PATH, without leaf.name


class _LeafNodes(Registry[Nodes]):
    """Worker ids below ``/snowflake/{leaf.name}``."""

    def __init__(
        self, link: ZookeeperLink, name: str, address: LeafAddress, folder: str, **times: float
    ) -> None:
        root, self.address = f"{_ROOT}/{check_leaf_name(name)}", address
        super().__init__(link, root, address.instance_id, store=STORE, interval=INTERVAL, **times)
        self.folder = f"{root}/{folder}"


def _as_json(**fields: str | int | None) -> bytes:
    """Write what a node holds, as Java's mapper does."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _payload(path: str, data: bytes) -> dict[str, Any]:
    """Read what a node holds.

    Raises:
        CorruptMachineStateError: it is no JSON object.
    """
    with suppress(ValueError):
        if isinstance(found := json.loads(data), dict):
            return cast("dict[str, Any]", found)
    expected = "a JSON object of Leaf's"
    raise CorruptMachineStateError(STORE, place=path, found=repr(data), expected=expected)


def _time_of(path: str, found: Any, *, or_none: bool = False) -> int:
    """Read a time in milliseconds since 1970; -1 for none, where that may be.

    Raises:
        CorruptMachineStateError: it is none.
    """
    if found is None and or_none:
        return -1
    if type(found) is not int or not 0 <= found < MAX_MS:
        expected = "a time in milliseconds since 1970"
        raise CorruptMachineStateError(STORE, place=path, found=repr(found), expected=expected)
    return found


_FOREVER_NODE: Final = re.compile(r"(?P<address>.+)-(?P<number>[0-9]{10})")


class _Forever(_LeafNodes):
    """``/snowflake/{leaf.name}/forever``: nodes ``{ip}:{port}-{worker id}``.

    Attributes:
        directory: where Leaf's file of this address is kept as well; None to keep none.
    """

    directory: Path | None = None

    async def find(self, at: Nodes, bits: int, now_ms: int, latest_ms: int) -> Entry | None:  # noqa: ARG002 - there is no other
        children = _numbered(await at.children(self.folder))
        if not children and not await self._found(at):
            return None
        own = [number for number, address in children if address == str(self.address)]
        if not own:
            return await self._make(at, bits, now_ms)
        if own[0] >> bits:
            raise await self._used_up(at, bits, own[0])
        return await self.read(at, own[0])

    async def _found(self, at: Nodes) -> bool:
        """Make the registry where there is none, with its number 0 gone; False to look again."""
        if (await at.get(self.folder))[0] is not None:
            return True
        await at.ensure(self.namespace)
        spare = f"{self.folder}/0"
        await at.commit(create(self.folder, b""), create(spare, b""), ("delete", spare, (ANY,)))
        return False

    async def _make(self, at: Nodes, bits: int, now_ms: int) -> Entry:
        """Make our node, claimed; one whose answer is lost is found by the next attempt."""
        path, data = f"{self.folder}/{self.address}-", self._written(claim_stamp(-1, now_ms))
        number = int((await at.create_numbered(path, data))[-10:])
        if number >> bits:
            await at.commit(("delete", self._path(number), (ANY,)))  # it is nobody's number
            raise await self._used_up(at, bits, number)
        return Entry(worker_id=number, owner=str(self.address))

    async def _used_up(self, at: Nodes, bits: int, number: int) -> LeafWorkerIdsUsedUpError:
        """Return the error, with three addresses that were silent for longest."""
        children = _numbered(await at.children(self.folder))
        fitting = [each for each in children if not each[0] >> bits]
        paths = [f"{self.folder}/{address}-{number:010}" for number, address in fitting]
        read = zip(fitting, await at.get(*paths), strict=True)
        silent = sorted((node.changed, address) for (_, address), node in read if node is not None)
        holders = tuple(address for _, address in silent[:3])
        about = {"worker_id": number, "bits": bits}
        return LeafWorkerIdsUsedUpError(self.namespace, **about, holders=holders)

    def _path(self, worker_id: int, address: str | None = None) -> str:
        return f"{self.folder}/{address or self.address}-{worker_id:010}"

    async def read(self, at: Nodes, worker_id: int) -> Entry | None:
        return await self._read(at, worker_id, str(self.address))

    async def _read(self, at: Nodes, worker_id: int, address: str) -> Entry | None:
        path = self._path(worker_id, address)
        (node,) = await at.get(path)
        if node is None:
            return None
        found = _time_of(path, _payload(path, node.data).get("timestamp"))
        return Entry(worker_id=worker_id, stamp=found, owner=address, about=node)

    async def read_all(self, at: Nodes) -> list[tuple[str, Entry | CosIdError]]:
        children = _numbered(await at.children(self.folder))
        reads = ((address, self._read(at, number, address)) for number, address in children)
        return [found for name, read in reads if (found := await _named(name, read))]

    async def write(self, at: Nodes, entry: Entry, new: int) -> bool:
        node: Node | None = entry.about  # none where it was made with its claim
        change = write(self._path(entry.worker_id), self._written(new), node)
        if node is not None and await at.commit(change) is None:
            return False
        if self.directory is not None:  # no id above the file's time before this returns
            found = self.directory, self.address, entry.worker_id, new
            await in_thread(partial(leave_to_leaf, *found))
        return True

    def _written(self, stamp: int) -> bytes:
        return _as_json(ip=self.address.ip, port=self.address.port, timestamp=stamp)


class LeafZkNormalStore(WorkerIdStore):
    """The worker id of an address in ``/snowflake/{leaf.name}/forever``, for good.

    Runs on asyncio.  The node is Leaf's: ``{ip}:{port}-{10 digits}``, which are the worker id, with
    ``{"ip":...,"port":...,"timestamp":...}``.  An address that has one keeps it.  Leaf nodes may
    run beside, each on an address of its own.

    The timestamp is raised every 3 s to the time up to which ids may be issued.  The next process
    of the address waits for it, unless it has a ``state_dir``.

    If several Leaf nodes start at once on an empty registry, all take number 0, whatever their
    nodes contain.  So aiocosid never creates a node with that number.
    """

    scheme = "leaf-zk-normal"
    options = NAMED
    extras: ClassVar[Options] = {**OFFLINE, "leaf_dir": str}
    why = WHY
    _connect = OwnedLink

    def __init__(
        self,
        client: object,
        *,
        name: str,
        ip: str,
        port: int | str,
        state_dir: str | os.PathLike[str] | None = None,
        offline: float = 0.0,
        leaf_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Use your own client, which is never stopped here; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, started.
            name: Leaf's ``leaf.name``.
            ip: this process's address, at most 94 characters; none is guessed.  Any text that no
                other process uses, such as a pod's stable name, works as well.
            port: this process's, 1 to 65535; Leaf's ``leaf.snowflake.port``.
            state_dir: a directory on the machine's own disk: after a crash and a start on the same
                machine the address does not wait for its time.
            offline: seconds without ZooKeeper for which ids may be issued, also by a process that
                starts on the same machine; 0, or above 3.  It needs ``state_dir``, and `from_url`.
                The timestamp is as far ahead, also after an orderly end: for so long a start of
                this address elsewhere has to wait, and a Leaf node refuses to start.
            leaf_dir: Java's ``java.io.tmpdir``: each renewal also writes the worker id and the time
                to the fork's ``workerID.properties`` there, by which a Leaf node that takes the
                address back starts without ZooKeeper.  If it cannot be written, the renewal fails.
                With ``offline`` it is read, too: where this address has no record in ``state_dir``,
                the first start without ZooKeeper takes the number from it, and begins above its
                time, for ``offline`` seconds.  Nobody confirms that: use it only for an address
                that is this host's own, and whose Leaf node has ended.  A file without a time is
                not read, nor one with number 0.

        Raises:
            InvalidArgumentError: an argument is outside its range, the client is none of kazoo's,
                or yours with ``offline``.
        """
        address = LeafAddress.of(ip, port)
        registry = _Forever(as_link(client), name, address, "forever")
        more: dict[str, Any] = {}
        if leaf_dir is not None:
            check_text("leaf_dir", os.fspath(leaf_dir))
            registry.directory = directory_of(leaf_dir, name, address)
            if offline:
                more["inherit"] = partial(record_of_leaf, registry.directory, offline)
        self._on(registry, state_dir=state_dir, offline=offline, **more)

    async def examine(self) -> Sequence[Examined]:
        """Read and explain the worker ids of all addresses; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return await examine_registry(self._registry, WORKER_BITS)


async def _named(
    name: str, read: Coroutine[Any, Any, Entry | None]
) -> tuple[str, Entry | CosIdError] | None:
    """Return what was read with its name, None if it is gone; a damaged one is an error."""
    try:
        entry = await read
    except CorruptMachineStateError as error:
        return name, error
    return None if entry is None else (name, entry)


def _numbered(children: list[str]) -> list[tuple[int, str]]:
    """Return number and address of each node, by number; the address may have dashes."""
    found = (_FOREVER_NODE.fullmatch(child) for child in children)
    return sorted((int(match["number"]), match["address"]) for match in found if match)


_POOL_SIZE: Final = 1024
_MAX_UPLOAD_FAIL: Final = 3600.0  # seconds; the fork stops to make ids then
_MARGIN: Final = 240.0  # seconds; the fork means 4 minutes, and takes 4 milliseconds
# Seconds; after that a fork node may be about to reclaim it.
_RESUMABLE: Final = _MAX_UPLOAD_FAIL - _MARGIN
_MS: Final = 1000

_POOL_NODE: Final = re.compile(r"workId:(0|[1-9][0-9]{0,9})")
_NOBODY: Final = LeafAddress("", "")


class _Pools(_LeafNodes):
    """``/snowflake/{leaf.name}/recycle``: nodes ``workId:{n}`` in ``notuse`` or in ``inuse``."""

    is_leased = True

    def __init__(self, link: ZookeeperLink, name: str, address: LeafAddress, size: int) -> None:
        check_integer("pool_size", size, at_least=1, at_most=_POOL_SIZE)
        super().__init__(link, name, address, "recycle", safe_guard=_MAX_UPLOAD_FAIL)
        self._pool_size = size

    async def find(self, at: Nodes, bits: int, now_ms: int, latest_ms: int) -> Entry | None:
        pools = [await at.children(f"{self.folder}/{pool}") for pool in ("inuse", "notuse")]
        used, free = (_numbers(each, bits) for each in pools)
        if not used and not free:
            await self._make_pools(at)
            return None
        held = await self._entries(at, "inuse", used)
        entry = next((each for each in held if self._is_our_last(each, now_ms)), None)
        entry = entry or await self._free(at, sorted({*free} - {*used}), latest_ms)
        entry = entry or await self._expired(at, held, now_ms)
        if entry is None:
            holders = tuple(each.owner or "nobody" for each in held[:5])
            raise MachineIdOverflowError(self.namespace, size=len(held), holders=holders)
        return entry

    async def _make_pools(self, at: Nodes) -> None:
        """Create the pools in one step, unless another process has begun to."""
        await at.ensure(*(f"{self.folder}/{pool}" for pool in ("notuse", "inuse")))
        numbers = range(self._pool_size)
        blank = (create(self._path("notuse", n), _written(n, _NOBODY, None)) for n in numbers)
        await at.commit(*blank)

    async def _entries(self, at: Nodes, pool: str, numbers: list[int]) -> list[Entry]:
        paths = [self._path(pool, each) for each in numbers]
        read = zip(numbers, paths, await at.get(*paths), strict=True)
        return [_entry(number, path, node) for number, path, node in read if node is not None]

    # The fork leaves an old owner's bytes in a new one's node.  They are an hour old when it does.

    def why_lost(self, entry: Entry | None, stamps: set[int], now_ms: int | None) -> str | None:
        reason = super().why_lost(entry, stamps, now_ms)
        if entry is None or reason is not None:
            return reason
        node: Node = entry.about[1]
        is_silent = _is_silent(entry, node.changed_ms if now_ms is None else now_ms)
        return "it was silent for so long that others may take it over" if is_silent else None

    def _is_our_last(self, entry: Entry, now_ms: int) -> bool:
        """Whether an earlier process of this address had it, and no other can have it by now."""
        node: Node = entry.about[1]
        is_fresh = node.changed_ms - entry.stamp < _MAX_UPLOAD_FAIL * _MS / 2
        return entry.owner == str(self.address) and is_fresh and not _is_silent(entry, now_ms)

    async def _free(self, at: Nodes, numbers: list[int], latest_ms: int) -> Entry | None:
        """Return any that need not be waited for, so that not all want the same; or the best."""
        found = await self._entries(at, "notuse", numbers)
        if early := [each for each in found if each.stamp <= latest_ms]:
            return random.choice(early)  # noqa: S311 - it spreads load
        return min(found, key=lambda each: each.stamp, default=None)

    async def _expired(self, at: Nodes, held: list[Entry], now_ms: int) -> Entry | None:
        """Return one that was silent for long enough by both clocks; asks the second if need be."""
        longest = (_MAX_UPLOAD_FAIL + _MARGIN) * _MS
        silent = [each for each in held if now_ms - each.stamp > longest]
        server_ms = await self._server_ms(at, silent[0]) if silent else 0
        late = (each for each in silent if server_ms - each.about[1].changed_ms > longest)
        return next(late, None)

    async def _server_ms(self, at: Nodes, wanted: Entry) -> int:
        clock = f"{OURS}/leaf/{node_of(self.namespace)}"
        try:
            return (await at.sync_and_read(clock))[0]
        except NoAuthError as error:
            reason = f"the user may not write {clock}"
            remedy = f"allow it, to take {wanted.about[0]}, which is silent"
            raise StoreAuthenticationError(STORE, reason, remedy=remedy) from error

    async def claim(self, at: Nodes, entry: Entry, new: int) -> bool:
        """Move it in, in one step, if it is not there already."""
        path, node = entry.about
        used = self._path("inuse", entry.worker_id)
        if path == used:
            return await self.write(at, entry, new)
        data = _written(entry.worker_id, self.address, new)
        return await at.commit(delete(path, node), create(used, data)) is not None

    async def read_all(self, at: Nodes) -> list[tuple[str, Entry | CosIdError]]:
        numbers = _numbers(await at.children(f"{self.folder}/inuse"), _MAX_BITS)
        reads = ((f"workId:{number}", self.read(at, number)) for number in numbers)
        return [found for name, read in reads if (found := await _named(name, read))]

    async def read(self, at: Nodes, worker_id: int) -> Entry | None:
        found = await self._entries(at, "inuse", [worker_id])
        return found[0] if found else None

    async def write(self, at: Nodes, entry: Entry, new: int) -> bool:
        path, node = entry.about
        data = _written(entry.worker_id, self.address, new)
        return await at.commit(write(path, data, node)) is not None

    async def release(self, at: Nodes, entry: Entry, new: int) -> bool:
        """Move it back, with its time, and without our name: it is not ours any more."""
        path, node = entry.about
        free = self._path("notuse", entry.worker_id)
        (other,) = await at.get(free)
        data = _written(entry.worker_id, _NOBODY, new)
        return await at.commit(delete(path, node), write(free, data, other)) is not None

    def _path(self, pool: str, worker_id: int) -> str:
        return f"{self.folder}/{pool}/workId:{worker_id}"


class LeafZkRecycleStore(WorkerIdStore):
    """A worker id of the fork's pools in ``/snowflake/{leaf.name}/recycle``.

    Runs on asyncio.  A worker id is a node ``workId:{n}`` in ``notuse`` or in ``inuse``.  It is
    moved in one step, with the holder's address and time in it, and each renewal checks both.
    Closing gives it back.  An id without a renewal for an hour and 4 minutes, by its own time and
    by the server's clock, can be taken.  An earlier process's id of the same address can be taken
    at once, unless it was not renewed for 56 minutes: then a fork node may be about to take it.  A
    held id is lost after as long a time without a renewal.  The server's clock is the time of a
    write to a node below ``/aiocosid/leaf``, which is created if all ids are held and one may have
    expired.

    Fork nodes may run at the same time, but some of their defects cannot be fixed from outside, and
    three repeat ids.  A fork node that was stopped for longer than an hour goes on with its old
    worker id until the next report of either node, up to 3 s; one that was disconnected before its
    first report does so for ever.  And the fork's check, every 2 minutes, may take a worker id from
    a node that has just moved it in.  Also, a crash between its two steps leaves a worker id in
    neither pool.
    """

    scheme = "leaf-zk-recycle"
    options = NAMED
    why = WHY
    _connect = OwnedLink

    def __init__(
        self, client: object, *, name: str, ip: str, port: int | str, pool_size: int = _POOL_SIZE
    ) -> None:
        """Use your own client, which is never stopped here; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, started.
            name: Leaf's ``leaf.name``.
            ip: this process's address, at most 94 characters; none is guessed.
            port: this process's, 1 to 65535; Leaf's ``leaf.snowflake.port``.
            pool_size: 1 to 1024: worker ids that the pools get if there are none yet.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is none of
                kazoo's.
        """
        self._on(_Pools(as_link(client), name, LeafAddress.of(ip, port), pool_size))

    async def examine(self) -> Sequence[Examined]:
        """Read and explain the worker ids that are in use; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return await examine_registry(self._registry, WORKER_BITS)


def _is_silent(entry: Entry, now_ms: int) -> bool:
    return now_ms - entry.stamp > _RESUMABLE * _MS


def _numbers(children: list[str], bits: int) -> list[int]:
    """Return the worker ids that fit; the fork's pools have one too many."""
    found = (_POOL_NODE.fullmatch(child) for child in children)
    return sorted(int(match[1]) for match in found if match and not int(match[1]) >> bits)


def _entry(number: int, path: str, node: Node) -> Entry:
    fields = _payload(path, node.data)
    stamp = _time_of(path, fields.get("lastUsedTimestamp"), or_none=True)
    ip, port = fields.get("lastUsedIp"), fields.get("lastUsedPort")
    owner = f"{ip}:{port}" if ip and port else ""
    return Entry(worker_id=number, stamp=stamp, owner=owner, about=(path, node))


def _written(number: int, address: LeafAddress, stamp: int | None) -> bytes:
    who = {"lastUsedIp": address.ip or None, "lastUsedPort": address.port or None}
    return _as_json(workId=number, **who, lastUsedTimestamp=stamp)
