"""What the workers of a test run share: made by the first who needs it, found by the others.

Workers come and go, so no server is theirs.  Whoever starts one enters it in the run's book, and
what remains of the run when its first process is gone, however that ended, ends what stands there.
"""

from __future__ import annotations

import fcntl
import functools
import os
import pickle
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ._process import BOOK, Group, Server, _reaper

WORKER: Final = os.environ.get("PYTEST_XDIST_WORKER", "main")

_HELD: Final[dict[str, Any]] = {}
"""What this process uses of them, by kind."""


class _Folder:
    """The run's folder, which this process was told of, or else makes."""

    def __init__(self) -> None:
        self.told: Path | None = None

    @functools.cached_property
    def path(self) -> Path:
        if self.told is not None:
            return self.told
        made = Path(tempfile.mkdtemp(prefix="aiocosid-run-"))
        (made / BOOK).touch()
        _reaper().tell("book", made / BOOK)
        _reaper().tell("directory", made)
        return made


_FOLDER: Final = _Folder()


def run_folder() -> Path:
    """The folder of this run, to be told to its workers; it ends with the process that made it."""
    return _FOLDER.path


def join_run(folder: Path) -> None:
    """Share what another process has; before anything else."""
    _FOLDER.told = folder


@contextmanager
def _alone(kind: str) -> Generator[None]:
    """Be the only one who makes one of the kind; a process that dies lets the next one in."""
    with (run_folder() / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(kind: str, make: Callable[[Path], None]) -> Path:
    """A folder for all of the run, filled by the first who asks."""
    path = run_folder() / kind
    with _alone(kind):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=run_folder()) as begun:
                (Path(begun) / "made").mkdir()
                make(Path(begun) / "made")
                (Path(begun) / "made").rename(path)
    return path


def shared(kind: str, make: Callable[[], AbstractContextManager[Any]]) -> Any:
    """The run's one server, or group, of the kind; nobody may stop or pause it."""
    if kind not in _HELD:
        path = run_folder() / f"{kind}.pickle"
        with _alone(kind):
            started = _found(path) if path.exists() else _start(make, path)
        for each in started.servers:
            each.settle_in(WORKER)
        _HELD[kind] = started
    return _HELD[kind]


def _found(path: Path) -> Any:
    return pickle.loads(path.read_bytes())  # noqa: S301 - another worker of this run wrote it


def _start(make: Callable[[], AbstractContextManager[Any]], path: Path) -> Any:
    book = path.with_name(BOOK)
    with ExitStack() as stack:
        started: Server | Group = stack.enter_context(make())
        known = pickle.dumps(started)
        for each in started.servers:
            each.enter_into(book)
        if not book.exists():  # whoever reads it moves it first, and may not have seen these lines
            raise RuntimeError("the run is over")
        begun = path.with_suffix(".begun")
        begun.write_bytes(known)
        begun.rename(path)
        stack.pop_all()
    for each in started.servers:
        each.share()
    return started


@contextmanager
def alone_on(kind: str, make: Callable[[], AbstractContextManager[Any]]) -> Generator[Any]:
    """The same for one test at a time, which may set it up anew or empty it."""
    started = shared(kind, make)
    with _alone(f"{kind}-turn"):
        for each in started.servers:
            each.is_anybodys = False
        try:
            yield started
        finally:
            for each in started.servers:
                each.is_anybodys = True


def leave_run() -> None:
    """Close what this process has open at servers that go on."""
    for started in _HELD.values():
        for each in started.servers:
            each.leave()
