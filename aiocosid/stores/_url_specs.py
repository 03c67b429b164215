"""The URLs of each server: their schemes, and each option with its default."""

from __future__ import annotations

from math import inf
from typing import Final

from ._durability import DEMANDS
from ._url import Option, UrlSpec, boolean, choice, file, integer, seconds

__all__ = ("AIOCOSID", "ETCD", "HTTP", "MYSQL", "NATS", "POSTGRES", "REDIS", "ZOOKEEPER")

_DURABILITY: Final = choice(
    "what to do about a server that may lose what it has granted", *DEMANDS, default="warn"
)
_AUTHORITY: Final = file("certificate of the authority to be trusted")
_CERTIFICATE: Final = file("certificate that is shown to the server")
_KEY: Final = file("key of that certificate")
_TLS: Final = {"ssl_ca_certs": _AUTHORITY, "ssl_certfile": _CERTIFICATE, "ssl_keyfile": _KEY}
_PAIR: Final = ("ssl_certfile", "ssl_keyfile")

# Below the 2 s timeout of a generator's call, so that the generator gets the reason.
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

_REMOTE: Final = {"token": Option("token, as in front of the host"), "timeout": _TIMEOUT}

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
"""An aiocosid server: several of one store by HTTP, or one by its Unix socket."""

HTTP: Final = UrlSpec(
    {"http": False, "https": True, "cosid+http": False, "cosid+https": True},
    "http://host:8688,host:8688 or https://host, without a query; before it cosid+ may stand",
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
            "what to check of the server's certificate; by default nothing is encrypted, or with "
            "ssl-ca VERIFY_CA",
            *("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"),
        ),
        "unix_socket": Option("path of the server's socket, instead of its host"),
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
        "replicas": integer("replicas of the streams that are created", at_least=1, at_most=5),
        "sync_always": boolean("whether all servers have 'sync_interval: always'"),
    },
    tls_options=_TLS,
    together=_PAIR,
)
"""NATS with JetStream; the path is the prefix of streams and subjects."""

POSTGRES: Final = UrlSpec(
    {"postgres": False, "postgresql": False},
    "postgresql://user:password@host:port/database",
    5432,
    options={"durability": _DURABILITY},
    takes_others=True,
)
"""PostgreSQL; all other parts of the URL are for the driver."""

# Timeouts are below the default 2 s timeout of a generator's call, so that the generator gets the
# reason.  Every server and proxy understands protocol 2, and nothing here needs more.
_REDIS_OPTIONS: Final = {
    "db": integer("number of the database", 0),
    "username": Option("user, as in front of the host"),
    "password": Option("password of that user, as in front of the host"),
    "client_name": Option("name of the connections in the server's list"),
    "max_connections": integer("maximum number of open connections", at_least=1),
    "health_check_interval": integer("seconds after which an idle connection is tested"),
    "protocol": integer("version of the protocol", 2, at_least=2, at_most=3),
    "socket_timeout": seconds("seconds that a reply may take", 1.5),
    "socket_connect_timeout": seconds("seconds that connecting may take", 1.0),
    "replicas": integer("replicas that have to confirm each grant", 0, at_most=1000),
    "replica_timeout": seconds("seconds that replicas have to confirm a grant", 0.5),
    "durability": _DURABILITY,
}
_REDIS_TLS: Final = {
    **_TLS,
    "ssl_cert_reqs": choice(
        "whether the server has to have a certificate", "none", "optional", "required"
    ),
    "ssl_check_hostname": boolean("whether the certificate has to be the host's"),
    "ssl_ciphers": Option("ciphers that may be used"),
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
        "redis://user:password@host:port/db; several hosts are redis+cluster:// or "
        "redis+sentinel://",
        6379,
        r"(?:/(?P<db>.*))?",
        hosts=1,
    ),
    _redis({"unix": False}, "unix:///path/of/socket?db=0", 0, r"/[^\x00]+", hosts=0),
    _redis(
        {"redis+cluster": False, "rediss+cluster": True},
        "redis+cluster://user:password@host:port,host:port, which has only db 0",
        6379,
        r"(?:/(?P<db>.*))?",
        db=integer("0, if it is given", 0, at_most=0),
    ),
    _redis(
        {"redis+sentinel": False, "rediss+sentinel": True},
        "redis+sentinel://user:password@host:port,host:port/service/db",
        26379,
        r"/(?P<service>[^/]+)(?:/(?P<db>.*))?",
        sentinel_username=Option("user of the sentinels"),
        sentinel_password=Option("password of that user"),
    ),
)
"""Redis or Valkey: a server, by its socket, a Cluster, or by Sentinels."""

ZOOKEEPER: Final = UrlSpec(
    {"zookeeper": False},
    "zookeeper://user:password@host:port,host:port/chroot",
    2181,
    needs_both=True,
    path=r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f]+)*",
    options={
        "session_timeout": seconds(
            "seconds without a call after which the session ends", 10.0, below=2**31 / 1000
        )
    },
)
"""A ZooKeeper ensemble; the path is the node below which everything lies."""
