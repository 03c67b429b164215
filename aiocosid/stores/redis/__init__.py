"""Counters and machine ids on Redis or Valkey: one server, Cluster, or Sentinel.

Requires the ``redis`` extra.  CosId's keys never expire: ``cosid:{<namespace>.<name>}.adder`` holds
the last max id granted, and ``cosid:{<namespace>}:itc_idx``, ``:adder`` and ``:revert`` hold the
machine ids.  Next to them, aiocosid has its own keys ``:note``, ``:seen`` and ``:space``, and
``aiocosid:marker`` for the whole server; CosId ignores them.  Sequences of a second have keys of
your choice, which expire after some minutes; their fence never expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import DEFAULT_MAX_SEQUENCE, DEFAULT_NAMESPACE, DEFAULT_TOLERANCE
from .._url import REDIS, read_url
from ..base import BackendStore
from ._backend import RedisBackend
from ._demands import DEMANDS, REPLICA_TIMEOUT, Demands
from ._link import RedisLink
from ._sequence import DEFAULT_MARGIN, DEFAULT_TTL, RedisSequenceDistributor

if TYPE_CHECKING:
    from .._durability import Durability
    from ._link import RedisClient

__all__ = ("RedisStore",)


class RedisStore(BackendStore[RedisBackend]):
    """Counters and machine ids on one server, one cluster, or servers under Sentinel.

    Runs on asyncio.  It needs no schema: once ``aiocosid init`` has written the
    marker, a counter is created at its first use.  It never expires.
    If the driver resends a call, the call may be applied twice; this wastes a range, but never
    shares one.

    Machine ids expire on the server's clock: when both the owner's last stamp and the server's own
    record of the last renewal are older than the safe guard.  A server that was restarted or failed
    over may have lost its last writes.  It grants no machine ids until every owner that it may have
    lost has renewed or expired; see `aiocosid.abc.MachineIdDistributor`.  On a cluster no commit
    can span slots: use ``initialize_namespace`` instead of ``initialize``.  A namespace of machine
    ids must not begin with ``}``.
    """

    __slots__ = ()

    def __init__(
        self,
        client: RedisClient,
        *,
        replicas: int = 0,
        replica_timeout: float = REPLICA_TIMEOUT,
        durability: Durability = "warn",
    ) -> None:
        """Use your own client, which the store never closes; nothing is sent yet.

        Args:
            client: your own ``redis.asyncio.Redis``, ``RedisCluster``, or the result of
                ``Sentinel.master_for``, also from valkey-py.  Its timeouts and retries apply.
            replicas: how many replicas must confirm each grant of ids or sequences (``WAIT``), 0 to
                1000.  If fewer confirm in time, the call raises `StoreUnavailableError`, and its
                range is a gap.  This makes it less likely that a fail-over loses a grant, but does
                not rule it out.
            replica_timeout: seconds to wait for the replicas; must be less than the client's
                timeout for a reply.
            durability: what to do about a server whose settings, as far as it shows them, may lose
                grants: ``"warn"`` logs one warning, ``"refuse"`` issues no ids, and ``"ignore"``
                does nothing.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not an
                asynchronous one.
        """
        demands = Demands(replicas, replica_timeout, durability)
        self._backend = RedisBackend(RedisLink(client, demands))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own connections, opened on first use and again after `aclose`.

        Args:
            url: ``redis://[user:password@]host[:port][/db]``; ``rediss://`` for TLS; ``valkey://``
                and ``valkeys://`` mean the same; ``unix:///path/of/socket?db=0``;
                ``redis+cluster://host:port,host:port``; ``redis+sentinel://host:port,.../service``
                ``[/db]``, where ``sentinel_username`` and ``sentinel_password`` are for the
                sentinels.  The last two forms also exist with ``rediss``.  Options after a ``?``:
                ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_cert_reqs``,
                ``ssl_check_hostname``; ``socket_timeout`` and ``socket_connect_timeout`` in
                seconds; ``max_connections``, ``client_name``; ``replicas``, ``replica_timeout`` and
                ``durability``, as for the class itself.  If a cluster's nodes announce addresses of
                another network, reach them with ``address_remap=announced:port>reached:port,...``.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        read = read_url(url, *REDIS)
        demands = Demands(**{name: read.options[name] for name in DEMANDS})
        return cls._on(RedisBackend(RedisLink(read, demands)), url)

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
        """Return a distributor of sequences of a second, on this store's connections.

        Nothing is sent yet.

        Args:
            namespace: a common prefix for the names of one system.
            name: the name; sequences are unique under it.
            key: the counters' keys, with ``<second>`` for the unix second, for example
                ``order<second>`` on servers shared with Java nodes.  The fence's key has ``fence``
                in place of the second.  On a cluster the key needs a hash tag.  The default is
                ``aiocosid:{<namespace>.<name>}:<second>``.
            max_sequence: the highest sequence; the same on all nodes.
            tolerance: seconds by which a host's clock may differ from the server's, 1 to 3600; the
                same on all nodes.
            margin: seconds by which the clocks of two successive masters may differ, 0 to 3600; the
                same on all nodes.
            ttl: seconds that a counter is kept, at least ``2 * tolerance + 60``.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return RedisSequenceDistributor(
            self._backend.link,
            namespace=namespace,
            name=name,
            key=key,
            max_sequence=max_sequence,
            tolerance=tolerance,
            margin=margin,
            ttl=ttl,
        )
