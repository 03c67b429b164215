"""``set-floor --from-table``: what a table of the application says about its counter."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.command import Command

SHOP = "CREATE TABLE orders (id, label TEXT, price REAL); INSERT INTO orders VALUES {}"
ROWS = "(17, 'a', 1.5), (4711, 'b', 2), (3, 'c', 3)"


def data(tmp_path: Path, rows: str = ROWS, *, file: str = "ids.db") -> str:
    """The path of a database with a table."""
    with closing(sqlite3.connect(tmp_path / file)) as database:
        database.executescript(SHOP.format(rows))
    return file


def test_the_counter_is_raised_to_the_highest_number(aiocosid: Command, tmp_path: Path) -> None:
    """Of a table in the store's own database; again it changes nothing."""
    data(tmp_path)
    words = ("set-floor", "order", "--from-table", "orders.id")
    missing = aiocosid(*words)
    assert (missing.code, "create it with --create" in missing.err) == (4, True)
    assert aiocosid(*words, "--create").out == "cosid.order is at 4711\n"
    assert aiocosid(*words).out == "cosid.order is at 4711\n"
    assert aiocosid("next", "order").out == "4712\n"
    assert aiocosid(*words).out == "cosid.order is at 4712, already above 4711\n"


def test_the_table_of_another_database(aiocosid: Command, tmp_path: Path, namespace: str) -> None:
    """It is read, and not changed in any way."""
    file = data(tmp_path, file="shop.db")
    before = (tmp_path / file).read_bytes()
    words = ("set-floor", "order", "--create", "--from-table", "main.orders.id", "--store")
    ours = ("memory://", "--namespace", namespace, "--format", "json")
    ended = aiocosid(*words, *ours, "--data-url", "sqlite:///shop.db")
    assert json.loads(ended.out)["last_max_id"] == 4711
    assert (tmp_path / file).read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shop.db"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("(NULL, '', 0)", "holds no number"),
        ("(-7, '', 0), (-9, '', 0)", "holds no number above -7"),
    ],
)
def test_a_table_without_ids_raises_nothing(
    aiocosid: Command, tmp_path: Path, rows: str, said: str
) -> None:
    """It is said, and the counter is not made."""
    data(tmp_path, rows)
    words = ("set-floor", "order", "--create", "--from-table", "orders.id")
    ended = aiocosid(*words)
    assert (ended.code, ended.out) == (0, f"orders.id {said}; nothing to raise\n")
    assert aiocosid(*words, "--format", "json").out == "null\n"
    assert aiocosid("inspect").out == "no counters\n"


@pytest.mark.parametrize(
    ("column", "code", "said"),
    [
        ("orders.idd", 4, "no such column"),
        ("order.id", 4, "table 'order' does not exist"),
        ("orders.label", 2, "a column of integers"),
        ("orders.price", 2, "a column of integers"),
        ("orders", 2, "table.column"),
        ('orders.id" FROM orders; DROP TABLE orders; --', 2, "table.column"),
        ("a.b.orders.id", 2, "table.column"),
    ],
)
def test_what_is_no_column_of_numbers_is_refused(
    aiocosid: Command, tmp_path: Path, column: str, code: int, said: str
) -> None:
    """SQLite would take a missing column's name for a text; nothing is written."""
    data(tmp_path)
    assert said in aiocosid.refuses(
        "set-floor", "order", "--create", "--from-table", column, code=code
    )
    assert aiocosid("inspect").out == "no counters\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--above N or --from-table"),
        (("--above", 5, "--from-table", "orders.id"), 2, "--above N or --from-table"),
        (("--above", 5, "--data-url", "sqlite:///x.db"), 2, "requires --from-table"),
        (("--from-table", "orders.id"), 4, "it has no tables of yours"),
        (("--from-table", "orders.id", "--data-url", "sqlite:///x.db"), 4, "no such file"),
        (("--from-table", "orders.id", "--data-url", "redis://u:s3cr3t@h"), 2, "url 'redis"),
    ],
)
def test_where_nothing_can_be_read(
    aiocosid: Command, tmp_path: Path, words: tuple[object, ...], code: int, said: str
) -> None:
    """The error says why, shows no password, and no file is made."""
    refusal = aiocosid.refuses("set-floor", "order", *words, "--store", "memory://", code=code)
    assert said in refusal
    assert "s3cr3t" not in refusal
    assert list(tmp_path.iterdir()) == []
