"""Puts off the imports of a room's names until one is needed.

A room's ``__init__`` imports its names for type checkers, and says here again which module has
which: a test compares the two.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("later",)


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
