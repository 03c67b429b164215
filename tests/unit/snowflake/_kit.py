"""What the tests of the generator share."""

from __future__ import annotations

from typing import Final

from aiocosid.abc import MachineIdDistributor
from aiocosid.stores.memory import MemoryStore

FOREVER_MS: Final = 2**62  # a limit that no clock reaches


def machines(store: MemoryStore | None = None, **described: object) -> MachineIdDistributor:
    """Machine ids of a store in memory."""
    return (store or MemoryStore()).machine_id_distributor(**described)  # type: ignore[arg-type]
