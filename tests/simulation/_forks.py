"""Really forks a process of the world, and sees what the child gets hold of."""

from __future__ import annotations

import json
import os
import select
import signal
import warnings
from typing import TYPE_CHECKING, Final

from aiocosid.errors import CosIdError

from ._loop import PROCESS
from ._witness import Moment

if TYPE_CHECKING:
    import asyncio

    from ._loop import VirtualTimeLoop
    from ._node import Node
    from ._process import Process
    from ._witness import Witness

__all__ = ("Spoils", "fork")

TURNS: Final = 12  # turns of the loop that a child lives; no time passes in them
PATIENCE: Final = 20.0  # seconds, real ones
AT_ONCE: Final = 3  # ids that a child asks for

Spoils = list[tuple[int, list[int]]]
"""What a child got: the number of the witness, and ids."""


def fork(node: Node) -> None:
    """Fork the process that runs on a node, with every hook there is.

    The child tries to take ids of each generator that is watched, and lets go on what was
    suspended, as far as that comes without a reply and without time passing.  What it gets counts
    as handed out by another process.
    """
    world, process = node.world, node.process
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that pytest may have
        pid = os.fork()
    if pid == 0:
        _be_child(node, process, writer)
    os.close(writer)
    answer = _read(reader, pid)
    os.waitpid(pid, 0)
    world.note(node.name, "forks", process.name)
    if answer is None:
        world.fail(f"the child of {process} did not come to its end")
        return
    child = f"the child of {process}"
    told: list[tuple[int, list[int]]] = json.loads(answer)
    for number, ids in told:
        node.witnesses[number].robbed(ids, Moment(child, world.time))


def _read(reader: int, pid: int) -> bytes | None:
    pieces: list[bytes] = []
    try:
        while select.select([reader], [], [], PATIENCE)[0]:
            piece = os.read(reader, 1 << 16)
            if not piece:
                return b"".join(pieces) or None
            pieces.append(piece)
        os.kill(pid, signal.SIGKILL)
        return None
    finally:
        os.close(reader)


def _be_child(node: Node, process: Process, writer: int) -> None:
    """Live for a few turns, tell what was got, and end without any farewell."""
    try:
        spoils: Spoils = []
        for number, witness in enumerate(node.witnesses):
            witness.spoils = (spoils, number)
        _live(node, process)
        os.write(writer, json.dumps(spoils).encode())
    finally:
        os._exit(0)


def _live(node: Node, process: Process) -> None:
    loop: VirtualTimeLoop = node.world.loop
    process.interrupt_in(0)
    thieves: list[asyncio.Task[None]] = []
    for witness in node.witnesses:
        _take_at_once(witness)
        context = node.world.context.copy()
        context.run(PROCESS.set, process)
        thieves.append(loop.create_task(_take(witness), name="thief", context=context))
    for _ in range(TURNS):
        loop.run_ready(process)


def _take_at_once(witness: Witness) -> None:
    for _ in range(AT_ONCE):
        try:
            witness.keep([witness.generator.next_id_nowait()])
        except CosIdError:
            return


async def _take(witness: Witness) -> None:
    """Take ids, one by one and several; waits in vain for whatever does not come at once."""
    for _ in range(AT_ONCE):
        try:
            witness.keep([await witness.generator.next_id()])
            witness.keep(await witness.generator.next_ids(AT_ONCE))
        except CosIdError:
            return
