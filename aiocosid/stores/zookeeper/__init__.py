"""Counters and machine ids on ZooKeeper.

Requires the ``zookeeper`` extra.  The nodes are CosId's: ``/cosid/<namespace>.<name>`` holds the
last max id granted, and ``/cosid/<namespace>/__counter``, ``/__itc_idx`` and ``/__revert`` hold the
machine ids.  aiocosid's own nodes are below ``/aiocosid``.
"""

from __future__ import annotations

from typing import Self

from ..base import BackendStore
from ._backend import ZookeeperBackend
from .tree import OwnedLink, as_link

__all__ = ("ZookeeperStore",)


class ZookeeperStore(BackendStore[ZookeeperBackend]):
    """Many counters, and machine ids, on one server or ensemble, below CosId's node ``/cosid``.

    It needs no schema: once ``aiocosid init`` has written the marker, a counter is created at its
    first use.  A slash in its name begins a child
    node, as in CosId.  The name must not end in ``-locker``, because Curator keeps a lock there.
    The store must be initialised once (``aiocosid init``) before the first machine id is taken.
    Runs on asyncio.
    """

    __slots__ = ()

    def __init__(self, client: object) -> None:
        """Use your own client; nothing is sent yet.

        Args:
            client: a ``kazoo.client.KazooClient`` that you have started; the store never stops it.
                Its chroot, credentials and default ACL apply.

        Raises:
            InvalidArgumentError: ``client`` is not a kazoo client.
        """
        self._backend = ZookeeperBackend(as_link(client))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own session, begun on first use and again after `aclose`.

        Args:
            url: ``zookeeper://[user:password@]host[:port][,host[:port]...][/chroot]``, with user
                and password for ZooKeeper's ``digest`` scheme.  A missing chroot is created.
                Option after a ``?``: ``session_timeout`` in seconds, 10 by default; the server may
                choose another value.  For TLS, SASL or your own ACLs pass your own client.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        return cls._on(ZookeeperBackend(OwnedLink(url)), url)
