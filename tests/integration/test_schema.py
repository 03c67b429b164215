"""The statements that ``init --sql`` prints, run by a client of the database's own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.command import Command, in_process

pytestmark = pytest.mark.integration


@pytest.fixture
def aiocosid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``aiocosid`` in this process."""
    return in_process(monkeypatch, capsys)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_server_that_runs_them_is_ready(
    aiocosid: Command, request: pytest.FixtureRequest, kind: str
) -> None:
    """As after ``init``, which has nothing to ask; to run them again changes nothing."""
    url: str = request.getfixturevalue(f"{kind}_database")
    server = request.getfixturevalue(kind)
    script = aiocosid("init", "--sql", "--store", url).out
    marker = "SELECT value FROM aiocosid_cell WHERE name = 'marker'"
    found: list[str] = []
    for _ in range(2):
        server.execute(script, database=url.rpartition("/")[2])
        found.append(server.execute(marker, database=url.rpartition("/")[2]))
    assert found[0] == found[1] != ""
    ended = aiocosid("init", "--store", url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(" is ready\n")
    assert aiocosid("next", "order", "--store", url).out == "1\n"


def test_a_file_that_runs_them_is_not_marked(aiocosid: Command, tmp_path: Path) -> None:
    """The marker has the file's inode number, which only a connection of the store knows."""
    url = f"sqlite:///{tmp_path}/ids.db"
    script = aiocosid("init", "--sql", "--store", url).out
    with closing(sqlite3.connect(tmp_path / "ids.db")) as database:
        database.executescript(script)
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            database.executescript(script)
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert {"cosid", "cosid_machine", "aiocosid_cell"} <= tables
    assert aiocosid("init", "--store", url).code == 2
    sure = aiocosid("init", "--confirm-no-holders", "--store", url)
    assert sure.out.endswith("initialised for machine ids\n")
