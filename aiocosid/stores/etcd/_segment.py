"""Hands out segments from a counter on etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID, IdSegmentDistributor
from ...errors import IdOverflowError
from .._arguments import check_step
from .._watermark import HighWater
from ._counter import Known
from ._errors import STORE
from ._link import BorrowedLink, Link, OwnedLink
from ._url import PREFIX, check_prefix

if TYPE_CHECKING:
    from ._link import EtcdClient
    from ._server import Member

__all__ = ("EtcdIdSegmentDistributor",)


class EtcdIdSegmentDistributor(IdSegmentDistributor):
    """A counter on etcd, under the key ``/cosid/<namespace>.<name>``, as decimal text.

    CosId has no store on etcd: the key is ours, and follows its others.

    Runs on asyncio.  A range is reserved by one transaction, which writes only if nobody has
    written the key since it was read, and otherwise reads it again.  Applied twice it finds its own
    write, and does nothing; when the reply is lost, so is the range.
    """

    __slots__ = ("_key", "_known", "_link", "_owns_link", "_water")

    store = STORE

    def __init__(
        self,
        client: EtcdClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        prefix: str = PREFIX,
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            client: your own ``aetcd.Client``, connected or not.  It stays yours to close.  It knows
                one member of a cluster, no TLS, and logs in once, although a login may end; a URL
                is better at all three.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            prefix: what the key begins with, in front of ``/<namespace>.<name>``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client another one.
        """
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        self._key = f"{check_prefix(prefix)}/{self.namespaced_name}".encode()
        self._link = client if isinstance(client, Link) else BorrowedLink(client)
        self._owns_link = False
        self._water = HighWater()
        self._known: Known | None = None

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
        """Describe a counter on connections of its own, opened on first use and closed by `aclose`.

        Args:
            url: as for `EtcdStore.from_url`.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        link = OwnedLink(url)
        about = {"namespace": namespace, "name": name, "prefix": link.target.prefix}
        made = cls(link, offset=offset, step=step, **about)
        made._owns_link = True
        return made

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect on the server.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: the key holds something else; nothing was written.
            StoreUnavailableError: no member can be reached, or they have no leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            StoreRolledBackError: the counter is lower than it was.
            ForkedError: the connections are the parent's.
        """
        check_step(step)
        if step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(repr(self))

        async def advance(member: Member) -> tuple[int | None, int]:
            return await self._advance(member, step)

        sent, max_id = await self._link.call_in_turn(self._key, advance)
        return self._water.check(self, max_id, step=step, sent=sent)

    async def _advance(self, member: Member, step: int) -> tuple[int | None, int]:
        # What is remembered may be old: the transaction tells.  It is used once.
        known, self._known = self._known, None
        if known is None:
            known = await Known.read(member, self._key)
        while True:
            sent = self._water.sent()
            max_id = (self.offset if known.last_max_id is None else known.last_max_id) + step
            if max_id > MAX_ID:
                raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
            is_written, known = await known.change(member, max_id)
            if is_written:
                self._known = known
                return sent, max_id
            await member.pause()

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the client was passed in, and is the parent's; or the parent had a
                connection when this process was forked, after which grpc does not work in it.
        """
        self._link.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()
