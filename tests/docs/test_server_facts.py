"""What docs/reference/server-api.md says about the id service is what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from starlette.routing import Route

import aiocosid
from aiocosid.server import App, TokenScope
from aiocosid.server._problems import _STATUSES
from aiocosid.server.dialects import cosid, leaf, resp, tinyid

from ._blocks import ROOT

PAGE = (ROOT / "docs" / "reference" / "server-api.md").read_text()
CODE = ROOT / "aiocosid" / "server"

OF_ROUTING = {"not-found", "method-not-allowed"}  # Starlette's own refusals
FOR_BROWSERS = {"/dashboard/{name}"}  # what the page of the dashboard fetches
DASHBOARD = ("_dashboard.py", "_page.py")  # whose refusals people read


def cells(heading: str, column: int) -> Iterator[str]:
    """What stands between backticks in a column of a section's tables."""
    level = heading.partition(" ")[0]
    below = PAGE.partition(f"\n{heading}\n")[2]
    text = re.split(rf"^{level} ", below, flags=re.MULTILINE)[0]
    for row in re.findall(r"^\| (.*) \|$", text.partition("\n|---")[2], re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", row.split(" | ")[column])


def stated() -> set[str]:
    """The paths of the page, without methods and queries."""
    found = re.findall(r"^\| (`[^|]*/.*?) \|", PAGE, re.MULTILINE)
    texts = (each for cell in found for each in re.findall(r"`([^`]+)`", cell))
    return {each.split()[-1].partition("?")[0] for each in texts if "/" in each}


def served() -> tuple[set[str], set[str]]:
    """The paths of the application, and beginnings below which it has some."""
    provider = aiocosid.configure({"generators": {"order": {"kind": "counter"}}}, default=False)
    dialects = [each.routes for each in (cosid, leaf, tinyid)]
    found = App(provider, dialects=dialects)._app.routes
    paths = {each.path for each in found if isinstance(each, Route)}
    names: list[Any] = [
        each.endpoint for each in found if isinstance(each, Route) and "tinyid" in each.path
    ]
    paths = {each for each in paths if "tinyid" not in each}
    paths |= {f"/tinyid/id/{name}" for each in names for name in each.endpoints}
    open_ended = {re.sub(r"\{\w+:path\}$", "", each) for each in paths if each.endswith(":path}")}
    whole = {re.sub(r"\{(\w+):\w+\}", r"{\1}", each) for each in paths}
    return {each for each in whole if "{rest}" not in each} - FOR_BROWSERS, open_ended


def test_the_page_has_each_path() -> None:
    paths, beginnings = served()
    assert paths - {*beginnings} - stated() == set()
    shown = stated() | {path + "/" for path in stated()}
    assert [each for each in beginnings if not any(s.startswith(each) for s in shown)] == []


def test_the_server_has_each_path_of_the_page() -> None:
    paths, beginnings = served()
    missing = stated() - paths
    assert [each for each in missing if not each.startswith(tuple(beginnings))] == []


def kinds() -> set[str]:
    """The kinds of problem that the server's own API answers."""
    found = {name for _, _, name in _STATUSES}
    for path in CODE.glob("*.py"):
        if path.name in DASHBOARD:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                constants = (each for each in node.args[1:2] if isinstance(each, ast.Constant))
                found |= {str(each.value) for each in constants}
    return found


def test_the_page_has_each_kind_of_problem() -> None:
    assert kinds() | OF_ROUTING == {*cells("## Errors", 1)}


def test_the_page_has_each_verb() -> None:
    assert [*cells("## Tokens", 0)] == [*TokenScope]


def test_the_page_has_each_command() -> None:
    shown = {each.split()[0] for each in cells("## RESP", 0)}
    assert shown == {name.decode() for name in resp.commands()} - {*resp._REFUSED}
