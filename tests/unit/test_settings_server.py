"""The table of the id service."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from aiocosid.errors import InvalidArgumentError, InvalidSettingsError
from aiocosid.provider.settings import (
    LimitSettings,
    address_of,
    check_settings,
    is_loopback,
    load_settings,
)
from aiocosid.provider.settings._server import VerbName
from aiocosid.server import Limits, TokenScope, digest_of, new_token, token_table

SECRET = "aiocosid_a_secret"  # noqa: S105 - of a test
DIGEST = digest_of(SECRET)


def loaded(tmp_path: Path, text: str) -> object:
    file = tmp_path / "ids.toml"
    file.write_text(text)
    return load_settings(file).server


def problems(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSettingsError) as refused:
        loaded(tmp_path, text)
    assert SECRET not in f"{refused.value!r} {refused.value}"
    return [(each.key, each.reason) for each in refused.value.problems]


def test_limits_and_verbs_are_those_of_the_server() -> None:
    """Both are written twice: settings do without the server's libraries."""
    assert Limits(**LimitSettings().model_dump()) == Limits()
    assert {each.name for each in fields(Limits)} == {*LimitSettings.model_fields}
    assert get_args(VerbName) == tuple(map(str, TokenScope))


def test_a_new_token_is_accepted(tmp_path: Path) -> None:
    secret = new_token()
    table = token_table(secret, name='a "shop"', scopes=["ids", "read"], names=["x.*"], days=2)
    file = tmp_path / "ids.toml"
    file.write_text(table * 2)
    found = load_settings(file).server.tokens
    assert len(found) == 2
    assert (found[1].name, found[1].scopes, found[1].names) == (
        'a "shop"',
        ["ids", "read"],
        ["x.*"],
    )
    assert found[1].digest == digest_of(secret)
    assert found[1].expires is not None
    assert 1 <= (found[1].expires - datetime.now(UTC)).days <= 2
    assert secret not in table


def test_a_token_of_an_unknown_verb() -> None:
    with pytest.raises(InvalidArgumentError, match="one of 'ids', 'segments'"):
        token_table(SECRET, name="shop", scopes=["everything"])


WRONG = f"""
[server]
listen = ["127.0.0.1:8688", "nowhere"]
drian = 3

[server.leaf]
puplic = true

[server.limits]
ids = 0

[[server.tokens]]
name = "good"
digest = "{DIGEST}"

[[server.tokens]]
name = "bad"
digest = "{SECRET}"
scopes = []
expires = 2027-01-01T00:00:00
"""


def test_each_problem_has_its_key(tmp_path: Path) -> None:
    found = dict(problems(tmp_path, WRONG))
    assert {*found} == {
        "server.listen.1",
        "server.drian",
        "server.leaf.puplic",
        "server.limits.ids",
        "server.tokens.1.digest",
        "server.tokens.1.scopes",
        "server.tokens.1.expires",
    }
    assert "'unix:/path'" in found["server.listen.1"]
    assert "did you mean drain?" in found["server.drian"]
    assert "did you mean public?" in found["server.leaf.puplic"]
    assert "offset" in found["server.tokens.1.expires"]


def test_other_problems_are_found_beside_them(tmp_path: Path) -> None:
    text = '[server]\nworkers = 0\n[generators.order]\nkind = "chain"\nstore = "nowhere"\n'
    assert [key for key, *_ in problems(tmp_path, text)] == [
        "server.workers",
        "generators.order.store",
    ]


def test_a_key_without_a_certificate(tmp_path: Path) -> None:
    [(key, reason)] = problems(tmp_path, '[server]\ntls_key = "key.pem"\n')
    assert (key, reason) == ("server", "tls_key requires tls_certificate")


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOCOSID_SERVER__LISTEN", "127.0.0.1:1, unix:/run/ids.sock")
    monkeypatch.setenv("AIOCOSID_SERVER__WORKERS", "3")
    monkeypatch.setenv("AIOCOSID_SERVER__LEAF__PUBLIC", "yes")
    found = load_settings().server
    assert (found.listen, found.workers) == (["127.0.0.1:1", "unix:/run/ids.sock"], 3)
    assert found.leaf is not None
    assert found.leaf.public


@pytest.mark.parametrize(
    "text", ["127.0.0.1:80", "[::1]:80", "ids.example:0", "unix:/run/ids.sock", "fd://"]
)
def test_addresses(text: str) -> None:
    assert str(address_of(text)) == text


@pytest.mark.parametrize(
    "text", ["", "80", ":80", "::1:80", "a:b", "a:70000", "unix:", "http://a:80", "a:80/", "a b:80"]
)
def test_texts_that_are_no_addresses(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="host:port"):
        address_of(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("ids.example", False)),  # noqa: S104
        ("fe80::1%eth0", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def warnings(**server: object) -> dict[str, str]:
    found = check_settings({"server": server}).warnings
    return {each.key: each.reason for each in found}


def test_an_open_address_is_warned_of() -> None:
    token = {"name": "shop", "digest": DIGEST}
    assert warnings() == {}
    assert warnings(listen=["127.0.0.1:1", "unix:/run/ids.sock", "fd://"]) == {}
    assert warnings(listen=["0.0.0.0:1"], tokens=[token], tls_certificate="a.pem") == {}
    assert "is refused" in warnings(listen=["0.0.0.0:1"])["server.listen"]
    assert "every client" in warnings(listen=["0.0.0.0:1"], insecure=True)["server.listen"]
    assert "without TLS" in warnings(listen=["0.0.0.0:1"], tokens=[token])["server.listen"]


def test_a_token_that_has_expired_is_warned_of() -> None:
    token = {"name": "shop", "digest": DIGEST, "expires": datetime(2020, 1, 1, tzinfo=UTC)}
    assert "expired" in warnings(tokens=[token])["server.tokens.0"]
