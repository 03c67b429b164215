"""What an operator sees at a glance: what ends soon, and what is wrong."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from aiocosid.abc import MAX_ID, Counter, Machine, MachineMarker
from aiocosid.integrations.state import GeneratorState
from aiocosid.provider.settings import load_settings
from aiocosid.server import Token, TokenScope, digest_of
from aiocosid.server._attention import attention_rows
from aiocosid.server._tls import certificate_end_ms
from aiocosid.stores.inspection import StoreReading
from tests.servers._certificates import Certificates

from .test_view import chain

NOW = 1_700_000_000_000
DAY = 86_400_000


def shown(**about: Any) -> list[list[str]]:
    given: dict[str, Any] = {
        "reports": {},
        "readings": [],
        "tokens": [],
        "certificate_ms": None,
        "now_ms": NOW,
        **about,
    }
    rows = attention_rows(**given)
    return [[f"{each.level} {each.text}".strip() for each in row] for row in rows]


def reading(**about: Any) -> StoreReading:
    return StoreReading(label="redis", at_ms=NOW, **about)


def token(name: str, expires_ms: int | None) -> Token:
    return Token(name=name, digest=digest_of(name), scopes=(TokenScope.IDS,), expires_ms=expires_ms)


def test_nothing() -> None:
    counter = Counter(namespaced_name="shop.order", last_max_id=5)
    machine = Machine(
        namespace="shop",
        machine_id=3,
        instance_id="a",
        last_timestamp_ms=NOW,
        fence_ms=NOW + 90_000,
    )
    found = reading(counters=[counter], machines=[machine], markers=[marker(0.0)])
    reports = {
        "order": GeneratorState(chain(seconds_left=30.0, endurance=60.0)),
        "idle": GeneratorState(chain(seconds_left=1.0, endurance=0.0)),
    }
    tokens = [token("never", None), token("late", NOW + 15 * DAY)]
    assert shown(readings=[found], reports=reports, tokens=tokens) == []


def marker(left: float) -> MachineMarker:
    return MachineMarker(namespace="shop", seconds_left=left)


FULL = Counter(namespaced_name="shop.x", last_max_id=MAX_ID - 7)
AHEAD = Machine(
    namespace="shop", machine_id=3, instance_id="", last_timestamp_ms=NOW, fence_ms=NOW + 9 * DAY
)


@pytest.mark.parametrize(
    ("about", "row"),
    [
        (
            {"reports": {"order": GeneratorState(chain(seconds_left=2.5, endurance=60.0))}},
            ["warn few buffered ids", "order", "its ids last 2.5 s without the store"],
        ),
        (
            {"readings": [reading(counters=[FULL])]},
            ["bad floor near the end", "shop.x", "7 ids are left"],
        ),
        (
            {"readings": [reading(machines=[AHEAD])]},
            ["bad fence in the future", "shop: machine id 3", "until 2023-11-23 22:13:20"],
        ),
        (
            {"readings": [reading(markers=[marker(30.0)])]},
            ["bad quarantine", "shop", "ends at 2023-11-14 22:13:50"],
        ),
        (
            {"readings": [reading(markers=[marker(inf)])]},
            ["bad quarantine", "shop", "does not end by itself"],
        ),
    ],
)
def test_what_needs_attention(about: dict[str, Any], row: list[str]) -> None:
    assert shown(**about) == [row]


def test_what_expires() -> None:
    """What has expired is first."""
    tokens = [token("soon", NOW + DAY), token("gone", NOW - 1000)]
    assert shown(tokens=tokens, certificate_ms=NOW + DAY) == [
        ["bad token", "gone", "expired at 2023-11-14 22:13:19"],
        ["warn token", "soon", "expires in 24 h, at 2023-11-15 22:13:20"],
        ["warn certificate", "of the server", "expires in 24 h, at 2023-11-15 22:13:20"],
    ]


def test_the_end_of_a_certificate(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    files.make()
    settings = load_settings(
        {"server": {"tls_certificate": str(files.certificate), "tls_key": "k"}}
    )
    end_ms = certificate_end_ms(settings)
    assert end_ms is not None
    now_ms = files.certificate.stat().st_mtime_ns // 1_000_000
    assert abs(end_ms - now_ms - 2 * DAY) < 60_000


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"])
def test_no_certificate(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pem"
    path.write_text(text)
    settings = load_settings({"server": {"tls_certificate": str(path), "tls_key": "k"}})
    assert certificate_end_ms(settings) is None
    assert certificate_end_ms(load_settings({})) is None
