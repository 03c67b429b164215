"""Calls to an aiocosid server over HTTP."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...errors import StoreError, StoreUnavailableError
from .._connection import translate_errors
from ..http._session import HttpSession, as_store_error, make_client, refusal_of
from ..wire import LABEL
from ._backend import UnexpectedAnswerError, answer_of

if TYPE_CHECKING:
    import ssl

__all__ = ("HttpEndpoint",)

MOST_BYTES: Final = 1 << 28  # limit of an answer, which may hold all machine ids of a namespace

_meaning = partial(as_store_error, store=LABEL, remedy="give its authority as ssl_ca_certs")


class HttpEndpoint:
    """One server's address."""

    __slots__ = ("_place", "_session")

    def __init__(self, url: str, *, token: str, verify: ssl.SSLContext | bool) -> None:
        """Describe the server; nothing is sent yet.  It needs a running loop.

        Args:
            url: ``http://host:port``.
            token: the bearer token; empty for none.
            verify: how to check the server's certificate.
        """
        self._place = url.partition("://")[2]
        client = make_client(
            url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=verify,
        )
        self._session = HttpSession(client, store=LABEL, most_bytes=MOST_BYTES)

    async def exchange(self, op: str, args: bytes, *, seconds: float) -> dict[str, Any]:
        """Send a call once; see `RemoteEndpoint.exchange`."""
        translated = translate_errors(_meaning, place=self._place)
        with translated, anyio.move_on_after(seconds):
            status, body = await self._session.ask("POST", f"/v1/store/{op}", content=args)
            if status == HTTPStatus.OK:
                return answer_of(body)
            raise _refusal(status, body)
        raise StoreUnavailableError(LABEL, f"no answer within {seconds:.3g} s")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.aclose()

    def silence(self) -> None:
        """Keep the parent's connections from sending anything in a forked child."""
        self._session.silence()


def _refusal(status: int, body: bytes) -> StoreError:
    """Return the error for a status with which a gateway answered.

    Raises:
        CosIdError: the error that the server reports.
    """
    with suppress(UnexpectedAnswerError):
        answer_of(body)
    return refusal_of(status)(LABEL, f"HTTP {status}")
