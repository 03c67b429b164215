"""The command line, ``aiocosid``.  Requires the ``cli`` extra.

It uses only the library's public API; docs/reference/cli.md describes it.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from ..errors import MissingExtraError
from ._exit import ExitCode, OutputError, discard_output, report

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Run the command in ``sys.argv`` and exit with a code that a script can use."""
    try:
        code = _run()
    except KeyboardInterrupt:
        discard_output()
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - report() raises what it does not know
        code = report(error)
    sys.exit(code)


def _run() -> int:
    if sys.stdout is None:  # closed by the caller: reserve no ids that cannot be printed
        raise OutputError(OSError(errno.EBADF, os.strerror(errno.EBADF)))
    if tuple(sys.argv[1:3]) == ("machines", "run"):
        from ._program import run as run_program

        return run_program(sys.argv[3:])
    try:
        from ._app import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("aiocosid"):
            raise
        raise MissingExtraError(error.name or "typer", extra="cli") from error
    return run()
