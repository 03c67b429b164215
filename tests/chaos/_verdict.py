"""What the one checker, tests/evidence/check.py, says of histories."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECKER: Final = Path(__file__).parents[1] / "evidence" / "check.py"
UNIQUE: Final = "unique: an id came twice"


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        ids: how many there are.
        violations: of each rule that is broken, how many.
        said: the whole output.
        code: the exit code: 0 if no rule is broken, and there are ids.
    """

    ids: int
    violations: Counter[str]
    said: str
    code: int


def judge(folder: Path) -> Verdict:
    """Run the checker as anybody else would: isolated, so that it can import nothing of ours."""
    argv = [sys.executable, "-I", str(CHECKER), str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    ids = re.search(r"\b([\d,]+) ids\b", done.stdout)
    broken = re.findall(r"^([\d,]+) violations of (.*)$", done.stdout, re.MULTILINE)
    violations = Counter({rule: _number(count) for count, rule in broken})
    return Verdict(
        _number(ids[1]) if ids else 0, +violations, done.stdout + done.stderr, done.returncode
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))
