"""The public names and their signatures, as a text: ``python -m tests.docs._api`` writes it.

A change of it is seen in review, and needs a fragment of the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import griffe

from ._griffe import LazyDataclasses

ROOT: Final = Path(__file__).parents[2]
STARS: Final = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}
RECORD: Final = Path(__file__).with_name("api.txt")


def lines() -> list[str]:
    """Return a line for each public name, sorted."""
    extensions = griffe.load_extensions(LazyDataclasses(), "dataclasses")
    package = griffe.load("aiocosid", search_paths=[ROOT], extensions=extensions)
    assert isinstance(package, griffe.Module)
    return sorted(set(_module(package)))


def _module(module: griffe.Module) -> Iterator[str]:
    for name in module.exports or ():
        member = module.members.get(str(name))
        if member is not None:
            yield from _member(f"{module.path}.{name}", member)
    for name, inner in module.modules.items():
        if not name.startswith("_") and not inner.is_alias:
            yield from _module(inner)


def _member(path: str, member: griffe.Object | griffe.Alias) -> Iterator[str]:
    if isinstance(member, griffe.Alias):
        if "._" not in member.target_path:  # described in a room of its own
            yield path
            return
        member = member.final_target
    if isinstance(member, griffe.Class):
        yield f"class {path}{_parameters(member.parameters)}"
        inherited = {
            name: inner
            for name, inner in member.inherited_members.items()
            if "._" in inner.final_target.path  # of a private class
        }
        for name, inner in {**inherited, **member.members}.items():
            if not name.startswith("_"):
                yield from _member(f"{path}.{name}", inner)
    elif isinstance(member, griffe.Function):
        yield f"def {path}{_parameters(member.parameters)}"
    else:
        yield path


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
