"""Makes the driver's clients that a URL stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider

if TYPE_CHECKING:
    from ._url import Target

__all__ = ("SOCKET_TIMEOUT", "make_clients")

# Below the 2 s after which a generator gives a call up by default, so that it hears the reason.
SOCKET_TIMEOUT: Final = 1.5  # seconds for a reply
CONNECT_TIMEOUT: Final = 1.0  # seconds
SENTINEL_TIMEOUT: Final = 0.5  # seconds; they are asked one after the other


def make_clients(target: Target) -> tuple[Any, ...]:
    """Return the client to talk to, and after it what else has to be closed.

    Nothing is sent yet.  Needs a running loop.
    """
    options = _options(target)
    if target.kind == "cluster":
        return (_cluster(target, options),)
    if target.kind == "sentinel":
        return _behind_sentinels(target, options)
    if target.kind == "unix":
        return (Redis(unix_socket_path=target.path, **options),)
    ((host, port),) = target.hosts
    return (Redis(host=host, port=port, ssl=target.tls, **options),)


def _options(target: Target) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        # Understood by every server and proxy, and nothing here needs more.
        "protocol": 2,
        # The generator tries again by itself; a driver that resends outlasts its caller.
        "retry": Retry(NoBackoff(), 0),
        **target.options,
    }
    if target.tls:
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")
    for name in ("sentinel_username", "sentinel_password"):
        options.pop(name, None)
    # A provider, because drivers before 8 write a password into the client's repr, and that into
    # errors.
    options["credential_provider"] = _login(
        options.pop("username", None), options.pop("password", None)
    )
    if target.kind != "unix":
        options["socket_keepalive"] = True
    return options


def _login(username: str | None, password: str | None) -> UsernamePasswordCredentialProvider | None:
    if username is None and password is None:
        return None
    return UsernamePasswordCredentialProvider(username, password)


def _cluster(target: Target, options: dict[str, Any]) -> RedisCluster:
    options.pop("db", None)
    # Drivers before 8.1 never get a connection back on which sending failed or was cut.
    options.setdefault("max_connections", 2**31)
    # The driver would look "localhost" up itself, and block the loop for it.
    hosts = [("127.0.0.1" if host == "localhost" else host, port) for host, port in target.hosts]
    nodes = [ClusterNode(host, port) for host, port in hosts]
    # 0: a moved slot is noted; the driver's default closes the connections under other calls.
    return RedisCluster(startup_nodes=nodes, ssl=target.tls, reinitialize_steps=0, **options)


def _behind_sentinels(target: Target, options: dict[str, Any]) -> tuple[Any, ...]:
    asked = {
        name: options[name]
        for name in options
        if name.startswith(("ssl_", "socket_")) or name in {"protocol", "retry"}
    }
    asked |= {
        "socket_timeout": SENTINEL_TIMEOUT,
        "socket_connect_timeout": SENTINEL_TIMEOUT,
        "ssl": target.tls,
        "credential_provider": _login(
            target.options.get("sentinel_username"), target.options.get("sentinel_password")
        ),
    }
    sentinel: Any = Sentinel(target.hosts, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    client = sentinel.master_for(target.service, ssl=target.tls, **options)
    return (client, *sentinel.sentinels)
