"""Each process's figures, in files that the others read, so that any process can answer for all.

A process writes its file once a second, in a thread.  The file stays when the process ends, because
its counts remain part of the total.
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
        """Share a folder that belongs to the server."""
        self._folder = Path(folder)

    async def write_on(self, read: Callable[[], Figures]) -> None:
        """Write this process's figures, until the task is cancelled."""
        while True:
            await anyio.to_thread.run_sync(self._write, _text(read()))
            await SYSTEM_CLOCK.sleep(PAUSE)

    def _write(self, text: str) -> None:
        path = self._folder / f"{os.getpid()}.json"
        with suppress(OSError):  # a full disk must not end the server
            draft = path.with_suffix(".new")
            draft.write_text(text)
            draft.replace(path)

    def others(self) -> Iterator[tuple[int, bool, Figures]]:
        """Yield the other processes' numbers, whether they run, and their figures."""
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
