"""The box of exceptions, which is written once and shown on several pages.

The pages include it.  The README cannot, so it has a copy: ``python -m tests.docs._exceptions``
writes it, and a test compares the two.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final

from ._blocks import ROOT

BOX: Final = ROOT / "docs" / "_includes" / "exceptions.md"
README: Final = ROOT / "README.md"
SITE: Final = "https://aiocosid.readthedocs.io/en/latest"

_TITLE: Final = re.compile(r'!!! warning "(.+)"\n')
_TO_A_PLACE: Final = re.compile(r"\[([^\]]+)\]\(/[\w/-]+\.md#[\w-]+\)")
_TO_A_PAGE: Final = re.compile(r"\]\((/[\w/-]+)\.md\)")
_COPY: Final = re.compile(
    r"(<!-- docs/_includes/exceptions.md -->\n).*?(<!-- end -->\n)", re.DOTALL
)


def for_the_readme() -> str:
    """Return the box as the README shows it: with links to pages alone, so that it stays short."""
    text = textwrap.dedent(_TITLE.sub("", BOX.read_text("utf-8")))
    text = _TO_A_PAGE.sub(rf"]({SITE}\1.html)", _TO_A_PLACE.sub(r"\1", text))
    return "\n".join(_filled(text))


def _filled(text: str) -> list[str]:
    """Return the lines of a text, each paragraph and each item filled again."""
    lines = [""]
    for item in re.split(r"\n(?=\* |\n)", text.strip()):
        body = " ".join(item.split())
        if item.startswith("\n") or not body:
            lines.append("")
        lines += textwrap.wrap(
            body,
            110,
            subsequent_indent="  " if body.startswith("* ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [*lines[1:], ""]


def with_copy(readme: str) -> str:
    """Return the text of a README with the present copy between its two comments."""
    return _COPY.sub(lambda found: found[1] + for_the_readme() + found[2], readme)


if __name__ == "__main__":
    README.write_text(with_copy(README.read_text("utf-8")), "utf-8")
