"""``init``: a store is marked once, after one question, and is ready from then on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

from aiocosid import store_from_url
from aiocosid.errors import UnsupportedByStoreError
from aiocosid.stores._dialect import WITNESS
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.schema import SchemaDialect, schema_statements
from aiocosid.testing import ManualClock
from tests.command import Command

from ._doubles import ScriptedStore

Types = Callable[[str], None]

READY = "redis://host is ready\n"
INITIALIZED = "redis://host is ready, initialised for machine ids\n"


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
    aiocosid: Command, emptied: ScriptedStore, types: Types, answer: str, code: int
) -> None:
    """Only a yes writes the marker; the question is no part of the output."""
    types(answer)
    ended = aiocosid("init")
    assert ended.code == code
    assert ended.out == (INITIALIZED if code == 0 else "redis://host was not initialised\n")
    assert ended.err.count("Are you sure that no such process is running? [y/N]") == 1
    assert is_initialized(emptied) is (code == 0)
    assert emptied.closed == ["store"]


def test_it_asks_once_a_store(aiocosid: Command, emptied: ScriptedStore, types: Types) -> None:
    """The second time there is nothing to be sure of, and nothing is written."""
    types("y\n")
    assert aiocosid("init").out == INITIALIZED
    marker = emptied.memory._backend.marker
    types("n\n")
    again = aiocosid("init")
    assert (again.code, again.out, again.err) == (0, READY, "")
    assert emptied.memory._backend.marker is marker


def test_it_asks_nobody_without_a_terminal(aiocosid: Command, emptied: ScriptedStore) -> None:
    """A script that does not say --yes changes nothing, and does not hang."""
    ended = aiocosid("init")
    assert (ended.code, ended.out, is_initialized(emptied)) == (2, "", False)
    what = "cannot ask for confirmation without a terminal; give --yes if the store is new"
    assert f"error: {what}" in ended.err
    assert "--wait" in ended.err
    assert aiocosid("init", "--yes").out == INITIALIZED
    assert is_initialized(emptied)
    assert aiocosid("init").out == READY


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (("--safe-guard", 40), 45.0),
        (("--safe-guard", 40, "--namespace", "shop"), 45.0),
        ((), 305.0),  # by the default safe guard
    ],
)
def test_it_waits_instead(
    aiocosid: Command,
    emptied: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
    seconds: float,
) -> None:
    """For as long as an older process may keep an id unseen, and 5 s; then nobody is asked."""
    waited: list[float] = []

    def pause(_: object, seconds: float, *, on_progress: object) -> None:
        assert not is_initialized(emptied)
        waited.append(seconds)

    monkeypatch.setattr("aiocosid.cli._session.StoreSession.pause", pause)
    about = ", initialised for the machine ids of namespace shop\n"
    ready = READY[:-1] + about if "shop" in words else INITIALIZED
    assert aiocosid("init", "--wait", *words).out == ready
    again = aiocosid("init", "--wait", *words)
    assert (again.code, again.out, waited) == (0, READY, [seconds])


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
    ready = "redis://host is ready, initialised for the machine ids of namespace shop\n"
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
        ("--dialect mysql", "mysql"),
        ("--store postgresql+psycopg://app:s3cret@db/shop", "postgresql"),
        ("--store mariadb://db/shop", "mysql"),
        ("postgresql://app:s3cret@db/shop", "postgresql"),  # by the environment
        ("sqlite:///ids.db", "sqlite"),
    ],
)
def test_it_prints_the_statements_of_a_dialect(
    aiocosid: Command,
    scripted: ScriptedStore,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    dialect: SchemaDialect,
) -> None:
    """That of the store that is found, unless one is given; and it connects nowhere."""
    option, _, value = words.rpartition(" ")
    if not option:
        monkeypatch.setenv("AIOCOSID_STORE", value)
    ended = aiocosid("init", "--sql", *((option, value) if option else ()))
    assert (ended.code, ended.err, scripted.urls) == (0, "", [])
    header, *statements = ended.out.split("\n\n", 1)
    assert f" on {dialect}.\n" in header
    assert (
        "".join(statements) == "\n\n".join(f"{each};" for each in schema_statements(dialect)) + "\n"
    )
    assert "s3cret" not in ended.out


OURS = ("cosid", "cosid_machine", "aiocosid_cell", "aiocosid_series")


def file_url(path: Path) -> str:
    """As the command shows a file that the environment names by a relative path."""
    return f"sqlite:///{path}"


def execute(path: Path, *statements: str) -> None:
    """Change a database behind the back of its store."""
    with closing(sqlite3.connect(path)) as database:
        for each in statements:
            database.execute(each)
        database.commit()


@pytest.fixture
def dropped(aiocosid: Command, tmp_path: Path) -> Path:
    """A file whose tables were dropped after ids were handed out, beside a table of the user's."""
    path = tmp_path / "ids.db"
    assert aiocosid("init").code == 0
    assert aiocosid("next", "order", "-n", 3).code == 0
    execute(path, *(f"DROP TABLE {each}" for each in OURS))
    execute(path, "CREATE TABLE bills (id INTEGER)", "INSERT INTO bills VALUES (7), (77)")
    return path


def test_dropped_tables_are_made_again_if_a_person_says_so(
    aiocosid: Command, dropped: Path, types: Types, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever does not answer, or names a column that is not there, has changed nothing."""
    floors = ("--namespace", "cosid", "--floor", "order=3", "--floor-from", "bill=bills.id")
    wrong = ("--namespace", "cosid", "--floor-from", "bill=bills.number", "--yes")
    types("n\n")
    refused = aiocosid("init", "--after-loss", *floors)
    assert (refused.code, refused.out) == (1, f"{file_url(dropped)} was not initialised\n")
    assert "You gave the highest id of: bill, order. The ids of all other counters" in refused.err
    monkeypatch.setattr("sys.stdin", StringIO())
    for words, code in (((), 4), (("--yes",), 4), (("--after-loss",), 2), (wrong, 4)):
        chosen = ("--after-loss",) if words == wrong else ()
        assert aiocosid("init", *chosen, *words).code == code
    assert aiocosid("next", "order").code == 4

    ended = aiocosid("init", "--after-loss", *floors, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[:2] == [
        "counter cosid.order continues above 3",
        "counter cosid.bill continues above 77",
    ]
    assert [aiocosid("next", each).out for each in ("order", "bill", "x")] == ["4\n", "78\n", "1\n"]
    assert "no machine id is granted" in aiocosid("doctor").out
    assert aiocosid("init", "--yes").code == 4
    told = f"{file_url(dropped)} is ready, initialised for machine ids\n"
    assert aiocosid("init", "--confirm-no-holders").out == told
    assert aiocosid("snowflake").code == 0


@pytest.mark.parametrize("by", ["file", "variable", "file and variable", "option"])
def test_floors_are_of_the_namespace_of_the_settings(
    aiocosid: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Whichever way names the store: else its counters would begin at 1 again."""
    words: tuple[str, ...] = ("--namespace", "shop") if by == "option" else ()
    if by.startswith("file"):
        monkeypatch.delenv("AIOCOSID_STORE")
        config, given = tmp_path / "ids.toml", "other" if by == "file and variable" else "shop"
        config.write_text(f'namespace = "{given}"\nstore = "sqlite:///ids.db"\n')
        words = ("--config", str(config))
    if by.endswith("variable"):
        monkeypatch.setenv("AIOCOSID_NAMESPACE", "shop")
    ended = aiocosid("init", "--after-loss", "--floor", "order=70", "--yes", *words)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == "counter shop.order continues above 70"
    assert aiocosid("next", "order", *words).out == "71\n"
    shown = aiocosid("inspect", "--format", "json", *words).out
    assert '"shop.order"' in shown
    assert '"cosid.order"' not in shown


def test_floors_without_a_namespace(aiocosid: Command, dropped: Path) -> None:
    """They would be those of another namespace, and the application's ids would come again."""
    ended = aiocosid("init", "--after-loss", "--floor", "order=70", "--yes")
    assert (ended.code, ended.out) == (2, "")
    assert "--namespace is required with --floor: give the application's" in ended.err
    with closing(sqlite3.connect(dropped)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert "cosid" not in names


def test_half_of_a_recovery_vouches_for_nothing(aiocosid: Command, dropped: Path) -> None:
    """Tables that were made again, without the marker: a command killed in between."""

    async def create() -> None:
        async with store_from_url(f"sqlite:///{dropped}") as store:
            await store.create_schema(after_loss=True)

    asyncio.run(create())
    for words in ((), ("--yes",)):
        assert aiocosid("init", *words).code in {2, 4}
    assert aiocosid("next", "order").code == 4


def test_yes_is_no_answer_about_a_store_in_use(aiocosid: Command, tmp_path: Path) -> None:
    """An entrypoint says it each time, also when the marker has vanished; of an empty table too."""
    assert aiocosid("init", "--yes").code == 0
    assert aiocosid("next", "order").code == 0
    execute(tmp_path / "ids.db", "DELETE FROM aiocosid_cell")
    refused = aiocosid("init", "--yes")
    assert (refused.code, "--confirm-no-holders" in refused.err) == (4, True)
    execute(tmp_path / "ids.db", "DELETE FROM cosid")
    assert aiocosid("init", "--yes").code == 4
    assert aiocosid("next", "order").code == 4
    told = f"{file_url(tmp_path / 'ids.db')} is ready, initialised for machine ids\n"
    assert aiocosid("init", "--confirm-no-holders").out == told


def test_a_disposable_store_is_made_again(aiocosid: Command, tmp_path: Path) -> None:
    """It was made so; and the doctor says it."""
    ready = f"{file_url(tmp_path / 'ids.db')} is ready\n"
    assert aiocosid("init").out == ready
    assert "the store is for tests" not in aiocosid("doctor").out
    execute(tmp_path / "ids.db", *(f"DROP TABLE {each}" for each in OURS), "DROP VIEW " + WITNESS)
    for _ in range(2):
        assert aiocosid("init", "--disposable").out == ready
        assert aiocosid("next", "order").out == "1\n"
        execute(tmp_path / "ids.db", *(f"DROP TABLE {each}" for each in OURS))
    assert aiocosid("init").out == ready
    assert aiocosid("snowflake").code == 0
    assert "the store is for tests" in aiocosid("doctor").out


def test_a_namespace_that_was_removed(aiocosid: Command, tmp_path: Path) -> None:
    """The next one that is new has to wait, until somebody says that it was on purpose."""
    assert aiocosid("init").code == 0
    assert aiocosid("snowflake", "--namespace", "old").code == 0
    refused = aiocosid("machines", "forget", "old")
    assert (refused.code, "'old' still has machine ids" in refused.err) == (2, True)
    execute(
        tmp_path / "ids.db",
        "DELETE FROM aiocosid_cell WHERE name LIKE '%old%'",
        "DELETE FROM cosid_machine",
    )
    told = "namespace old is no longer missing\n"
    assert aiocosid("machines", "forget", "old").out == told
    assert aiocosid("machines", "forget", "old").out == told.replace(
        "is no longer missing", "was not missing: every counted namespace exists"
    )
    assert aiocosid("snowflake", "--namespace", "new").code == 0
