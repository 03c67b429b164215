"""Quotas: a rate for each token and name, whatever its requests ask for."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.server import Token, TokenScope, digest_of, token_table
from aiocosid.server._problems import Problem
from aiocosid.server._quotas import MOST, Quotas
from aiocosid.server._tokens import Access
from aiocosid.testing import ManualClock

pytestmark = pytest.mark.anyio


def access(name: str = "shop", **quota: Any) -> Access:
    return Access(Token(name=name, digest=digest_of("x"), scopes=(TokenScope.IDS,), **quota))


SHOP = access(ids_per_second=100)


def wait(quotas: Quotas, count: int = 1, name: str = "a", by: Access = SHOP) -> str:
    """Return after how many seconds to come again; nothing if the ids are taken."""
    try:
        quotas.charge(by, name, count)
    except Problem as error:
        return f"{error.headers['retry-after']}"
    return ""


async def test_less_than_a_second_of_debt_is_served() -> None:
    clock = ManualClock()
    quotas = Quotas(clock)
    assert [wait(quotas, count) for count in (99, 2, 1, 1)] == ["", "", "1", "1"]
    await clock.advance(0.02)
    assert [wait(quotas), wait(quotas)] == ["", "1"]


async def test_a_segment_longer_than_a_second_is_paid_off() -> None:
    clock = ManualClock()
    quotas = Quotas(clock)
    assert wait(quotas, 1000) == ""
    await clock.advance(0.5)
    assert wait(quotas) == "9"
    await clock.advance(8.4)
    assert wait(quotas) == "1"
    await clock.advance(0.2)
    assert wait(quotas) == ""


async def test_the_rate_holds() -> None:
    """However often it asks: what it gets is a second's ids, and the rate from then on."""
    clock = ManualClock()
    quotas = Quotas(clock)
    taken = 0
    for _ in range(1000):
        taken += 0 if wait(quotas, 7) else 7
        await clock.advance(0.01)
    assert 100 * 10 <= taken <= 100 * 11 + 7


async def test_an_idle_token_saves_nothing_up() -> None:
    clock = ManualClock()
    quotas = Quotas(clock)
    assert wait(quotas) == ""
    await clock.advance(1000)
    assert [wait(quotas, 100), wait(quotas)] == ["", "1"]


def test_tokens_and_names_have_quotas_of_their_own() -> None:
    quotas = Quotas(ManualClock())
    assert [wait(quotas, 1000), wait(quotas)] == ["", "9"]
    assert wait(quotas, name="b") == ""
    assert wait(quotas, by=access("other", ids_per_second=100)) == ""
    assert wait(quotas, by=access(ids_per_second=100, ids_per_request=5)) == "9"


def test_what_is_remembered_has_a_limit() -> None:
    quotas = Quotas(ManualClock())
    for number in range(MOST + 10):
        assert wait(quotas, name=str(number)) == ""
    assert len(quotas._paid_at) == MOST


def test_a_request_is_refused_and_counted() -> None:
    quotas = Quotas(ManualClock())
    limited = access(ids_per_second=10, ids_per_request=50)
    with pytest.raises(InvalidArgumentError, match="at most 50, the quota of this token"):
        quotas.charge(limited, "order", 51)
    quotas.charge(limited, "order", 50)
    with pytest.raises(Problem, match="10 ids a second of a name") as caught:
        quotas.charge(limited, "order")
    assert caught.value.status == 429
    assert quotas.refused == {"shop": 2}
    for free in (access(), Access()):
        for _ in range(2):
            quotas.charge(free, "order", 1 << 40)


@pytest.mark.parametrize("what", ["ids_per_second", "ids_per_request"])
def test_a_quota_is_one_at_least(what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=what):
        access("shop", **{what: 0})


def test_the_table_of_a_token_has_its_quotas() -> None:
    lines = token_table("x", name="shop", ids_per_second=5, ids_per_request=7).splitlines()
    assert lines[-2:] == ["ids_per_second = 5", "ids_per_request = 7"]
    assert "ids_per" not in token_table("x", name="shop")
