"""Puts work off until it is needed: imports of a room's names, methods of a dataclass.

A room's ``__init__`` imports its names for type checkers, and says here again which module has
which: a test compares the two.

``@dataclass`` compiles eight methods for each class, which takes 0.3 to 1 ms, and most programs use
few of the classes that they import.  `dataclass` gives the class its slots at once, and a
placeholder for each of those methods; the first use of any of them runs the standard library's
decorator, and puts what it has made in their place.  Type checkers see the standard library's.
"""

from __future__ import annotations

import dataclasses
import sys
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import dataclass

__all__ = ("dataclass", "later")

MADE: Final = (
    *("__dataclass_fields__", "__dataclass_params__", "__match_args__"),
    *("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"),
    *(("__replace__",) if sys.version_info >= (3, 13) else ()),
)
"""What the decorator adds to a class."""

_lock: Final = RLock()  # two threads may use a class for the first time at once


def later(
    room: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a room's ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        room: its ``__name__``.
        names: by module, as a relative import names it, those that it has, with spaces between.
    """
    modules = {name: module for module, found in names.items() for name in found.split()}
    known = vars(sys.modules[room])

    def find(name: str) -> Any:  # noqa: ANN401 - as the name is
        if name not in modules:
            raise AttributeError(f"module {room!r} has no attribute {name!r}", name=name)
        found = known[name] = getattr(import_module(modules[name], room), name)
        return found

    return find, lambda: sorted({*known, *modules})


class _Unmade:
    """Stands for one attribute of a class until it, or another one, is asked for."""

    __slots__ = ("_make_all", "_name")

    def __init__(self, name: str, make_all: Callable[[], dict[str, Any]]) -> None:
        self._name = name
        self._make_all = make_all

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # noqa: ANN401 - any
        found = self._make_all()[self._name]
        return found.__get__(instance, owner) if hasattr(found, "__get__") else found


def _lazy(*, frozen: bool, slots: bool, **options: bool) -> Callable[[type], type]:
    """Return the decorator; only frozen classes with slots are made this way."""
    if not (frozen and slots):
        raise NotImplementedError
    return lambda template: _with_placeholders(template, options)


def _with_placeholders(template: type, options: dict[str, bool]) -> type:
    fields = template.__annotations__
    body = {name: value for name, value in vars(template).items() if name not in fields}
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)

    def make_all() -> dict[str, Any]:
        with _lock:
            if isinstance(vars(cls)[missing[-1]], _Unmade):
                decorate: Any = dataclasses.dataclass(frozen=True, **options)
                plain: type = decorate(template)
                made = vars(plain)
                for name in missing:  # one by one: the others still lead here
                    setattr(cls, name, made[name])
        return dict(vars(cls))

    missing = [name for name in MADE if name not in body]
    body |= {name: _Unmade(name, make_all) for name in missing}
    body |= {"__slots__": tuple(fields), "__setstate__": _set_state}
    cls = type(template.__name__, template.__bases__, body)
    cls.__qualname__ = template.__qualname__
    return cls


def _set_state(self: object, state: tuple[dict[str, object] | None, ...]) -> None:
    """Unpickle, or copy: a frozen object refuses the usual way."""
    for part in state:
        for name, value in (part or {}).items():
            object.__setattr__(self, name, value)


if not TYPE_CHECKING:
    dataclass = _lazy
