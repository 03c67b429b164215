"""``init``: a store is marked once, after one question, and is ready from then on."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path

import pytest

from aiocosid.errors import UnsupportedByStoreError
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.schema import SchemaDialect, schema_statements
from aiocosid.testing import ManualClock
from tests.command import Command

from ._doubles import ScriptedStore

READY = "redis://host is ready\n"
INITIALIZED = "redis://host is ready, initialised for machine ids\n"


class Terminal(StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def emptied(scripted: ScriptedStore) -> ScriptedStore:
    """A store without a marker, as one that is new or was emptied."""
    scripted.memory = MemoryStore(clock=ManualClock())
    scripted.memory._backend.marker = None
    return scripted


def is_initialized(store: ScriptedStore) -> bool:
    return asyncio.run(store.memory.is_initialized())


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("", 1)])
def test_it_asks_on_a_terminal(
    aiocosid: Command,
    emptied: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
) -> None:
    """Only a yes writes the marker; the question is no part of the output."""
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = aiocosid("init")
    assert ended.code == code
    assert ended.out == (INITIALIZED if code == 0 else "redis://host was not changed\n")
    assert ended.err.count("Are you sure that no such process runs? [y/N]") == 1
    assert is_initialized(emptied) is (code == 0)
    assert emptied.closed == ["store"]


def test_it_asks_once_a_store(
    aiocosid: Command, emptied: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time there is nothing to be sure of, and nothing is written."""
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert aiocosid("init").out == INITIALIZED
    marker = emptied.memory._backend.marker
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    again = aiocosid("init")
    assert (again.code, again.out, again.err) == (0, READY, "")
    assert emptied.memory._backend.marker is marker


def test_it_asks_nobody_without_a_terminal(aiocosid: Command, emptied: ScriptedStore) -> None:
    """A script that does not say --yes changes nothing, and does not hang."""
    ended = aiocosid("init")
    assert (ended.code, ended.out, is_initialized(emptied)) == (2, "", False)
    assert "--yes" in ended.err
    assert "--wait" in ended.err
    assert aiocosid("init", "--yes").out == INITIALIZED
    assert is_initialized(emptied)
    assert aiocosid("init").out == READY


@pytest.mark.parametrize("words", [(), ("--namespace", "shop")])
def test_it_waits_instead(
    aiocosid: Command,
    emptied: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """For as long as an older process may keep an id unseen, and 5 s; then nobody is asked."""
    waited: list[float] = []

    def pause(_: object, seconds: float, *, on_progress: object) -> None:
        assert not is_initialized(emptied)
        waited.append(seconds)

    monkeypatch.setattr("aiocosid.cli._session.StoreSession.pause", pause)
    ended = aiocosid("init", "--wait", *words, "--safe-guard", 40)
    about = ", marked for the machine ids of namespace shop\n" if words else ""
    assert (ended.code, waited) == (0, [45.0])
    assert ended.out == (READY[:-1] + about if words else INITIALIZED)
    again = aiocosid("init", "--wait", *words)
    assert (again.code, again.out, waited) == (0, READY, [45.0])


def test_it_waits_for_the_default_safe_guard(
    aiocosid: Command, emptied: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody has named one."""
    waited: list[float] = []

    def pause(_: object, seconds: float, **_options: object) -> None:
        waited.append(seconds)

    monkeypatch.setattr("aiocosid.cli._session.StoreSession.pause", pause)
    assert aiocosid("init", "--wait").out == INITIALIZED
    assert waited == [305.0]


def test_a_wait_really_passes(
    aiocosid: Command, emptied: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the wall, with what is over shown on the way."""
    monkeypatch.setattr("aiocosid.cli._init.MARGIN", 0.0)
    assert aiocosid("init", "--wait", "--safe-guard", 0.01).out == INITIALIZED


def test_a_wait_without_an_end(aiocosid: Command, emptied: ScriptedStore) -> None:
    """Nobody who has such a safe guard is ever silent for too long: only --yes helps."""
    ended = aiocosid("init", "--wait", "--safe-guard", "inf")
    assert (ended.code, ended.out, is_initialized(emptied)) == (3, "", False)


def test_one_namespace_alone(aiocosid: Command, emptied: ScriptedStore) -> None:
    """As on Redis Cluster: the others, and the store as a whole, are not marked."""
    ready = "redis://host is ready, marked for the machine ids of namespace shop\n"
    assert aiocosid("init", "--namespace", "shop", "--yes").out == ready
    assert aiocosid("init", "--namespace", "shop").out == READY
    assert not is_initialized(emptied)
    assert aiocosid("init", "--namespace", "other").code == 2


def test_a_store_without_machine_ids(
    aiocosid: Command, scripted: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables are created; there is nothing to ask for."""

    async def refuse(**_: object) -> None:
        raise UnsupportedByStoreError("leaf", "this store hands out no machine ids")

    monkeypatch.setattr(scripted, "machine_markers", refuse)
    ended = aiocosid("init")
    assert (ended.code, ended.out, ended.err) == (0, READY, "")


def test_all_stores_of_a_file(
    aiocosid: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is made ready in its turn, and can hand out ids and machine ids."""
    monkeypatch.delenv("AIOCOSID_STORE")
    config = tmp_path / "ids.toml"
    config.write_text(
        """
[stores]
main = "sqlite:///main.db"
other = "sqlite:///other.db"

[generators.order]
store = "main"
kind = "chain"

[generators.event]
store = "other"
kind = "snowflake"
"""
    )
    ended = aiocosid("init", "--config", config)
    assert (ended.code, ended.err) == (0, "")
    assert [line.split(" ")[0].rpartition("/")[2] for line in ended.out.splitlines()] == [
        "main.db",
        "other.db",
    ]
    assert (tmp_path / "main.db").exists()
    assert aiocosid("snowflake", "--store", "sqlite:///other.db").code == 0


@pytest.mark.parametrize(
    ("words", "dialect"),
    [
        (("--dialect", "mysql"), "mysql"),
        (("--store", "postgresql+psycopg://app:s3cret@db/shop"), "postgresql"),
        (("--store", "mariadb://db/shop"), "mysql"),
        ((), "sqlite"),
    ],
)
def test_it_prints_the_statements_of_a_dialect(
    aiocosid: Command, scripted: ScriptedStore, words: tuple[str, ...], dialect: SchemaDialect
) -> None:
    """Those of the stores, and it connects nowhere."""
    ended = aiocosid("init", "--sql", *words)
    assert (ended.code, ended.err, scripted.urls) == (0, "", [])
    header, *statements = ended.out.split("\n\n", 1)
    assert f" on {dialect}.\n" in header
    assert (
        "".join(statements) == "\n\n".join(f"{each};" for each in schema_statements(dialect)) + "\n"
    )
    assert "s3cret" not in ended.out


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--sql", "--store", "redis://:s3cret@db"), "--dialect"),
        (("--sql", "--config", "ids.toml"), "--config"),
        (("--dialect", "mysql"), "--dialect"),
    ],
)
def test_it_prints_no_other_statements(
    aiocosid: Command, scripted: ScriptedStore, words: tuple[str, ...], wrong: str
) -> None:
    ended = aiocosid("init", *words)
    assert (ended.code, ended.out, scripted.urls) == (2, "", [])
    assert wrong in ended.err
    assert "s3cret" not in ended.err
