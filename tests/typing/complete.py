"""Whether the types of all public names are known: ``python -m tests.typing.complete``.

Frameworks without annotations have classes that ours are derived from; a user's stubs know them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.unit._source import load, public_modules

UNTYPED: Final = ("aiocosid.integrations.django", "aiocosid.integrations.rest_framework")
# Their methods are values of the kinds' own types, which this check wants written out; mypy and
# pyright infer the same ones, as tests/typing shows.
MADE_OF_KINDS: Final = (
    "aiocosid.IdProvider",
    "aiocosid.provider.IdProvider",
    "aiocosid.sync.SyncIdProvider",
)


PUBLIC: Final = public_modules()
MODULES: Final = load()
EXPORTED: Final = {name for each in PUBLIC for name in import_module(each).__all__}


def _is_users(name: str) -> bool:
    """Tell whether a user may import it, from where it is defined or from another module."""
    module = name
    while module not in MODULES:
        module = module.rpartition(".")[0]
    first = name[len(module) + 1 :].partition(".")[0]
    return module in PUBLIC or "._" in module or first in EXPORTED


def main() -> int:
    """Print what pyright does not know; 1 if there is something."""
    program = Path(sys.executable).with_name("basedpyright")
    command = [str(program), "--verifytypes", "aiocosid", "--ignoreexternal", "--outputjson"]
    # It looks for the Python of this environment, and for node.
    environ = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    symbols: list[dict[str, Any]] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    unknown = [
        each
        for each in symbols
        if (not each["isTypeKnown"] or each["isTypeAmbiguous"])
        and each["isExported"]
        and not each["name"].startswith(UNTYPED)
        and each["name"] not in MADE_OF_KINDS
        and _is_users(each["name"])
    ]
    for each in unknown:
        print(each["name"], *(found["message"] for found in each["diagnostics"]), sep="\n  ")
    return 1 if unknown or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
