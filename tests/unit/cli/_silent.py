"""``aiocosid`` whose store never answers, and which tells on standard output what it goes through.

``python -m tests.unit.cli._silent next order`` waits for the store, ``... bench`` for the end of
time; ``... inspect`` finds a strange name.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aiocosid import CosIdError
from aiocosid.abc import Counter, IdGenerator
from aiocosid.cli import main

from ._doubles import ScriptedStore


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Told(list[str]):
    """A list that tells what is appended to it."""

    def append(self, word: str) -> None:
        tell(word)


class SilentStore(ScriptedStore):
    """Never answers."""

    def __init__(self, _url: str) -> None:
        super().__init__()
        self.stuck = "STUCK" in os.environ
        if "inspect" not in sys.argv:
            self.closed = Told()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        return [Counter(namespaced_name="cosid.\xe9\u756a\udcff", last_max_id=1)]

    async def answer(self) -> None:
        tell("asked")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            tell("cancelled")
            raise


async def measure(
    generator: IdGenerator, *, seconds: float, on_progress: Callable[[float], None]
) -> Any:
    """Wait for the end of the measurement, and see what is left of the generator after it."""
    tell("measuring")
    watched.append(generator)
    await asyncio.Event().wait()


watched: list[IdGenerator] = []

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        if "bench" not in sys.argv:
            patch.setattr("aiocosid.cli._stores.store_from_url", SilentStore)
        patch.setattr("aiocosid.cli._app.measure", measure)
        try:
            main()
        finally:
            for generator in watched:
                try:
                    generator.next_id_nowait()
                except CosIdError as error:
                    sys.stderr.write(f"{type(error).__name__}\n")
