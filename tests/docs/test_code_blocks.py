"""Every code block of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aiocosid

from ._blocks import ROOT, SERVERS, Block, Reader, blocks, is_named, pages

LANGUAGES = {"console", "go", "json", "lua", "php", "python", "sh", "sql", "text", "toml", "yaml"}

ALONE = (
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/fastapi-",
    "docs/order-",
    "docs/howto/",
    "docs/migrate/",
    "aiocosid/.agents/",
)
"""Where each Python block can be pasted as it stands; elsewhere it follows those above it."""

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
RUNNABLE = {
    name: page
    for name, page in PAGES.items()
    if any(block.language in {"console", "python"} for block in blocks(page))
}


OFTEN = ("README.md", "docs/index.md")
SELDOM = ("docs/tutorial.md", "docs/howto/configure", "docs/reference/settings")
"""Pages whose blocks run with `make test`, and with `make stress`; the others', each night."""


def marked(name: str) -> Any:
    """A page, as a parameter."""
    often = pytest.mark.stress if name.startswith(SELDOM) else pytest.mark.nightly
    return pytest.param(name, marks=() if name in OFTEN else often)


@pytest.fixture
def reader(tmp_path: Path, empty_memory: None) -> Reader:
    """A reader in an empty directory, with ``memory://`` as it is in a new process."""
    return Reader(tmp_path)


def url_of(fixture: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty server of this test's own."""
    server = request.getfixturevalue(fixture)
    url: str = server if isinstance(server, str) else server().url
    return url


@pytest.mark.timeout(240)  # the longest page starts forty programs
@pytest.mark.parametrize("name", [marked(each) for each in RUNNABLE])
def test_every_block_of_a_page_runs(
    name: str, reader: Reader, request: pytest.FixtureRequest
) -> None:
    """A reader who follows the page from top to bottom sees what it says."""
    page = RUNNABLE[name]
    text = page.read_text()
    reader.pastes_alone = name.startswith(ALONE)
    for written, fixture in SERVERS.items():
        if is_named(written, text):
            reader.urls[written] = url_of(fixture, request)
    with reader:
        for block in blocks(page):
            reader.follow(block)


def test_the_readme_runs_on_each_store_that_it_names(reader: Reader) -> None:
    """The comment above `connect` says where else the block runs as it stands."""
    (block,) = (each for each in blocks(PAGES["README.md"]) if each.language == "python")
    (url,) = re.findall(r'connect\("([^"]+)"', block.source)
    others = re.findall(r'# .*"(\w+://[^"]*)"', block.source)
    assert others
    reader.pastes_alone = True
    with reader:
        for other in others:
            reader.follow(replace(block, source=block.source.replace(url, other)))


def test_the_block_of_the_package_runs(tmp_path: Path) -> None:
    """What ``help(aiocosid)`` shows gives an id."""
    with Reader(tmp_path) as reader:
        source = "\n".join(
            line[4:] for line in f"{aiocosid.__doc__}".splitlines() if line[:4] == " " * 4
        )
        reader.names["connect"] = aiocosid.connect
        reader.follow(Block(ROOT / "aiocosid/__init__.py", 1, "python", source, None, None))
        assert reader.names["number"] == 1


@pytest.mark.parametrize("name", PAGES)
def test_a_block_names_a_language_that_we_know(name: str) -> None:
    """A misspelt language would quietly not run; a bare fence is not seen at all."""
    page = PAGES[name]
    fences = sum(line.lstrip().startswith("```") for line in page.read_text().splitlines())
    found = blocks(page)
    assert {block.language for block in found} <= LANGUAGES
    assert fences == 2 * len(found), "a fence without a language"


def test_few_blocks_are_only_shown() -> None:
    """A block that does not run rots: there is a reason for each, and there are few."""
    python = [b for page in PAGES.values() for b in blocks(page) if b.language == "python"]
    shown = [block.place for block in python if block.no_run]
    assert len(shown) * 10 <= len(python), shown


# The rules above are only as good as the reader: each planted fault has to be seen.


def planted(source: str, language: str = "python", title: str | None = None) -> Block:
    return Block(ROOT / "README.md", 1, language, source, title, None)


@pytest.mark.parametrize(
    "block",
    [
        planted("print(1 + 1)  # 3\n"),
        planted("import asyncio\nprint(await asyncio.sleep(0, 'a'))  # b\n"),
        planted("$ echo one\ntwo\n", "console"),
        planted("$ echo one\none\n$ echo two\none\n", "console"),
    ],
)
def test_a_wrong_output_is_seen(block: Block, reader: Reader) -> None:
    with reader, pytest.raises(AssertionError, match="but it is"):
        reader.follow(block)


def test_a_failing_block_is_seen_with_its_line(reader: Reader) -> None:
    with reader, pytest.raises(NameError, match="nobody"):
        reader.follow(planted("nobody\n"))


def test_a_titled_block_is_a_file(reader: Reader) -> None:
    with reader:
        reader.follow(planted("print('here')\n", title="sub/app.py"))
        reader.follow(planted("$ python sub/app.py\nhere\n", "console"))


def test_urls_of_servers_are_replaced(reader: Reader) -> None:
    reader.urls["redis://localhost:6379/0"] = "redis://other"
    with reader:
        reader.follow(planted("print('redis://localhost:6379/0')  # redis://other\n"))


def test_blocks_are_found() -> None:
    text = (
        'a\n\n```python title="a.py"\nx = 1\n```\n\n<!-- no-run: why -->\n\n'
        "    ```console\n    $ b\n    ```\n"
    )
    page = ROOT / "README.md"
    assert blocks(page, text) == [
        Block(page, 4, "python", "x = 1\n", "a.py", None),
        Block(page, 10, "console", "$ b\n", None, "why"),
    ]


def test_commands_without_prompts_run(reader: Reader) -> None:
    with reader:
        reader.follow(planted("echo one > a\npip install nothing\n", "sh"))
        assert (reader.directory / "a").read_text() == "one\n"


def test_the_readme_has_no_prompts() -> None:
    """Where it is shown, a button copies what is in a block."""
    assert not [line for line in PAGES["README.md"].read_text().splitlines() if line[:2] == "$ "]
