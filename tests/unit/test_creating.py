"""Whatever creates what was not there is on a list, with the reason why it cannot vouch for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

CREATES: Final = re.compile(
    r"CREATE [A-Z ]*(?:TABLE|VIEW)|IF NOT EXISTS|await create_in\(|"
    r"\.create_schema\b|\.initialize\b|mark_counters\(\)|mark_store\b"
)
"""Statements, and what runs them."""

DECIDED: Final = "runs what `creation_of` decided: never a table that the witness has seen"
PASSES: Final = "passes on what its caller decided"
DOOR: Final = "`create_in` looks whether the store has a witness, before anything is created"
OTHERS: Final = "tables of another system, without a marker: its rows have to be made by hand"
TICKETS: Final = "numbers by AUTO_INCREMENT, as the other system makes them: `init` is by hand"
TEXT: Final = "a text for people"
CLIENT: Final = "a method of redis-py, which only connects"

CODE: Final = {
    "provider/store_urls.py": (1, TEXT),
    "abc/stores.py": (1, PASSES),
    "cli/_init.py": (4, "asks a person, or `initialize` refuses what is not empty"),
    "compat/_group.py": (1, PASSES),
    "compat/_table.py": (6, OTHERS),
    "compat/leaf_snowflake/mysql.py": (2, TICKETS),
    "compat/tinyid.py": (1, PASSES),
    "errors/_stores.py": (1, TEXT),
    "machine/administration.py": (
        2,
        "the rule that writes the marker; `initialize` alone uses it",
    ),
    "provider/_configured.py": (1, DOOR),
    "provider/hosting.py": (2, DOOR),
    "provider/_id_provider.py": (1, DOOR),
    "server/_store_api.py": (2, PASSES),
    "stores/sqlalchemy.py": (1, "a pattern: it reads the statements of an index, and runs none"),
    "stores/_mysql.py": (4, DECIDED),
    "stores/_postgres.py": (2, DECIDED),
    "stores/_dialect.py": (2, f"indexes; {DECIDED}"),
    "stores/_sql.py": (1, f"on first use of a SQLite file; {DECIDED}"),
    "stores/_sqlite.py": (2, DECIDED),
    "stores/base.py": (8, "vouches for a disposable store alone; `initialize` refuses others"),
    "stores/redis/_demands.py": (1, CLIENT),
    "stores/over.py": (1, PASSES),
    "stores/redis/_link.py": (1, CLIENT),
    "stores/remote/__init__.py": (1, PASSES),
    "stores/striped.py": (1, PASSES),
}

SAYS: Final = re.compile(
    r"init\b[^\n]*--yes|--yes[^\n]*init\b|create ?= ?[Tt]rue|(?:serve|broker) [^\n]*--create"
)
"""What a reader may copy into a script that runs at every start."""

NEW: Final = "a new server: `--yes` is refused once it has keys"
KNOWS: Final = "a SQLite file has a witness: dropped tables are refused"

PAGES: Final = {
    "examples/index.md": NEW,
    "explanation/evidence.md": TEXT,
    "explanation/leases.md": TEXT,
    "howto/configure.md": NEW,
    "howto/id-service.md": NEW,
    "howto/id-types.md": KNOWS,
    "howto/kubernetes.md": NEW,
    "migrate/from-uuid-or-auto-increment.md": KNOWS,
    "howto/observe.md": KNOWS,
    "howto/operate.md": NEW,
    "howto/prepare-a-store.md": NEW,
    "howto/sharded-ids.md": KNOWS,
    "howto/sqlalchemy.md": KNOWS,
    "howto/test-your-code.md": "of tests",
    "howto/threads-and-celery.md": KNOWS,
    "index.md": KNOWS,
    "reference/api/integrations.md": KNOWS,
    "reference/api/sync.md": KNOWS,
    "reference/cli.md": TEXT,
    "tutorial.md": f"{KNOWS}; {NEW}",
}


def counts(pattern: re.Pattern[str], where: str, *endings: str) -> dict[str, int]:
    """How often a pattern occurs in each file of a directory."""
    files = sorted(each for each in (ROOT / where).rglob("*") if each.suffix in endings)
    found = {
        str(each.relative_to(ROOT / where)): len(pattern.findall(each.read_text("utf-8")))
        for each in files
    }
    return {path: count for path, count in found.items() if count}


def test_each_place_in_the_code_has_its_reason() -> None:
    """A new one has to be thought about: after a loss it must not begin at 1 by itself."""
    assert counts(CREATES, "aiocosid", ".py") == {path: count for path, (count, _) in CODE.items()}
    assert all(reason for _, reason in CODE.values())


def test_each_page_that_says_it_has_its_reason() -> None:
    """Also the examples that people copy."""
    found = counts(SAYS, "docs", ".md", ".py", ".yaml", ".toml")
    ours = {
        path
        for path in found
        if not path.startswith(("changelog", "changes/", "zh/")) and ".zh." not in path
    }
    assert ours == set(PAGES)
    assert all(PAGES.values())
