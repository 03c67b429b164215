"""Counters and machine ids on etcd.

Requires the ``etcd`` extra.  The keys are named like CosId's keys on other stores, and never
expire: ``/cosid/<namespace>.<name>`` holds the last max id granted, as decimal text, and the keys
under ``/cosid/machine/<namespace>/`` hold the machine ids, as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc.checks import check_text
from ...errors import InvalidArgumentError
from .._url import ETCD, read_url
from ..base import BackendStore
from ._backend import EtcdBackend
from ._link import EtcdLink

if TYPE_CHECKING:
    from ._link import Message as EtcdClient

__all__ = ("EtcdStore",)


class EtcdStore(BackendStore[EtcdBackend]):
    """Many counters and machine ids on one cluster.

    CosId has no etcd store: the keys are aiocosid's own, named like CosId's on other stores.  Runs
    on asyncio.  It needs no schema: once ``aiocosid init`` has written the marker, a counter is
    created at its first use.  It never expires.

    One transaction reserves a range: it writes only if the counter still has the value that was
    read; otherwise the value is read again.  If the reply is lost, the range is lost too.

    The driver's grpc does not survive a fork.  In a process that was forked while its parent had a
    connection to etcd, every call raises `ForkedError`.  Fork before the first call, close
    everything before the fork, or spawn the process instead.
    """

    __slots__ = ()

    def __init__(self, client: EtcdClient, *, prefix: str = ETCD.default_path) -> None:
        """Use your own client, which the store never closes; nothing is sent yet.

        Args:
            client: your own ``aetcd.Client``, connected or not.  Such a client uses only one member
                of a cluster and no TLS, and logs in once, although a login expires; a URL has none
                of these limits.
            prefix: the prefix of all keys.

        Raises:
            InvalidArgumentError: an argument is outside its range, or ``client`` is not an
                ``aetcd.Client``.
        """
        check_text("prefix", prefix)
        if not (shorter := prefix.rstrip("/")):
            raise InvalidArgumentError("prefix", prefix, "must be more than '/'")
        self._backend = EtcdBackend(EtcdLink.by_client(client), shorter)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own connections, opened on first use and again after `aclose`.

        Args:
            url: ``etcd://[user:password@]host[:port][,host[:port]...][/prefix]``, with all members
                of the cluster; members that cannot be reached are skipped.  ``etcds://`` for TLS.
                The prefix is ``/cosid`` by default.  Options after a ``?``: ``timeout``, seconds
                for a call, 1.5 by default; with TLS ``ssl_ca_certs``, ``ssl_certfile``,
                ``ssl_keyfile``.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        found = read_url(url, ETCD)
        return cls._on(EtcdBackend(EtcdLink.by_url(found), found.path), url)
