"""``aiocosid`` where one package cannot be imported: the one in the variable BLOCKED."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from aiocosid.cli import main

BLOCKED = os.environ["BLOCKED"]


class Blocker:
    """Stands in front of the finders that would find it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == BLOCKED or fullname.startswith(f"{BLOCKED}."):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


if __name__ == "__main__":
    loaded = [name for name in sys.modules if name == BLOCKED or name.startswith(f"{BLOCKED}.")]
    assert not loaded, loaded
    sys.meta_path.insert(0, Blocker())
    main()
