"""Write the raw results into the page: ``python -m bench.report``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from . import plots
from ._harness import RESULTS, Answer, table

PAGE = Path(__file__).with_name("README.md")
MARK = "<!-- From here on written by `python -m bench.report`. -->\n"


def tables() -> str:
    """Return every run's tables, one chapter an interpreter."""
    parts: list[str] = []
    for path in sorted(RESULTS.glob("py*.json")):
        run = json.loads(path.read_text())
        kept = run["settings"]
        shown = ("aiocosid", "anyio", "loop", "system")
        where = ", ".join(f"{name} {kept[name]}" for name in shown)
        parts.append(f"## Python {kept['python']}\n")
        parts.append(f"{where}; pinned to one core; median of at least {kept['rounds']} rounds.\n")
        for name, answer in sorted(run["answers"].items()):
            parts.append(f"<!-- {name} -->")
            parts.append(table(Answer(**answer)))
    return "\n".join(parts)


def main() -> None:
    """Keep what people wrote, and put the tables below it."""
    written = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(f"{written}{MARK}\n{tables()}")
    newest = RESULTS / "py3.11.json"
    answers = json.loads(newest.read_text())["answers"]
    day = datetime.fromtimestamp(newest.stat().st_mtime, UTC).date().isoformat()
    plots.remember(answers, day)
    plots.draw(answers)


if __name__ == "__main__":
    main()
