"""How a command ends: its exit code, and one line that explains it.

Nothing here needs the extra, so a missing extra is reported in the same way.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from enum import IntEnum
from typing import Final

from ..errors import (
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    InvalidSettingsError,
    LayoutExpiredError,
    LeafWorkerIdsUsedUpError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MissingExtraError,
    SegmentUnavailableError,
    SeriesEndedError,
    SeriesNotOpenError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    WorkerIdsUsedUpError,
)

__all__ = (
    "PROGRAM",
    "ExitCode",
    "OutputError",
    "code_of",
    "discard_output",
    "one_line",
    "printable",
    "redacted",
    "report",
)

PROGRAM: Final = "aiocosid"

# Up to the last "@": better to hide a few words too many than to show part of a password.
_PASSWORD: Final = re.compile(r"(?s)(://.*?:).*@")
# The token in a URL of the id service, and one that `aiocosid token new` has created.
_TOKEN_OF_URL: Final = re.compile(r"(aiocosid\+https?://)[^@\s]*@")
_TOKEN: Final = re.compile(r"\baiocosid_[A-Za-z0-9_-]{40,}")
_SECRET_PARAMETER: Final = re.compile(r"(?i)([?&](?:\w*passw(?:or)?d|\w*secret)=)[^\s&#'\"]*")


class ExitCode(IntEnum):
    """The exit codes for scripts; a code never changes its meaning."""

    OK = 0
    FAILED = 1  # any other failure: unwritable output, the answer "no", or a bug
    USAGE = 2  # click's own code
    UNAVAILABLE = 3
    REFUSED = 4
    USED_UP = 5
    INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
    PIPE_CLOSED = 141  # 128 + SIGPIPE, as `yes | head` ends


class OutputError(Exception):
    """Standard output cannot be written.

    Attributes:
        is_pipe: whether it is a pipe whose reader has gone, which is not an error.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror or error}")
        self.is_pipe = isinstance(error, BrokenPipeError)


def code_of(error: CosIdError) -> ExitCode:
    """Return the exit code for an error of the library."""
    match error:
        case InvalidArgumentError() | InvalidSettingsError() | MissingExtraError():
            return ExitCode.USAGE
        case IdOverflowError() | LayoutExpiredError() | SeriesEndedError() | StoreRolledBackError():
            return ExitCode.USED_UP
        case _ if error.retryable:
            return ExitCode.UNAVAILABLE
        case (
            StoreError()
            | SeriesNotOpenError()
            | MachineBitsMismatchError()
            | MachineIdInUseError()
            | LeafWorkerIdsUsedUpError()
            | WorkerIdsUsedUpError()
        ):
            return ExitCode.REFUSED
        case SegmentUnavailableError(__cause__=CosIdError() as cause):
            return code_of(cause)
        case _:
            return ExitCode.FAILED


def report(error: Exception) -> int:
    """Write the error to standard error, and return the exit code.

    It is one line, or for settings one line for each problem.

    Raises:
        Exception: ``error`` itself if it is unexpected: a bug, whose traceback is needed.
    """
    match error:
        case CosIdError():
            code = int(code_of(error))
            # For a plain refusal or outage, the page adds nothing to the text.
            plain = type(error) in {StoreError, StoreAuthenticationError, StoreUnavailableError}
            has_more = code != ExitCode.USAGE and not plain
            sentences = [f"{error} (see {error.url})" if has_more else str(error)]
            if isinstance(error, InvalidSettingsError):
                sentences = list(map(str, error.problems))
        case OutputError():
            discard_output()
            if error.is_pipe:
                return ExitCode.PIPE_CLOSED
            code, sentences = ExitCode.FAILED, [str(error)]
        case _:
            # click's usage errors; their base class is public in typer only from 0.28 on.
            explain = getattr(error, "format_message", None)
            if explain is None:
                raise error
            command = getattr(getattr(error, "ctx", None), "command_path", PROGRAM)
            code, sentences = ExitCode.USAGE, [f"{explain()} (see {command} --help)"]
    if sys.stderr is not None:  # closed by the caller; print() would use standard output instead
        for sentence in sentences:
            print(f"{PROGRAM}: error: {one_line(redacted(sentence))}", file=sys.stderr)  # noqa: T201
    return code


def discard_output() -> None:
    """Discard the buffered part of standard output.

    Otherwise the interpreter flushes it at exit, and reports a full disk once more, or hangs on a
    pipe that is not read.
    """
    if sys.stdout is None:
        return
    with suppress(OSError):  # no descriptor
        descriptor = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


def redacted(text: str) -> str:
    """Return the text with the password or token of every URL in it replaced by ``***``."""
    text = _TOKEN_OF_URL.sub(r"\1***@", text)
    text = _TOKEN.sub("aiocosid_***", text)
    text = _PASSWORD.sub(r"\1***@", text)
    return _SECRET_PARAMETER.sub(r"\1***", text)


def one_line(text: str) -> str:
    """Return the text without line breaks and terminal control characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return the text with invisible characters escaped: names in a store may contain any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
