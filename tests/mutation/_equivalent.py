"""The mutants that no test can tell from the original, and why."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from ._mutants import Mutant

__all__ = ("reasons", "stale")

FILE: Final = Path(__file__).with_name("equivalent.toml")

Key = tuple[str, str, str, str]


def reasons() -> dict[Key, str]:
    """Return why each of them is equivalent."""
    found: dict[Key, str] = {}
    for entry in tomllib.loads(FILE.read_text()).get("mutant", []):
        several = entry["becomes"]
        for becomes in several if isinstance(several, list) else [several]:
            found[entry["module"], entry["function"], entry["was"], becomes] = entry["why"]
    return found


def stale(known: dict[Key, str], all_mutants: list[Mutant], survived: list[Mutant]) -> list[Key]:
    """Return the entries for these modules that no surviving mutant has."""
    modules = {each.module for each in all_mutants}
    alive = {each.key for each in survived}
    return [key for key in known if key[0] in modules and key not in alive]
