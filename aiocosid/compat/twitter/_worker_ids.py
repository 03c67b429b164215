"""Takes a worker id as Twitter's snowflake does: by an ephemeral node of ZooKeeper."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from ... import _fork
from ..._instance_id import host_port_instance_id, this_host
from ..._uncopied import Uncopied
from ...abc import MachineGrant, MachineIdDistributor
from ...abc._ids import check_integer
from ...errors import (
    CorruptMachineStateError,
    CosIdError,
    ForkedError,
    InvalidArgumentError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreError,
    StoreUnavailableError,
)
from ...stores._arguments import MAX_MS
from ...stores.zookeeper._errors import STORE
from ...stores.zookeeper._link import OwnedLink, as_link
from ...stores.zookeeper._nodes import create_ephemeral, delete, expect, write
from ...stores.zookeeper._paths import OURS, node_of

if TYPE_CHECKING:
    from ...stores.zookeeper._nodes import Change, Node, Nodes

__all__ = ("TwitterMachineIdDistributor",)

PATH: Final = "/snowflake-servers"
"""Twitter's ``workerIdZkPath``."""

PORT: Final = 7609
"""Twitter's ``serverPort``."""

WORKER_BITS: Final = 5
BITS: Final = 10  # datacenter and worker
SIZE: Final = 1 << WORKER_BITS
CUT: Final = 0.002  # seconds; the driver cuts a session's time to whole milliseconds
SIGNS: Final = 5  # of life while a session would last without one

_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff]+)+")
_NOTE: Final = re.compile(rb"(-1|[0-9]{1,16})\|([0-9a-f]{16})")
TOKEN_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker id, as it was read.

    Attributes:
        number: 0 to 31.
        path: Twitter's node.
        node: that as it was read; None if it is free.
        note_path: our note on it.
        note: that as it was read.
        mark_ms: no id was issued with a later time; -1 where none of ours had it.
        token: of the object that took it last, if that was one of ours.
    """

    number: int
    path: str
    node: Node | None
    note_path: str
    note: Node | None
    mark_ms: int = -1
    token: str = ""

    def written(self, mark_ms: int, token: str) -> Change:
        """Have the note written."""
        return write(self.note_path, b"%d|%s" % (mark_ms, token.encode()), self.note)

    @property
    def holder(self) -> str:
        """What its owner calls itself."""
        return "" if self.node is None else self.node.data.decode(errors="backslashreplace")


class TwitterMachineIdDistributor(Uncopied, MachineIdDistributor):
    """A worker id of Twitter's snowflake, held by an ephemeral node.

    Runs on asyncio.  The machine id is ``datacenter_id * 32 + worker_id``, of 10 bits.

    The node goes when ZooKeeper ends our session, and then the worker id is anybody's.  So a lease
    on it is good for nine tenths of a session's time after the last sign of life at most, and is
    silent from the moment in which the session is interrupted.

    Twitter keeps no note of the time up to which ids were issued.  Ours is below
    ``/aiocosid/twitter``, so that our next process begins above it; Twitter's does not look there.

    Twitter asks all other servers for their clocks when it starts, and refuses to if its own is 10
    seconds off.  That is left out here: they need not have a Thrift service to ask.  Nor have we:
    while we hold a node none of Twitter's starts, unless its ``skipSanityChecks`` is set.
    """

    __slots__ = (
        "_born",
        "_link",
        "_notes",
        "_owns_link",
        "_path",
        "_token",
        "datacenter_id",
        "worker_id",
    )

    store = STORE

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - the driver has no types
        *,
        worker_id: int | None = None,
        datacenter_id: int = 0,
        host: str | None = None,
        port: int = PORT,
        path: str = PATH,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, which you have started.  It stays yours
                to stop.  Its session's time, by kazoo's default 10 seconds, is how long the worker
                id stays ours after a crash.  The server has to grant it, by default up to 20 of
                its ticks; kazoo does not tell, so that this is checked by `from_url` alone.  What
                was not given back, as when closing could not reach the server, stays held for as
                long as the session lives: stop and start the client to be rid of it.
            worker_id: 0 to 31, as Twitter is told it; by default the first that is free.
            datacenter_id: 0 to 31.  Each datacenter has a ZooKeeper, or a path, of its own.
            host: our name, by default this host's.
            port: together with the host the one thing that tells our own former session from
                somebody else's; the same for two processes at once keeps the second one waiting.
            path: Twitter's ``workerIdZkPath``; nodes that are missing are made.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is none of
                kazoo's.
        """
        if worker_id is not None:
            check_integer("worker_id", worker_id, at_least=0, at_most=SIZE - 1)
        check_integer("datacenter_id", datacenter_id, at_least=0, at_most=SIZE - 1)
        if not _PATH.fullmatch(path):
            raise InvalidArgumentError("path", path, expected="the path of a node of ZooKeeper")
        link = as_link(client)
        super().__init__(
            namespace=path,
            instance_id=host_port_instance_id(this_host() if host is None else host, port),
            safe_guard=link.session_timeout,
            interval=link.session_timeout / SIGNS,
        )
        self.worker_id = worker_id
        self.datacenter_id = datacenter_id
        self._path = path
        self._notes = f"{OURS}/twitter/{node_of(path)}"
        self._link = link
        self._owns_link = False
        self._born = _fork.generation
        self._token = secrets.token_hex(TOKEN_BYTES)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        worker_id: int | None = None,
        datacenter_id: int = 0,
        host: str | None = None,
        port: int = PORT,
        path: str = PATH,
    ) -> Self:
        """Describe who asks in a session of its own, begun on first use and ended by `aclose`.

        Args:
            url: as for `aiocosid.stores.zookeeper.ZookeeperStore.from_url`.
            worker_id: 0 to 31; by default the first that is free.
            datacenter_id: 0 to 31.
            host: our name, by default this host's.
            port: ours.
            path: Twitter's ``workerIdZkPath``.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        made = cls(
            OwnedLink(url),
            worker_id=worker_id,
            datacenter_id=datacenter_id,
            host=host,
            port=port,
            path=path,
        )
        made._owns_link = True
        return made

    @property
    def session(self) -> int:
        """Another number each time that the session is interrupted, from that very moment."""
        return self._link.session

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take the worker id that was asked for, else the first that is free.

        Raises:
            InvalidArgumentError: ``bits`` is not 10, or another argument outside its range.
            MachineIdInUseError: somebody else has the worker id that was asked for, or another
                object on this client, which may be one that was not closed.
            MachineIdOverflowError: all 32 are held.
            StoreUnavailableError: the worker id is still held by our own former session, as after
                a crash, which is over in a session's time; or the server cannot be reached.
            StoreError: the server grants shorter sessions than the URL asks for, or refuses.
            CorruptMachineStateError: our note of the time is damaged.
            ForkedError: the session is the parent's.
        """
        if bits != BITS:
            raise InvalidArgumentError("bits", bits, expected=f"{BITS}: datacenter and worker")
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        self._ensure_own()

        async def attempt(nodes: Nodes) -> MachineGrant | None:
            return await self._try_to_take(nodes, latest_ms)

        return await self._link.until_done(attempt)

    async def _try_to_take(self, nodes: Nodes, latest_ms: int) -> MachineGrant | None:
        await nodes.ensure(self._path, self._notes)
        self._check_session()
        wanted = range(SIZE) if self.worker_id is None else (self.worker_id,)
        found = await self._read(nodes, *wanted)
        for each in found:
            if self._is_ours(nodes, each):
                return self._grant(each)
        free = [each for each in found if each.node is None]
        if not free:
            raise self._refusal(nodes, found)
        early = (each for each in free if each.mark_ms <= latest_ms)
        best = next(early, None) or min(free, key=lambda each: each.mark_ms)
        done = await nodes.commit(
            create_ephemeral(best.path, self.instance_id.text.encode()),
            best.written(best.mark_ms, self._token),
        )
        return None if done is None else self._grant(best)

    async def _read(self, nodes: Nodes, *workers: int) -> list[_Worker]:
        paths = [f"{self._path}/{each}" for each in workers]
        notes = [f"{self._notes}/{each}" for each in workers]
        read = await nodes.get(*paths, *notes)
        found = zip(workers, paths, read, notes, read[len(paths) :], strict=False)
        return [self._worker_of(*each) for each in found]

    def _worker_of(
        self, number: int, path: str, node: Node | None, note_path: str, note: Node | None
    ) -> _Worker:
        if note is None:
            return _Worker(number, path, node, note_path, note)
        match = _NOTE.fullmatch(note.data)
        if match is None or int(match[1]) > MAX_MS:
            expected = "a time in milliseconds since 1970, and a token"
            found = repr(note.data)
            raise CorruptMachineStateError(STORE, place=note_path, found=found, expected=expected)
        return _Worker(number, path, node, note_path, note, int(match[1]), match[2].decode())

    def _is_ours(self, nodes: Nodes, worker: _Worker) -> bool:
        # The session alone is not enough: another object may be on the same client.
        is_of_session = worker.node is not None and worker.node.owner == nodes.owner
        return is_of_session and worker.token == self._token

    def _grant(self, worker: _Worker) -> MachineGrant:
        return MachineGrant(self.datacenter_id << WORKER_BITS | worker.number, worker.mark_ms)

    def _refusal(self, nodes: Nodes, held: list[_Worker]) -> CosIdError:
        holders = [each.holder for each in held]
        if self.worker_id is None:
            return MachineIdOverflowError(self.namespace, size=SIZE, holders=tuple(holders[:5]))
        what = f"worker id {self.worker_id} in {self._path} of {STORE}"
        node = held[0].node
        if node is not None and node.owner == nodes.owner:
            other = f"another object on this client, {holders[0]}; close that, or end the session"
            return MachineIdInUseError(what, holder=other)
        if holders[0] != self.instance_id.text:
            return MachineIdInUseError(what, holder=holders[0])
        reason = (
            f"{what} is held by another session of {holders[0]}; if that was our own, it is over "
            f"within {self.safe_guard:g} s"
        )
        return StoreUnavailableError(STORE, reason)

    def _check_session(self) -> None:
        granted = self._link.session_timeout
        if granted < self.safe_guard - CUT:
            reason = f"the server grants sessions of {granted:g} s; ask for no longer ones"
            raise StoreError(STORE, f"{reason} ({self.safe_guard:g} s)")

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """See that the node is still ours, and raise the time mark.

        Raises:
            MachineIdLostError: the session that made it is over.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: our note of the time is damaged; nothing was written.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS)
        number = self._number(machine_id)

        async def attempt(nodes: Nodes) -> bool | None:
            (worker,) = await self._read(nodes, number)
            if worker.node is None or not self._is_ours(nodes, worker):
                raise MachineIdLostError(self.namespace, machine_id, reason=self._loss(worker))
            highest = max(worker.mark_ms, mark_ms)
            changes = expect(worker.path, worker.node), worker.written(highest, self._token)
            return None if await nodes.commit(*changes) is None else True

        await self._link.until_done(attempt)

    def _loss(self, worker: _Worker) -> str:
        if worker.node is None:
            return "ZooKeeper ended the session that held it"
        return f"{worker.holder} holds it"

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Remove the node, and lower the mark; does nothing if it is not ours any more.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS)
        number = self._number(machine_id)

        async def attempt(nodes: Nodes) -> bool | None:
            (worker,) = await self._read(nodes, number)
            if worker.node is None or not self._is_ours(nodes, worker):
                return False
            lower = worker.mark_ms if last_ms < 0 else min(worker.mark_ms, last_ms)
            changes = delete(worker.path, worker.node), worker.written(lower, self._token)
            return None if await nodes.commit(*changes) is None else True

        await self._link.until_done(attempt)

    def _number(self, machine_id: int) -> int:
        first = self.datacenter_id << WORKER_BITS
        check_integer("machine_id", machine_id, at_least=first, at_most=first + SIZE - 1)
        self._ensure_own()
        return machine_id - first

    def _ensure_own(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with a new session.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        if self._born != _fork.generation:
            self._born = _fork.generation
            self._token = secrets.token_hex(TOKEN_BYTES)

    async def aclose(self) -> None:
        """End a session begun from a URL, and with it the node; a client passed in goes on."""
        if self._owns_link:
            await self._link.aclose()
