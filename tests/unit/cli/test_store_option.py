from __future__ import annotations

from pathlib import Path

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


WRITERS = ("init", "next", "set-floor", "snowflake")
FILE = """
namespace = "shop"
store = "main"

[stores]
main = "sqlite:///main.db"
"""


@EVERY_COMMAND
def test_no_store_is_named(
    aiocosid: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    """No command falls back to a file of its own."""
    monkeypatch.delenv("AIOCOSID_STORE")
    assert (
        "unless AIOCOSID_STORE, --config FILE or AIOCOSID_CONFIG names the store"
        in aiocosid.refuses(*words)
    )
    assert not [*Path().iterdir()]


@EVERY_COMMAND
def test_the_environment_names_the_store(
    aiocosid: Command,
    scripted: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
) -> None:
    """AIOCOSID_STORE is used by every command, and --store goes before it."""
    monkeypatch.setenv("AIOCOSID_STORE", "\ufeffredis://one\r\n")  # as an editor may save it
    aiocosid(*words)
    aiocosid(*words, "--store", "redis://two")
    assert scripted.urls == ["redis://one", "redis://two"]


@EVERY_COMMAND
@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_file_of_settings_names_the_store(
    aiocosid: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[object, ...],
    how: str,
) -> None:
    """Its store and its namespace are taken, and what wrote says where."""
    monkeypatch.delenv("AIOCOSID_STORE")
    Path("ids.toml").write_text(FILE)
    aiocosid("init", "--store", "sqlite:///main.db")
    aiocosid("next", "a", "--store", "sqlite:///main.db", "--namespace", "shop")
    if how == "variable":
        monkeypatch.setenv("AIOCOSID_CONFIG", "ids.toml")
    else:
        words = (*words, "--config", "ids.toml")
    ended = aiocosid(*words)
    assert ended.code == 0, ended.err
    assert (f"sqlite:///{tmp_path}/main.db" in ended.err + ended.out) is (words[0] in WRITERS)
    assert "ids.db" not in {each.name for each in Path().iterdir()}
    counters = aiocosid.json("inspect", "--config", "ids.toml")
    assert {each["namespaced_name"] for each in counters} == {"shop.a"}


def test_the_variable_goes_before_the_file(
    aiocosid: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the application that reads both."""
    monkeypatch.setenv("AIOCOSID_STORE", "memory://")
    Path("ids.toml").write_text(FILE)
    assert "memory:" in aiocosid("next", "a", "--config", "ids.toml").err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AIOCOSID_STORE", "", "AIOCOSID_STORE: store: is empty"),
        ("AIOCOSID_STROE", "redis://one", "did you mean AIOCOSID_STORE?"),
        ("AIOCOSID_STORE__X", "redis://one", "did you mean AIOCOSID_STORE?"),
        ("AIOCOSID_CONFIG", "\r\n", "AIOCOSID_CONFIG: config: is empty"),
    ],
)
def test_a_variable_that_is_empty_or_misspelt(
    aiocosid: Command, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    """It is an error, even if another one names a store; nothing is written."""
    monkeypatch.setenv(name, value)
    assert said in aiocosid.refuses("next", "a")
    assert not [*Path().iterdir()]


def test_a_file_with_several_stores(aiocosid: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is guessed; the only one is taken."""
    monkeypatch.delenv("AIOCOSID_STORE")
    stores = '[stores]\na = "sqlite:///a.db"\n'
    Path("one.toml").write_text(stores)
    Path("two.toml").write_text(f'{stores}b = "sqlite:///b.db"\n')
    assert aiocosid("init", "--config", "two.toml").code == 0
    assert aiocosid("next", "x", "--config", "one.toml").out == "1\n"
    assert "sqlite:///a.db, sqlite:///b.db" in aiocosid.refuses("next", "x", "--config", "two.toml")


def test_a_file_that_is_missing(aiocosid: Command, tmp_path: Path) -> None:
    """Only init makes it; the others name the whole path, the folder and the remedy."""
    for words in (("next", "a"), ("snowflake",), ("set-floor", "a", "--above", 1, "--create")):
        ended = aiocosid(*words)
        assert (ended.code, ended.out) == (4, "")
        for part in (f"{tmp_path}/ids.db", f"{tmp_path} is the working", "aiocosid init --store"):
            assert part in ended.err
    assert not [*tmp_path.iterdir()]
    assert aiocosid("init").out == f"sqlite:///{tmp_path}/ids.db is ready\n"
    assert aiocosid("next", "a").out == "1\n"


@EVERY_COMMAND
def test_a_silent_store_is_unavailable(
    aiocosid: Command, scripted: ScriptedStore, words: tuple[object, ...]
) -> None:
    """--timeout ends the wait; the code says that another try may succeed."""
    scripted.silent = True
    assert "redis: no answer within 0.01 s" in aiocosid.refuses(
        *words, "--timeout", 0.01, "--store", "redis://host", code=3
    )
    assert scripted.closed[-1] == "store"


def test_init_shows_no_password(aiocosid: Command, scripted: ScriptedStore) -> None:
    """The one command that repeats the URL leaves the password out."""
    ended = aiocosid("init", "--store", SECRET_URL)
    assert ended.out == "redis://user:***@host/0?password=*** is ready\n"


def test_help_shows_no_password(aiocosid: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help names the variable, never its value."""
    monkeypatch.setenv("AIOCOSID_STORE", SECRET_URL)
    ended = aiocosid("next", "--help")
    assert ended.code == 0
    assert "AIOCOSID_STORE" in ended.out
    assert "s3cr3t" not in ended.out
