"""What the wheel tells assistants that write code: short, and nothing that does not exist."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
import yaml  # type: ignore[import-untyped]

from tests.unit.cli.test_advice import VALUES, parse

from ._blocks import ROOT

FOLDER: Final = ROOT / "aiocosid" / ".agents" / "skills"
SKILLS: Final = sorted(FOLDER.glob("*/SKILL.md"))
MOST_LINES: Final = 150
EACH: Final = pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)

COMMAND: Final = re.compile(r"`aiocosid ([a-z][^`]*)`")
NAMED: Final = re.compile(r"`([\w.]+)` from `(aiocosid[\w.]*)`")


def test_there_is_one_for_each_task() -> None:
    tasks = {path.parent.name.removeprefix("aiocosid-") for path in SKILLS}
    assert tasks == {"choose", "wire", "test", "operate"}


@EACH
def test_it_is_found_and_read_at_once(skill: Path) -> None:
    """Its front matter has the name of the folder, and a description that says when to read it."""
    text = skill.read_text("utf-8")
    facts = yaml.safe_load(text.split("---\n")[1])
    assert facts["name"] == skill.parent.name
    assert "Use " in facts["description"]
    assert len(text.splitlines()) <= MOST_LINES


@EACH
def test_its_commands_are_complete(skill: Path) -> None:
    for line in COMMAND.findall(skill.read_text("utf-8")):
        if not line.startswith("machines run"):  # an entry of its own
            parse([VALUES.get(word, word) for word in shlex.split(line)])


@EACH
def test_its_names_exist(skill: Path) -> None:
    for name, module in NAMED.findall(skill.read_text("utf-8")):
        assert hasattr(import_module(module), name), f"{module}.{name}"
    for name in re.findall(r"`(\w+Error)`", skill.read_text("utf-8")):
        assert hasattr(import_module("aiocosid.errors"), name), name
