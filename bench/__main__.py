"""Ask the questions: ``python -m bench [q01 q05 ...]``."""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from pathlib import Path

from ._harness import Answer, pin, save, table

QUESTIONS = sorted(path.stem for path in Path(__file__).parent.glob("q[0-9]*.py"))


def main() -> int:
    """Ask those whose names begin with an argument, or all; 1 if a bar is missed."""
    asked = [q for q in QUESTIONS if not sys.argv[1:] or q.startswith(tuple(sys.argv[1:]))]
    answers: dict[str, Answer] = {}
    pin()
    for question in asked:
        begin = time.monotonic()
        answers[question] = asyncio.run(import_module(f".{question}", __package__).ask())
        print(
            f"{table(answers[question])}\n{question}: {time.monotonic() - begin:.0f} s", flush=True
        )
        save(answers)
    return 1 if any(answer.reached is False for answer in answers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
