"""The help: what a newcomer meets first."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.core import TyperArgument

from aiocosid.cli._examples import EXAMPLES
from aiocosid.cli._program import EPILOG, parser
from tests.command import TREE, Command, run

from .test_reference_page import COMMANDS

GROUPS = sorted({name.partition(" ")[0] for name in COMMANDS if " " in name})
FRAME = re.compile(r"[│╭╮╰╯─]")


@pytest.mark.parametrize("name", ["", *GROUPS, *COMMANDS])
def test_help_has_words_for_values(aiocosid: Command, name: str) -> None:
    """``-h`` is ``--help`` everywhere, and no placeholder is the name of a type."""
    ended = aiocosid(*name.split(), "-h")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == aiocosid(*name.split(), "--help").out
    if hasattr(TyperArgument, "display_type"):  # the oldest releases name an argument's type
        assert re.findall(r"<[^>\n]*>|\b(?:TEXT|INTEGER|FLOAT|BOOLEAN)\b", ended.out) == []


def test_a_newcomer_finds_the_first_commands_first() -> None:
    """Panels by what people do; in each, what is needed first stands first."""
    panel = re.compile(r"^╭─ ([\w ]+) ─+╮\n(.*?)^╰", re.MULTILINE | re.DOTALL)
    panels = {
        title: re.findall(r"^│ ([a-z][a-z-]+) ", body, re.MULTILINE)
        for title, body in panel.findall(run("-h").stdout)
    }
    assert panels.pop("Options") == []
    assert {title: listed[:4] for title, listed in panels.items()} == {
        "Ids": ["next", "snowflake", "parse", "set-floor"],
        "Store": ["init", "doctor", "inspect", "watch"],
        "Machine ids": ["machines"],
        "Service": ["serve", "broker", "token"],
        "Settings": ["check-config", "groups"],
    }
    listed = {each for names in panels.values() for each in names}
    assert listed == {name.partition(" ")[0] for name in COMMANDS}


def option_words(command: Any) -> set[str]:
    """Return the words of the options' help, their names and their placeholders."""
    words: set[str] = set()
    for param in command.params:
        words |= {*(param.help or "").split(), param.metavar or ""}
        words |= {each for each in param.opts if each.startswith("-")}
    return words - {""}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "machines run"])
def test_help_fits_a_terminal_of_80_columns(aiocosid: Command, name: str) -> None:
    """No line is longer, and no word is broken, however wide the placeholders are."""
    out = aiocosid(*name.split(), "-h").out
    assert max(map(len, out.splitlines())) <= 80
    shown = set(re.split(r"[\s,]+", FRAME.sub(" ", out)))
    shown |= {each.strip("[]") for each in shown}  # as an older typer shows what may be left out
    assert {each.rstrip(",") for each in option_words(COMMANDS[name])} - shown == set()


@pytest.fixture(autouse=True)
def _wide_as_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_command_has_examples(aiocosid: Command) -> None:
    """They are in its help; `machines run` has them in the text of its own parser."""
    assert {*EXAMPLES, "machines run"} == {*COMMANDS}
    for name, examples in EXAMPLES.items():
        out = " ".join(aiocosid(*name.split(), "-h").out.split())
        assert [each for each in examples if f"aiocosid {name} {each}" not in out] == []


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, each in EXAMPLES.items() for words in each]
)
def test_each_example_is_a_command(name: str, words: str) -> None:
    """It parses, with all checks of its options; nothing is run."""
    command: Any = TREE()
    for each in name.split():
        command = command.commands[each]
    command.make_context(name, shlex.split(words))


def test_the_examples_of_machines_run_are_commands() -> None:
    lines = re.findall(r"^ +aiocosid machines run (.*)$", EPILOG, re.MULTILINE)
    assert [parser().parse_args(shlex.split(each)).command[0] for each in lines] == ["--", "--"]
