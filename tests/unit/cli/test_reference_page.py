"""docs/reference/cli.md tells of every command, option and exit code, and of no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from aiocosid.cli._app import app
from aiocosid.cli._exit import ExitCode
from aiocosid.cli._program import parser

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def _commands(group: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in vars(group)["commands"].items():
        if "commands" in vars(each):
            yield from _commands(each, f"{name} ")
        else:
            yield f"{prefix}{name}", each


PROGRAM_HELP = parser().format_help()
COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_the_page_has_a_section_for_each_command() -> None:
    """A command that is added or renamed has to be written about."""
    assert set(re.findall(r"^## ([a-z -]+)$", PAGE, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_synopsis_has_every_option(name: str) -> None:
    """The line below the heading names each option, by one of its spellings."""
    [synopsis] = re.findall(rf"^aiocosid {name} (?=\[|[A-Z]|--).*$", PAGE, re.MULTILINE)
    shown = set(re.findall(r"(?<!\w)--?[a-z-]+", synopsis))
    spelt = [set(param.opts) for param in COMMANDS[name].params if param.opts[0].startswith("-")]
    if name == "machines run":  # has a parser of its own
        spelt = [{each} for each in re.findall(r"^ +(--[a-z-]+)", PROGRAM_HELP, re.MULTILINE)]
        shown -= {"--"}
    real = [options for options in spelt if options != {"--help"}]
    assert [options for options in real if not options & shown] == []
    assert shown <= set[str]().union(*real)


def test_the_table_has_every_exit_code() -> None:
    """A script relies on the table."""
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [*ExitCode]
