"""Receipts of leases: nobody makes one, and none is for another lease."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiocosid.machine.operations import RenewOperation
from aiocosid.server._receipts import Lasting, is_signed, receipt_of, times_of

KEY = "a key of all servers, and of nobody else"
LEASE = Lasting(
    namespace="ns",
    owner="app",
    instance="a",
    machine_id=1,
    bits=2,
    region_code=1,
    requested_ms=3,
    token="t",  # noqa: S106 - of a call
)


def until_of(key: str, lease: Lasting, receipt: str) -> int:
    return times_of(receipt)[0] if is_signed(key, lease, receipt) else -1


def test_a_receipt_tells_until_when() -> None:
    receipt = receipt_of(KEY, LEASE, 70)
    assert (until_of(KEY, LEASE, receipt), times_of(receipt)) == (70, (70, 3))


@pytest.mark.parametrize(
    "other",
    [
        *({"namespace": "n"}, {"owner": ""}, {"instance": "b"}, {"machine_id": 2}),
        *({"bits": 3}, {"region_code": 2}, {"requested_ms": 2}, {"token": "u"}),
    ],
    ids=str,
)
def test_it_is_for_one_lease(other: dict[str, Any]) -> None:
    assert until_of(KEY, replace(LEASE, **other), receipt_of(KEY, LEASE, 70)) == -1


def test_what_is_no_receipt() -> None:
    found = receipt_of(KEY, LEASE, 70)
    assert until_of("", LEASE, receipt_of("", LEASE, 70)) == -1  # a server without a key
    assert until_of("another", LEASE, found) == -1
    digest = found.partition(".")[2]
    for wrong in ("", ".", "x", "70", "70.", f"71.{digest}", f"070.{digest}", f"\u0667.{digest}"):
        assert until_of(KEY, LEASE, wrong) == -1
    assert until_of(KEY, LEASE, f"{'9' * 5000}.{digest}") == -1
    assert until_of(KEY, LEASE, f"70.{digest[:-1]}\u00e9") == -1


def test_a_client_says_what_it_holds() -> None:
    asked = RenewOperation(
        instance="a", machine_id=1, now_ms=9, fence_ms=9, token=LEASE.token, bits=2, requested_ms=3
    )
    assert Lasting.of("ns", "app", asked) == LEASE
