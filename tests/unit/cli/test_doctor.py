"""``doctor`` on files and in memory: its lines, its exit codes, and what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.command import Command

from ._doubles import ScriptedStore


def checks(out: str) -> dict[str, str]:
    """Return the last status of each check."""
    lines = [line.split() for line in out.splitlines()[:-1] if not line.startswith("Sqlite")]
    return {words[1]: words[0] for words in lines}


def test_a_store_that_is_ready(aiocosid: Command, tmp_path: Path) -> None:
    """Nothing fails, nothing is used up, and nothing is left behind."""
    aiocosid("init")
    aiocosid("next", "order")
    ended = aiocosid("doctor", "--strict")
    assert (ended.code, ended.err) == (0, "")
    found = checks(ended.out)
    assert set(found.values()) == {"ok", "skipped"}
    assert found["write"] == "skipped"
    assert ended.out.endswith("ok\n")
    assert aiocosid("next", "order").out == "2\n"
    counters = aiocosid.json("inspect")
    assert [each["namespaced_name"] for each in counters] == ["cosid.order"]


def test_a_trial_stays_in_its_namespace(aiocosid: Command) -> None:
    aiocosid("init")
    ended = aiocosid("doctor", "--write", "--format", "json")
    found = json.loads(ended.out)
    assert (ended.code, found["status"]) == (0, "ok")
    written = [each["text"] for each in found["findings"] if each["check"] == "write"]
    assert written == [
        "wrote a counter in namespace aiocosid-doctor",
        "wrote a machine id in namespace aiocosid-doctor",
    ]
    counters = aiocosid.json("inspect")
    assert [each["namespaced_name"] for each in counters] == ["aiocosid-doctor.trial"]
    [held] = aiocosid.json("machines", "list")
    assert (held["namespace"], held["free"]) == ("aiocosid-doctor", True)


def test_a_file_that_is_missing(aiocosid: Command, tmp_path: Path) -> None:
    """It fails in one line, with what to do, and creates none."""
    ended = aiocosid("doctor")
    assert (ended.code, checks(ended.out)["server"]) == (1, "failed")
    assert "aiocosid init" in ended.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("empty_memory")
def test_warnings_fail_if_asked_to(aiocosid: Command) -> None:
    """Memory loses its counters, which is a warning."""
    assert aiocosid("doctor", "--store", "memory:").code == 0
    assert aiocosid("doctor", "--store", "memory:", "--strict").code == 1


def test_a_server_that_is_silent(aiocosid: Command, scripted: ScriptedStore) -> None:
    """It fails in one line within the timeout."""
    scripted.silent = True
    ended = aiocosid("doctor", "--timeout", "0.01")
    assert ended.code == 1
    assert ended.out.count("failed ") == 1
    assert "no answer within 0.01 s" in ended.out


def test_a_url_that_names_no_store(aiocosid: Command) -> None:
    ended = aiocosid("doctor", "--store", "oracle://me:s3cr3t@h")
    assert (ended.code, "url 'oracle:...' must" in ended.err, "s3cr3t" in ended.err) == (
        2,
        True,
        False,
    )


def test_stores_over_stores(aiocosid: Command, tmp_path: Path) -> None:
    """Each inner store is checked."""
    for name in ("a", "b"):
        aiocosid("init", "--store", f"sqlite:///{name}.db")
    urls = [quote(f"sqlite:///{name}.db", safe="") for name in ("a", "b")]
    ended = aiocosid("doctor", "--store", f"striped:?store={urls[0]}&store={urls[1]}")
    assert ended.code == 0
    headings = [line for line in ended.out.splitlines() if line.startswith("SqliteStore")]
    assert [line.rpartition("/")[2] for line in headings] == ["a.db", "b.db"]


CONFIG = """
store = "sqlite:///ids.db"

[stores]
other = "sqlite:///other.db"

[generators.order]
kind = "chain"
max_id = 100
"""


def test_a_file_of_settings(aiocosid: Command, tmp_path: Path) -> None:
    """All its stores are checked, and its counters by their limit; then what check-config says."""
    config = tmp_path / "ids.toml"
    config.write_text(CONFIG)
    aiocosid("init", "--config", config)
    aiocosid("next", "order", "-n", 90)
    ended = aiocosid("doctor", "--config", config)
    assert ended.code == 0
    assert "warning  counters     cosid.order has used 90 of 100 ids" in ended.out
    assert ended.out.count("ok       server ") == 2
    config.write_text(CONFIG.replace("max_id", "maxid").replace("chain", "chian"))
    ended = aiocosid("doctor", "--config", config)
    assert ended.code == 1
    assert "failed   settings" in ended.out
    assert "ids.toml:" in ended.out


def test_a_file_that_may_not_be_read(aiocosid: Command, tmp_path: Path) -> None:
    """A file that holds something else is reported, not overwritten."""
    (tmp_path / "ids.db").write_text("no database" * 100)
    ended = aiocosid("doctor")
    assert (ended.code, checks(ended.out)["server"]) == (1, "failed")
    assert (tmp_path / "ids.db").read_text() == "no database" * 100
