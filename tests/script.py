"""A script in a process of its own: what it leaves unclosed or forked is no matter of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

# The servers of the tests are made to be quick, of which a store warns on stderr.
HUSH = (
    "import logging as _logging\n"
    "def _is_told(record): return 'ids may be issued twice' not in record.getMessage()\n"
    "_logging.getLogger('aiocosid').addFilter(_is_told)\n"
)

FORKS_BESIDE_THREADS = "ignore:This process:DeprecationWarning"  # from Python 3.12 on

# From Python 3.14 on the child of a task cannot go on: asyncio refuses to wake its tasks.  Up to
# 3.13 it can, and is given its loop and its task back here, so that what happens then is tested.
FORK = """
import asyncio as _asyncio, os as _os, sys as _sys
def _fork(fork=_os.fork):
    loop = _asyncio._get_running_loop()
    task = _asyncio.current_task(loop) if loop else None
    pid = fork()
    if pid == 0 and loop:
        _asyncio._set_running_loop(loop)
        if task is not None and _asyncio.current_task(loop) is None:
            _asyncio.tasks._enter_task(loop, task)
    return pid
if _sys.version_info >= (3, 14):
    _os.fork = _fork
"""


def run_python(code: str, *arguments: str, **environ: str) -> Any:
    """Run it and return what it prints, as JSON; it has to end well and in silence."""
    done = subprocess.run(
        [sys.executable, "-W", FORKS_BESIDE_THREADS, "-c", HUSH + FORK + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, **environ},
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return json.loads(done.stdout)
