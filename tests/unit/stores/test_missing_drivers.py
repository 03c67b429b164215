"""A store whose driver is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "driver", "extra", "use"),
    [
        ("aetcd", "etcd", "etcd", "import aiocosid.stores.etcd"),
        ("httpx", "httpx", "http", "import aiocosid.stores.http"),
        ("redis", "redis", "redis", "import aiocosid.stores.redis"),
        ("httpx", "httpx", "http", "import aiocosid; aiocosid.store_from_url('aiocosid+http://a')"),
        (
            "hiredis",
            "hiredis",
            "redis",
            "import aiocosid; aiocosid.store_from_url('aiocosid+unix:///a')",
        ),
        (
            "kazoo",
            "kazoo",
            "zookeeper",
            "import aiocosid; aiocosid.store_from_url('zookeeper://a')",
        ),
    ],
)
def test_the_extra_is_named(module: str, driver: str, extra: str, use: str) -> None:
    """At once, with what to install."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{module!r}] = None\n{use}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert f"MissingExtraError: {driver} is not installed" in done.stderr
    assert f"pip install 'aiocosid[{extra}]'" in done.stderr
