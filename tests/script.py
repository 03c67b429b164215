"""A script in a process of its own: what it leaves unclosed or forked is no matter of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# The servers of the tests are made to be quick, of which a store warns on stderr.
HUSH = (
    "import logging as _logging\n"
    "_logging.getLogger('aiocosid').addFilter(lambda r: 'issued again' not in r.getMessage())\n"
)


def run_python(code: str, *arguments: str) -> Any:
    """Run it and return what it prints, as JSON; it has to end well and in silence."""
    done = subprocess.run(
        [sys.executable, "-c", HUSH + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return json.loads(done.stdout)
