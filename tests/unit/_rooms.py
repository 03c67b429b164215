"""The rooms of the package, and who may import whom: one table, for the test and for the page.

``python -m tests.unit._rooms`` writes it into docs/explanation/architecture.md.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from ._source import PACKAGE, load

__all__ = ("DEFERRED", "MAY_IMPORT", "page", "table")

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
BEGIN: Final = "<!-- The table is made by `python -m tests.unit._rooms`. -->\n\n"
END: Final = "\n<!-- Until here. -->\n"

# What lies under everything: it knows no generator, no store and no event of the outside.
LEAVES = {
    *("abc", "errors", "events"),
    *("_checks", "_dates", "_default", "_instance_id", "_later", "_life"),
}
GROUND = LEAVES | {"_text_generator"}
ROOMS = GROUND | {
    *("segment", "snowflake", "machine", "converter", "sharding", "generators", "provider"),
}
PUBLIC = {"", "stores", "compat", "inspection", "variables"} | {
    room for room in ROOMS if not room.startswith("_")
}

# What each room may import when it is imported itself.  Imports for types only are free, and an
# import inside a function is listed in DEFERRED.  A new room has to take its place here.
MAY_IMPORT = {
    "": {
        "_default",
        "_later",
        "_text_generator",
        "abc",
        "errors",
        "events",
        "provider",
        "segment",
        "snowflake",
        "machine",
    },
    "__main__": {"cli"},
    "errors": {"_later"},
    "events": {"_later", "errors"},
    "_checks": {"errors"},
    "abc": {"_checks", "_later", "errors", "events"},
    "_dates": {"errors"},
    "variables": {"errors"},
    "inspection": {"_life", "abc", "errors"},
    "_default": {"_checks", "abc", "errors"},
    "_instance_id": {"abc", "errors"},
    "_life": {"_checks", "abc", "errors", "events"},
    "_later": set[str](),
    "_text_generator": {"_life", "abc", "errors"},
    "converter": {"_dates", "_life", "abc", "errors"},
    "sharding": {"_dates", "abc", "errors"},
    "generators": GROUND,
    "models": {"_default", "abc", "converter", "errors"},
    "sync": PUBLIC | GROUND | {"_kind_methods", "_kinds"},
    "segment": GROUND,
    "snowflake": GROUND | {"machine"},
    "machine": GROUND,
    "stores": GROUND | {"machine"},
    "compat": GROUND | {"machine", "stores"},
    "_kind_methods": {"_kinds", "abc"},
    "_kinds": {
        *("_text_generator", "abc", "errors", "generators", "segment", "snowflake"),
    },
    "_store_urls": {"errors"},
    "provider": ROOMS | {"_kind_methods", "_kinds", "_store_urls"},
    "settings": (ROOMS - {"provider"}) | {"_kinds", "_store_urls", "variables"},
    "integrations": PUBLIC | {"models", "sync"},
    "server": PUBLIC
    | {"_checks", "_instance_id", "_kinds", "_life", "_text_generator", "integrations", "settings"},
    "cli": PUBLIC,
    "testing": ROOMS | PUBLIC | {"_store_urls", "sync"},
}
DEFERRED = {
    "__main__": {"cli"},
    "abc": {"variables"},  # a store is created
    "cli": {"server", "settings"},
    "_store_urls": {"compat", "stores"},  # whichever a URL names
    "provider": {"_store_urls", "settings"},
    "settings": {"compat"},  # the tags of Leaf's table are made
    "snowflake": {"machine"},  # a lease is made with the first generator
}


def table() -> str:
    """Return the rooms as a table: what each is for, by its first line, and what it may import."""
    modules = load()
    lines = ["| room | what it is for | imports |", "|---|---|---|"]
    for room in sorted({module.room for module in modules.values()}):
        name = f"{PACKAGE}.{room}" if room else PACKAGE
        told = (ast.get_docstring(modules[name].tree) or "").partition("\n")[0]
        later = DEFERRED.get(room, set()) - MAY_IMPORT[room]
        allowed = [f"`{each or PACKAGE}`" for each in sorted(MAY_IMPORT[room])]
        allowed += [f"`{each}` (in functions)" for each in sorted(later)]
        lines.append(f"| `{room or PACKAGE}` | {told} | {', '.join(allowed) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the table of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
