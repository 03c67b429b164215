"""TLS contexts from the files that a URL names."""

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
    """Read the files of a URL; without any, the system's authorities are trusted.

    Args:
        spec: the URL's specification.
        url: the URL with the files.
        names: the options for the authority's certificate, the client's certificate, and its key.

    Raises:
        InvalidArgumentError: a file holds something else.
    """
    authority, certificate, key = (url.options[name] for name in names)
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as exc:  # OpenSSL's errors, too, are OSErrors
        expected = f"with files of certificates and a key for {', '.join(names)} ({exc})"
        raise spec.refused(url.scheme, expected) from None
    return context


def untrusted(
    store: str, text: str, remedy: str = "give its authority's certificate as ssl_ca_certs"
) -> StoreError:
    """Return the error for a server whose certificate no trusted authority has signed."""
    return StoreError(store, f"the server's certificate is not trusted ({text}); {remedy}")
