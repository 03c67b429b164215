"""Imports a package's names only when one is needed.

A package's ``__init__`` imports its names for type checkers, and lists again here which module has
which names; a test compares the two.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("later",)


def later(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: the package's ``__name__``.
        names: for each module, as a relative import names it, its names, separated by spaces.
    """
    modules = {name: module for module, found in names.items() for name in found.split()}
    known = vars(sys.modules[package])

    def find(name: str) -> Any:  # noqa: ANN401 - as the name is
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        found = known[name] = getattr(import_module(modules[name], package), name)
        return found

    return find, lambda: sorted({*known, *modules})
