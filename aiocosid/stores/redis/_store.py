"""One Redis or Valkey deployment with all its counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Self

from ...abc import (
    DEFAULT_MAX_SEQUENCE,
    DEFAULT_NAMESPACE,
    DEFAULT_STEP,
    DEFAULT_TOLERANCE,
    MAX_ID,
    Counter,
)
from .._arguments import check_above
from ._demands import REPLICA_TIMEOUT, Demands
from ._errors import translated
from ._link import BorrowedLink, OwnedLink
from ._machine_store import RedisMachineStore
from ._scripts import RAISE, UNDECODED
from ._segment import RedisIdSegmentDistributor
from ._sequence import DEFAULT_MARGIN, DEFAULT_TTL, RedisSequenceDistributor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._durability import Durability
    from ._link import Link, RedisClient

__all__ = ("RedisStore",)

BATCH = 500  # keys asked for at once

PREFIX, SUFFIX = "cosid:{", "}.adder"

INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")


class RedisStore(RedisMachineStore):
    """Many counters on one server, cluster or group of servers under sentinels.

    There is nothing to create: a counter comes to be when it is first used, and never expires.
    """

    __slots__ = ("_link",)

    def __init__(
        self,
        client: RedisClient,
        *,
        replicas: int = 0,
        replica_timeout: float = REPLICA_TIMEOUT,
        durability: Durability = "warn",
    ) -> None:
        """Work on your own client, which stays yours to close; nothing is sent yet.

        Args:
            client: as for `RedisIdSegmentDistributor`.
            replicas: how many replicas have to confirm each segment; see there.
            replica_timeout: seconds that they have.
            durability: what to do about a server whose settings may lose grants; see there.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not an
                asynchronous one.
        """
        demands = Demands(replicas, replica_timeout, durability)
        self._link: Link = BorrowedLink(client, demands)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on connections of its own, made on first use and anew after `aclose`.

        Args:
            url: ``redis://[user:password@]host[:port][/db]``; ``rediss://`` for TLS, also as
                ``valkey://`` and ``valkeys://``; ``unix:///path/of/socket?db=0``;
                ``redis+cluster://host:port,host:port``; ``redis+sentinel://host:port,.../service``
                ``[/db]``, where ``sentinel_username`` and ``sentinel_password`` are for the
                sentinels.  The last two may begin with ``rediss``.  Options after a ``?``:
                ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_cert_reqs``,
                ``ssl_check_hostname``; ``socket_timeout`` and ``socket_connect_timeout`` in
                seconds; ``max_connections``, ``client_name``; ``replicas``, ``replica_timeout`` and
                ``durability``, as for the class itself.

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
    ) -> RedisIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return RedisIdSegmentDistributor(
            self._link, namespace=namespace, name=name, offset=offset, step=step
        )

    def sequence_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        key: str | None = None,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
        tolerance: int = DEFAULT_TOLERANCE,
        margin: int = DEFAULT_MARGIN,
        ttl: int = DEFAULT_TTL,
    ) -> RedisSequenceDistributor:
        """Return what grants sequences of a second, on this store's connections.

        Nothing is sent yet.  The arguments are those of `RedisSequenceDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return RedisSequenceDistributor(
            self._link,
            namespace=namespace,
            name=name,
            key=key,
            max_sequence=max_sequence,
            tolerance=tolerance,
            margin=margin,
            ttl=ttl,
        )

    async def create_schema(self) -> None:
        """Do nothing: there are no tables.  `mark_machines` is what machine ids need."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name; looks at every key of the server.

        Keys of that form which hold something else are left out.

        Raises:
            StoreError: the server refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        with translated():
            found = await self._link.call(_counters, may_last=True)
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
            CorruptCounterError: the key holds something else; nothing was written.
            StoreError: the server refuses or cannot be reached.
            ForkedError: the connections are the parent's.
        """
        check_above(above)
        counter = self.segment_distributor(namespace=namespace, name=name)
        with translated(counter.namespaced_name, counter._key.decode()):
            value = await self._link.call(lambda client: RAISE.run_on(client, counter._keys, above))
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=int(value))

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        await self._link.aclose()


async def _counters(client: Any) -> dict[str, int]:  # noqa: ANN401 - the driver's
    # On a cluster the driver goes through all masters; a key may come twice.
    scanned = client.scan_iter(match=f"{PREFIX}*{SUFFIX}", count=BATCH, **UNDECODED)
    ordered = list({key async for key in scanned})
    found: dict[str, int] = {}
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        for key, value in zip(batch, await _values(client, batch), strict=True):
            name, max_id = _text(key), _integer(value)
            if name is not None and max_id is not None:
                found[name.removeprefix(PREFIX).removesuffix(SUFFIX)] = max_id
    return found


async def _values(client: Any, keys: list[bytes]) -> list[bytes | None]:  # noqa: ANN401 - the driver's
    # MGET answers nil, and no error, for what is no string.
    if not hasattr(client, "nodes_manager"):
        found: list[bytes | None] = await client.execute_command("MGET", *keys, **UNDECODED)
        return found
    pipeline = client.pipeline()  # the keys lie in many slots
    for key in keys:
        pipeline.execute_command("MGET", key, **UNDECODED)
    return [value for (value,) in await pipeline.execute()]


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _integer(value: bytes | None) -> int | None:
    # As the server reads a number: int() would take spaces, underscores and any length as well.
    if value is None or INTEGER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if -MAX_ID - 1 <= number <= MAX_ID else None
