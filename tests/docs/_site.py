"""For the site: tables as rows on a phone, commands to copy, and an index for programs."""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

TABLE: Final = re.compile(r"<table>\s*<thead>(.*?)</thead>\s*<tbody>(.*?)</tbody>", re.DOTALL)
CELL: Final = re.compile(r"<t[hd]([^>]*)>(.*?)</t[hd]>", re.DOTALL)
GROUP: Final = re.compile(
    r'(<nav class="md-nav" data-md-level="[1-9]") aria-labelledby="\w+" aria-expanded="\w+">'
)
FEW: Final = 2  # columns: a phone shows them side by side
ROOMY: Final = 4  # columns: a wide window has room for whole words in them
WORD: Final = re.compile(r"<code>([^<\s]{1,24})</code>")

CODE: Final = re.compile(r'<div class="highlight">(?=<pre>(.*?)</pre>)', re.DOTALL)
PROMPT: Final = re.compile(r'<span class="gp">.*?</span>')
OUTPUT: Final = '<span class="go">'

_index: list[str] = []


def text_of(html: str) -> str:
    """Return what a reader sees of a piece of HTML."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def by_rows(match: re.Match[str]) -> str:
    """Write the name of its column beside each cell of a table."""
    head, body = match.groups()
    names = [text_of(name) for _, name in CELL.findall(head)]
    mark = " data-whole-words" if len(names) <= ROOMY else ""
    if mark:
        body = WORD.sub(r'<code class="word">\1</code>', body)
    if len(names) <= FEW:
        return f"<table{mark}><thead>{head}</thead><tbody>{body}</tbody>"

    def row(found: re.Match[str]) -> str:
        cells = zip(names, CELL.findall(found[1]), strict=False)
        return "<tr>{}</tr>".format(
            "".join(
                f'<td{attributes} data-label="{escape(name)}">{cell}</td>'
                if name and cell
                else f"<td{attributes}>{cell}</td>"
                for name, (attributes, cell) in cells
            )
        )

    rows = re.sub(r"<tr>(.*?)</tr>", row, body, flags=re.DOTALL)
    return f"<table data-by-rows{mark}><thead>{head}</thead><tbody>{rows}</tbody>"


def with_commands(match: re.Match[str]) -> str:
    """Write the commands of a console block where the theme's button takes what it copies from."""
    if not PROMPT.search(match[1]):
        return match[0]
    lines = (PROMPT.sub("", line) for line in match[1].split("\n") if OUTPUT not in line)
    commands = unescape(re.sub(r"<[^>]*>", "", "\n".join(lines))).strip()
    return f'<div class="highlight" data-copy="{escape(commands)}">'


def on_page_content(html: str, **_: object) -> str:
    """Mark the tables and the console blocks of a page; a column without a name has no header."""
    html = CODE.sub(with_commands, html)
    return TABLE.sub(by_rows, html).replace("<th></th>", "<td></td>")


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Leave one landmark to the navigation, whose groups have labels; name a page's language."""
    if page.file.src_uri.startswith("zh/"):
        output = output.replace('<html lang="en"', '<html lang="zh-Hans"', 1)
    return GROUP.sub(r'\1 role="none">', output)


def on_nav(nav: Navigation, config: MkDocsConfig, **_: object) -> None:
    """Begin the index anew, in the order of the navigation."""
    _index[:] = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for entry in nav.items:
        _index.append(f"## {entry.title}\n")
        _index.extend(
            f"- [{page.title or page.file.src_uri}]({page.canonical_url})" for page in _pages(entry)
        )
        _index.append("")


def _pages(entry: object) -> list[Page]:
    children = getattr(entry, "children", None)
    if children is None:
        return [entry]  # type: ignore[list-item]  # a page
    return [page for child in children for page in _pages(child)]


def on_post_build(config: MkDocsConfig, **_: object) -> None:
    """Write ``llms.txt``, as llmstxt.org describes it."""
    Path(config.site_dir, "llms.txt").write_text("\n".join(_index), "utf-8")
