"""One etcd cluster with all its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter
from ...abc._ids import check_text
from .._arguments import check_above
from ._counter import Known, integer
from ._link import BorrowedLink, OwnedLink
from ._machine_store import EtcdMachineStore
from ._segment import EtcdIdSegmentDistributor
from ._url import PREFIX, check_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._link import EtcdClient, Link
    from ._server import Member

__all__ = ("EtcdStore",)


class EtcdStore(EtcdMachineStore):
    """Many counters and machine ids on one cluster.

    There is nothing to create: a counter comes to be when it is first used, and never expires.

    The driver's grpc does not survive a fork.  A process that was forked while its parent had a
    connection to etcd is refused by `ForkedError` whatever it opens: fork before the first call,
    close everything before, or spawn.
    """

    __slots__ = ("_link", "_prefix")

    def __init__(self, client: EtcdClient, *, prefix: str = PREFIX) -> None:
        """Work on your own client, which stays yours to close; nothing is sent yet.

        Args:
            client: as for `EtcdIdSegmentDistributor`.
            prefix: what all keys begin with.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client another one.
        """
        self._prefix = check_prefix(prefix)
        self._link: Link = BorrowedLink(client)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on connections of its own, made on first use and anew after `aclose`.

        Args:
            url: ``etcd://[user:password@]host[:port][,host[:port]...][/prefix]``, with all members
                of the cluster: who cannot be reached is passed over.  ``etcds://`` for TLS.  The
                prefix is ``/cosid`` by default.  Options after a ``?``: ``timeout``, seconds for a
                call, 1.5 by default; with TLS ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        made = cls.__new__(cls)
        link = OwnedLink(url)
        made._link, made._prefix = link, link.target.prefix
        return made

    def __repr__(self) -> str:
        """Name the members, without credentials."""
        return f"<{type(self).__name__} {self._link}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> EtcdIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return EtcdIdSegmentDistributor(
            self._link,
            namespace=namespace,
            name=name,
            offset=offset,
            step=step,
            prefix=self._prefix,
        )

    async def create_schema(self) -> None:
        """Do nothing: there are no tables.  `mark_machines` is what machine ids need."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name; reads every key beneath the prefix.

        Keys of that form which hold something else are left out.

        Raises:
            InvalidArgumentError: the namespace is no text.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        if namespace is not None:
            check_text("namespace", namespace)
        root = f"{self._prefix}/".encode()
        prefix = root if namespace is None else root + f"{namespace}.".encode()

        async def scan(member: Member) -> dict[str, int]:
            _, found = await member.scan(prefix)
            values = {each.key.removeprefix(root): integer(each.value) for each in found}
            return {
                key.decode(errors="replace"): value
                for key, value in values.items()
                if b"." in key and value is not None  # no other key of ours has a dot
            }

        counters = await self._link.call(scan)
        return [
            Counter(namespaced_name=name, last_max_id=counters[name]) for name in sorted(counters)
        ]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter to ``above`` if it is lower or missing.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CorruptCounterError: the key holds something else; nothing was written.
            StoreError: the cluster refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        check_above(above)
        counter = self.segment_distributor(namespace=namespace, name=name)

        async def lift(member: Member) -> int:
            known = await Known.read(member, counter._key)
            while known.last_max_id is None or known.last_max_id < above:
                is_written, known = await known.change(member, above)
                if not is_written:
                    await member.pause()
            return known.last_max_id

        last_max_id = await self._link.call(lift)
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=last_max_id)

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the client was passed in, and is the parent's; or the parent had a
                connection when this process was forked, after which grpc does not work in it.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        await self._link.aclose()
