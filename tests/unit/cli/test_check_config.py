from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import Command

FINE = """\
namespace = "shop"
store = "redis://app:s3cret@db.example/0?password=s3cret"

[generators.order]
kind = "chain"

[generators.event]
kind = "snowflake"
converter = "radix62"

[sharding.half]
type = "mod"
mod = 2
logic-name-prefix = "t_"
"""
WARNED = FINE.replace('converter = "radix62"', "")
WRONG = FINE.replace('"chain"', '"chian"').replace("mod = 2", "mod = 0")


@pytest.fixture(autouse=True)
def files(aiocosid: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that commands look at."""
    monkeypatch.delenv("AIOCOSID_STORE")
    for name, text in {"fine": FINE, "warned": WARNED, "wrong": WRONG}.items():
        (tmp_path / f"{name}.toml").write_text(text)


def test_a_table_of_what_would_be_built(aiocosid: Command) -> None:
    """Each generator with an example; nothing is sent to a server that is not there."""
    ended = aiocosid("check-config", "fine.toml")
    assert (ended.code, ended.err) == (0, "")
    for words in (
        *("order", "chain", "redis://***@db.example/0", "shop.order", "100", "1 (1)"),
        *("event", "snowflake", "2089-08-30T07:47:35.551Z", "radix62", "(11)"),
        "event: SnowflakeLayout cosid-ms 41/10/12 ms from 2019-12-24T16:00:00Z",
        "sharding half: ModCycle, 2 nodes",
    ):
        assert words in ended.out
    assert "s3cret" not in ended.out
    assert "warning" not in ended.out


def test_json_is_one_document(aiocosid: Command) -> None:
    ended = aiocosid("check-config", "warned.toml", "--format", "json")
    found = json.loads(ended.out)
    assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 1)
    assert [each["name"] for each in found["generators"]] == ["order", "event"]
    assert [each["key"] for each in found["warnings"]] == ["generators.event"]
    assert (found["sharding"][0]["nodes"], found["problems"]) == (2, [])


def test_warnings_fail_only_if_asked_to(aiocosid: Command) -> None:
    """--strict is for a pipeline."""
    ended = aiocosid("check-config", "warned.toml")
    assert (ended.code, ended.err) == (0, "")
    assert "warning: warned.toml: generators.event: makes numbers up to" in ended.out
    strict = aiocosid("check-config", "warned.toml", "--strict")
    assert (strict.code, strict.err) == (1, "")
    assert "warning: warned.toml" in strict.out
    assert aiocosid("check-config", "fine.toml", "--strict").code == 0


def test_errors_are_told_a_line_each(aiocosid: Command) -> None:
    """On standard error; or as JSON on standard output, for a program."""
    ended = aiocosid("check-config", "wrong.toml")
    assert (ended.code, ended.out) == (2, "")
    assert [line.split(": ")[:4] for line in ended.err.splitlines()] == [
        ["aiocosid", "error", "wrong.toml", "generators.order.kind"],
        ["aiocosid", "error", "wrong.toml", "sharding.half.mod"],
    ]
    ended = aiocosid("check-config", "wrong.toml", "--format", "json")
    assert (ended.code, ended.err) == (2, "")
    assert [each["key"] for each in json.loads(ended.out)["problems"]] == [
        "generators.order.kind",
        "sharding.half.mod",
    ]


def test_without_a_file_the_environment_speaks(
    aiocosid: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the application."""
    assert aiocosid("check-config").out == "no generators\n"
    monkeypatch.setenv("AIOCOSID_CONFIG", "fine.toml")
    monkeypatch.setenv("AIOCOSID_GENERATORS__ORDER__STEP", "77")
    found = aiocosid.json("check-config")
    assert found["generators"][0]["step"] == 77


def test_the_id_service_is_a_line(aiocosid: Command, tmp_path: Path) -> None:
    """Names of those who have a token, and no hash."""
    digest = "sha256:" + "0123456789abcdef" * 4
    server = f"""
[server]
listen = ["127.0.0.1:8688", "0.0.0.0:8689"]
workers = 2
[server.leaf]
[[server.tokens]]
name = "shop"
digest = "{digest}"
"""
    (tmp_path / "served.toml").write_text(FINE + server)
    ended = aiocosid("check-config", "served.toml")
    line = "server: 127.0.0.1:8688, 0.0.0.0:8689; 2 processes; dialects leaf; tokens of shop\n"
    assert line in ended.out
    assert "warning: served.toml: server.listen: has an address where tokens" in ended.out
    assert digest not in ended.out
    found = aiocosid.json("check-config", "served.toml")
    assert (found["server"]["tokens"], found["server"]["tls"]) == (["shop"], False)
