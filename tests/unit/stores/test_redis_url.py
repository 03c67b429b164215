"""What a Redis URL names, and that it never leaks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import SSLConnection

from aiocosid.errors import InvalidArgumentError
from aiocosid.stores.redis import RedisIdSegmentDistributor, RedisStore
from aiocosid.stores.redis._client import make_clients
from aiocosid.stores.redis._url import Target

SECRET = "s3cr3t"  # noqa: S105 - to be looked for


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", Target("server", False, (("localhost", 6379),))),
        ("redis://h", Target("server", False, (("h", 6379),))),
        ("REDIS://h:1/2", Target("server", False, (("h", 1),), options={"db": 2})),
        ("valkey://h/?db=3", Target("server", False, (("h", 6379),), options={"db": 3})),
        ("rediss://h", Target("server", True, (("h", 6379),))),
        ("valkeys://h", Target("server", True, (("h", 6379),))),
        ("redis://[::1]:7", Target("server", False, (("::1", 7),))),
        (
            "redis://u%40x:p%2F%3A@h",
            Target("server", False, (("h", 6379),), options={"username": "u@x", "password": "p/:"}),
        ),
        ("redis://:p@h", Target("server", False, (("h", 6379),), options={"password": "p"})),
        ("unix:///a%20b/s?db=1", Target("unix", False, path="/a b/s", options={"db": 1})),
        ("unix://u@/s", Target("unix", False, path="/s", options={"username": "u"})),
        ("redis+cluster://a:1,b", Target("cluster", False, (("a", 1), ("b", 6379)))),
        ("rediss+cluster://a/0", Target("cluster", True, (("a", 6379),), options={"db": 0})),
        (
            "redis+sentinel://a,b:5/ids/3?sentinel_password=q",
            Target(
                "sentinel",
                False,
                (("a", 26379), ("b", 5)),
                service="ids",
                options={"db": 3, "sentinel_password": "q"},
            ),
        ),
        (
            "rediss+sentinel://a/ids?socket_timeout=0.5&ssl_check_hostname=no",
            Target(
                "sentinel",
                True,
                (("a", 26379),),
                service="ids",
                options={"socket_timeout": 0.5, "ssl_check_hostname": False},
            ),
        ),
    ],
)
def test_every_form_is_read(url: str, expected: Target) -> None:
    """The forms that the documentation lists."""
    assert Target.of(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis",
        "redis:",
        f"http://{SECRET}@h",
        f"redis://u:{SECRET}/x@h",
        f"redis://u:{SECRET}@@h:x",
        f"redis://u:x?{SECRET}=1@h",
        f"redis://u:{SECRET}@h:99999",
        f"redis://u:{SECRET}@h:0",
        f"redis://u:{SECRET}@a,b",
        f"redis://u:{SECRET}@h/one",
        f"redis://u:{SECRET}@h/-1",
        f"redis://h?password={SECRET}&unheard=1",
        f"redis://h?{SECRET}",
        f"redis://h?password={SECRET}&ssl_ca_certs=/x",
        f"rediss://h?password={SECRET}&ssl_ca_certs=/not/there",
        f"rediss://h?password={SECRET}&ssl_cert_reqs=perhaps",
        f"redis://h?password={SECRET}&socket_timeout=0",
        f"redis://h?password={SECRET}&socket_timeout=nan",
        f"redis://h?password={SECRET}&max_connections=0",
        f"redis://h?password={SECRET}&protocol=4",
        f"redis://h?sentinel_password={SECRET}",
        f"unix://u:{SECRET}@",
        f"unix://u:{SECRET}@host/s",
        f"redis+cluster://u:{SECRET}@h/1",
        f"redis+cluster://u:{SECRET}@h:1,",
        f"redis+cluster://u:{SECRET}@,h",
        f"redis+cluster://u:{SECRET}@h,:1",
        f"redis+sentinel://u:{SECRET}@h,,i/ids",
        f"redis+sentinel://u:{SECRET}@h",
        f"redis+sentinel://u:{SECRET}@h/ids/x",
    ],
)
@pytest.mark.parametrize("make", [RedisStore, RedisIdSegmentDistributor])
def test_bad_url_is_refused_without_a_word_of_it(url: str, make: Any) -> None:
    """InvalidArgumentError at once, with neither the password nor what might be one."""
    with pytest.raises(InvalidArgumentError) as caught:
        make.from_url(url, **({} if make is RedisStore else {"name": "n"}))
    shown: BaseException | None = caught.value
    while shown is not None:
        assert SECRET not in f"{shown} {shown!r}"
        shown = None if shown.__suppress_context__ else shown.__context__


def test_names_only_the_option_that_is_unknown() -> None:
    """So that a typing error is found."""
    with pytest.raises(InvalidArgumentError, match="'sokcet_timeout'"):
        RedisStore.from_url("redis://h?sokcet_timeout=1")


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
        target = Target.of(url)
        return f"{target!r} {target} {make_clients(target)!r}"

    assert SECRET not in asyncio.run(shown())
    store = RedisStore.from_url(url)
    assert SECRET not in f"{store!r} {store.segment_distributor(name='n')!r}"


def test_url_clients_answer_before_a_generator_gives_up() -> None:
    """Timeouts below 2 s and no second sending, on the sentinels as well."""

    async def settings() -> list[dict[str, Any]]:
        clients = make_clients(Target.of("redis+sentinel://a,b/ids"))
        clients += make_clients(Target.of("redis://a"))
        return [client.connection_pool.connection_kwargs for client in clients]

    for made in asyncio.run(settings()):
        assert made["socket_timeout"] < 2
        assert made["socket_connect_timeout"] < 2
        assert made["retry"].get_retries() == 0


def test_tls_reaches_sentinels_and_master() -> None:
    """rediss+sentinel:// encrypts the connections to both."""

    async def connections() -> list[type]:
        clients = make_clients(Target.of("rediss+sentinel://a,b/ids"))
        return [client.connection_pool.connection_class for client in clients]

    assert all(issubclass(each, SSLConnection) for each in asyncio.run(connections()))


def test_tls_files_are_handed_on(tmp_path: Path) -> None:
    """An option of the URL reaches the connection."""
    authority = tmp_path / "ca.pem"
    authority.touch()

    async def settings() -> dict[str, Any]:
        (client,) = make_clients(Target.of(f"rediss://h?ssl_ca_certs={authority}"))
        kwargs: dict[str, Any] = client.connection_pool.connection_kwargs
        return kwargs

    assert asyncio.run(settings())["ssl_ca_certs"] == str(authority)


def test_missing_driver_names_the_extra() -> None:
    """The module says at once what to install."""
    code = "import sys; sys.modules['redis'] = None; import aiocosid.stores.redis"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert "MissingExtraError: redis is not installed" in done.stderr
    assert "pip install 'aiocosid[redis]'" in done.stderr
