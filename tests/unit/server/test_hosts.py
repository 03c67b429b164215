"""Which names a server answers to."""

from __future__ import annotations

import pytest

from aiocosid.server._hosts import Hosts

OWN = (
    "127.0.0.1 127.0.0.1:8688 10.1.2.3:8688 [::1] [::1]:8688 [fe80::1]:80 localhost LocalHost:8688 "
    "localhost.:8688 app.localhost:1 ids IDS:8688 a.shop.internal a.b.shop.internal.:80"
)
OTHERS = (
    "evil.example 127.0.0.1.evil.example localhost.evil.example:8688 ids.evil.example idsx "
    "shop.internal a.shopxinternal a.shop.internal.evil [::1 ::1]:8688 1.2.3.4:80:80 "
    "evil:8688@127.0.0.1 \xff 2130706433"
)


@pytest.mark.parametrize("host", OWN.split())
def test_these_are_its_own(host: str) -> None:
    assert Hosts(["Ids", "*.shop.internal"]).allow(host.encode())


@pytest.mark.parametrize("host", ["", "a.shop.internal\n", *OTHERS.split()])
def test_these_are_others(host: str) -> None:
    assert not Hosts(["ids", "*.shop.internal"]).allow(host.encode("latin-1"))


def test_any_if_it_is_said() -> None:
    assert Hosts(["*"]).allow(b"evil.example")
