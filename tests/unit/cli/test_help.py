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


@pytest.mark.parametrize(
    ("words", "similar", "command"),
    [
        (("docter",), "'doctor'", "aiocosid"),
        (("next", "order", "--stor", "x"), "--store", "aiocosid next"),
        (("machines", "lst"), "'list'", "aiocosid machines"),
    ],
)
def test_a_slip_suggests_what_was_meant(
    aiocosid: Command, words: tuple[str, ...], similar: str, command: str
) -> None:
    ended = aiocosid(*words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert similar in ended.err
    assert ended.err.endswith(f"(see {command} --help)\n")
