"""Sentences that made readers stumble stay away, and each guide says what to install."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from ._blocks import ROOT, blocks, pages

RIDDLES = (
    "or named in a file",
    "a notebook takes it as it is",
    "if nothing speaks for another",
    "the store to stay aside",
    "such that nobody can guess",
    "that nobody can guess",
    "opening comes back when",
    "a restart does not mend",
    "it is to stay at",
    "ways out of the same",
    "in vain",
    "more have been asked for by then",
    "a gap all the same",
    "only if their ids may be equal",
    "made anew is another",
    "is a second as any other",
    "is safe, and costs a",
    "that arrives late, is the next one's",
    "the next one's wish",
    "does not forget when it is told to",
    "nobody else can be taken for",
    "that may be tight",
    "one quarter more, and",
    "teaches nothing",
    "so leave it out, and nothing is named",
    "what is not here is private",
    "reserve at most so many ids",
    "sign of life",
    "counts as ours in peace",
    "nobody's prey",
    "instead of the one for all",
    "instead of the table's own",
    "tells nobody its clock",
    "what is ours lies",
    "whoever is too late",
    "is taken for one that forgot",
    "given up in passing",
    "for who comes from",
    "a grant of one who may",
)
"""Lower case, with single blanks. The changelog keeps its own words."""

OLD_WORDS = re.compile(
    r"\b(?:time marks?|mark_machines|mark_ms|revert_machine|open_store|(?:in )?flight|take[-_ ]?off"
    r"|hungry|seats?|askers?|anew|in hand|born_ms|ServerFacts|weaknesses|is_new=\w+"
    r"|aiocosid\.CosId|ids\.(?:cached|cosid|leaf)(?=\())(?!\w)",
    re.IGNORECASE,
)
"""What `BANNED_WORDS` of the architecture tests is for names: their ideas have other words now."""

TURNED_ROUND = re.compile(r"(?:^|[.:;?!|*]\**) *(Whoever|Who|Such|It is to)\b[^.]*", re.MULTILINE)
"""Sentences that begin so say late who does what; headings may ask."""

PICTURES = re.compile(r"<(?:text|title|desc)\b[^>]*>([^<]*)<")


def texts() -> Iterator[tuple[str, str]]:
    """What readers of the pages, the pictures, the API reference and the options see."""
    for page in pages():
        if page.name != "changelog.md":
            yield str(page.relative_to(ROOT)), page.read_text("utf-8")
    for picture in (ROOT / "docs" / "img").glob("*.svg"):
        yield picture.name, " ".join(PICTURES.findall(picture.read_text("utf-8")))
    for module in (ROOT / "aiocosid").rglob("*.py"):
        tree = ast.parse(module.read_text("utf-8"))
        found = (each.value for each in ast.walk(tree) if isinstance(each, ast.Constant))
        strings = "\n".join(each for each in found if isinstance(each, str))
        yield str(module.relative_to(ROOT)), strings


def riddles(text: str) -> list[str]:
    plain = " ".join(text.split()).casefold()
    return [each for each in RIDDLES if each in plain]


def test_no_sentence_is_a_riddle() -> None:
    assert {where: found for where, text in texts() if (found := riddles(text))} == {}


@pytest.mark.parametrize("text", ["It is to\n  stay at 0", "Waits for its id in vain."])
def test_a_riddle_is_seen(text: str) -> None:
    assert len(riddles(text)) == 1


def test_no_old_word_comes_back() -> None:
    found = {where: sorted({*OLD_WORDS.findall(text)}) for where, text in texts()}
    assert {where: words for where, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text", ["Two time marks.", "a call in flight", "`open_store(url)`", "ids.cached(x)", "In hand"]
)
def test_an_old_word_is_seen(text: str) -> None:
    assert OLD_WORDS.search(text)


@pytest.mark.parametrize("text", ["Seata", "`cached_snowflake`", "a hunger time", "opened again"])
def test_another_word_is_no_old_one(text: str) -> None:
    assert not OLD_WORDS.search(text)


def test_no_sentence_is_turned_round() -> None:
    found = {
        str(page.relative_to(ROOT)): [each[0] for each in TURNED_ROUND.finditer(text)]
        for page in pages()
        if page.name != "changelog.md" and TURNED_ROUND.search(text := page.read_text("utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    ["Whoever asks later waits.", "1. It ends. It is to stay.", "| a | Such keys are lost |"],
)
def test_a_sentence_that_is_turned_round_is_seen(text: str) -> None:
    assert TURNED_ROUND.search(text)


def test_each_guide_says_what_to_install() -> None:
    docs = ROOT / "docs"
    guides = [*(docs / "howto").glob("*.md"), *(docs / "migrate").glob("from-*.md")]
    assert [each.name for each in guides if "pip install " not in each.read_text("utf-8")] == []


def test_the_home_page_begins_as_the_readme() -> None:
    """Its first minute is the README's, with links between pages; the choice is the guide's too."""
    site = "https://aiocosid.readthedocs.io/en/latest/"
    readme = (ROOT / "README.md").read_text("utf-8").replace(site, "")
    readme = re.sub(r"(\]\([\w/-]+)\.html", r"\1.md", readme)
    home = (ROOT / "docs" / "index.md").read_text("utf-8")
    parts = ("Many processes", "A store on a server"), ("## Which id?", "## What it is not for")
    for start, end in parts:
        shared = readme[readme.index(start) : readme.index(end)].strip()
        assert shared in home
    (choice,) = re.findall(r"## Which id\?\s+(\| .+?)\n\n", readme, re.DOTALL)
    which = (ROOT / "docs" / "howto" / "which-generator.md").read_text("utf-8")
    assert choice.replace("](howto/", "](") in which


def test_there_is_one_wiring_of_fastapi() -> None:
    """Ours: `lifespan(...)` around a provider or what opens it, `Depends(generator(...))`."""
    applications = {
        f"{page.relative_to(ROOT)}": block.source
        for page in pages()
        for block in blocks(page)
        if block.language == "python" and re.search(r"\bFastAPI\(lifespan", block.source)
    }
    assert len(applications) > 6
    assert [
        name
        for name, source in applications.items()
        if not re.search(r"FastAPI\(lifespan=lifespan\(", source)
        or "from aiocosid.integrations.fastapi import" not in source
        or "request.state" in source
    ] == []
