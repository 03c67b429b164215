"""The package's own source as syntax trees: what the architecture tests look at.

It reads files and imports nothing, so that a broken package can still be examined.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "aiocosid"
ROOT = Path(__file__).parents[2] / PACKAGE

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One import of one module.

    Attributes:
        module: its full name.
        for_types: it stands under ``if TYPE_CHECKING`` and never runs.
        deferred: it stands in a function and runs when that is called.
    """

    module: str
    for_types: bool = False
    deferred: bool = False


@dataclass(frozen=True)
class Module:
    """One module of the package.

    Attributes:
        name: its full name, ``aiocosid.segment.chain``.
        path: relative to the package, ``segment/chain.py``.
        source: its text.
    """

    name: str
    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @property
    def room(self) -> str:
        """The first part below the package; empty for the package itself."""
        return room_of(self.name)

    @property
    def package(self) -> str:
        """What a relative import starts from."""
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]


def room_of(module: str) -> str:
    """Return the room of a module of ours, by its full name."""
    return module.split(".")[1] if "." in module else ""


@cache
def load() -> dict[str, Module]:
    """Read every module of the package, once a process."""
    modules = {}
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT)
        parts = path.parts[:-1] if path.name == "__init__.py" else path.with_suffix("").parts
        name = ".".join((PACKAGE, *parts))
        modules[name] = Module(name, path.as_posix(), file.read_text(encoding="utf-8"))
    return modules


def public_modules() -> set[str]:
    """Name what a user may import: the modules of the reference's pages, and the package."""
    pages = (ROOT.parent / "docs" / "reference").rglob("*.md")
    shown = re.findall(r"^::: (\S+)", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    return {PACKAGE, *shown} & load().keys()


def imports(module: Module, known: set[str]) -> Iterator[Import]:
    """Find what a module imports; ``known`` tells a submodule from a name in a module."""
    yield from _imports(module.tree, module.package, known, for_types=False, deferred=False)


def _imports(
    node: ast.AST, package: str, known: set[str], *, for_types: bool, deferred: bool
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(names=names):
                base = _base(child, package)
                dotted = [f"{base}.{alias.name}" for alias in names]
                found = [name if name in known else base for name in dotted]
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=orelse):
                for part, types in ((body, True), (orelse, for_types)):
                    block = ast.Module(part, [])
                    yield from _imports(block, package, known, for_types=types, deferred=deferred)
                continue
            case ast.expr():
                continue  # nothing is imported in one
            case _:
                inner = deferred or isinstance(child, Function)
                yield from _imports(child, package, known, for_types=for_types, deferred=inner)
                continue
        yield from (Import(name, for_types, deferred) for name in dict.fromkeys(found))


def _base(node: ast.ImportFrom, package: str) -> str:
    """Resolve the module that a ``from`` import names."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def dotted(node: ast.expr) -> str:
    """Write a chain of attributes as it stands in the source."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"
