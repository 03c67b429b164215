"""The help: what a newcomer meets first."""

from __future__ import annotations

import re

import pytest
from typer.core import TyperArgument

from tests.command import Command, run

from .test_reference_page import COMMANDS

GROUPS = sorted({name.partition(" ")[0] for name in COMMANDS if " " in name})


@pytest.mark.parametrize("name", ["", *GROUPS, *COMMANDS])
def test_help_has_words_for_values(aiocosid: Command, name: str) -> None:
    """``-h`` is ``--help`` everywhere, and no placeholder is the name of a type."""
    ended = aiocosid(*name.split(), "-h")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == aiocosid(*name.split(), "--help").out
    if hasattr(TyperArgument, "display_type"):  # the oldest releases name an argument's type
        assert re.findall(r"<[^>\n]*>|\b(?:TEXT|INTEGER|FLOAT|BOOLEAN)\b", ended.out) == []


def test_a_newcomer_finds_the_first_commands_first() -> None:
    out = run("-h").stdout
    listed = re.findall(r"^│ ([a-z][a-z-]+) ", out, re.MULTILINE)
    assert listed[:4] == ["next", "inspect", "doctor", "init"]
    assert set(listed) == {name.partition(" ")[0] for name in COMMANDS}
