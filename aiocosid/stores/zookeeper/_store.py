"""One ZooKeeper deployment with all its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter
from ...errors import CorruptCounterError
from .._arguments import check_above
from ._link import Link, OwnedLink, as_link
from ._machine_store import ZookeeperMachineStore
from ._paths import COSID, text_of
from ._segment import LOCKER, ZookeeperIdSegmentDistributor, raise_counter, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._nodes import Node, Nodes

__all__ = ("ZookeeperStore",)


class ZookeeperStore(ZookeeperMachineStore):
    """Many counters on one server or ensemble, below CosId's node ``/cosid``.

    There is nothing to create: a counter comes to be when it is first used.
    """

    __slots__ = ("_link",)

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - the driver has no types
        """Work on your own client, which stays yours to start and to stop; nothing is sent yet.

        Args:
            client: as for `ZookeeperIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: it is no client of kazoo's.
        """
        self._link: Link = as_link(client)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work in a session of its own, begun on first use and anew after `aclose`.

        Args:
            url: ``zookeeper://[user:password@]host[:port][,host[:port]...][/chroot]``, the user
                and password for ZooKeeper's ``digest`` scheme.  The chroot is made when it is
                missing.  After a ``?``: ``session_timeout`` in seconds, by default 10; the server
                may choose another.  For TLS, SASL or ACLs of your own pass a client of yours.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        made = cls.__new__(cls)
        made._link = OwnedLink(url)
        return made

    def __repr__(self) -> str:
        """Name the servers, without credentials."""
        return f"<{type(self).__name__} {self._link}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> ZookeeperIdSegmentDistributor:
        """Return a distributor in this store's session; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return ZookeeperIdSegmentDistributor(
            self._link, namespace=namespace, name=name, offset=offset, step=step
        )

    async def create_schema(self) -> None:
        """Do nothing: there are no tables.  `mark_machines` is what machine ids need."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name; looks at every node below ``/cosid``.

        Nodes that hold something else are left out.

        Raises:
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """

        async def read(nodes: Nodes) -> dict[str, Node]:
            return await nodes.walk(COSID, skip=_is_no_counter)

        found = {
            text_of(path.removeprefix(f"{COSID}/")): last_max_id
            for path, node in (await self._link.call(read)).items()
            if (last_max_id := _counted(path, node)) is not None
        }
        prefix = "" if namespace is None else f"{namespace}."
        return [
            Counter(namespaced_name=name, last_max_id=found[name])
            for name in sorted(found)
            if name.startswith(prefix)
        ]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter to ``above`` if it is lower or missing.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CorruptCounterError: the node holds something else; nothing was written.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the session is the parent's.
        """
        check_above(above)
        counter = self.segment_distributor(namespace=namespace, name=name)
        value = await raise_counter(self._link, counter, above)
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=value)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with a new session.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """End a session begun from a URL; a client that was passed in goes on."""
        await self._link.aclose()


def _is_no_counter(name: str) -> bool:
    return name.startswith("__") or name.endswith(LOCKER)


def _counted(path: str, node: Node) -> int | None:
    try:
        return value_of(path, node.data) if node.data else None
    except CorruptCounterError:
        return None
