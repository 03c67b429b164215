"""Hands out segments from a counter on ZooKeeper, beside CosId's own processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID, IdSegmentDistributor
from ...errors import CorruptCounterError, IdOverflowError, InvalidArgumentError
from .._arguments import check_step
from .._watermark import HighWater
from ._driver import BadVersionError, NodeExistsError, NoNodeError
from ._errors import STORE
from ._link import Link, OwnedLink, as_link
from ._paths import COSID, path_of

if TYPE_CHECKING:
    from ._nodes import Nodes

__all__ = ("LOCKER", "ZookeeperIdSegmentDistributor", "raise_counter", "value_of")

WIDTH: Final = 8  # bytes, of a Java ``long``, the highest first
LOCKER: Final = "-locker"  # what Curator appends for its mutex


class ZookeeperIdSegmentDistributor(IdSegmentDistributor):
    """A counter on ZooKeeper, in CosId's node ``/cosid/<namespace>.<name>``.

    Runs on asyncio.  A range is reserved as Curator's ``DistributedAtomicLong`` does it: the node
    is read, and written if its version is still the same, else all over again.  A reply that is
    lost wastes a range: whoever comes next, we too, reads the new value.

    Curator turns to a mutex below ``...-locker`` when many are in its way.  It only spares it
    attempts: what it writes under the mutex has a version as well.  So we need none.
    """

    __slots__ = ("_link", "_owns_link", "_path", "_water")

    store = STORE

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - the driver has no types
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, which you have started.  It stays yours
                to stop; its chroot, credentials and default ACL apply.
            namespace: the counter's namespace.
            name: the counter's name.  A slash begins a node of its own, as for CosId.
            offset: where a new counter starts.
            step: ids per segment.

        Raises:
            InvalidArgumentError: an argument is outside its range, the name ends in ``-locker``, or
                the client is none of kazoo's.
        """
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        if name.endswith(LOCKER):
            expected = f"a text that does not end in {LOCKER!r}: Curator keeps a lock there"
            raise InvalidArgumentError("name", name, expected=expected)
        self._path = f"{COSID}/{path_of(self.namespaced_name)}"
        self._link = as_link(client)
        self._owns_link = False
        self._water = HighWater()

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> Self:
        """Describe a counter in a session of its own, begun on first use and ended by `aclose`.

        Args:
            url: as for `ZookeeperStore.from_url`.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        made = cls(OwnedLink(url), namespace=namespace, name=name, offset=offset, step=step)
        made._owns_link = True
        return made

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect on the server.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: the node holds something else; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, or without a leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            StoreRolledBackError: the counter is lower than it was.
            ForkedError: the session is the parent's.
            WrongLoopError: the session is in use on another event loop.
        """
        check_step(step)
        if step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(repr(self))

        async def attempt(nodes: Nodes) -> tuple[int | None, int] | None:
            sent = self._water.sent()
            max_id = await self._try_to_add(nodes, step)
            return None if max_id is None else (sent, max_id)

        sent, max_id = await self._link.until_done(attempt)
        return self._water.check(self, max_id, step=step, sent=sent)

    async def _try_to_add(self, nodes: Nodes, step: int) -> int | None:
        (found,) = await nodes.get(self._path)
        before = self.offset
        if found is not None and found.data:
            before = value_of(self._path, found.data)
        max_id = before + step
        if max_id > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        version = None if found is None else found.version
        return max_id if await _put(nodes, self._path, max_id, version) else None

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with a new session.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """End a session begun from a URL; a client that was passed in goes on."""
        if self._owns_link:
            await self._link.aclose()


def value_of(path: str, data: bytes) -> int:
    """Return the counter that a node holds; one without data has not begun, and is 0.

    Raises:
        CorruptCounterError: it is no counter, or a negative one.
    """
    if not data:
        return 0
    value = int.from_bytes(data, "big", signed=True)
    if len(data) != WIDTH or value < 0:
        found = f"{len(data)} bytes" if len(data) != WIDTH else str(value)
        raise CorruptCounterError(STORE, counter=path, found=found)
    return value


async def raise_counter(link: Link, distributor: ZookeeperIdSegmentDistributor, above: int) -> int:
    """Raise a counter to ``above`` if it is lower or missing; return what it is then."""
    path = distributor._path

    async def attempt(nodes: Nodes) -> int | None:
        (found,) = await nodes.get(path)
        if found is None:
            return above if await _put(nodes, path, above, None) else None
        value = value_of(path, found.data)
        if found.data and value >= above:
            return value
        return above if await _put(nodes, path, above, found.version) else None

    return await link.until_done(attempt)


async def _put(nodes: Nodes, path: str, value: int, version: int | None) -> bool:
    """Write a counter as it was read, or make it; whether nobody was faster."""
    data = value.to_bytes(WIDTH, "big", signed=True)
    try:
        if version is None:
            await nodes.create(path, data)
        else:
            await nodes.write(path, data, version)
    except (BadVersionError, NodeExistsError, NoNodeError):
        return False
    return True
