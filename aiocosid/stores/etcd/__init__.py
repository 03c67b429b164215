"""Counters and machine ids on etcd.

Requires the ``etcd`` extra.  The keys are ours, named as CosId's on other stores, and never expire:
``/cosid/<namespace>.<name>`` holds the last max id handed out, as decimal text,
and what lies beneath ``/cosid/machine/<namespace>/`` the machine ids, as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc._ids import check_text
from ...errors import InvalidArgumentError
from .._store import BackendStore
from .._url import read_url
from .._url_specs import ETCD
from ._backend import EtcdBackend
from ._link import EtcdLink

if TYPE_CHECKING:
    from ._driver import Message as EtcdClient

__all__ = ("EtcdStore",)


class EtcdStore(BackendStore[EtcdBackend]):
    """Many counters and machine ids on one cluster.

    CosId has no store on etcd: the keys are ours, and follow its others.  Runs on asyncio.  There
    is nothing to create: a counter comes to be when it is first used, and never expires.

    A range is reserved by one transaction, which writes only if the counter has the value that was
    read, and otherwise reads it again.  When the reply is lost, so is the range.

    The driver's grpc does not survive a fork.  A process that was forked while its parent had a
    connection to etcd is refused by `ForkedError` whatever it opens: fork before the first call,
    close everything before, or spawn.
    """

    __slots__ = ("_name",)

    def __init__(self, client: EtcdClient, *, prefix: str = ETCD.default_path) -> None:
        """Work on your own client, which stays yours to close; nothing is sent yet.

        Args:
            client: your own ``aetcd.Client``, connected or not.  It knows one member of a cluster,
                no TLS, and logs in once, although a login may end; a URL is better at all three.
            prefix: what all keys begin with.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client another one.
        """
        check_text("prefix", prefix)
        if not (shorter := prefix.rstrip("/")):
            raise InvalidArgumentError("prefix", prefix, expected="more than '/'")
        self._name = "on a client"
        self._backend = EtcdBackend(EtcdLink.by_client(client), shorter)

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
        found = read_url(url, ETCD)
        store = cls.__new__(cls)
        store._name = str(found)
        store._backend = EtcdBackend(EtcdLink.by_url(found), found.path)
        return store

    def __repr__(self) -> str:
        """Name the members, without credentials."""
        return f"<{type(self).__name__} {self._name}>"
