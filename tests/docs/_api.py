"""The public names and their signatures, as a text: ``python -m tests.docs._api`` writes it.

A change of it is seen in review, and needs a fragment of the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import griffe

from tests.unit._source import load, public_modules

from ._declared import Declarations

ROOT: Final = Path(__file__).parents[2]
STARS: Final = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}
RECORD: Final = Path(__file__).with_name("api.txt")


PUBLIC: Final = public_modules()
MODULES: Final = load().keys()


def lines() -> list[str]:
    """Return a line for each public name, sorted."""
    extensions = griffe.load_extensions("dataclasses", Declarations())
    package = griffe.load("aiocosid", search_paths=[ROOT], extensions=extensions)
    assert isinstance(package, griffe.Module)
    return sorted({line for name in PUBLIC for line in _module(_found(package, name))})


def _found(package: griffe.Module, name: str) -> griffe.Module:
    found = package
    for part in name.split(".")[1:]:
        found = found.modules[part]
    return found


def _module(module: griffe.Module) -> Iterator[str]:
    for name in module.exports or ():
        member = module.members.get(str(name))
        if member is not None:
            yield from _member(f"{module.path}.{name}", member)


def _member(path: str, member: griffe.Object | griffe.Alias) -> Iterator[str]:
    if isinstance(member, griffe.Alias):
        if _is_shown(member.target_path):  # described in a room of its own
            yield path
            return
        member = member.final_target
    if isinstance(member, griffe.Class):
        yield f"class {path}{_parameters(member.parameters)}"
        inherited = {
            name: inner
            for name, inner in member.inherited_members.items()
            if not _is_shown(inner.final_target.path)  # of a class that no page shows
        }
        for name, inner in {**inherited, **member.members}.items():
            if not name.startswith("_"):
                yield from _member(f"{path}.{name}", inner)
    elif isinstance(member, griffe.Function):
        yield f"def {path}{_parameters(member.parameters)}"
    else:
        yield path


def _is_shown(path: str) -> bool:
    """Tell whether a name is one of a module that a page of the reference shows."""
    module = path
    while module not in MODULES:
        module = module.rpartition(".")[0]
    return module in PUBLIC


def _parameters(parameters: griffe.Parameters) -> str:
    shown: list[str] = []
    for each in parameters:
        kind = each.kind
        if kind is griffe.ParameterKind.keyword_only and not any(s.startswith("*") for s in shown):
            shown.append("*")
        star = "" if kind is None else STARS.get(kind, "")
        optional = "=" if each.default is not None and not star else ""
        shown.append(f"{star}{each.name}{optional}")
        if kind is griffe.ParameterKind.positional_only:
            shown[-1] += " (positional)"
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line}\n" for line in lines()), "utf-8")
