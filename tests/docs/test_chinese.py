"""The Chinese pages say what the English ones say: their blocks, tables, anchors and figures."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from markdown.extensions.toc import slugify

from ._blocks import ROOT, blocks

DOCS: Final = ROOT / "docs"
ZH: Final = DOCS / "zh"
BOX: Final = "_includes/exceptions"

TRANSLATED: Final = {
    ROOT / "README.md": ROOT / "README.zh-CN.md",
    DOCS / f"{BOX}.md": DOCS / f"{BOX}.zh.md",
    **{
        DOCS / page: ZH / page
        for page in (
            "index.md",
            "tutorial.md",
            "fastapi-sqlalchemy-postgresql.md",
            "howto/which-generator.md",
            "howto/store-is-down.md",
            "migrate/index.md",
            "migrate/from-cosid.md",
            "migrate/from-leaf.md",
            "migrate/from-uid-generator.md",
            "migrate/from-tinyid.md",
        )
    },
}
BOTH: Final = pytest.mark.parametrize(
    ("english", "chinese"),
    [pytest.param(*pair, id=str(pair[0].relative_to(ROOT))) for pair in TRANSLATED.items()],
)

FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
HEADING: Final = re.compile(r"^ *(#+) (.+?)(?: *\{ *#([\w-]+) *\})?$", re.MULTILINE)
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
FIGURE: Final = re.compile(r"(?<![\w.#/-])\d[\d,_]*(?:\.\d+)?(?![\w-])")
WORDS: Final = {
    "one": "1",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "twelve": "12",
}


def prose(page: Path) -> str:
    """A page without its blocks."""
    return FENCED.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> list[tuple[int, str]]:
    """The level and the anchor of each heading but the title."""
    found = [
        (len(level), given or slugify(re.sub(r"[`*]", "", text), "-"))
        for level, text, given in HEADING.findall(prose(page))
    ]
    return [each for each in found if each[0] > 1]


def tables(page: Path) -> list[list[int]]:
    """The number of cells of each row, by table."""
    found, rows = list[list[int]](), list[int]()
    for line in (*prose(page).splitlines(), ""):
        if line.strip().startswith("|"):
            rows.append(len(re.findall(r"(?<!\\)\|", line)))
        elif rows:
            found.append(rows)
            rows = []
    return found


def figures(page: Path) -> Counter[str]:
    """The numbers in digits of a page's prose, without links and code."""
    text = re.sub(r"`[^`]*`|<[^>]*>", "", LINK.sub("]", prose(page)))
    return Counter(each.replace(",", "") for each in FIGURE.findall(text))


def targets(page: Path) -> list[str]:
    """Where its links lead, without the anchors."""
    return [each.partition("#")[0] for each in LINK.findall(prose(page))]


@BOTH
def test_the_blocks_are_the_same(english: Path, chinese: Path) -> None:
    """To the letter: what runs on the one page runs on the other."""
    one = [(each.language, each.title, each.source) for each in blocks(english)]
    other = [(each.language, each.title, each.source) for each in blocks(chinese)]
    assert other == one


@BOTH
def test_the_tables_have_the_same_cells(english: Path, chinese: Path) -> None:
    assert tables(chinese) == tables(english)


@BOTH
def test_the_headings_have_the_same_anchors(english: Path, chinese: Path) -> None:
    """A Chinese heading names its anchor, as in ``## 数据库 {#the-store}``."""
    assert anchors(chinese) == anchors(english)


@BOTH
def test_no_figure_is_another_one(english: Path, chinese: Path) -> None:
    """Numbers in digits; those that English writes as words may be digits in Chinese."""
    written = set(WORDS.values()) | {"0"}
    missing = figures(english) - figures(chinese)
    added = Counter(
        {
            each: n
            for each, n in (figures(chinese) - figures(english)).items()
            if each not in written
        }
    )
    assert (missing, added) == (Counter(), Counter())


@BOTH
def test_the_links_lead_to_the_same_pages(english: Path, chinese: Path) -> None:
    """To the Chinese page where there is one."""

    def resolved(page: Path) -> Counter[str]:
        found = Counter[str]()
        for target in targets(page):
            if "://" in target or not target.endswith(".md"):
                found[target.rpartition("/")[2]] += 1
                continue
            base = DOCS if target.startswith("/") else page.parent
            path = (base / target.lstrip("/")).resolve()
            path = DOCS / path.relative_to(ZH) if ZH in path.parents else path
            assert (ROOT / path).exists(), f"{page}: {target}"
            found[str(path.relative_to(ROOT))] += 1
        return found

    assert resolved(chinese) == resolved(english)
