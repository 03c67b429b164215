"""A SQLite file on a disk that is full again and again."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers._process import outlived_by_nobody

from ._arena import Arena
from ._job import Place

DISK_MB: Final = 16  # holds the write-ahead log at its longest, 4 MB, and a lot of ballast
MOUNT: Final = 'mount -t tmpfs -o size="$2" none "$1" && echo mounted && exec sleep infinity'
FILE_LIMIT: Final = 4096  # bytes; no file may grow past it


@dataclass(frozen=True)
class Disk:
    """A small disk of our own, seen by whoever is started with the prefix.

    Attributes:
        prefix: the command that enters it.
        folder: where it is mounted, as the workers see it.
        outside: the same, as we see it.
    """

    prefix: tuple[str, ...]
    folder: Path
    outside: Path

    def fill(self) -> None:
        """Leave not one byte."""
        with (self.outside / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 12)):
                pass

    def free(self) -> None:
        """Give the space back."""
        (self.outside / "ballast").unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Generator[Disk | None]:
    """Mount one in a namespace of its own; None where the system does not let us."""
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("nsenter") is None:
        yield None
        return
    argv = [unshare, "-rm", "sh", "-c", MOUNT, "sh", str(folder), f"{DISK_MB}M"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        outlived_by_nobody(holder.pid)
        try:
            assert holder.stdout is not None
            if holder.stdout.readline() != b"mounted\n":
                yield None
                return
            enter = ("nsenter", "-U", "-m", "--preserve-credentials", "-t", str(holder.pid))
            yield Disk(enter, folder, Path(f"/proc/{holder.pid}/root{folder}"))
        finally:
            holder.kill()


def disk_full(arena: Arena) -> None:
    """Fill the disk under the file, or, where none can be mounted, forbid that files grow."""
    folder = arena.folder / "disk"
    folder.mkdir()
    with small_disk(folder) as disk:
        prefix = disk.prefix if disk else ()
        place = Place(url=f"sqlite:///{folder}/ids.db")
        init = [*prefix, sys.executable, "-m", "aiocosid", "init", "--store", place.url]
        subprocess.run(init, check=True, capture_output=True, cwd=Path(__file__).parents[2])
        file = (disk.outside if disk else folder) / "ids.db"
        # A lease that could not be written down is used all the same.
        job = arena.job(place, kind="segment", step=50, wait_timeout=1.0, leased=False)
        with arena.workers(job, prefix=prefix) as fleet:
            while arena.goes_on():
                _empty_log(file)
                if disk:
                    disk.fill()
                else:
                    fleet.squeeze(resource.RLIMIT_FSIZE, lambda _: FILE_LIMIT)
                arena.pause(arena.between(0.2, 1.5))
                fleet.kill_one()  # in the middle of a write that fails
                if disk:
                    disk.free()
                else:
                    fleet.squeeze(resource.RLIMIT_FSIZE, None)
                arena.faults["disk full" if disk else "files may not grow"] += 1
                arena.faults["kill"] += 1
                arena.pause(arena.between(0.1, 0.5))


def _empty_log(file: Path) -> None:
    """Shorten the write-ahead log, which else has its space already and feels nothing."""
    with closing(sqlite3.connect(file, timeout=1)) as connection, suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
