"""For the API pages: what `aiocosid.abc.lazy.dataclass` decorates is a dataclass."""

from __future__ import annotations

from typing import Any

from griffe import Alias, Extension, Module

OURS = "aiocosid.abc.lazy.dataclass"


class LazyDataclasses(Extension):
    """Leads the name to the standard library's decorator, as the package does for type checkers."""

    def on_module_members(self, *, mod: Module, **_: Any) -> None:
        """Replace the import in a module, once its names are known."""
        found = mod.members.get("dataclass")
        if isinstance(found, Alias) and found.target_path == OURS:
            found.target_path = "dataclasses.dataclass"
