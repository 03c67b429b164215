"""Hands out segments from a counter on Redis or Valkey."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID, IdSegmentDistributor
from ...errors import IdOverflowError, InvalidArgumentError
from .._arguments import check_step
from .._give_back import GrantRun
from .._watermark import HighWater
from ._demands import REPLICA_TIMEOUT, Confirmed, Demands, weaknesses_of
from ._errors import STORE, translated
from ._link import BorrowedLink, Link, OwnedLink
from ._scripts import ADVANCE, GIVE_BACK, GRANT

if TYPE_CHECKING:
    from .._durability import Durability
    from ._link import RedisClient

logger = logging.getLogger("aiocosid")

__all__ = ("RedisIdSegmentDistributor",)


class RedisIdSegmentDistributor(IdSegmentDistributor):
    """A counter on Redis or Valkey, under CosId's key ``cosid:{<namespace>.<name>}.adder``.

    Runs on asyncio.  A range is reserved by one command or script, which may be applied twice by a
    driver that resends: that wastes a range and never shares one.
    """

    __slots__ = ("_has_warned", "_key", "_link", "_note_key", "_owns_link", "_run", "_water")

    store = STORE

    def __init__(
        self,
        client: RedisClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        replicas: int = 0,
        replica_timeout: float = REPLICA_TIMEOUT,
        durability: Durability = "warn",
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            client: your own ``redis.asyncio.Redis``, ``RedisCluster``, or what
                ``Sentinel.master_for`` returns; valkey-py's will do as well.  It stays yours to
                close, and its timeouts and retries apply.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            replicas: how many replicas have to confirm each grant (``WAIT``), 0 to 1000.  Fewer in
                time make it a `StoreUnavailableError`, and its range a gap.  It makes it less
                likely that a fail-over loses a grant, and does not rule it out.
            replica_timeout: seconds that they have; less than the client's own for a reply.
            durability: what to do about a server whose settings may lose grants, as far as it
                tells: ``"warn"`` in the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not an
                asynchronous one.
        """
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        try:
            self._key = f"cosid:{{{self.namespaced_name}}}.adder".encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                "namespace.name", self.namespaced_name, expected="a text that UTF-8 can hold"
            ) from None
        self._note_key = f"cosid:{{{self.namespaced_name}}}.grant".encode()
        demands = Demands(replicas, replica_timeout, durability)
        self._link = client if isinstance(client, Link) else BorrowedLink(client, demands)
        self._owns_link = False
        self._water = HighWater()
        self._run = GrantRun()
        self._has_warned = False

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
            url: as for `RedisStore.from_url`.
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

        A cancelled call may have taken effect on the server; its connection is closed.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: the key holds something else; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over,
                or too few replicas have confirmed the grant.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            StoreRolledBackError: the counter is lower than it was.
            ForkedError: the connections are the parent's.
        """
        check_step(step)
        if step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(repr(self))

        async def advance(client: Any) -> tuple[int | None, int]:  # noqa: ANN401 - the driver's
            await self._look_at(client)
            if self._link.demands.replicas:
                client = Confirmed(client, self._key, self._link.demands)
            sent = self._water.sent()
            if self._run.is_noted:
                return sent, await self._grant(client, step)
            return sent, int(await self._advance(client, step))

        with translated(self.namespaced_name, self._key.decode()):
            sent, max_id = await self._link.call(advance)
        return self._water.check(self, max_id, step=step, sent=sent)

    async def _look_at(self, client: Any) -> None:  # noqa: ANN401 - the driver's
        check = self._link.durability
        if check.is_due:
            check.judge(STORE, await weaknesses_of(client, self._key))

    async def _advance(self, client: Any, step: int) -> Any:  # noqa: ANN401 - the driver's
        if self.offset:
            return await ADVANCE.run(client, self._key, self.offset, step)
        return await client.execute_command("INCRBY", self._key, step)

    async def _grant(self, client: Any, step: int) -> int:  # noqa: ANN401 - the driver's
        keys = self._key, self._note_key
        with self._run.call() as note:
            about = note.nonce.encode(), note.previous.encode()
            reply = await GRANT.run_on(client, keys, self.offset, step, *about)
        max_id, base = map(bytes, reply)
        if base:
            self._run.granted(note, int(max_id), int(base))
        else:
            self._warn()
        return int(max_id)

    def _warn(self) -> None:
        self._run.forget()
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%r: ids cannot be given back: the server refuses INFO", self)

    def allow_give_back(self) -> bool:
        """Have every grant from now on noted, under ``cosid:{<namespace>.<name>}.grant``.

        Needs the right to ``INFO``: without it nothing goes back.
        """
        self._run.is_noted = True
        return True

    async def give_back(self, max_id: int, unused: int) -> int:
        """Lower the counter; see `aiocosid.abc.IdSegmentDistributor.give_back`.

        Raises:
            StoreError: the server refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        self._water.ensure_own(repr(self))
        offer = self._run.offer(max_id, unused)
        if offer is None:
            return 0
        self._water.lower(offer.lower)
        keys, count = (self._key, self._note_key), max_id - offer.lower
        about = max_id, offer.lower, offer.nonce.encode(), count

        async def lower(client: Any) -> int:  # noqa: ANN401 - the driver's
            return int(await GIVE_BACK.run_on(client, keys, *about))

        with translated(self.namespaced_name, self._key.decode()):
            return count if await self._link.call(lower) else 0

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()
