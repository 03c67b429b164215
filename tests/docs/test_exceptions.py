"""The box of exceptions stands where it is needed, and names each case that the guarantees name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ._blocks import ROOT, pages
from ._exceptions import BOX, README, RECORD, box, in_short, recorded

DOCS: Final = ROOT / "docs"
INCLUDED: Final = f'--8<-- "{BOX.relative_to(ROOT)}"'
WHERE: Final = {
    "index.md",
    "explanation/guarantees.md",
    "explanation/leases.md",
    "howto/daily-numbers.md",
    "howto/operate.md",
    "howto/which-generator.md",
}
REPEATS: Final = re.compile(r"\bmay repeat\b", re.IGNORECASE)

KINDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "An id of a counter may repeat": {
        "**An id of a counter may repeat**": (),
        "A crash or a power cut undoes writes": ("a crash or power cut undoes writes",),
        "A replica that lacks the last writes": (
            "a replica that lacks writes is promoted",
            "each fail-over of Redis may",
            "two masters accept writes",
        ),
        "A store is put back to an older state or damaged": (
            "a store, or a row or key of it, is put back or damaged",
        ),
        "A single counter is deleted or evicted": (
            "a counter is deleted or evicted;",
            "on Redis, etcd, ZooKeeper and NATS also if all counters are deleted or evicted",
            "and the marker is not, or if",
            "one node of a Redis Cluster is emptied and the marker is on another",
        ),
        "Everything is deleted that shows that the store was used": (
            "all traces of a store's use are deleted",
            "on MySQL and MariaDB its tables, without a right to create views",
            "a memory or disposable store begins again",
            "emptied before the day of `create=`",
            "just before a counter begins on NATS and Redis Cluster",
            "`aiocosid init` is given wrong floors or answers",
        ),
        "A SQLite file is on a network file system.": (
            "a SQLite file is on a network file system",
        ),
        "`ShardedId`: an old master": (
            "`ShardedId`: an old master outlives `margin`",
            "Redis' clock is wrong",
            "the fence is deleted",
            "a SQLite file is overwritten by a backup",
            "`random_unsafe`",
        ),
        "The URL of a table of TDDL": (
            "a TDDL URL names the wrong kind of node, or a wrong `inner_step`",
        ),
        "Two tiered stores have different roots": (
            "two tiered stores have different roots and one name in Redis",
        ),
        "A process is copied with its memory": (
            "a process is copied with its memory, or forked by a signal handler",
        ),
        "Ids are unique within one counter.": (
            "Ids of two counters may be equal.",
            "A CosId proxy, a SQLAlchemy engine and your own distributor are as safe as",
        ),
    },
    "A Snowflake may repeat": {
        "**A Snowflake may repeat**": (),
        "Two generators differ": ("generators differ in name, layout, namespace or store",),
        "A machine id is chosen by hand": (
            "a machine id chosen by hand is used twice, or its `state_dir` is lost",
        ),
        "The store forgets an owner": (
            "the store forgets an owner unnoticed",
            "is put back, replaced or dropped, or confirmed writes are lost",
        ),
        "Two masters of Redis, or an old primary": ("two masters of Redis, or an old primary",),
        "`aiocosid init` is told": (
            "`aiocosid init` is told that no process holds a machine id, and one does",
        ),
        "The store loses its data": (
            "the store loses its data, and a clock is wrong, the marker is lost, or two processes",
        ),
        "CosId on Java or a CosId proxy": ("CosId on Java or a CosId proxy shares the namespace",),
        "With `offline`, or on Leaf's registry": (
            "with `offline`, `state_dir`, or the registry of Leaf or uid-generator",
            "emptied, put back or cloned, or Java takes the id",
        ),
    },
    "Every generator leaves gaps": {
        "**Every generator leaves gaps**": (
            "restart, crash, cancelled call, lost reply, failed or rolled-back insert",
            "with `step=1` too",
        ),
    },
    "Ids stop": {
        "**Ids stop**": ("with an error",),
        "The store does not answer.": (
            "the store does not answer",
            "no process that needs the store starts",
        ),
        "The store lost writes.": ("the store lost writes",),
        "All machine ids are held.": ("all machine ids are held",),
        "A clock is set back": (
            "a clock is set back by more than",
            "the layout's time is over",
            "the counter is at `max_id`",
        ),
        "Guarantees lists the cases of each store": (),
    },
}
"""The items of the box, each by its first words, with the words of the README for it."""


def test_the_box_stands_where_it_is_needed() -> None:
    found = {page for page in pages() if INCLUDED in page.read_text("utf-8").split("\n")}
    assert {str(page.relative_to(DOCS)) for page in found} == WHERE


def test_the_readme_names_each_kind() -> None:
    """In its short form, below the same words: each item of the box has its counterpart."""
    full, short = box(), in_short()
    assert [*full] == [*short] == [*KINDS]
    for part, kinds in KINDS.items():
        items, said = full[part], " ".join(short[part])
        assert len(items) == len(kinds), part
        for item, (begins, words) in zip(items, kinds.items(), strict=True):
            assert item.removeprefix("* ").startswith(begins), item
            assert [each for each in words if each not in said] == [], item


def test_the_readme_was_looked_at_after_the_last_change_of_the_box() -> None:
    """If this fails: does the README name each kind of the item?  If so, record the new words."""
    assert RECORD.read_text("utf-8").splitlines() == recorded().splitlines()


def test_the_readme_leads_to_the_box() -> None:
    assert "/explanation/guarantees.html#the-exceptions)" in README.read_text("utf-8")


def places(text: str) -> Iterator[tuple[str, str]]:
    """The rows of the tables in a text, each with the place that leads to it, if there is one.

    "The same" and its like belong to the place above.
    """
    place = ""
    for line in text.splitlines():
        if not line.startswith("| "):
            place = ""
            continue
        place = "".join(re.findall(r'^\| <span id="([\w-]+)">', line)) or place
        yield place, line


def test_the_box_leads_to_each_row_that_may_repeat() -> None:
    """Of the guarantees: a new exception there needs a place, and its words in the box."""
    guarantees = (DOCS / "explanation" / "guarantees.md").read_text("utf-8")
    table = guarantees.split("\n## Store by store\n")[1].split("\n## What it depends on")[0]
    linked = set(re.findall(r"guarantees\.md#([\w-]+)\)", BOX.read_text("utf-8")))
    rows = [(place, row) for place, row in places(table) if REPEATS.search(row)]
    assert len(rows) > 25
    assert [row for place, row in rows if place not in linked] == []
