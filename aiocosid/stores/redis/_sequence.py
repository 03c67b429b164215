"""Grants sequences of a second from counters on Redis or Valkey."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Self

from ...abc import (
    DEFAULT_MAX_SEQUENCE,
    DEFAULT_NAMESPACE,
    DEFAULT_TOLERANCE,
    SecondFenced,
    SecondSpent,
    SequenceDistributor,
    SequenceGrant,
    SequenceReply,
)
from ...abc._ids import check_integer, check_text
from ...errors import ClockSkewError, InvalidArgumentError, StoreIdentityHiddenError
from .._durability import DurabilityCheck
from ._demands import REPLICA_TIMEOUT, Confirmed, Demands
from ._errors import STORE, translated
from ._link import BorrowedLink, Link, OwnedLink
from ._machine_scripts import text_of
from ._scripts import Script

if TYPE_CHECKING:
    from .._durability import Durability
    from ._link import RedisClient

__all__ = ("DEFAULT_MARGIN", "DEFAULT_TTL", "RedisSequenceDistributor")

DEFAULT_TTL: Final = 600
"""Seconds that a counter is kept, as in the published script."""

DEFAULT_MARGIN: Final = 1
"""Seconds by which the clocks of two servers may differ."""

MAX_MARGIN: Final = 3600
MAX_TTL: Final = 86_400
SPARE_TTL: Final = 60  # seconds that a counter outlives the last moment at which it can be asked

SECOND: Final = "<second>"
FENCE: Final = "fence"

GRANT: Final = Script(files(__package__ or "").joinpath("sequence_grant.lua").read_bytes())

GRANTED, SPENT, SKEWED, FENCED = 0, 1, 2, 3


class RedisSequenceDistributor(SequenceDistributor):
    """Counters on Redis or Valkey, one for each second: the last sequence granted of it.

    Runs on asyncio.  A server that was restarted, emptied or failed over may have lost counters; a
    fence, in a hash of its own, keeps it from granting anything of the seconds concerned.  Which
    server it is it has to tell by ``INFO``, inside of the script.
    """

    __slots__ = ("_check_policy", "_link", "_owns_link", "_prefix", "_settings", "_suffix")

    store = STORE

    def __init__(
        self,
        client: RedisClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        key: str | None = None,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
        tolerance: int = DEFAULT_TOLERANCE,
        margin: int = DEFAULT_MARGIN,
        ttl: int = DEFAULT_TTL,
        replicas: int = 0,
        replica_timeout: float = REPLICA_TIMEOUT,
        durability: Durability = "warn",
    ) -> None:
        """Describe the counters; nothing is sent yet.

        Args:
            client: your own ``redis.asyncio.Redis``, ``RedisCluster``, or what
                ``Sentinel.master_for`` returns; valkey-py's will do as well.  It stays yours to
                close, and its timeouts and retries apply.
            namespace: groups the names of one system.
            name: the name; sequences are unique under it.
            key: the counters' keys, with ``<second>`` where the unix second stands, as
                ``order<second>`` on servers that Java nodes share.  The fence has the word
                ``fence`` there.  On a cluster it has to have a hash tag.  By default
                ``aiocosid:{<namespace>.<name>}:<second>``.
            max_sequence: the highest sequence; the same on all nodes.
            tolerance: seconds by which a host's clock may differ from the server's, 1 to 3600; the
                same on all nodes.
            margin: seconds by which the clocks of two servers may differ that follow each other as
                master, 0 to 3600; the same on all nodes.
            ttl: seconds that a counter is kept, at least ``2 * tolerance + 60``.
            replicas: how many replicas have to confirm each grant (``WAIT``), 0 to 1000.  Fewer in
                time make it a `StoreUnavailableError`, and its sequences a gap.
            replica_timeout: seconds that they have; less than the client's own for a reply.
            durability: what to do about a server that may evict counters: ``"warn"`` in the log,
                once, ``"refuse"`` to grant anything, or ``"ignore"``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not an
                asynchronous one.
        """
        super().__init__(
            namespace=namespace, name=name, max_sequence=max_sequence, tolerance=tolerance
        )
        check_integer("margin", margin, at_least=0, at_most=MAX_MARGIN)
        check_integer("ttl", ttl, at_least=2 * tolerance + SPARE_TTL, at_most=MAX_TTL)
        self._settings = max_sequence, tolerance, margin, ttl
        self._prefix, self._suffix = _parts(key, self.namespaced_name)
        demands = Demands(replicas, replica_timeout, durability)
        self._link = client if isinstance(client, Link) else BorrowedLink(client, demands)
        self._owns_link = False
        # A look of its own: what a counter without an end has to fear is another thing.
        self._check_policy = DurabilityCheck(self._link.demands.durability)
        self._check_key(client)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        key: str | None = None,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
        tolerance: int = DEFAULT_TOLERANCE,
        margin: int = DEFAULT_MARGIN,
        ttl: int = DEFAULT_TTL,
    ) -> Self:
        """Describe counters on connections of its own, opened on first use, closed by `aclose`.

        Args:
            url: as for `RedisStore.from_url`.
            namespace: as for the class itself, and so the others.
            name: the name.
            key: the counters' keys.
            max_sequence: the highest sequence.
            tolerance: seconds.
            margin: seconds.
            ttl: seconds.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        made = cls(
            OwnedLink(url),
            namespace=namespace,
            name=name,
            key=key,
            max_sequence=max_sequence,
            tolerance=tolerance,
            margin=margin,
            ttl=ttl,
        )
        made._owns_link = True
        return made

    async def grant(self, second: int, size: int) -> SequenceReply:
        """Take sequences; see `aiocosid.abc.SequenceDistributor.grant`.

        A cancelled call may have taken effect on the server; its connection is closed.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            ClockSkewError: the server's clock and ``second`` differ by more than the tolerance.
            CorruptCounterError: the key holds something else; nothing was written.
            StoreIdentityHiddenError: the server does not tell who it is.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over,
                or too few replicas have confirmed the grant.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        self._check(second, size)
        keys = self._key(second), self._key(FENCE)

        async def ask(client: Any) -> list[Any]:  # noqa: ANN401 - the driver's
            self._check_key(client)
            if self._check_policy.is_due:
                self._check_policy.judge(STORE, await _policy_of(client, keys[0]))
            if self._link.demands.replicas:
                client = Confirmed(client, keys[0], self._link.demands)
            reply: list[Any] = await GRANT.run_on(client, keys, second, size, *self._settings)
            return reply

        with translated(self.namespaced_name, keys[0].decode()):
            status, *facts = await self._link.call(ask)
        if status < GRANTED:
            raise StoreIdentityHiddenError(STORE, text_of(facts[0]))
        first, last, now, opens = facts
        if status == SKEWED:
            raise ClockSkewError(STORE, ahead=second - now, tolerance=self.tolerance)
        if status == FENCED:
            return SecondFenced(opens, now)
        return SecondSpent(second) if status == SPENT else SequenceGrant(second, first, last)

    def _key(self, second: int | str) -> bytes:
        return f"{self._prefix}{second}{self._suffix}".encode()

    def _check_key(self, client: object) -> None:
        """Raise if a cluster keeps counter and fence in two slots."""
        if not hasattr(client, "nodes_manager"):
            return
        tags = {_hash_tag(f"{self._prefix}{each}{self._suffix}") for each in (1, 2, FENCE)}
        if len(tags) > 1 or None in tags:
            expected = f"with a hash tag on a cluster, as '{{order}}:{SECOND}'"
            raise InvalidArgumentError(
                "key", f"{self._prefix}{SECOND}{self._suffix}", expected=expected
            )

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()


def _parts(key: object, namespaced_name: str) -> tuple[str, str]:
    """Return what stands before and behind the second."""
    if key is None:
        return f"aiocosid:{{{namespaced_name}}}:", ""
    check_text("key", key)
    if not isinstance(key, str) or key.count(SECOND) != 1:
        raise InvalidArgumentError("key", key, expected=f"a text that holds {SECOND} once")
    prefix, _, suffix = key.partition(SECOND)
    return prefix, suffix


def _hash_tag(key: str) -> str | None:
    """Return what a cluster takes the slot of, if it is not the whole key."""
    _, _, behind = key.partition("{")
    tag, brace, _ = behind.partition("}")
    return tag if tag and brace else None


async def _policy_of(client: Any, key: bytes) -> list[str]:  # noqa: ANN401 - the driver's
    """Say whether the server may evict a counter, if it tells."""
    options: dict[str, Any] = {}
    if hasattr(client, "nodes_manager"):
        options["target_nodes"] = client.get_node_from_key(key)
    told = await client.execute_command("INFO", "memory", **options)
    policy = str(told.get("maxmemory_policy") or "noeviction")
    if policy == "noeviction":
        return []
    weakness = "the counter of a second may be evicted, and its sequences come again"
    return [f"maxmemory-policy is {policy}: {weakness}; set it to noeviction"]
