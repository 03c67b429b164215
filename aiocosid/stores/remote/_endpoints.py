"""The servers that a URL names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidArgumentError
from .._url import AIOCOSID, client_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._url import StoreUrl
    from ._backend import RemoteEndpoint

__all__ = ("endpoints_of",)


def endpoints_of(url: StoreUrl) -> Callable[[], list[RemoteEndpoint]]:
    """Return a function that creates the endpoints of a URL; each transport has its own driver.

    Raises:
        InvalidArgumentError: the URL has two tokens, or names files that cannot be read.
        MissingExtraError: the driver is not installed.
    """
    token = _token_of(url)
    if not url.hosts:
        from ._resp import UnixEndpoint  # noqa: PLC0415 - its driver may be missing

        return lambda: [UnixEndpoint(url.path, token=token)]
    from ._http import HttpEndpoint  # noqa: PLC0415 - as above

    verify = client_context(AIOCOSID[0], url) if url.tls else False
    start = f"http{'s' if url.tls else ''}://"
    places = [f"{start}{host}{url.path}" for host in url.hosts]
    return lambda: [HttpEndpoint(place, token=token, verify=verify) for place in places]


def _token_of(url: StoreUrl) -> str:
    """Return a URL's token, from its option or from before the host; empty for none.

    Raises:
        InvalidArgumentError: the URL has two tokens.
    """
    user, password = url.login or ("", "")
    given = [each for each in (user, password, url.options["token"]) if each]
    if len(given) > 1:
        raise InvalidArgumentError("url", f"{url.scheme}:...", "must have at most one token")
    return "".join(given)
