"""What pyproject.toml allows is what `make oldest` runs on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def floors() -> dict[str, Version]:
    """The lowest version of each dependency and of those of the extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    found: dict[str, Version] = {}
    for text in [
        *project["dependencies"],
        *(each for x in everything.extras for each in extras[x]),
    ]:
        requirement = Requirement(text)
        (floor,) = [each.version for each in requirement.specifier if each.operator == ">="]
        found[canonicalize_name(requirement.name)] = Version(floor)
    return found


def test_the_oldest_run_is_on_the_floors() -> None:
    """A floor is raised or lowered together with `make lock`, which pins the run anew."""
    text = (ROOT / "requirements" / "oldest.txt").read_text()
    pinned = dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==(\S+)", text, re.MULTILINE))
    assert {name: Version(pinned[name]) for name in floors()} == floors()
