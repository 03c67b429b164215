"""Options, declared once: a dataclass next to what it configures, and what is derived from it.

A numeric field is ``Annotated`` with its `Bounds`, usually through one of the types below.  Its
meaning is in the docstring of its class, under ``Attributes:``.  A module that declares options
evaluates its annotations, so that the bounds exist at run time.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from math import inf
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Final,
    NamedTuple,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    overload,
)

from ..errors import InvalidArgumentError
from .checks import MAX_INT64, check_boolean, check_integer, check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = (
    "Bounds",
    "Count",
    "Declared",
    "Options",
    "Seconds",
    "SecondsOrZero",
    "check_names",
    "common",
    "declared",
    "documented",
    "meanings",
    "parameters_of",
    "takes",
    "words_of",
)

P = ParamSpec("P")
D = TypeVar("D")
R = TypeVar("R")
S = TypeVar("S")
O_co = TypeVar("O_co", covariant=True)


@dataclass(frozen=True, slots=True, repr=False)
class Bounds:
    """The range of an option; both ends are included, unless it says otherwise.

    Attributes:
        at_least: the lowest value.
        at_most: the highest value.
        above: whether ``at_least`` itself is too low.
        below: whether ``at_most`` itself is too high.
    """

    at_least: float = 0
    at_most: float = inf
    above: bool = False
    below: bool = False

    def __repr__(self) -> str:
        """Show it as ``help()`` does, in the type of an option."""
        low = f"{'above ' if self.above else ''}{self.at_least}"
        if self.at_most >= MAX_INT64:
            return low if self.above else f"{low} or more"
        return f"{low} to {'below ' if self.below else ''}{self.at_most}"


Count: TypeAlias = Annotated[int, Bounds(1, MAX_INT64)]
Seconds: TypeAlias = Annotated[float, Bounds(above=True)]
SecondsOrZero: TypeAlias = Annotated[float, Bounds()]
"""Seconds, or 0 for none."""


class Declared(NamedTuple):
    """An option as it was declared.

    Attributes:
        annotation: its type as it is written.
        type: its type without bounds, and without None.
        bounds: its range; None for types other than numbers.
        optional: whether it may be None.
        default: its default; `inspect.Parameter.empty` for an option that is required.
    """

    annotation: Any
    type: Any
    bounds: Bounds | None
    optional: bool
    default: Any

    @property
    def is_whole(self) -> bool:
        """Whether it is an integer."""
        return self.type is int

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidArgumentError` for a value outside the range."""
        if value is None and self.optional:
            return
        bounds = self.bounds
        if self.type is bool:
            if type(value) is not bool and self.optional:
                raise InvalidArgumentError(name, value, "must be True, False or None")
            check_boolean(name, value)
        elif bounds is None:
            return
        elif self.is_whole:
            check_integer(name, value, at_least=int(bounds.at_least), at_most=int(bounds.at_most))
        elif bounds.below:
            number = type(value) in {int, float}
            if not (number and bounds.at_least <= value < bounds.at_most):  # type: ignore[operator]  # a number
                rule = f"must be a number from {bounds.at_least:g} to below {bounds.at_most:g}"
                raise InvalidArgumentError(name, value, rule)
        else:
            check_seconds(name, value, or_zero=not bounds.above, at_most=bounds.at_most)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:
    """A set of options, for type checkers a frozen dataclass; it stores those that were given.

    Creating it raises `InvalidArgumentError` for the first option outside its range.
    """

    def __init__(self, **given: object) -> None:
        check_names(type(self), given)
        known = declared(type(self))
        for name, value in given.items():
            known[name].check(name, value)
        self.__dict__.update(given)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` if options cannot be combined."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to {name!r}: options cannot be changed")


def check_names(options: type[Options], given: Mapping[str, object]) -> None:
    """Raise `TypeError` for options that are missing or unknown."""
    known = declared(options)
    if unknown := given.keys() - known.keys():
        raise TypeError(f"{options.__name__}: unexpected keyword argument {min(unknown)!r}")
    for name in _required[options]:
        if name not in given:
            raise TypeError(f"{options.__name__}: missing keyword argument {name!r}")


_known: Final[dict[type[Options], Mapping[str, Declared]]] = {}
_required: Final[dict[type[Options], tuple[str, ...]]] = {}


def declared(options: type[Options]) -> Mapping[str, Declared]:
    """Return the options of a class by their names."""
    found = _known.get(options)
    if found is None:
        found = {
            name: _declared(annotation, getattr(options, name, Parameter.empty))
            for each in reversed(options.__mro__)
            for name, annotation in inspect.get_annotations(each).items()
        }
        _required[options] = tuple(
            name for name, each in found.items() if each.default is Parameter.empty
        )
        _known[options] = found  # last, because another thread that finds it also reads _required
    return found


def _declared(annotation: Any, default: object) -> Declared:  # noqa: ANN401 - a type's
    is_union = get_origin(annotation) in {Union, UnionType}
    parts = get_args(annotation) if is_union else (annotation,)
    kinds = [each for each in parts if each is not NoneType]
    kind, bounds = kinds[0] if len(kinds) == 1 else annotation, None
    if get_origin(kind) is Annotated:
        kind, *marks = get_args(kind)
        bounds = next((each for each in marks if isinstance(each, Bounds)), None)
    return Declared(annotation, kind, bounds, len(kinds) < len(parts), default)


def common(options: Options, kind: type[Options]) -> dict[str, Any]:
    """Return the given options that another class also has, as keyword arguments for it."""
    return {name: value for name, value in vars(options).items() if name in declared(kind)}


class Takes(Protocol[P, O_co]):
    """The decorator that `takes` returns."""

    @overload
    def __call__(self, function: Callable[[D, O_co], R], /) -> Callable[Concatenate[D, P], R]: ...

    @overload
    def __call__(
        self, function: Callable[[S, D, O_co], R], /
    ) -> Callable[Concatenate[S, D, P], R]: ...


def takes(options: Callable[P, O_co]) -> Takes[P, O_co]:
    """Give a function keyword arguments, which it receives as one object, its last argument.

    Names, types, defaults and meanings come from the object's class, also in ``help()``.  The
    arguments before the last one are positional.

    Args:
        options: the class.
    """
    kind = cast("type[Options]", options)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:  # noqa: ANN401 - as its signature says
            return function(*args, kind(**given))

        signature = inspect.signature(function)
        *first, last = signature.parameters.values()
        parameters = (*first, *parameters_of(kind))
        call.__dict__["__signature__"] = signature.replace(parameters=parameters)
        call.__doc__ = documented(function.__doc__, kind, last.name)
        return call

    return decorate


def parameters_of(options: type[Options]) -> list[Parameter]:
    """Return the parameters of a function that takes the options."""
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=each.default, annotation=each.annotation)
        for name, each in declared(options).items()
    ]


ENTRY: Final = re.compile(r"^    (\w+): .*(?:\n {5,}.*)*", re.MULTILINE)


def meanings(options: type[Options]) -> dict[str, str]:
    """Return the text about each option in the docstrings of a class and its bases, unchanged."""
    found: dict[str, str] = {}
    for each in reversed(options.__mro__):
        listed = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        found |= {match[1]: match[0] for match in ENTRY.finditer(listed)}
    return {name: found[name] for name in declared(options) if name in found}


def words_of(options: type[Options]) -> dict[str, str]:
    """Return what each option means, on one line, without a full stop."""
    return {
        name: " ".join(entry.partition(": ")[2].split()).rstrip(".")
        for name, entry in meanings(options).items()
    }


def documented(doc: str | None, options: type[Options], name: str) -> str:
    """Return a docstring in which the meaning of each option replaces the argument ``name``."""
    text, between, rest = inspect.cleandoc(doc or "").partition("\n\nRaises:")
    entries = {match[1]: match[0] for match in ENTRY.finditer(text)}
    text = text.replace(f"\n{entries.get(name)}", "")
    return "\n".join((text, *meanings(options).values())) + between + rest
