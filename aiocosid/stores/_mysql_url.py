"""What a URL of MySQL or MariaDB says, as a driver is told it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import InvalidArgumentError
from ._durability import DEMANDS

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from ._durability import Durability

__all__ = ("Address", "read_url")

FORM: Final = (
    "mysql://user:password@host:port/database, or mariadb://; "
    "in user and password everything but letters and digits percent-encoded"
)
MODES: Final = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
OPTIONS: Final = ("durability", "ssl-ca", "ssl-cert", "ssl-key", "ssl-mode", "unix_socket")


class Address(NamedTuple):
    """Where a server is.

    Attributes:
        options: of a connection, as asyncmy has them.
        durability: our own option.
    """

    options: dict[str, Any]
    durability: Durability


def read_url(url: str) -> Address:
    """Read a URL.

    Raises:
        InvalidArgumentError: it is malformed, or an option is unknown; no part of it is shown that
            may be secret.
    """
    parts = _split(url)
    if parts is None:  # raised here, out of sight of Python's own error, which shows pieces
        raise refused(FORM)
    _check(url, parts)
    given = parse_qsl(parts.query, keep_blank_values=True)
    asked = dict(given)
    if len(asked) < len(given) or not asked.keys() <= {*OPTIONS}:
        raise refused(f"at most once each of the options {', '.join(OPTIONS)}")
    options: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "database": unquote(parts.path[1:]),
    }
    if parts.username:
        options["user"] = unquote(parts.username)
    if parts.password:
        options["password"] = unquote(parts.password).encode()  # a text would become Latin-1
    if "unix_socket" in asked:
        options["unix_socket"] = asked["unix_socket"]
    if (context := _tls(asked)) is not None:
        options["ssl"] = context
    return Address(options, _durability(asked.get("durability", "warn")))


def refused(expected: str) -> InvalidArgumentError:
    """Return the error for a URL, not a word of which is shown."""
    return InvalidArgumentError("url", "mysql:...", expected=expected)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except (AttributeError, TypeError, ValueError):
        return None
    return parts


def _check(url: str, parts: SplitResult) -> None:
    if (
        parts.scheme not in {"mysql", "mariadb"}
        or not url.partition(":")[2].startswith("//")
        or parts.fragment
        or "@" in parts.path + parts.query
        or not parts.path[1:]
        or "/" in parts.path[1:]
    ):
        raise refused(FORM)


def _durability(demand: str) -> Durability:
    for each in DEMANDS:
        if each == demand:
            return each
    raise refused(f"with {', '.join(DEMANDS[:-1])} or {DEMANDS[-1]} for durability")


def _tls(asked: dict[str, str]) -> ssl.SSLContext | None:
    """Return what to speak TLS with; by default with nobody, or with whom ``ssl-ca`` vouches for.

    As mysql's own client, but that it is not spoken where it is not asked for.
    """
    mode = asked.get("ssl-mode", "VERIFY_CA" if "ssl-ca" in asked else "DISABLED").upper()
    if mode not in MODES:
        raise refused(f"one of {', '.join(MODES)} for ssl-mode")
    if mode == "DISABLED":
        if any(option in asked for option in ("ssl-ca", "ssl-cert", "ssl-key")):
            raise refused("another ssl-mode than DISABLED beside ssl-ca, ssl-cert or ssl-key")
        return None
    try:
        context = ssl.create_default_context(cafile=asked.get("ssl-ca"))
        context.check_hostname = mode == "VERIFY_IDENTITY"
        context.verify_mode = ssl.CERT_NONE if mode == "REQUIRED" else ssl.CERT_REQUIRED
        if "ssl-cert" in asked:
            context.load_cert_chain(asked["ssl-cert"], asked.get("ssl-key"))
    except OSError as exc:  # also what OpenSSL says of a file that is none
        raise refused(f"files that can be read for ssl-ca, ssl-cert, ssl-key ({exc})") from None
    return context
