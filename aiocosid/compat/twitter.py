"""Worker ids of Twitter's snowflake of 2010: ephemeral ZooKeeper nodes.

Requires the ``zookeeper`` extra.  The node is Twitter's: ``/snowflake-servers/<worker id>`` holds
``host:port`` and ends with the session of the process that created it.  The layout of the ids is
`aiocosid.snowflake.TWITTER`.
"""

# ruff: noqa: ANN401 - the driver has no types

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..abc.checks import MAX_MS, check_integer
from ..errors import (
    CorruptMachineStateError,
    CosIdError,
    InvalidArgumentError,
    MachineIdInUseError,
    MachineIdOverflowError,
    StoreError,
    StoreUnavailableError,
)
from ..machine.instance_ids import host_port_instance_id, this_host
from ..stores.zookeeper.tree import (
    OURS,
    STORE,
    Nodes,
    OwnedLink,
    as_link,
    create_ephemeral,
    delete,
    expect,
    node_of,
    write,
)
from ._worker_ids import Entry, Registry, WorkerIdStore, examine_registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import InstanceId
    from ..stores.zookeeper.tree import Change, Node, ZookeeperLink
    from ._table import Examined
    from ._url import Options

__all__ = ("TwitterStore",)

_PATH: Final = "/snowflake-servers"  # Twitter's workerIdZkPath
_PORT: Final = 7609  # Twitter's serverPort
_WORKER_BITS: Final = 5
_BITS: Final = 10  # for datacenter and worker
_SIZE: Final = 1 << _WORKER_BITS
_NAMES: Final = frozenset(map(str, range(_SIZE)))
_CUT: Final = 0.002  # seconds; the driver truncates a session's timeout to whole milliseconds
_SIGNS: Final = 5  # renewals per session timeout

_NUMBERS: Final = dict.fromkeys(("worker_id", "datacenter_id", "port"), int)

_NODE: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff]+)+")
_NOTE: Final = re.compile(rb"(-1|[0-9]{1,16})\|([0-9a-f]{16})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker(Entry):
    """A worker id as it was read; its stamp is the fence in aiocosid's record.

    Attributes:
        node: Twitter's node as it was read; None if it is free.
        record: aiocosid's node for the worker id; None if there is none.
        is_ours: whether this object created the node in its current session.
    """

    node: Node | None
    record: Node | None
    is_ours: bool


class _Servers(Registry[Nodes]):
    """Twitter's nodes, and aiocosid's records: ``fence|token`` of the object that last took the id.

    A session alone does not identify the holder of a node, because another object may use the same
    client.
    """

    is_leased = True
    by_address = False

    def __init__(self, link: ZookeeperLink, path: str, who: InstanceId, ids: Sequence[int]) -> None:
        seconds = self._session_timeout = link.session_timeout
        times = {"safe_guard": seconds, "interval": seconds / _SIGNS}
        super().__init__(link, path, who, store=STORE, **times)
        self._wanted, self._notes = ids, f"{OURS}/twitter/{node_of(path)}"
        self.adopt()

    def adopt(self) -> None:
        self._token = secrets.token_hex(8)

    @property
    def session(self) -> int:
        return int(self.door.session)

    def _path(self, worker_id: int) -> str:
        return f"{self.namespace}/{worker_id % _SIZE}"

    def _note_path(self, worker_id: int) -> str:
        return f"{self._notes}/{worker_id % _SIZE}"

    async def find(self, at: Nodes, bits: int, now_ms: int, latest_ms: int) -> Entry | None:  # noqa: ARG002 - Twitter stores no time
        """Find the requested worker id, or the first free one."""
        if bits != _BITS:
            raise InvalidArgumentError("bits", bits, f"must be {_BITS}, for datacenter and worker")
        await at.ensure(self.namespace, self._notes)
        granted = self.door.session_timeout
        if granted < self._session_timeout - _CUT:
            asked = f"and {self._session_timeout:g} s were requested"
            reason = f"the server grants sessions of {granted:g} s, {asked}"
            raise StoreError(STORE, reason, remedy="ask for a shorter one")
        found = await self._read(at, *self._wanted)
        free = [each for each in found if each.node is None]
        own = next((each for each in found if each.is_ours), None)
        if own is None and not free:
            raise self._refusal(at, found)
        early = (each for each in free if each.stamp <= latest_ms)
        return own or next(early, None) or min(free, key=lambda each: each.stamp)

    async def claim(self, at: Nodes, entry: Any, new: int) -> bool:
        """Create the node, unless it is already held; the fence is not changed."""
        taken = create_ephemeral(self._path(entry.worker_id), self.instance_id.text.encode())
        return entry.is_ours or await at.commit(taken, self._noted(entry, new)) is not None

    async def _read(self, at: Nodes, *numbers: int) -> list[_Worker]:
        read = await at.get(*map(self._path, numbers), *map(self._note_path, numbers))
        found = zip(numbers, read, read[len(numbers) :], strict=False)
        return [self._worker(at, *each) for each in found]

    def _worker(self, at: Nodes, number: int, node: Node | None, record: Node | None) -> _Worker:
        fence_ms, token = -1, ""
        if record is not None:
            if not (match := _NOTE.fullmatch(record.data)) or int(match[1]) > MAX_MS:
                expected = "a time in milliseconds since 1970, and a token"
                path, found = self._note_path(number), repr(record.data)
                raise CorruptMachineStateError(STORE, place=path, found=found, expected=expected)
            fence_ms, token = int(match[1]), match[2].decode()
        is_ours = node is not None and token == self._token and node.owner == at.owner
        owner = "" if node is None else node.data.decode(errors="backslashreplace")
        facts: dict[str, Any] = {"worker_id": number, "stamp": fence_ms, "owner": owner}
        return _Worker(**facts, node=node, record=record, is_ours=is_ours)

    def _noted(self, worker: _Worker, fence_ms: int) -> Change:
        data = b"%d|%s" % (fence_ms, self._token.encode())
        return write(self._note_path(worker.worker_id), data, worker.record)

    def _refusal(self, at: Nodes, held: list[_Worker]) -> CosIdError:
        holders = tuple(each.owner for each in held)
        if len(held) == _SIZE:
            return MachineIdOverflowError(self.namespace, size=_SIZE, holders=holders[:5])
        what = f"worker id {self._wanted[0] % _SIZE} in {self.namespace} of {STORE}"
        node = held[0].node
        if node is not None and node.owner == at.owner:
            other = f"another object on this client, {holders[0]}"
            return MachineIdInUseError(
                what, holder=other, remedy="close that object, or end the session"
            )
        if holders[0] != self.instance_id.text:
            return MachineIdInUseError(what, holder=holders[0])
        end = f"wait {self._session_timeout:g} s until it ends"
        remedy = f"if that was this process's former session, {end}"
        reason = f"{what} is held by another session of {holders[0]}"
        return StoreUnavailableError(STORE, reason, remedy=remedy)

    async def read_all(self, at: Nodes) -> list[tuple[str, Entry | CosIdError]]:
        names = await at.children(self.namespace)
        numbers = sorted(int(name) for name in names if name in _NAMES)
        return [(each.owner, each) for each in await self._read(at, *numbers)]

    async def read(self, at: Nodes, worker_id: int) -> _Worker:
        first = self._wanted[0] - self._wanted[0] % _SIZE
        check_integer("machine_id", worker_id, at_least=first, at_most=first + _SIZE - 1)
        return (await self._read(at, worker_id))[0]

    def why_lost(self, entry: Any, stamps: set[int], now_ms: int | None) -> str | None:  # noqa: ARG002 - `read` tells it
        if entry.is_ours:
            return None
        gone = "ZooKeeper ended the session that held it"
        return gone if entry.node is None else f"{entry.owner} holds it"

    async def write(self, at: Nodes, entry: Any, new: int) -> bool:
        kept = expect(self._path(entry.worker_id), entry.node)
        return await at.commit(kept, self._noted(entry, new)) is not None

    async def release(self, at: Nodes, entry: Any, new: int) -> bool:
        gone = delete(self._path(entry.worker_id), entry.node)
        return await at.commit(gone, self._noted(entry, new)) is not None


class TwitterStore(WorkerIdStore):
    """The worker id of a Twitter server, held with an ephemeral node.  Runs on asyncio.

    The machine id is ``datacenter_id * 32 + worker_id``, with 10 bits.

    When ZooKeeper ends the session, the node is removed, and any process may take the worker id.
    So a lease is valid for at most nine tenths of the session timeout after the last renewal, and
    issues no ids once the session is interrupted.

    Twitter does not store the time up to which ids were issued.  aiocosid stores it below
    ``/aiocosid/twitter``, so that aiocosid's next process begins above it; Twitter's processes do
    not read it.

    When Twitter's server starts, it asks all other servers for their clocks, and refuses to start
    if its own differs by 10 seconds.  aiocosid does not do this, because other holders need not
    have a Thrift service.  It has no Thrift service either: while it holds a node, a Twitter server
    starts only with ``skipSanityChecks``.
    """

    scheme = "twitter"
    options: ClassVar[Options] = {**_NUMBERS, "host": str, "path": str}
    needs_all = False
    _connect = OwnedLink

    def __init__(
        self,
        client: object,
        *,
        worker_id: int | None = None,
        datacenter_id: int = 0,
        host: str | None = None,
        port: int = _PORT,
        path: str = _PATH,
    ) -> None:
        """Use your own client, which the store never stops; nothing is sent yet.

        Args:
            client: a ``kazoo.client.KazooClient`` that you have started.  Its session timeout, 10
                seconds by kazoo's default, is how long the worker id stays held after a crash.  The
                server must grant that timeout, by default up to 20 of its ticks; kazoo does not
                show the result, so only `from_url` checks it.  A worker id that could not be
                released because the server could not be reached at closing stays held until the
                session ends; stop and start the client to release it.
            worker_id: Twitter's worker id, 0 to 31; by default the first free one.
            datacenter_id: 0 to 31.  Each datacenter has its own ZooKeeper or path.
            host: the host's name; by default this host's.
            port: the port; host and port distinguish this process's former session from another
                process's.  If two processes have the same host and port, the second one waits.
            path: Twitter's ``workerIdZkPath``; missing nodes are created.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not kazoo's.
        """
        workers = range(_SIZE) if worker_id is None else (worker_id,)
        for argument, number in (("worker_id", workers[0]), ("datacenter_id", datacenter_id)):
            check_integer(argument, number, at_least=0, at_most=_SIZE - 1)
        if not _NODE.fullmatch(path):
            raise InvalidArgumentError("path", path, "must be the path of a ZooKeeper node")
        name = host_port_instance_id(this_host() if host is None else host, port)
        wanted = [datacenter_id << _WORKER_BITS | each for each in workers]
        self._on(_Servers(as_link(client), path, name, wanted))

    async def examine(self) -> Sequence[Examined]:
        """Read and explain the held worker ids; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return await examine_registry(self._registry, _WORKER_BITS)
