"""What a client speaks TLS with, by the files that a URL names."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from ..errors import StoreError

if TYPE_CHECKING:
    from ._url import StoreUrl, UrlSpec

__all__ = ("OPTIONS", "client_context", "untrusted")

OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def client_context(
    spec: UrlSpec, url: StoreUrl, names: tuple[str, str, str] = OPTIONS
) -> ssl.SSLContext:
    """Read the files of a URL; without one the system's authorities are trusted.

    Args:
        spec: of the URL.
        url: names the files.
        names: the options with the authority's certificate, our certificate, and its key.

    Raises:
        InvalidArgumentError: they hold something else.
    """
    authority, certificate, key = (url.options[name] for name in names)
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as exc:  # also what OpenSSL says of a file that is none
        expected = f"with files that hold certificates, and a key, for {', '.join(names)} ({exc})"
        raise spec.refused(url.scheme, expected) from None
    return context


def untrusted(
    store: str, text: str, remedy: str = "give the file of its authority as ssl_ca_certs"
) -> StoreError:
    """Return the error for a server whose certificate no authority vouches for that is trusted."""
    return StoreError(store, f"the server's certificate is not trusted ({text}); {remedy}")
