"""Counters and machine ids on Redis or Valkey: one server, Cluster, Sentinel.

Requires the ``redis`` extra.  CosId's keys never expire:
``cosid:{<namespace>.<name>}.adder`` holds the last max id handed out,
``cosid:{<namespace>}:itc_idx``, ``:adder`` and ``:revert`` hold the machine ids.  Beside them lie
``:note``, ``:seen`` and ``:space``, and ``aiocosid:marker`` for the whole server, of which CosId
knows nothing.  Sequences of a second lie where you say, for some minutes; their fence never
expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import DEFAULT_MAX_SEQUENCE, DEFAULT_NAMESPACE, DEFAULT_TOLERANCE
from .._store import BackendStore
from .._url import read_url
from .._url_specs import REDIS
from ._backend import RedisBackend
from ._demands import DEMANDS, REPLICA_TIMEOUT, Demands
from ._link import RedisLink
from ._sequence import DEFAULT_MARGIN, DEFAULT_TTL, RedisSequenceDistributor

if TYPE_CHECKING:
    from .._durability import Durability
    from ._link import RedisClient

__all__ = ("RedisStore",)


class RedisStore(BackendStore[RedisBackend]):
    """Counters and machine ids on one server, cluster or group of servers under sentinels.

    Runs on asyncio.  There is nothing to create: a counter comes to be when it is first used, and
    never expires.  What is sent may be applied twice by a driver that resends: that wastes a range
    and never shares one.

    Machine ids expire by the server's clock: when neither the owner's last stamp nor the server's
    own note of its last sign of life is younger than the safe guard.  A server that was started
    anew, or failed over, may have lost its last writes: it hands out none until all whom it may
    have forgotten are heard of or silent, as `aiocosid.abc.MachineIdDistributor` says.  On a
    cluster, where no commit spans slots, ``mark_machines`` takes the place of ``initialize``, and a
    namespace of machine ids does not begin with ``}``.
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
        """Work on your own client, which stays yours to close; nothing is sent yet.

        Args:
            client: your own ``redis.asyncio.Redis``, ``RedisCluster``, or what
                ``Sentinel.master_for`` returns; valkey-py's will do as well.  Its timeouts and
                retries apply.
            replicas: how many replicas have to confirm each grant of ids or sequences (``WAIT``), 0
                to 1000.  Fewer in time make it a `StoreUnavailableError`, and its range a gap.  It
                makes it less likely that a fail-over loses a grant, and does not rule it out.
            replica_timeout: seconds that they have; less than the client's own for a reply.
            durability: what to do about a server whose settings may lose grants, as far as it
                tells: ``"warn"`` in the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not an
                asynchronous one.
        """
        demands = Demands(replicas, replica_timeout, durability)
        self._backend = RedisBackend(RedisLink(client, demands))

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
        read, store = read_url(url, *REDIS), cls.__new__(cls)
        demands = Demands(**{name: read.options[name] for name in DEMANDS})
        store._backend = RedisBackend(RedisLink(read, demands))
        return store

    def __repr__(self) -> str:
        """Name the servers, without credentials."""
        return f"<{type(self).__name__} {self._backend.link}>"

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

        Nothing is sent yet.

        Args:
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
