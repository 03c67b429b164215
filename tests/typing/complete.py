"""Whether the types of all public names are known: ``python -m tests.typing.complete``.

Frameworks without annotations have classes that ours are derived from; a user's stubs know them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

UNTYPED: Final = ("aiocosid.integrations.django", "aiocosid.integrations.rest_framework")


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
    ]
    for each in unknown:
        print(each["name"], *(found["message"] for found in each["diagnostics"]), sep="\n  ")
    return 1 if unknown or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
