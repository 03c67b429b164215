from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.command import Command

STORE = "sqlite:///leaf.db"
TABLE = "create table leaf_alloc (biz_tag text primary key, max_id, step, update_time text)"


def write(*rows: tuple[object, ...]) -> None:
    with closing(sqlite3.connect(Path("leaf.db"))) as database, database:
        database.execute(TABLE)
        database.executemany("insert into leaf_alloc values (?, ?, ?, '2020-01-01')", rows)


def test_a_sound_table(aiocosid: Command) -> None:
    """What is stored, and which id would be next; a number of Leaf's is the next id itself."""
    aiocosid("--version")  # in the directory of the test
    write(("order", 2001, 2000), ("user", 1, 10))
    ended = aiocosid("migrate", "check", "--from", "leaf", "--store", STORE)
    assert (ended.code, ended.err) == (0, "")
    assert "│ order │   2001 │    2001 │" in ended.out
    ended = aiocosid("migrate", "check", "--from", "leaf", "--store", f"leaf+{STORE}")
    assert ended.code == 0


def test_problems_end_with_code_1(aiocosid: Command) -> None:
    """A line each; the other rows are shown all the same."""
    write(("order", 2001, 0), ("user", "many", 10), ("ok", 1, 1))
    words = ("migrate", "check", "--from", "leaf", "--store", STORE)
    ended = aiocosid(*words)
    assert ended.code == 1
    assert "problem: order: step is 0" in ended.out
    assert "problem: user: " in ended.out
    assert "problem: ok" not in ended.out
    found = json.loads(aiocosid(*words, "--format", "json").out)  # with code 1
    assert [(each["name"], each["next_id"]) for each in found] == [
        ("ok", 1),
        ("order", None),
        ("user", None),
    ]


def test_nothing_is_written(aiocosid: Command) -> None:
    """Not a byte of the file."""
    write(("order", 2001, 2000), ("bad", -1, 0))
    before = Path("leaf.db").read_bytes()
    aiocosid("migrate", "check", "--from", "leaf", "--store", STORE)
    assert Path("leaf.db").read_bytes() == before


def test_a_missing_table(aiocosid: Command) -> None:
    """The store refuses, and names the table."""
    Path("leaf.db").touch()
    ended = aiocosid("migrate", "check", "--from", "leaf", "--store", STORE)
    assert ended.code == 4
    assert "check that --store names the database of leaf" in ended.err
    assert "aiocosid init" not in ended.err
    assert "leaf_alloc" in ended.err


def test_a_registry_needs_no_address_of_ours(aiocosid: Command) -> None:
    """It is asked for nothing but the server, which is away here, and Leaf's name."""
    words = ("migrate", "check", "--timeout", "2", "--from")
    ended = aiocosid(*words, "leaf-workerid", "--store", "mysql://127.0.0.1:1/leaf")
    assert ended.code == 3, ended.err
    ended = aiocosid(*words, "leaf-zk-normal", "--store", "zookeeper://127.0.0.1:1")
    assert ended.code == 2
    assert "name" in ended.err


def test_a_store_without_machine_ids(aiocosid: Command, tmp_path: Path) -> None:
    """Is created, and looked at, without a word about them."""
    ended = aiocosid("init", "--store", f"leaf+{STORE}")
    assert (ended.code, ended.out, ended.err) == (
        0,
        f"leaf+sqlite:///{tmp_path}/leaf.db is ready\n",
        "",
    )
    ended = aiocosid("inspect", "--store", f"leaf+{STORE}")
    assert (ended.code, ended.out, ended.err) == (0, "no counters\n", "")
    ended = aiocosid("machines", "list", "--store", f"leaf+{STORE}")
    assert ended.code == 4
    assert "hands out no machine ids" in ended.err
