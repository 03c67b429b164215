"""Each page says what to install for the code that it shows."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ._blocks import ROOT, Block, blocks, commands, pages

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# What in a page's code needs which library; imports are looked at besides.
NEEDS = {
    r"\brediss?(?:\+\w+)?://": "redis",
    r"\bpostgres(?:ql)?://": "asyncpg",
    r"\bmysql://": "asyncmy",
    r"\bzookeeper://": "kazoo",
    r"\betcd://": "aetcd",
    r"\bnats(?:\+tls)?://": "nats-py",
    r"\b(?:aio)?cosid\+https?://": "httpx",
    r"\baiocosid\+unix://": "redis",
    r"\baiocosid (?:serve|broker)\b": "uvicorn",
    r"\b(?:leaf|tinyid|tddl)\+\w+://": "sqlalchemy",
    r"\baiocosid\.(?:configure|settings)\b|\bcheck-config\b": "pydantic-settings",
    r"\bOpaqueIdConverter\b": "cryptography",
    r"\bintegrations\.(?:fastapi|asgi|starlette)\b": "starlette",
}
PROGRAMS = {
    **{name: name for name in ("arq", "celery", "dramatiq", "faststream", "taskiq")},
    **{name: name for name in ("gunicorn", "pytest", "uvicorn")},
    "aiocosid": "typer",
}
RUN = {"python", "console", "toml"}
DISTRIBUTIONS = {
    **packages_distributions(),  # of each importable module
    "airflow": ["apache-airflow"],  # too large to be installed with the tests
}


def modules(source: str) -> Iterator[str]:
    """The modules that code imports, by their first names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def needs(page: list[Block]) -> set[frozenset[str]]:
    """The libraries without which the code of a page does not run; one of each set is enough."""
    own = {Path(block.title).parts[0].removesuffix(".py") for block in page if block.title}
    own |= {"aiocosid", "tests", *sys.stdlib_module_names}  # tests: in a clone
    found: set[frozenset[str]] = set()
    for block in page:
        if block.language not in RUN:
            continue
        code = re.sub(r"  # .*", "", block.source)
        found |= {frozenset({name}) for text, name in NEEDS.items() if re.search(text, code)}
        if block.language == "python":
            for module in {*modules(block.source)} - own:
                found.add(frozenset(map(canonicalize_name, DISTRIBUTIONS[module])))
        if block.language == "console":
            words = {command.split()[0] for command, _ in commands(block.source)}
            found |= {frozenset({PROGRAMS[word]}) for word in words & {*PROGRAMS}}
    return found


def brought(texts: Iterable[str]) -> set[str]:
    """What requirements install, by name, with all that this needs in turn."""
    seen: set[str] = set()
    left = [*texts]
    while left:
        text = left.pop()
        if text not in seen:
            seen.add(text)
            left += needed(Requirement(text))
    return {canonicalize_name(Requirement(text).name) for text in seen}


def needed(requirement: Requirement) -> Iterator[str]:
    """What a distribution asks for, and its extras that are wanted, without the versions."""
    name = canonicalize_name(requirement.name)
    if name == PROJECT["name"]:
        extras = PROJECT["optional-dependencies"]
        yield from PROJECT["dependencies"]
        yield from (line for extra in requirement.extras for line in extras[extra])
        return
    try:
        lines = requires(name) or []
    except PackageNotFoundError:  # not on this platform
        return
    contexts = [{"extra": extra} for extra in ("", *requirement.extras)]
    for each in map(Requirement, lines):
        if each.marker is None or any(map(each.marker.evaluate, contexts)):
            inner = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
            yield f"{each.name}{inner}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_to_install(name: str) -> None:
    """In a line `pip install ...`, by the extras and the names of other libraries."""
    said = re.findall(r"pip install ([^`\n]+)", PAGES[name].read_text())
    words = {word for line in said for word in shlex.split(line)}
    if "-r" in words:
        words -= {"-r", "requirements.txt"}
        words |= {
            line
            for path in PAGES[name].parent.rglob("requirements.txt")
            for line in path.read_text().splitlines()
        }
    there = brought({"aiocosid", *words})
    assert [sorted(each) for each in needs(blocks(PAGES[name])) if not each & there] == []
