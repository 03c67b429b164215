"""For the reference: what ``takes`` and the kinds of generators make of declarations.

An extension of griffe, which reads sources and calls nothing: it shows the arguments that a
constructor takes as a class of options, and the methods of providers, as ``help()`` does.
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import griffe

from aiocosid.provider.specs import KindMethod

KINDS: Final[dict[object, griffe.ParameterKind]] = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
}


class Declarations(griffe.Extension):
    """Shows declared arguments in the place of the object that carries them."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change the functions of a package, and of all its modules."""
        self._visit(pkg)

    def _visit(self, scope: griffe.Module | griffe.Class) -> None:
        for name, member in [*scope.members.items()]:
            if isinstance(member, griffe.Module | griffe.Class):
                self._visit(member)
                if any(str(each.value).startswith("having(") for each in _decorators(member)):
                    _add_fields(member, _object(scope, name))
            elif isinstance(member, griffe.Function):
                if any(str(each.value).startswith("takes(") for each in member.decorators):
                    _show(member, _object(scope, name))
            elif isinstance(member, griffe.Attribute) and scope.is_class:
                found = _object(scope, name) if "(kinds." in str(member.value) else None
                if isinstance(found, KindMethod):
                    method = griffe.Function(name, lineno=member.lineno, endlineno=member.endlineno)
                    scope.set_member(name, method)
                    _show(method, found)


def _decorators(member: griffe.Module | griffe.Class) -> list[griffe.Decorator]:
    return member.decorators if isinstance(member, griffe.Class) else []


def _add_fields(member: griffe.Module | griffe.Class, made: Any) -> None:
    """Give a table of settings the keys that it has of options."""
    given = {name for each in made.__mro__[1:] for name in getattr(each, "model_fields", ())}
    for name, field in made.model_fields.items():
        if name not in member.members and name not in given:
            attribute = griffe.Attribute(name, value=repr(field.default))
            attribute.docstring = griffe.Docstring(field.description or "", parent=attribute)
            member.set_member(name, attribute)


def _object(scope: griffe.Module | griffe.Class, name: str) -> Any:
    found: Any = import_module(scope.module.path)
    for part in scope.path.removeprefix(scope.module.path).split("."):
        found = getattr(found, part) if part else found
    return getattr(found, name)


def _show(member: griffe.Function, made: Any) -> None:
    """Give a function the arguments and the words that it has at run time."""
    given = {each.name: each for each in member.parameters}
    shown = (
        given.get(each.name) or _parameter(each)
        for each in inspect.signature(made).parameters.values()
    )
    member.parameters = griffe.Parameters(*shown)
    member.docstring = griffe.Docstring(made.__doc__, parent=member)


def _parameter(made: inspect.Parameter) -> griffe.Parameter:
    none = made.default is inspect.Parameter.empty
    return griffe.Parameter(
        made.name,
        kind=KINDS[made.kind],
        annotation=ast.unparse(ast.parse(_type(made.annotation))),
        default=None if none else repr(made.default),
    )


def _type(annotation: Any) -> str:
    """Return a type without its bounds, which the words have."""
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return " | ".join(map(_type, get_args(annotation)))
    if annotation is NoneType:
        return "None"
    return inspect.formatannotation(annotation)
