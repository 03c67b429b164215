"""The "Move from ..." pages have one skeleton: a reader of one knows where to look in each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from ._blocks import ROOT

PAGES: Final = sorted((ROOT / "docs" / "howto").glob("move-from-*.md"))
SKELETON: Final = [
    "Install",
    "Before you begin",
    "Check what is there",
    "Run both side by side",
    "Switch over",
    "Go back",
    "What differs",
    "What the ids look like afterwards",
]
LONGEST: Final = 1600  # words; what a mover does not need is on a page of reference
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def parts(page: Path) -> list[str]:
    """What is before the first heading of the second level, and what follows each of them."""
    text = re.sub(
        r"(?ms)^( *)```.*?^\1```$", "", page.read_text("utf-8")
    )  # comments are no headings
    return re.split(r"(?m)^## ", text)


@each_page
def test_the_headings_are_the_same_in_the_same_order(page: Path) -> None:
    assert [each.partition("\n")[0] for each in parts(page)[1:]] == SKELETON


@each_page
def test_it_begins_with_what_the_reader_has_and_gets(page: Path) -> None:
    """In three points below the title, before anything is installed."""
    points = re.findall(r"(?m)^\* \*\*(.+?)\*\*", parts(page)[0])
    assert [*points[:2], len(points)] == ["You have", "You get", 3]


@each_page
def test_every_part_says_something(page: Path) -> None:
    """A heading that a system has nothing for says so in a sentence."""
    assert [each for each in parts(page) if len(each.split()) < 20] == []


@each_page
def test_it_has_what_a_mover_needs_and_no_more(page: Path) -> None:
    assert len(page.read_text("utf-8").split()) <= LONGEST
