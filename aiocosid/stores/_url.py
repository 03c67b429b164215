"""The URLs of each server: schemes, options with their defaults, and the functions that read them.

It also reads the files that a URL names for TLS.  Errors show no part of a URL that may be secret.
"""

from __future__ import annotations

import re
import ssl
from base64 import b32decode
from binascii import crc_hqx
from collections import UserString
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from ..errors import InvalidArgumentError
from ._durability import DEMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = (
    "AIOCOSID",
    "ETCD",
    "HTTP",
    "MYSQL",
    "NATS",
    "POSTGRES",
    "REDIS",
    "ZOOKEEPER",
    "StoreUrl",
    "address_of",
    "client_context",
    "read_url",
)

TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

_HOST: Final = re.compile(r"(\[[^\[\]@\s]+\]|[^:\[\]@#\s]*)(?::([0-9]{1,5}))?")
_UNESCAPED: Final = re.compile(r"[\[\]#\s]")
PLACES: Final = {"db", "unix_socket", "host", "port"}
"""The options of a URL that say which server or database it names."""

_ESCAPE: Final = "user, password, path and options percent-encoded"
IN_PASSWORDS: Final = (
    f"must have {_ESCAPE}: in a password '@' is %40, '/' is %2F, '?' is %3F, '#' is %23, '[' is "
    "%5B, ']' is %5D and a space is %20"
)


@dataclass(frozen=True, slots=True)
class Option:
    """One option after the ``?`` of a URL; by default its text is used unchanged.

    Attributes:
        doc: what the option does, in one line.
        default: the value if the option is not given; None for no value.
        expected: what its text must be, for error messages.
        read: converts the text; raises KeyError, ValueError or OSError for an invalid one.
    """

    doc: str
    default: Any = None
    expected: str = "a text"
    read: Callable[[str], Any] = str


def seconds(doc: str, default: float, *, below: float = inf) -> Option:
    """Return an option with a time in seconds, above 0."""

    def read(text: str) -> float:
        if not 0 < (value := float(text)) < below:
            raise ValueError(text)
        return value

    return Option(doc, default, "a number of seconds", read)


def integer(
    doc: str, default: int | None = None, *, at_least: int = 0, at_most: float = inf
) -> Option:
    """Return an option with an integer in a range."""

    def read(text: str) -> int:
        if not at_least <= (value := int(text)) <= at_most:
            raise ValueError(text)
        return value

    highest = "" if at_most == inf else f" to {at_most}"
    return Option(doc, default, f"an integer from {at_least}{highest}", read)


def choice(doc: str, *words: str, default: str | None = None) -> Option:
    """Return an option with one of some words, in upper or lower case."""
    known = {each.lower(): each for each in words}
    expected = f"{', '.join(words[:-1])} or {words[-1]}"
    return Option(doc, default, expected, lambda text: known[text.lower()])


def boolean(doc: str) -> Option:
    """Return an option with true or false."""
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return Option(doc, expected="true or false", read=lambda text: known[text.lower()])


def file(doc: str) -> Option:
    """Return an option with the path of a readable file.

    A driver would report a missing file as a server that cannot be reached.
    """

    def read(text: str) -> str:
        _regular(text).open("rb").close()
        return text

    return Option(doc, expected="a file that can be read", read=read)


def _regular(text: str) -> Path:
    """Return the path of a regular file; opening a pipe would wait for its writer."""
    if not (path := Path(text)).is_file():
        raise ValueError(text)
    return path


_SEED: Final = re.compile(r"^(SU[A-Z2-7]{56})\s*$", re.MULTILINE)
_JWT: Final = re.compile(r"^(?:[\w-]+\.){2}[\w-]+\s*$", re.MULTILINE)


def signature(doc: str, *, with_jwt: bool) -> Option:
    """Return an option with a file whose nkey signs a login; its value is the driver's argument.

    The driver would report a damaged file as a server that cannot be reached, or would never
    return.
    """
    what = "JWT and nkey seed, as 'nsc generate creds' prints it" if with_jwt else "nkey seed"

    def read(text: str) -> dict[str, Any]:
        found = _regular(text).read_text("ascii")
        seed, jwt = _SEED.search(found), _JWT.search(found)
        raw = b32decode(f"{seed[1]}======") if seed else b"-"
        if not seed or crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
            raise ValueError(text)
        if not with_jwt:
            return {"nkeys_seed_str": seed[1]}
        if not jwt:
            raise ValueError(text)
        lines = "BEGIN NATS USER JWT", jwt[0].strip(), "BEGIN USER NKEY SEED", seed[1], ""
        return {"user_credentials": UserString("\n".join(lines))}

    return Option(doc, None, f"a readable file with a user's {what}", read)


class Host(NamedTuple):
    """A server's address.

    Attributes:
        name: a name or an address, without brackets.
        port: the port; 0 for the scheme's own.
    """

    name: str
    port: int

    def __str__(self) -> str:
        """Return the address as in a URL."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}" if self.port else name


def _host(text: str, port: int = 0) -> Host:
    """Read an address; raise ValueError if the text is not one.

    Args:
        text: ``name``, ``name:port``, ``:port`` or nothing; the name may be percent-encoded.
        port: the port if the text has none.
    """
    if not (match := _HOST.fullmatch(text)):
        raise ValueError(text)
    host = Host(unquote(match[1]).strip("[]"), int(match[2] or port))
    if not (host.port < 1 << 16 and (host.port or not match[2])):
        raise ValueError(text)
    return host


def addresses(doc: str) -> Option:
    """Return an option with a map of addresses, as a function from the old to the new address."""

    def read(text: str) -> Callable[[tuple[str, int]], tuple[str, int]]:
        found = dict[Host, Host]()
        for pair in text.split(","):
            told, reached = map(_host, pair.split(">"))
            if told in found or not (told.name and reached.name and told.port and reached.port):
                raise ValueError(text)
            found[told] = reached
        return lambda address: found.get(Host(*address), address)

    return Option(doc, None, "host:port>host:port[,...] (each left side once)", read)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A parsed URL.

    Attributes:
        scheme: the scheme in lower case.
        tls: whether connections are encrypted.
        hosts: the servers; empty if the path names the server.
        login: user and password, one of which may be empty; None for no login.
        path: the decoded path, without a final ``/``.
        options: all options of the scheme, with their defaults, and the named parts of the path;
            they may contain passwords.
    """

    scheme: str
    tls: bool
    hosts: tuple[Host, ...]
    login: tuple[str, str] | None = field(default=None, repr=False)
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __str__(self) -> str:
        """Return the servers, without credentials."""
        return f"{','.join(map(str, self.hosts))}{self.path}"


@dataclass(frozen=True, slots=True)
class UrlSpec:
    """The form of the URLs of one kind of deployment.

    Attributes:
        schemes: the schemes, and whether each means TLS.
        form: an example for errors.
        port: the default port; 0 if the driver knows it.
        hosts: the maximum number of hosts; 0 if a path names the server.
        needs_host: whether a host must be given; otherwise the default is ``localhost``.
        needs_both: whether user and password must be given together.
        path: matches the decoded path without a final ``/``; named groups become options.
        default_path: the path to use if the URL has none.
        options: the options by name.
        tls_options: the options that only schemes with TLS have.
        together: options that must be given together or not at all.
        takes_others: whether unknown options are passed on unchanged.
    """

    schemes: Mapping[str, bool]
    form: str
    port: int
    hosts: float = inf
    needs_host: bool = False
    needs_both: bool = False
    path: str = r"[^\x00]*"
    default_path: str = ""
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    tls_options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    together: tuple[str, ...] = ()
    takes_others: bool = False

    def refused(self, scheme: str, rule: str = "") -> InvalidArgumentError:
        """Return the error for a URL; it shows only the scheme."""
        rule = rule or f"must look like {self.form}, with {_ESCAPE}"
        return InvalidArgumentError("url", f"{scheme}:...", rule)

    def read(self, scheme: str, rest: str) -> StoreUrl:
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        login, at, hosts = authority.rpartition("@")
        user, colon, password = login.partition(":")
        # The cause is mostly a password with an unescaped '/', '?' or '#', so no part of the URL is
        # shown.
        if "@" in path + query or _UNESCAPED.search(login + path + query):
            raise self.refused(scheme, IN_PASSWORDS)
        if at and self.needs_both and not (user and colon):
            raise self.refused(scheme, "must have user:password, or neither")
        path = unquote(slash + path).rstrip("/") or self.default_path
        named = re.fullmatch(self.path, path)
        if named is None:
            raise self.refused(scheme)
        known = {**self.options, **(self.tls_options if self.schemes[scheme] else {})}
        options = {name: option.default for name, option in known.items()}
        for name, text in self._texts(scheme, query, named.groupdict(), known):
            option = known.get(name, Option(""))
            # Raised behind the block: the messages of these errors may contain secrets.
            with suppress(KeyError, ValueError, OSError):
                options[name] = option.read(text)
                continue
            raise self.refused(scheme, f"must have {option.expected} for {name}")
        return StoreUrl(
            scheme,
            self.schemes[scheme],
            self._hosts(scheme, hosts),
            (unquote(user), unquote(password)) if at else None,
            path,
            options,
        )

    def _hosts(self, scheme: str, text: str) -> tuple[Host, ...]:
        if not self.hosts and not text:
            return ()
        try:
            hosts = [_host(part, self.port) for part in text.split(",")]
        except ValueError:
            raise self.refused(scheme) from None
        if not text.partition(":")[0] and len(hosts) == 1 and not self.needs_host:
            hosts = [Host("localhost", hosts[0].port)]
        if not all(host.name for host in hosts):
            raise self.refused(scheme)
        if len(hosts) > self.hosts:
            raise self.refused(scheme)
        return tuple(hosts)

    def _texts(
        self, scheme: str, query: str, path: Mapping[str, str | None], known: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        """Yield options with their texts: first from the query, then from the path only."""
        given: set[str] = set()
        names = ", ".join(known) or "none"
        for pair in query.split("&") if query else ():
            name, found, text = pair.partition("=")
            if name in given:
                raise self.refused(scheme, f"must have each of the options {names} at most once")
            if not found or not (self.takes_others or name in known):
                shown = f" {name!r}" if found else ""
                raise self.refused(
                    scheme, f"cannot have the option{shown}: its options are {names}"
                )
            given.add(name)
            yield name, unquote(text)
        if 0 < len(given & {*self.together}) < len(self.together):
            raise self.refused(scheme, f"must have all of {', '.join(self.together)}, or none")
        yield from ((name, text) for name, text in path.items() if text and name not in given)


def read_url(url: str, *specs: UrlSpec) -> StoreUrl:
    """Read a URL according to its scheme's specification; nothing is resolved or connected.

    Args:
        url: ``scheme://[user:password@]host[:port][,host...][/path][?option=value&...]``, with
            everything but letters and digits percent-encoded.
        *specs: the possible kinds of URL.

    Raises:
        InvalidArgumentError: the URL is malformed; the message shows no part that may be secret.
    """
    scheme, found, rest = str(url).partition("://")
    scheme = scheme.lower()
    for spec in specs if found else ():
        if scheme in spec.schemes:
            return spec.read(scheme, rest)
    known = ", ".join(f"{name}://" for spec in specs for name in spec.schemes)
    # Only the scheme is shown, because the rest, or a text that is not a URL, may contain a
    # password.
    shown = f"{scheme}:..." if found and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) else "..."
    raise InvalidArgumentError("url", shown, f"must begin with {known}, with {_ESCAPE}")


def client_context(
    spec: UrlSpec, url: StoreUrl, names: tuple[str, str, str] = TLS_FILES
) -> ssl.SSLContext:
    """Read the files of a URL; without files, the system's authorities are trusted.

    Args:
        spec: the URL's specification.
        url: the URL with the files.
        names: the options for the authority's certificate, the client's certificate, and its key.

    Raises:
        InvalidArgumentError: a file does not hold a certificate or key.
    """
    authority, certificate, key = (url.options[name] for name in names)
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as exc:  # OpenSSL's errors are OSErrors too
        rule = f"must name files of certificates and a key in {', '.join(names)}: {exc}"
        raise spec.refused(url.scheme, rule) from None
    return context


def address_of(url: str) -> str:
    """Return a URL without its login, and with the options that say where the store is."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    hosts, _, path = place.partition("/")
    options = sorted(each for each in query.split("&") if each.partition("=")[0] in PLACES)
    return f"{scheme}://{hosts.rpartition('@')[2]}/{path}?{'&'.join(options)}"


_DURABILITY: Final = choice(
    "what to do if the server may lose what it has granted", *DEMANDS, default="warn"
)
_AUTHORITY: Final = file("certificates of the trusted authorities (CA)")
_CERTIFICATE: Final = file("client certificate")
_KEY: Final = file("private key of the client certificate")
_TLS: Final = {"ssl_ca_certs": _AUTHORITY, "ssl_certfile": _CERTIFICATE, "ssl_keyfile": _KEY}
_PAIR: Final = ("ssl_certfile", "ssl_keyfile")

# This is below the 2 s timeout of a generator's call, so that the generator gets the reason.
_TIMEOUT: Final = seconds("seconds for a call, retries included", 1.5)

ETCD: Final = UrlSpec(
    {"etcd": False, "etcds": True},
    "etcd://user:password@host:port,host:port/prefix",
    2379,
    needs_both=True,
    path=r"(?:/[^\x00]*[^\x00/])?",
    default_path="/cosid",
    options={"timeout": _TIMEOUT},
    tls_options=_TLS,
    together=_PAIR,
)
"""An etcd cluster; the path is the prefix of all keys."""

_REMOTE: Final = {
    "token": Option("token, an alternative to the one before the host"),
    "timeout": _TIMEOUT,
}

AIOCOSID: Final = (
    UrlSpec(
        {"aiocosid+http": False, "aiocosid+https": True},
        "aiocosid+http://token@host:port,host:port",
        8688,
        needs_host=True,
        options=_REMOTE,
        tls_options=_TLS,
        together=_PAIR,
    ),
    UrlSpec(
        {"aiocosid+unix": False},
        "aiocosid+unix:///path/of/socket",
        0,
        hosts=0,
        path=r"/[^\x00]+",
        options=_REMOTE,
    ),
)
"""An aiocosid server: several servers of one store over HTTP, or one over its Unix socket."""

HTTP: Final = UrlSpec(
    {"http": False, "https": True, "cosid+http": False, "cosid+https": True},
    "http://host:8688,host:8688 or https://host, without a query; both also with cosid+ in front",
    0,
    needs_host=True,
)
"""A CosId proxy, or several on one store."""

MYSQL: Final = UrlSpec(
    {"mysql": False, "mariadb": False},
    "mysql://user:password@host:port/database, or mariadb://",
    3306,
    hosts=1,
    path=r"/(?P<database>[^/\x00]+)",
    options={
        "durability": _DURABILITY,
        "ssl-ca": _AUTHORITY,
        "ssl-cert": _CERTIFICATE,
        "ssl-key": _KEY,
        "ssl-mode": choice(
            "how to verify the server's certificate; the default is VERIFY_CA with ssl-ca, and no "
            "encryption without it",
            *("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"),
        ),
        "unix_socket": Option("path of the server's socket, used instead of its host"),
    },
)
"""MySQL or MariaDB."""

NATS: Final = UrlSpec(
    {"nats": False, "nats+tls": True},
    "nats://user:password@host:port,host:port/prefix",
    4222,
    needs_both=True,
    path="/(?P<prefix>[A-Za-z0-9_-]{1,64})",
    default_path="/aiocosid",
    options={
        "timeout": _TIMEOUT,
        "replicas": integer("replicas of each stream that aiocosid creates", at_least=1, at_most=5),
        "sync_always": boolean(
            "whether all servers have 'sync_interval: always', which the driver cannot see"
        ),
        "creds": signature("file with a user's JWT and nkey", with_jwt=True),
        "nkey": signature("file with the seed of a user's nkey", with_jwt=False),
    },
    tls_options=_TLS,
    together=_PAIR,
)
"""NATS with JetStream; the path is the prefix of streams and subjects."""

_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

POSTGRES: Final = UrlSpec(
    {"postgres": False, "postgresql": False},
    "postgresql://user:password@host:port/database",
    5432,
    options={
        "durability": _DURABILITY,
        "sslmode": choice("whether to use TLS, and what to verify; as for libpq", *_SSL_MODES),
        "sslrootcert": _AUTHORITY,
        "sslcert": _CERTIFICATE,
        "sslkey": _KEY,
    },
    takes_others=True,
)
"""PostgreSQL; all other parts of the URL are for the driver."""

# Timeouts are below the default 2 s timeout of a generator's call, so that the generator gets the
# reason.  Every server and proxy understands protocol 2, and no feature here needs a later one.
_REDIS_OPTIONS: Final = {
    "db": integer("number of the database", 0),
    "username": Option("user name, an alternative to the one before the host"),
    "password": Option("password, an alternative to the one before the host"),
    "client_name": Option("client name that CLIENT LIST shows"),
    "max_connections": integer("maximum number of open connections", at_least=1),
    "health_check_interval": integer("idle seconds after which a connection is tested before use"),
    "protocol": integer("version of RESP, the protocol of Redis", 2, at_least=2, at_most=3),
    "socket_timeout": seconds("seconds to wait for a reply", 1.5),
    "socket_connect_timeout": seconds("seconds to wait for a connection", 1.0),
    "replicas": integer("number of replicas that must confirm each grant", 0, at_most=1000),
    "replica_timeout": seconds("seconds within which the replicas must confirm a grant", 0.5),
    "durability": _DURABILITY,
}
_REDIS_TLS: Final = {
    **_TLS,
    "ssl_cert_reqs": choice(
        "whether the server's certificate is verified", "none", "optional", "required"
    ),
    "ssl_check_hostname": boolean("whether the certificate must name the host"),
    "ssl_ciphers": Option("TLS ciphers that may be used"),
}


def _redis(
    schemes: dict[str, bool], form: str, port: int, path: str, *, hosts: float = inf, **more: Option
) -> UrlSpec:
    options = _REDIS_OPTIONS | more
    return UrlSpec(
        schemes, form, port, hosts=hosts, path=path, options=options, tls_options=_REDIS_TLS
    )


REDIS: Final = (
    _redis(
        {"redis": False, "valkey": False, "rediss": True, "valkeys": True},
        "redis://user:password@host:port/db; for several hosts take redis+cluster:// "
        "or redis+sentinel://",
        6379,
        r"(?:/(?P<db>.*))?",
        hosts=1,
    ),
    _redis({"unix": False}, "unix:///path/of/socket?db=0", 0, r"/[^\x00]+", hosts=0),
    _redis(
        {"redis+cluster": False, "rediss+cluster": True},
        "redis+cluster://user:password@host:port,host:port; a cluster has only db 0",
        6379,
        r"(?:/(?P<db>.*))?",
        db=integer("must be 0 if it is given", 0, at_most=0),
        address_remap=addresses("where to reach a node, by the address that the node announces"),
    ),
    _redis(
        {"redis+sentinel": False, "rediss+sentinel": True},
        "redis+sentinel://user:password@host:port,host:port/service/db",
        26379,
        r"/(?P<service>[^/]+)(?:/(?P<db>.*))?",
        sentinel_username=Option("user name for the sentinels"),
        sentinel_password=Option("password for the sentinels"),
    ),
)
"""Redis or Valkey: a server, also over its socket, a Cluster, or servers under Sentinel."""

ZOOKEEPER: Final = UrlSpec(
    {"zookeeper": False},
    "zookeeper://user:password@host:port,host:port/chroot",
    2181,
    needs_both=True,
    path=r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f]+)*",
    options={
        "session_timeout": seconds(
            "seconds without contact until ZooKeeper ends the session", 10.0, below=2**31 / 1000
        )
    },
)
"""A ZooKeeper ensemble; the path is the node below which all nodes are created."""
