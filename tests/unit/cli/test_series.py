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
        "values that are not numbers of this series: 1; if they begin with a prefix, add --prefix",
    ]


def test_an_audit_without_the_prefix_or_the_tenant(aiocosid: Command) -> None:
    """Says what to add, and takes the prefix for no period."""
    aiocosid("init")
    whose = ("--tenant", "acme")
    aiocosid("series", "open", "invoice", *whose, "--group-by", "month", "--zone", "UTC")
    with closing(sqlite3.connect("ids.db")) as database, database:
        database.execute(
            "INSERT INTO aiocosid_series (name, tenant, period, grouped_by, last_number, range_end,"
            " ranges, is_open) SELECT name, tenant, '202611', grouped_by, 2, range_end, '', 1 "
            "FROM aiocosid_series"
        )
        database.execute("CREATE TABLE invoices (number)")
        database.execute("INSERT INTO invoices VALUES ('INV-202611-1'), ('INV-202611-2')")
    audit = ("series", "audit", "invoice", "--column", "invoices.number")
    assert aiocosid(*audit, *whose).out.splitlines() == [
        "invoice of tenant acme: 0 numbers, the last is 0",
        "missing: 202611-1 to 2",
        "values that are not numbers of this series: 2; if they begin with a prefix, add --prefix",
    ]
    good = aiocosid(*audit, *whose, "--prefix", "INV-")
    assert (good.code, good.out) == (0, "invoice of tenant acme: 2 numbers, the last is 2\n")
    with closing(sqlite3.connect("ids.db")) as database, database:
        database.execute("INSERT INTO invoices VALUES ('INV-202611-2')")
    assert aiocosid(*audit, *whose, "--prefix", "INV-").out.splitlines()[1:] == [
        "repeated: 202611-2",
        "if the table has rows of other tenants, add --tenant-column",
    ]
    assert "not open in this database; name its tenant, for example 'acme'" in aiocosid(*audit).err
