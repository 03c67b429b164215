"""Counters and machine ids of an aiocosid server, by HTTP or by its Unix socket.

The server, or the broker of one host, is `aiocosid serve`.  HTTP requires the ``http`` extra, a
Unix socket the ``redis`` extra.  Runs on asyncio.
"""

from __future__ import annotations

from typing import Self

from .._connection import OwnedConnection
from .._store import BackendStore
from .._url import read_url
from .._url_specs import AIOCOSID
from .._wire import LABEL
from ._backend import RemoteBackend, Servers
from ._endpoints import endpoints_of

__all__ = ("RemoteStore",)


class RemoteStore(BackendStore[RemoteBackend]):
    """Counters and machine ids in the store of an aiocosid server.

    Several servers of one store may be named: a call goes to the one that answered last, and to the
    next one if that cannot be reached, does not answer, or drains.  If the answer to a segment is
    lost, the segment is lost too; it is never handed out twice.
    """

    __slots__ = ()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use connections of its own, opened on first use and closed by `aclose`.

        Args:
            url: ``aiocosid+http://[token@]host:8688[,host2:8688]``, ``aiocosid+https://`` or
                ``aiocosid+unix:///run/aiocosid.sock``.  Options after a ``?``: ``token``, as in
                front of the host; ``timeout``, seconds for a call on all servers together, 1.5 by
                default; with TLS ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``.

        Raises:
            InvalidArgumentError: the URL is malformed.
            MissingExtraError: the driver is not installed.
        """
        found = read_url(url, *AIOCOSID)
        make = endpoints_of(found)

        async def connect() -> Servers:
            return Servers(make(), found.options["timeout"])

        connection = OwnedConnection(
            "the connection to the aiocosid server",
            connect=connect,
            disconnect=Servers.aclose,
            silence=Servers.silence,
        )
        return cls._on(RemoteBackend(LABEL, connection, name=f"{found.scheme} {found}"), url)

    async def take_ids(self, name: str, count: int) -> list[range]:
        """Return ``count`` ids of a generator that the server has, rising; they are the caller's.

        A cancelled call, or one that fails, may have taken ids: a gap.  `RemoteId` hands them out.

        Args:
            name: the generator's name on the server.
            count: how many, from 1 to the server's limit.

        Raises:
            StoreUnavailableError: no server can be reached or answers in time, or the generator has
                no ids now.
            StoreAuthenticationError: the token is missing, wrong, or does not allow it.
            InvalidArgumentError: the generator's ids are no numbers that rise.
            StoreError: the server has no generator of that name, or refuses.
            ForkedError: the connections are the parent's.
            WrongLoopError: they are in use on another event loop.
        """
        return await self._backend.take(name, count)
