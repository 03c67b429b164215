"""The Chinese pages say what the English ones say: their blocks, tables, anchors and figures."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest

from ._blocks import ROOT, blocks

DOCS: Final = ROOT / "docs"
ZH: Final = DOCS / "zh"
SITE: Final = "https://aiocosid.readthedocs.io/en/latest/"
SOURCES: Final = "https://github.com/aiocosid/aiocosid/blob/main/"
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
ENGLISH: Final = {chinese: english for english, chinese in TRANSLATED.items()}
BOTH: Final = pytest.mark.parametrize(
    ("english", "chinese"),
    [pytest.param(*pair, id=str(pair[0].relative_to(ROOT))) for pair in TRANSLATED.items()],
)

FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
# GitHub shows the README, and knows no ``{ #anchor }``: there an empty ``<a>`` names it.
HEADING: Final = re.compile(
    r"^ *(#+) (?:<a id=\"([\w-]+)\"></a>)?(.+?)(?: *\{ *#([\w-]+) *\})?$", re.MULTILINE
)
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"`(?:[^`\n]|\n(?!\s*\n))+`")
INCLUDED: Final = re.compile(r"^--8<-- .*$", re.MULTILINE)
ITEM: Final = re.compile(r"^( *)([*-]|\d+\.) ", re.MULTILINE)
# re.ASCII: a Chinese letter is no part of a figure that it stands beside.
FIGURE: Final = re.compile(
    r"(?<![\w.#/-])(\d[\d,_]*(?:\.\d+)?)(?!\w)(?: ?(million|billion|万|亿))?", re.ASCII
)
UNITS: Final = {"million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}
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


def slug(text: str) -> str:
    """The anchor that the site gives to a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def anchors(page: Path) -> list[tuple[int, str]]:
    """The level and the anchor of each heading but the title."""
    found = [
        (len(level), before or after or slug(text))
        for level, before, text, after in HEADING.findall(prose(page))
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
    """The numbers in digits of a page's prose, without links and code; 1,680 万 is 16.8 million."""
    text = re.sub(r"`[^`]*`|<[^>]*>", "", LINK.sub("]", prose(page)))
    found = ((re.sub("[,_]", "", number), unit) for number, unit in FIGURE.findall(text))
    return Counter(
        f"{(Decimal(number) * UNITS[unit]).normalize():f}" if unit else number
        for number, unit in found
    )


def figures_in_words(page: Path) -> Counter[str]:
    """The numbers that a page writes as English words."""
    words = re.findall(r"\w+", prose(page).lower())
    return Counter(WORDS[word] for word in words if word in WORDS)


def led_to(page: Path) -> list[tuple[Path, str]]:
    """The files and the anchors that its links lead to; a page of the site as its file."""
    found = list[tuple[Path, str]]()
    for target in LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        if path.startswith(SITE):
            file = DOCS / path.removeprefix(SITE).replace(".html", ".md")
        elif path.startswith(SOURCES):
            file = ROOT / path.removeprefix(SOURCES)
        elif "://" in path:
            continue
        else:
            base = DOCS if path.startswith("/") else page.parent
            file = (base / path.lstrip("/")).resolve() if path else page
        assert file.exists(), f"{page}: {target}"
        found.append((file, anchor))
    return found


def elsewhere(page: Path) -> Counter[str]:
    """Where its other links lead."""
    return Counter(
        target
        for target in LINK.findall(prose(page))
        if "://" in target and not target.startswith((SITE, SOURCES))
    )


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
    """A number that English writes as a word may be in digits in Chinese."""
    missing = figures(english) - figures(chinese)
    added = figures(chinese) - figures(english) - figures_in_words(english)
    assert (missing, added) == (Counter(), Counter())


@BOTH
def test_the_same_code_is_named(english: Path, chinese: Path) -> None:
    """Names, options and values, as ``lead=200``: no sentence says them of another one."""
    one, other = (
        {" ".join(code.split()) for code in CODE.findall(prose(page))}
        for page in (english, chinese)
    )
    assert other == one


@BOTH
def test_the_lists_have_the_same_items(english: Path, chinese: Path) -> None:
    assert ITEM.findall(prose(chinese)) == ITEM.findall(prose(english))


@BOTH
def test_the_links_lead_to_the_same_pages(english: Path, chinese: Path) -> None:
    assert elsewhere(chinese) == elsewhere(english)
    one, other = (
        Counter((ENGLISH.get(file, file), anchor) for file, anchor in led_to(page))
        for page in (english, chinese)
    )
    assert other == one


@BOTH
def test_a_chinese_page_leads_to_the_chinese_ones(english: Path, chinese: Path) -> None:
    """Where there is one; the README has a link to its other language."""
    assert [file for file, _ in led_to(chinese) if file in TRANSLATED and file != english] == []


@BOTH
def test_the_box_of_exceptions_is_the_chinese_one(english: Path, chinese: Path) -> None:
    one, other = (INCLUDED.findall(prose(page)) for page in (english, chinese))
    assert other == [each.replace(".md", ".zh.md") for each in one]
