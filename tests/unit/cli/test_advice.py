"""The commands that errors, warnings and findings advise: each can be run as it is printed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from typing import Final

from aiocosid.cli._app import command_tree

from .._source import load

ADVICE: Final = re.compile(r"['`]aiocosid ([a-z][^'`]*)['`]")
BEGINS: Final = re.compile(r"['`]aiocosid [a-z]")

VALUES: Final = {"URL": "sqlite:///ids.db", "FILE": "ids.toml", "N": "7", "MACHINE_ID": "3"}
"""For what the reader fills in."""

NUMBERS: Final = ("bits", "highest", "machine_id", "region", "region_bits")


def filled(value: ast.expr) -> str:
    """Return the text of a value in an f-string: a number, or a name that needs quotes."""
    assert isinstance(value, ast.FormattedValue | ast.Constant)
    if isinstance(value, ast.Constant):
        return str(value.value)
    if (source := ast.unparse(value.value)) in NUMBERS:
        return "5"
    return '"a name"' if "quote(" in source else "a name"


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module but for its docstrings, which name commands in a word."""
    inside = {id(e) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for e in n.values}
    inside |= {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(filled, node.values))
        elif id(node) not in inside and isinstance(node, ast.Constant):
            yield str(node.value)


def advised() -> list[tuple[str, str]]:
    """Return the module and the command line of each advice in the package."""
    return sorted(
        (module.path, " ".join(found.split()))
        for module in load().values()
        if BEGINS.search(module.source)  # to look through a tree takes a hundred times as long
        for text in texts(module.tree)
        for found in ADVICE.findall(text)
    )


def parse(words: list[str]) -> dict[str, object]:
    """Return what the real commands make of a line, down to the last one; run nothing."""
    command, context = command_tree(), None
    while hasattr(command, "commands"):
        context = command.make_context(command.name, [], parent=context, resilient_parsing=True)
        context.resilient_parsing = False
        _, command, words = command.resolve_command(context, words)
    found: dict[str, object] = command.make_context(command.name, words, parent=context).params
    return found


def test_each_is_a_command() -> None:
    """Complete, its names quoted; and no command guesses a store."""
    found = advised()
    assert len(found) > 20, "the search finds them"
    for module, line in found:
        params = parse([VALUES.get(word, word) for word in shlex.split(line)])
        given = {"store", "config"} & params.keys()
        is_served = "serve" in line or "broker" in line
        assert not given or is_served or any(map(params.get, given)), (module, line)
