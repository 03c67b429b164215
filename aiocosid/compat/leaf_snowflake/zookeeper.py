"""Leaf's registries in ZooKeeper: ``zk_normal``, and the fork's ``zk_recycle``.

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
from ...abc.options import takes
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
from ._options import LeafZkOptions

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
    """Return a node's content in the format of Java's JSON mapper."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _payload(path: str, data: bytes) -> dict[str, Any]:
    """Read a node's content.

    Raises:
        CorruptMachineStateError: the content is not a JSON object.
    """
    with suppress(ValueError):
        if isinstance(found := json.loads(data), dict):
            return cast("dict[str, Any]", found)
    expected = "a JSON object of Leaf's"
    raise CorruptMachineStateError(STORE, place=path, found=repr(data), expected=expected)


def _time_of(path: str, found: Any, *, or_none: bool = False) -> int:
    """Read a time in milliseconds since 1970; -1 for a missing one, where that is allowed.

    Raises:
        CorruptMachineStateError: the value is not a time.
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
        directory: the directory in which Leaf's file for this address is also written; None for no
            file.
    """

    directory: Path | None = None

    async def find(self, at: Nodes, bits: int, now_ms: int, latest_ms: int) -> Entry | None:  # noqa: ARG002 - there is only one node
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
        """Create a missing registry with number 0 already used; return False to look again."""
        if (await at.get(self.folder))[0] is not None:
            return True
        await at.ensure(self.namespace)
        spare = f"{self.folder}/0"
        await at.commit(create(self.folder, b""), create(spare, b""), ("delete", spare, (ANY,)))
        return False

    async def _make(self, at: Nodes, bits: int, now_ms: int) -> Entry:
        """Create and claim this address's node; the next attempt finds it if the answer is lost."""
        path, data = f"{self.folder}/{self.address}-", self._written(claim_stamp(-1, now_ms))
        number = int((await at.create_numbered(path, data))[-10:])
        if number >> bits:
            # Number 0 must belong to no address.
            await at.commit(("delete", self._path(number), (ANY,)))
            raise await self._used_up(at, bits, number)
        return Entry(worker_id=number, owner=str(self.address))

    async def _used_up(self, at: Nodes, bits: int, number: int) -> LeafWorkerIdsUsedUpError:
        """Return the error, with the three addresses that have been silent for longest."""
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
        node: Node | None = entry.about  # None if the node was created with its claim
        change = write(self._path(entry.worker_id), self._written(new), node)
        if node is not None and await at.commit(change) is None:
            return False
        if self.directory is not None:  # no id above the file's time is issued before this returns
            found = self.directory, self.address, entry.worker_id, new
            await in_thread(partial(leave_to_leaf, *found))
        return True

    def _written(self, stamp: int) -> bytes:
        return _as_json(ip=self.address.ip, port=self.address.port, timestamp=stamp)


class LeafZkNormalStore(WorkerIdStore):
    """The permanent worker id of an address in ``/snowflake/{leaf.name}/forever``.

    Runs on asyncio.  The node is Leaf's: ``{ip}:{port}-{10 digits}``, where the digits are the
    worker id, with the content ``{"ip":...,"port":...,"timestamp":...}``.  An address that has a
    worker id keeps it.  Leaf nodes can run at the same time, each with its own address.

    Every 3 s the timestamp is raised to the time up to which ids may be issued.  The next process
    with this address waits until that time has passed, unless it has a ``state_dir``.

    If several Leaf nodes start at the same time on an empty registry, all take number 0, whatever
    their nodes contain.  So aiocosid never creates a node with that number.
    """

    scheme = "leaf-zk-normal"
    options = NAMED
    extras: ClassVar[Options] = {**OFFLINE, "leaf_dir": str}
    why = WHY
    _connect = OwnedLink

    @takes(LeafZkOptions)
    def __init__(self, client: object, options: LeafZkOptions, /) -> None:
        """Use your own client, which the store never stops; nothing is sent yet.

        Args:
            client: a ``kazoo.client.KazooClient`` that you have started.
            options: the keyword arguments of `LeafZkOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range; the client is not a kazoo
                client; or ``offline`` is given with your own client.
        """
        address, leaf_dir = LeafAddress.of(options.ip, options.port), options.leaf_dir
        registry = _Forever(as_link(client), options.name, address, "forever")
        more: dict[str, Any] = {}
        if leaf_dir is not None:
            check_text("leaf_dir", os.fspath(leaf_dir))
            registry.directory = directory_of(leaf_dir, options.name, address)
            if options.offline:
                more["inherit"] = partial(record_of_leaf, registry.directory, options.offline)
        self._on(registry, options, **more)

    async def examine(self) -> Sequence[Examined]:
        """Read and explain the worker ids of all addresses; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return await examine_registry(self._registry, WORKER_BITS)


async def _named(
    name: str, read: Coroutine[Any, Any, Entry | None]
) -> tuple[str, Entry | CosIdError] | None:
    """Return an entry with its name, None if it is missing; a damaged entry is an error."""
    try:
        entry = await read
    except CorruptMachineStateError as error:
        return name, error
    return None if entry is None else (name, entry)


def _numbered(children: list[str]) -> list[tuple[int, str]]:
    """Return number and address of each node, by number; an address may contain dashes."""
    found = (_FOREVER_NODE.fullmatch(child) for child in children)
    return sorted((int(match["number"]), match["address"]) for match in found if match)


_POOL_SIZE: Final = 1024
_MAX_UPLOAD_FAIL: Final = 3600.0  # seconds after which the fork stops issuing ids
_MARGIN: Final = 240.0  # seconds; the fork intends 4 minutes, but uses 4 milliseconds
# Seconds after which a fork node may be about to reclaim a worker id.
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
            holders = tuple(each.owner or "an unknown process" for each in held[:5])
            raise MachineIdOverflowError(self.namespace, size=len(held), holders=holders)
        return entry

    async def _make_pools(self, at: Nodes) -> None:
        """Create the pools in one step, unless another process has begun to do so."""
        await at.ensure(*(f"{self.folder}/{pool}" for pool in ("notuse", "inuse")))
        numbers = range(self._pool_size)
        blank = (create(self._path("notuse", n), _written(n, _NOBODY, None)) for n in numbers)
        await at.commit(*blank)

    async def _entries(self, at: Nodes, pool: str, numbers: list[int]) -> list[Entry]:
        paths = [self._path(pool, each) for each in numbers]
        read = zip(numbers, paths, await at.get(*paths), strict=True)
        return [_entry(number, path, node) for number, path, node in read if node is not None]

    # The fork leaves an old owner's content in the new owner's node; it is then at least an hour
    # old.

    def why_lost(self, entry: Entry | None, stamps: set[int], now_ms: int | None) -> str | None:
        reason = super().why_lost(entry, stamps, now_ms)
        if entry is None or reason is not None:
            return reason
        node: Node = entry.about[1]
        is_silent = _is_silent(entry, node.changed_ms if now_ms is None else now_ms)
        return "it was silent for so long that others may take it over" if is_silent else None

    def _is_our_last(self, entry: Entry, now_ms: int) -> bool:
        """Whether an earlier process of this address held the id, and no other can hold it now."""
        node: Node = entry.about[1]
        is_fresh = node.changed_ms - entry.stamp < _MAX_UPLOAD_FAIL * _MS / 2
        return entry.owner == str(self.address) and is_fresh and not _is_silent(entry, now_ms)

    async def _free(self, at: Nodes, numbers: list[int], latest_ms: int) -> Entry | None:
        """Return a random id that needs no wait, so that processes differ, or the best one."""
        found = await self._entries(at, "notuse", numbers)
        if early := [each for each in found if each.stamp <= latest_ms]:
            return random.choice(early)  # noqa: S311 - spreads load
        return min(found, key=lambda each: each.stamp, default=None)

    async def _expired(self, at: Nodes, held: list[Entry], now_ms: int) -> Entry | None:
        """Return an id that was silent long enough by both clocks; read the second if needed."""
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
            remedy = f"allow it, so that the silent {wanted.about[0]} can be taken over"
            raise StoreAuthenticationError(STORE, reason, remedy=remedy) from error

    async def claim(self, at: Nodes, entry: Entry, new: int) -> bool:
        """Move the worker id into use, in one step, unless it is already there."""
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
        """Move the worker id back, with its time but without this address."""
        path, node = entry.about
        free = self._path("notuse", entry.worker_id)
        (other,) = await at.get(free)
        data = _written(entry.worker_id, _NOBODY, new)
        return await at.commit(delete(path, node), write(free, data, other)) is not None

    def _path(self, pool: str, worker_id: int) -> str:
        return f"{self.folder}/{pool}/workId:{worker_id}"


class LeafZkRecycleStore(WorkerIdStore):
    """A worker id from the fork's pools in ``/snowflake/{leaf.name}/recycle``.

    Runs on asyncio.  A worker id is a node ``workId:{n}`` in ``notuse`` or in ``inuse``.  It is
    moved in one step, with the holder's address and time in it, and each renewal checks both.
    Closing releases it.  An id can be taken if it was not renewed for an hour and 4 minutes, both
    by its own time and by the server's clock.  The id of an earlier process with the same address
    can be taken at once, unless it was not renewed for 56 minutes, when a fork node may be about to
    take it.  A held id is lost after the same 56 minutes without a renewal.  The server's clock is
    read from the time of a write to a node below ``/aiocosid/leaf``, which is created if all ids
    are held and one of them may have expired.

    Fork nodes can run at the same time, but some of their defects cannot be fixed from outside, and
    three of them repeat ids.  A fork node that was stopped for longer than an hour continues with
    its old worker id until the next report of either node, up to 3 s.  A fork node that was
    disconnected before its first report does so for ever.  And the fork's check, every 2 minutes,
    may take a worker id from a node that has just moved it into use.  In addition, a crash between
    the fork's two steps leaves a worker id in neither pool.
    """

    scheme = "leaf-zk-recycle"
    options = NAMED
    why = WHY
    _connect = OwnedLink

    def __init__(
        self, client: object, *, name: str, ip: str, port: int | str, pool_size: int = _POOL_SIZE
    ) -> None:
        """Use your own client, which the store never stops; nothing is sent yet.

        Args:
            client: a ``kazoo.client.KazooClient`` that you have started.
            name: Leaf's ``leaf.name``.
            ip: this process's address, at most 94 characters; it is never guessed.
            port: this process's port, 1 to 65535; Leaf's ``leaf.snowflake.port``.
            pool_size: the number of worker ids in new pools, 1 to 1024.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not a kazoo
                client.
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
