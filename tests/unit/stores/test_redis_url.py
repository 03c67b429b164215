"""The clients that a Redis URL stands for, and that its password never leaks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis.asyncio import SSLConnection

from aiocosid.errors import InvalidArgumentError
from aiocosid.stores._url import REDIS, StoreUrl, read_url
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._link import make_clients

SECRET = "s3cr3t"  # noqa: S105 - to be looked for


def read(url: str) -> StoreUrl:
    return read_url(url, *REDIS)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}@h",
        f"redis+cluster://u:{SECRET}@h",
        f"redis+sentinel://u:{SECRET}@h/ids?sentinel_password={SECRET}",
        f"unix://u:{SECRET}@/s",
    ],
)
def test_no_repr_shows_the_password(url: str) -> None:
    """Neither ours nor that of the driver's clients, which the driver writes into its errors."""

    async def shown() -> str:
        target = read(url)
        return f"{target!r} {target} {make_clients(target)!r}"

    assert SECRET not in asyncio.run(shown())
    store = RedisStore.from_url(url)
    assert SECRET not in f"{store!r} {store.segment_distributor(name='n')!r}"


def test_url_clients_answer_before_a_generator_gives_up() -> None:
    """Timeouts below 2 s and no second sending, on the sentinels as well."""

    async def settings() -> list[dict[str, Any]]:
        clients = make_clients(read("redis+sentinel://a,b/ids"))
        clients += make_clients(read("redis://a"))
        return [client.connection_pool.connection_kwargs for client in clients]

    for made in asyncio.run(settings()):
        assert made["socket_timeout"] < 2
        assert made["socket_connect_timeout"] < 2
        assert made["retry"].get_retries() == 0


def test_tls_reaches_sentinels_and_master() -> None:
    """rediss+sentinel:// encrypts the connections to both."""

    async def connections() -> list[type]:
        clients = make_clients(read("rediss+sentinel://a,b/ids"))
        return [client.connection_pool.connection_class for client in clients]

    assert all(issubclass(each, SSLConnection) for each in asyncio.run(connections()))


def test_tls_files_are_handed_on(tmp_path: Path) -> None:
    """An option of the URL reaches the connection."""
    authority = tmp_path / "ca.pem"
    authority.touch()

    async def settings() -> dict[str, Any]:
        (client,) = make_clients(read(f"rediss://h?ssl_ca_certs={authority}"))
        kwargs: dict[str, Any] = client.connection_pool.connection_kwargs
        return kwargs

    assert asyncio.run(settings())["ssl_ca_certs"] == str(authority)


def test_user_and_password_reach_the_connection() -> None:
    """From in front of the host, or as options, which win."""

    async def login(url: str) -> Any:
        (client,) = make_clients(read(url))
        provider = client.connection_pool.connection_kwargs["credential_provider"]
        return provider and provider.get_credentials()

    expected = {
        "redis://u%40x:p%2F%3A@h": ("u@x", "p/:"),
        "redis://:p@h": ("p",),
        "redis://u:p@h?username=v&password=q": ("v", "q"),
        "redis://h": None,
    }
    for url, credentials in expected.items():
        assert asyncio.run(login(url)) == credentials


@pytest.mark.parametrize(
    "remap",
    [
        *("", "a:1", "a:1>b", "a>b:2", "a:1>b:2>c:3", "a:1>b:2,", ":1>b:2", "a:1>:2", "a:0>b:2"),
        *("a:1>b:65536", "a:1>b:2,a:1>b:3", "a:1 >b:2", "a:x>b:2"),
    ],
)
def test_a_bad_map_of_addresses(remap: str) -> None:
    """It is no map at all, or leaves out a port, or leads to two places."""
    with pytest.raises(InvalidArgumentError, match=r"host:port>host:port.* for address_remap"):
        RedisStore.from_url(f"redis+cluster://h?address_remap={quote(remap)}")


def test_a_map_of_addresses() -> None:
    """What it does not name stays as it is announced."""
    url = "redis+cluster://h?address_remap=10.0.0.1:6379>nat:7001,%5B::1%5D:1>nat:7002"
    remap = read_url(url, *REDIS).options["address_remap"]
    told = ("10.0.0.1", 6379), ("::1", 1), ("10.0.0.1", 6380)
    assert [*map(remap, told)] == [("nat", 7001), ("nat", 7002), ("10.0.0.1", 6380)]
    with pytest.raises(InvalidArgumentError, match="cannot have the option 'address_remap'"):
        RedisStore.from_url("redis://h?address_remap=a:1>b:2")
