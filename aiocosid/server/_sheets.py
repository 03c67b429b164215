"""What each process of a server knows, in a file that the others read: any of them answers for all.

A process writes its file once a second, in a thread.  The file stays when it ends, since what was
counted counts on.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from .._life.clock import SYSTEM_CLOCK
from ._meters import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._meters import Figures

__all__ = ("Sheets",)

PAUSE: Final = 1.0  # seconds


class Sheets:
    """The files of one server's processes."""

    __slots__ = ("_folder",)

    def __init__(self, folder: str | Path) -> None:
        """Share a folder, which is the server's own."""
        self._folder = Path(folder)

    async def write_on(self, read: Callable[[], Figures]) -> None:
        """Write what this process knows, until the task is cancelled."""
        while True:
            await anyio.to_thread.run_sync(self._write, _text(read()))
            await SYSTEM_CLOCK.sleep(PAUSE)

    def _write(self, text: str) -> None:
        path = self._folder / f"{os.getpid()}.json"
        with suppress(OSError):  # a full disk ends no server
            draft = path.with_suffix(".new")
            draft.write_text(text)
            draft.replace(path)

    def others(self) -> Iterator[tuple[int, bool, Figures]]:
        """Yield what the other processes have written: their numbers, and whether they run."""
        for path in self._folder.glob("*.json"):
            number = int(path.stem)
            if number != os.getpid():
                with suppress(OSError, ValueError):
                    yield number, _runs(number), _figures(json.loads(path.read_text()))


def _runs(number: int) -> bool:
    try:
        os.kill(number, 0)
    except OSError:
        return False
    return True


def _text(figures: Figures) -> str:
    return json.dumps({metric.name: [*each.items()] for metric, each in figures.items()})


def _figures(tree: dict[str, list[tuple[list[str], Any]]]) -> Figures:
    return {
        BY_NAME[name]: {tuple(where): value for where, value in series}
        for name, series in tree.items()
    }
