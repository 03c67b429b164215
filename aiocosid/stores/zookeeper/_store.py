"""Counters and machine ids on one ZooKeeper deployment."""

# ruff: noqa: ARG002 - nothing is given back here, so no grant is noted

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter
from ...errors import (
    CorruptCounterError,
    InvalidArgumentError,
)
from .._backend import MISSING, Backend, Granted, after_add, after_raise
from .._store import BackendStore
from ._machine import ENTRIES, Cells
from ._paths import COSID, OURS, STORES_OWN, name_of, own_node_of, path_of, text_of
from .tree import OwnedLink, ZookeeperLink, as_link, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...machine.cells import Changes, Need, Snapshot
    from .._give_back import GrantNote
    from .._store import CounterDistributor
    from .tree import Nodes

__all__ = ("ZookeeperBackend", "ZookeeperStore")

WIDTH: Final = 8  # bytes, of a Java ``long``, the highest first
LOCKER: Final = "-locker"  # what Curator appends for its mutex


class ZookeeperBackend(Backend):
    """CosId's nodes below ``/cosid``, and ours below ``/aiocosid``.

    A range is reserved as in Curator's ``DistributedAtomicLong``: read the node, write it if its
    version is unchanged, and repeat otherwise.  After many conflicts Curator uses a mutex below
    ``...-locker``, which only saves attempts: writes under the mutex compare the version as well.
    So aiocosid needs no mutex.

    The nodes of machine ids are not ephemeral: an id expires after the safe guard without a
    renewal, by the clock of ZooKeeper's leader.  Nevertheless a lease issues no ids after its
    session was interrupted, until a renewal sent after that has succeeded.

    ZooKeeper keeps confirmed writes when its leader fails.  It loses them if its data is removed,
    or restored from a copy.  Each holder of an id detects a restored copy at its next renewal: its
    last confirmed write is missing.
    """

    __slots__ = ("_link", "_written")

    def __init__(self, link: ZookeeperLink) -> None:
        super().__init__(link.label)
        self._link = link
        self._written: dict[tuple[str, int], int] = {}  # transactions, by namespace and id

    @property
    def session(self) -> int:
        """The number of the session; it changes at the moment of each interruption."""
        return self._link.session

    async def aopen(self) -> None:
        await self._link.aopen()

    async def aclose(self) -> None:
        await self._link.aclose()

    # Counters.

    async def add(
        self, name: str, by: int, *, first: int | None, note: GrantNote | None = None
    ) -> Granted:
        add = partial(after_add, by=by, first=first, store=self.label, name=name)
        return Granted(await self._change(name, add))

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        max_id = await self._change(name, partial(after_raise, above=above, create=create))
        return None if max_id == MISSING else Counter(namespaced_name=name, last_max_id=max_id)

    async def _change(self, name: str, change: Callable[[int | None], int]) -> int:
        """Write and return ``change(value)`` of a counter, whose value is None if it is missing."""
        path = f"{COSID}/{path_of(name)}"

        async def attempt(nodes: Nodes) -> int | None:
            (node,) = await nodes.get(path)
            # A node without data is no counter: a name with a slash has created it as a parent.
            is_none = node is None or (not node.data and node.children)
            before = None if node is None or is_none else self._value(path, node.data)
            after = change(before)
            if after in {MISSING, before}:
                return after
            is_done = await nodes.commit(write(path, after.to_bytes(WIDTH, "big"), node))
            return None if is_done is None else after

        return await self._link.until_done(attempt)

    def _value(self, path: str, data: bytes) -> int:
        value = int.from_bytes(data, "big", signed=True)
        if len(data) != WIDTH or value < 0:
            found = f"{len(data)} bytes" if len(data) != WIDTH else str(value)
            raise CorruptCounterError(self.label, counter=path, found=found)
        return value

    async def counters(self, prefix: str) -> Sequence[Counter]:
        def is_no_counter(name: str) -> bool:
            return name.startswith("__") or name.endswith(LOCKER)

        found = await self._link.call(lambda nodes: nodes.walk(COSID, skip=is_no_counter))
        counters: list[Counter] = []
        for path, node in found.items():
            name = text_of(path.removeprefix(f"{COSID}/"))
            value = int.from_bytes(node.data, "big", signed=True)
            if len(node.data) == WIDTH and value >= 0 and name.startswith(prefix):
                counters.append(Counter(namespaced_name=name, last_max_id=value))
        return counters

    # Cells.

    async def read(self, namespace: str, need: Need) -> Snapshot:
        cells = Cells(self.label, namespace)
        found = await self._link.call(lambda nodes: cells.read(nodes, need))
        for (of, number), written in self._written.items():
            if of == namespace and (found.is_complete or number in found.seats):
                # A confirmed write is missing: the server was restored to an older state.
                found.is_doubtful |= cells.node(cells.note(number)).changed < written
        return found

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        cells, namespace, is_doubtful = snapshot.raw, snapshot.namespace, snapshot.is_doubtful
        if not await self._link.call(lambda nodes: cells.commit(nodes, snapshot, changes)):
            return False
        for of, number in tuple(self._written):
            if of == namespace and (is_doubtful or number in changes.seats):
                del self._written[of, number]
        if changes.signed is not None:
            note = cells.node(cells.note(changes.signed))
            self._written[namespace, changes.signed] = note.changed
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

        return list(await self._link.call(find))


class ZookeeperStore(BackendStore[ZookeeperBackend]):
    """Many counters, and machine ids, on one server or ensemble, below CosId's node ``/cosid``.

    It needs no schema: a counter is created at its first use.  Before the first machine id is taken
    the store has to be initialised once (``aiocosid init``).  Runs on asyncio.
    """

    __slots__ = ()

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - the driver has no types
        """Use your own client; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, started.  It is never stopped here; its
                chroot, credentials and default ACL apply.

        Raises:
            InvalidArgumentError: it is no client of kazoo's.
        """
        self._backend = ZookeeperBackend(as_link(client))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use a session of its own, begun on first use and again after `aclose`.

        Args:
            url: ``zookeeper://[user:password@]host[:port][,host[:port]...][/chroot]``, the user
                and password for ZooKeeper's ``digest`` scheme.  A missing chroot is created.  After
                a ``?``: ``session_timeout`` in seconds, by default 10; the server may choose
                another one.  For TLS, SASL or your own ACLs pass your own client.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        return cls(OwnedLink(url))

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> CounterDistributor:
        """Return a distributor in this store's session; nothing is sent yet.

        Args:
            namespace: the counter's namespace.
            name: the counter's name.  A slash begins a child node, as in CosId.
            offset: where a new counter starts; the first id is ``offset + 1``.
            step: ids per segment, at least 1.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name ends in ``-locker``.
        """
        if str(name).endswith(LOCKER):
            expected = f"a text that does not end in {LOCKER!r}: Curator keeps a lock there"
            raise InvalidArgumentError("name", name, expected=expected)
        return super().segment_distributor(namespace=namespace, name=name, offset=offset, step=step)
