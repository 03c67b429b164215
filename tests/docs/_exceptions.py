"""The box of exceptions, which is written once and included by several pages.

The README cannot include it.  It has a short form, which names each kind of exception: a test goes
through the box and the README, item by item.  An item of the box may get a further kind, so its
words are recorded.  After a change look at the README and at the list in the test, then run
``python -m tests.docs._exceptions``.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final

from ._blocks import ROOT

BOX: Final = ROOT / "docs" / "_includes" / "exceptions.md"
README: Final = ROOT / "README.md"
RECORD: Final = ROOT / "tests" / "docs" / "exceptions.txt"

_HEADING: Final = "### When ids may repeat, have a gap, or stop\n"
_PART: Final = re.compile(r"^(?=\*\*[^*]+\*\*)", re.MULTILINE)
_ITEM: Final = re.compile(r"\n(?=\* |\n)")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def plain(text: str) -> str:
    """Return a text in one line, with the words of its links alone."""
    return " ".join(_LINK.sub(r"\1", text).split())


def box() -> dict[str, list[str]]:
    """Return the items of the box by the bold words above them; those words begin the first."""
    return _parts(textwrap.dedent(BOX.read_text("utf-8").partition("\n")[2]))


def recorded() -> str:
    """Return the words of the box as they are recorded: a line for each item."""
    return "".join(f"{item}\n" for items in box().values() for item in items)


def in_short() -> dict[str, list[str]]:
    """Return the same of the README's short form."""
    text = README.read_text("utf-8").partition(_HEADING)[2].partition("\n## ")[0]
    return _parts(text)


def _parts(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in _PART.split(text):
        if part.startswith("**"):
            items = [plain(item) for item in _ITEM.split(part) if item.strip()]
            found[part.split("**")[1]] = items
    return found


if __name__ == "__main__":
    RECORD.write_text(recorded(), "utf-8")
