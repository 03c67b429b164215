"""Every small mistake that could be made in a module."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final

__all__ = ("Mutant", "mutants")

SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
RENAMED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}

# What holds no behaviour: types, names for the reader, and what errors say.
SKIPPED_FIELDS: Final = {"annotation", "returns", "decorator_list", "type_comment", "bases"}
SKIPPED_CALLS: Final = {"TypeVar", "ParamSpec", "cast", "NewType"}
SKIPPED_NAMES: Final = {"__all__", "__slots__", "expected"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Attributes:
        module: below aiocosid/, without ``.py``.
        function: where it is, as ``Class.method``; empty in the module itself.
        first: the first line of the statement that is changed, or of the head of a compound one.
        last: the last one.
        was: that statement, in Python's own spelling.
        becomes: what stands there instead.
        code: the whole module with it.
    """

    module: str
    function: str
    first: int
    last: int
    was: str
    becomes: str
    code: CodeType

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is known by in equivalent.toml."""
        return self.module, self.function, self.was, self.becomes


@dataclass(slots=True)
class _Place:
    """A node, where it hangs, and the statement that it is a part of."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    statement: ast.stmt
    function: str

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(module: str, source: str, filename: str) -> Iterator[Mutant]:
    """Yield what differs from the module in one place."""
    tree = ast.parse(source)
    seen: set[tuple[int, str]] = set()
    for place in _places(tree, tree.body[0], ""):
        was = _text(place.statement)
        for node in _replacements(place):
            place.put(ast.fix_missing_locations(ast.copy_location(node, place.node)))
            statement = node if isinstance(node, ast.stmt) else place.statement
            becomes = _text(statement)
            if becomes != was and (place.statement.lineno, becomes) not in seen:
                seen.add((place.statement.lineno, becomes))
                first, last = _lines(place.statement)
                code = compile(tree, filename, "exec", dont_inherit=True)
                yield Mutant(module, place.function, first, last, was, becomes, code)
            place.put(place.node)


def _places(node: ast.AST, statement: ast.stmt, function: str) -> Iterator[_Place]:
    for field, value in ast.iter_fields(node):
        if field in SKIPPED_FIELDS:
            continue
        several = isinstance(value, list)
        for index, child in enumerate(value if several else [value]):
            if not isinstance(child, ast.AST) or _is_skipped(child):
                continue
            its = child if isinstance(child, ast.stmt) else statement
            yield _Place(node, field, index if several else None, child, its, function)
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}".lstrip(".")
            if not isinstance(child, ast.Raise):
                yield from _places(child, its, inside)


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case (
            ast.If(ast.Name("TYPE_CHECKING"))
            | ast.AnnAssign(_, ast.Name("TypeAlias"))
            | ast.Raise(ast.Name("NotImplementedError"))
        ):
            return True
        case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
            return name in SKIPPED_NAMES
        case ast.keyword(name):
            return name in SKIPPED_NAMES
        case ast.Call(ast.Name(name)) | ast.Call(ast.Attribute(_, name)):
            return name in SKIPPED_CALLS or name.endswith("Error")
        case _:
            return False


def _replacements(place: _Place) -> Iterator[ast.AST]:
    node = place.node
    if type(node) in SWAPPED:
        yield SWAPPED[type(node)]()
    if isinstance(node, ast.expr) and place.field in {"test", "ifs"}:
        yield ast.UnaryOp(ast.Not(), node)
    if isinstance(node, ast.Constant):
        yield from _values(node.value)
    if _may_go(node):
        yield ast.Pass()
    match node:
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Name(name) if name in RENAMED:
            yield ast.Name(RENAMED[name], ast.Load())
        case ast.With(_, body) | ast.AsyncWith(_, body):
            yield ast.If(ast.Constant(value=True), body, [])
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case _:
            pass


def _values(value: object) -> Iterator[ast.AST]:
    match value:
        case bool():
            yield ast.Constant(not value)
        case int() | float():
            yield ast.Constant(value + 1)
        case str() if " " not in value:  # else it is for people
            yield ast.Constant(value + "~")
        case _:
            pass


def _may_go(node: ast.AST) -> bool:
    """Whether it is a statement without which the rest still makes sense."""
    match node:
        case ast.Expr() | ast.Raise() | ast.Delete() | ast.AugAssign() | ast.Return(None):
            return True
        case ast.Assign(targets):
            return not any(isinstance(each, ast.Name) for each in targets)
        case ast.AnnAssign(target, _, value):
            return value is not None and not isinstance(target, ast.Name)
        case _:
            return False


def _text(statement: ast.stmt) -> str:
    """Return a statement, or the head of a compound one."""
    match statement:
        case ast.Match(subject):
            return f"match {ast.unparse(subject)}:"
        case ast.Try() | ast.TryStar():
            return "try:"
        case _ if hasattr(statement, "body"):
            head = copy.copy(statement)
            setattr(head, "body", [ast.Pass()])  # noqa: B010
            for field in ("orelse", "decorator_list"):
                if hasattr(head, field):
                    setattr(head, field, [])
            return ast.unparse(head).removesuffix("\n    pass")
        case _:
            return ast.unparse(statement)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    last = (statement.end_lineno or statement.lineno) if body is None else body[0].lineno - 1
    return statement.lineno, max(statement.lineno, last)
