from __future__ import annotations

import pytest

from tests.command import Command

from ._doubles import ScriptedStore

EVERY_COMMAND = pytest.mark.parametrize(
    "words",
    [
        ("next", "a"),
        ("init",),
        ("inspect",),
        ("set-floor", "a", "--above", 1),
        ("machines", "list"),
        ("snowflake",),
    ],
    ids=lambda words: " ".join(words[:2]) if words[0] == "machines" else words[0],
)
SECRET_URL = "redis://user:s3cr3t@host/0?password=s3cr3t"  # noqa: S105 - it must not be shown


@EVERY_COMMAND
def test_a_file_here_is_the_default(
    aiocosid: Command, scripted: ScriptedStore, words: tuple[object, ...]
) -> None:
    """Nothing has to be set up for a first try."""
    assert aiocosid(*words).code == 0
    assert scripted.urls == ["sqlite:///ids.db"]


@EVERY_COMMAND
def test_the_environment_names_the_store(
    aiocosid: Command,
    scripted: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
) -> None:
    """AIOCOSID_STORE is used by every command, and --store goes before it."""
    monkeypatch.setenv("AIOCOSID_STORE", "redis://one")
    aiocosid(*words)
    aiocosid(*words, "--store", "redis://two")
    assert scripted.urls == ["redis://one", "redis://two"]


@EVERY_COMMAND
def test_a_silent_store_is_unavailable(
    aiocosid: Command, scripted: ScriptedStore, words: tuple[object, ...]
) -> None:
    """--timeout ends the wait; the code says that another try may succeed."""
    scripted.silent = True
    ended = aiocosid(*words, "--timeout", 0.01, "--store", "redis://host")
    assert (ended.code, ended.out) == (3, "")
    assert "redis: no answer within 0.01 s" in ended.err
    assert scripted.closed[-1] == "store"


@pytest.mark.parametrize("url", ["", "order", "oracle://u:s3cr3t@h/db", "memory://elsewhere"])
def test_a_url_that_names_no_store(aiocosid: Command, url: str) -> None:
    """It is a mistake of the caller."""
    ended = aiocosid("inspect", "--store", url)
    assert (ended.code, ended.out) == (2, "")
    assert "url is" in ended.err


def test_init_shows_no_password(aiocosid: Command, scripted: ScriptedStore) -> None:
    """The one command that repeats the URL leaves the password out."""
    ended = aiocosid("init", "--store", SECRET_URL)
    assert ended.out == "redis://user:***@host/0?password=*** is ready\n"


@pytest.mark.parametrize(
    "words", [("inspect", SECRET_URL), (SECRET_URL,), ("next", "a", "b", SECRET_URL)]
)
def test_a_url_in_the_wrong_place_shows_no_password(
    aiocosid: Command, words: tuple[str, ...]
) -> None:
    """Not even the parser's own complaint repeats it."""
    ended = aiocosid(*words)
    assert ended.code == 2
    assert "s3cr3t" not in ended.out + ended.err


def test_help_shows_no_password(aiocosid: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help names the variable, never its value."""
    monkeypatch.setenv("AIOCOSID_STORE", SECRET_URL)
    ended = aiocosid("next", "--help")
    assert ended.code == 0
    assert "AIOCOSID_STORE" in ended.out
    assert "s3cr3t" not in ended.out
