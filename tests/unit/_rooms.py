"""The rooms of the package, and who may import whom: one table, for the test and for the page.

``python -m tests.unit._rooms`` writes it into docs/contributing.md.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from ._source import PACKAGE, load

__all__ = ("MAY_IMPORT", "page", "table")

PAGE: Final = Path(__file__).parents[2] / "docs" / "contributing.md"
BEGIN: Final = "<!-- The table is made by `python -m tests.unit._rooms`. -->\n\n"
END: Final = "\n<!-- Until here. -->\n"

# The house, from the ground up: a room imports only from floors below its own.
FLOORS: Final = (
    {"errors"},
    {"abc"},
    {"_life"},
    {"converter", "generators", "machine", "segment", "sharding", "snowflake"},
    {"compat", "stores"},
    {"provider"},
    {"integrations", "sync", "testing"},
    {"server"},
    {"cli"},
    {"", "__main__"},
)
# Rooms of one floor do not import each other, but for these.
PAIRS: Final = {
    "compat": {"stores"},
    "converter": {"snowflake"},  # its layout
    "integrations": {"sync"},
    "sharding": {"snowflake"},  # its layout
    "snowflake": {"generators", "machine"},
    "testing": {"sync"},
}
# Nobody imports the test kit.
MAY_IMPORT: Final = {
    room: set().union(*FLOORS[:level], PAIRS.get(room, set())) - {"testing"}
    for level, rooms in enumerate(FLOORS)
    for room in rooms
}


def table() -> str:
    """Return the floors as a table, the highest first: what each room is for, by its first line."""
    modules = load()
    lines = ["| floor | room | what it is for |", "|---|---|---|"]
    for level in reversed(range(len(FLOORS))):
        for room in sorted(FLOORS[level]):
            name = f"{PACKAGE}.{room}" if room else PACKAGE
            told = (ast.get_docstring(modules[name].tree) or "").partition("\n")[0]
            beside = ", ".join(f"`{each}`" for each in sorted(PAIRS.get(room, ())))
            told += f"  It may import {beside} too." if beside else ""
            lines.append(f"| {level} | `{room or PACKAGE}` | {told} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the table of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
