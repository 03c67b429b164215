"""What the commands for gapless series print."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.command import Command


def test_an_audit_names_the_tenant(aiocosid: Command) -> None:
    """Two tenants may have series of one name."""
    assert aiocosid("init").code == 0
    audit = ("series", "audit", "invoice", "--column", "invoices.number")
    whose = ("--tenant", "acme")
    aiocosid("series", "open", "invoice", "--after", 1)
    aiocosid("series", "open", "invoice", *whose, "--after", 3)
    with closing(sqlite3.connect("ids.db")) as database, database:
        database.execute("CREATE TABLE invoices (number, tenant)")
        rows = [(1, ""), (2, "acme"), (3, "acme"), (5, "acme"), ("x", "acme")]
        database.executemany("INSERT INTO invoices VALUES (?, ?)", rows)
    by_tenant = ("--tenant-column", "tenant")
    assert aiocosid(*audit, *by_tenant).out == "invoice: 1 number, the last is 1\n"
    assert aiocosid(*audit, *whose, *by_tenant).out.splitlines() == [
        "invoice of tenant acme: 3 numbers, the last is 5",
        "not taken from it: 5",
        "values that are not numbers of this series: 1",
    ]
