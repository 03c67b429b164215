"""Counters and machine ids of a CosId proxy.  Requires the ``http`` extra.

CosId's proxy server grants ids of its own store, mostly Redis, over HTTP.  Runs on asyncio.
"""

from __future__ import annotations

from functools import partial
from typing import Self

from ...errors import InvalidArgumentError
from .._connection import OwnedConnection
from .._url import HTTP, read_url
from ..base import BackendStore
from ._backend import (
    HttpBackend,
    HttpCounter,
    HttpMachineIdDistributor,
    UsersClient,
    base_of,
    connect,
    session_on,
)
from ._session import HttpSession, httpx

__all__ = ("HttpStore",)


class HttpStore(BackendStore[HttpBackend]):
    """Counters and machine ids behind one CosId proxy.

    The proxy only grants ids; to inspect or change its data, use the store behind it.

    Each range is one ``PATCH /segments/{namespace}/{name}``, which is sent once: if the answer is
    lost, the range is lost too.  Before the first range a ``POST`` creates the counter, as in
    CosId's client; it changes nothing if the counter exists.
    """

    __slots__ = ()

    _counter = HttpCounter
    _machine = HttpMachineIdDistributor

    def __init__(self, client: httpx.AsyncClient) -> None:
        """Use your own client, which the store never closes; nothing is sent yet.

        Args:
            client: your own ``httpx.AsyncClient``, with the proxy's ``base_url``.  Its timeouts
                apply; it must not send a request twice once it is connected.

        Raises:
            InvalidArgumentError: ``client`` is not an ``httpx.AsyncClient``, or has no
                ``base_url``.
        """
        # A synchronous client would block the loop.
        if not isinstance(client, httpx.AsyncClient):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("client", type(client), "must be an httpx.AsyncClient")
        if not client.base_url.host:
            rule = "must be an httpx.AsyncClient with a base_url, such as http://host:8688"
            raise InvalidArgumentError("client", client, rule)
        address = client.base_url.copy_with(userinfo=b"", query=None, fragment=None)
        connection = UsersClient("the httpx client", session_on(client))
        self._backend = HttpBackend(connection, str(address).rstrip("/"))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own connections, opened on first use and closed by `aclose`.

        Timeouts are 1 s for connecting and 1.5 s for an answer, and environment variables such as
        ``HTTP_PROXY`` are ignored; pass your own client for anything else.

        Args:
            url: ``http://host:8688`` or ``https://``, optionally preceded by ``cosid+``; with user
                and password for basic authentication, and the proxy's path if it has one.
                ``http://a:8688,b:8688`` names proxies on one store: if one cannot be reached, the
                next one is called.  A request whose answer is lost is not repeated.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        found = read_url(url, HTTP)
        connection = OwnedConnection(
            "the connection to the CosId proxy",
            connect=partial(connect, found),
            disconnect=HttpSession.aclose,
            silence=HttpSession.silence,
        )
        return cls._on(HttpBackend(connection, base_of(found)), url)
