"""Counters and machine ids of a CosId proxy.  Requires the ``http`` extra.

CosId's proxy server gives over HTTP what its own store, mostly Redis, hands out.  Runs on asyncio.
"""

from __future__ import annotations

from functools import partial
from typing import Self

from ...errors import InvalidArgumentError
from .._connection import OwnedConnection
from .._store import BackendStore
from .._url import read_url
from .._url_specs import HTTP
from ._backend import HttpBackend, HttpCounter, HttpSession, UsersClient, base_of
from ._errors import httpx
from ._machine import HttpMachineIdDistributor

__all__ = ("HttpStore",)


class HttpStore(BackendStore[HttpBackend]):
    """Counters and machine ids behind one CosId proxy.

    The proxy hands out, and tells nothing: who wants to look at what lies in its store, or to
    change it, does so there.

    A range is one ``PATCH /segments/{namespace}/{name}``, sent once: when its answer is lost, so is
    the range.  Before the first one the counter is created by a ``POST``, as CosId's client does,
    which changes nothing if it exists.
    """

    __slots__ = ("_name",)

    _counter = HttpCounter
    _machine = HttpMachineIdDistributor

    def __init__(self, client: httpx.AsyncClient) -> None:
        """Work on your own client, which stays yours to close; nothing is sent yet.

        Args:
            client: your own ``httpx.AsyncClient``, whose ``base_url`` is the proxy's.  It stays
                yours to close, and its timeouts apply; it must not send a request twice after it
                was connected.

        Raises:
            InvalidArgumentError: it is another thing, or has no ``base_url``.
        """
        # A synchronous one would block the loop.
        if not isinstance(client, httpx.AsyncClient):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("client", type(client), expected="an httpx.AsyncClient")
        if not client.base_url.host:
            expected = "an httpx.AsyncClient with a base_url, such as http://host:8688"
            raise InvalidArgumentError("client", client, expected=expected)
        address = client.base_url.copy_with(userinfo=b"", query=None, fragment=None)
        self._name = str(address).rstrip("/")
        self._backend = HttpBackend(UsersClient("the httpx client", HttpSession(client)))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on connections of its own, opened on first use and closed by `aclose`.

        They have 1 s to be connected and 1.5 s for an answer, and heed no variable of the
        environment such as ``HTTP_PROXY``; pass a client of your own for anything else.

        Args:
            url: ``http://host:8688`` or ``https://``, before which ``cosid+`` may stand; with a
                user and a password for basic authentication, and a path if the proxy has one.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        found, store = read_url(url, HTTP), cls.__new__(cls)
        store._name = base_of(found)
        connection = OwnedConnection(
            "the connection to the CosId proxy",
            connect=partial(HttpSession.of_url, found),
            disconnect=HttpSession.aclose,
            silence=HttpSession.silence,
        )
        store._backend = HttpBackend(connection)
        return store

    def __repr__(self) -> str:
        """Name the proxy, without credentials."""
        return f"<{type(self).__name__} {self._name}>"
