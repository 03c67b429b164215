"""The box of exceptions stands where it is needed, and names each case that the guarantees name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ._blocks import ROOT, pages
from ._exceptions import BOX, README, with_copy

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


def test_the_box_stands_where_it_is_needed() -> None:
    found = {page for page in pages() if INCLUDED in page.read_text("utf-8").split("\n")}
    assert {str(page.relative_to(DOCS)) for page in found} == WHERE


def test_the_readme_has_the_same_box() -> None:
    """``python -m tests.docs._exceptions`` writes it."""
    readme = README.read_text("utf-8")
    assert "**A Snowflake may repeat**" in readme
    assert readme == with_copy(readme)


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
    table = guarantees.split("\n## Store by store\n")[1].split("\n### Which test shows it\n")[0]
    linked = set(re.findall(r"guarantees\.md#([\w-]+)\)", BOX.read_text("utf-8")))
    rows = [(place, row) for place, row in places(table) if REPEATS.search(row)]
    assert len(rows) > 25
    assert [row for place, row in rows if place not in linked] == []
