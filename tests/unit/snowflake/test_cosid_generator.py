"""CosId's own generator: the sequencer of Snowflake ids, as text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiocosid.errors import ClosedError, LayoutExpiredError, NotOpenError, WouldBlock
from aiocosid.snowflake import (
    RADIX36,
    RADIX62,
    CosIdFriendlyText,
    CosIdGenerator,
    CosIdRadixText,
    CosIdState,
)
from aiocosid.snowflake._sequencer import FOREVER_MS, Behind, Full, Sequencer
from aiocosid.testing import ManualClock

from ._kit import machines

VECTORS = Path(__file__).parents[2] / "vectors"


def runs() -> list[Any]:
    with gzip.open(VECTORS / "cosid_generator.json.gz") as file:
        vectors = json.load(file)["vectors"]
    found = [each for each in vectors if each["op"] == "cosid.generate_sequence"]
    assert len(found) > 40
    return found


@pytest.mark.parametrize("vector", runs(), ids=lambda each: f"{len(each['args']['times'])}")
def test_states_are_cosids(vector: Any) -> None:
    """State by state, on a clock that is set; where the sequence wraps Java reads the next tick.

    A threshold above the highest sequence burns a tick in Java; ours refuses it.
    """
    args = vector["args"]
    threshold = args["sequence_reset_threshold"]
    if threshold >= 1 << args["sequence_bit"]:
        return
    text = CosIdRadixText(
        timestamp_bits=args["timestamp_bit"],
        machine_bits=args["machine_bit"],
        sequence_bits=args["sequence_bit"],
    )
    made = Sequencer(
        text.layout, machine_id=args["machine_id"], floor_tick=-1, reset_threshold=threshold
    )
    for now_ms, expected in zip(args["times"], vector["result"], strict=True):
        try:
            pieces, refusal = made.take(1, now_ms, FOREVER_MS)
            if isinstance(refusal, Full):
                pieces, refusal = made.take(1, now_ms + 1, FOREVER_MS)
        except LayoutExpiredError:
            assert expected["error"] is not None
            break  # Java has used up a sequence for it
        if isinstance(refusal, Behind):
            assert expected["error"] is not None
            continue
        state = expected["state"]
        packed = pieces[0][0]
        assert packed & text.layout.max_sequence == state["sequence"]
        assert packed >> args["sequence_bit"] + args["machine_bit"] == state["timestamp"]


@pytest.mark.asyncio
@pytest.mark.parametrize(("text", "width"), [(RADIX62, 15), (RADIX36, 17)])
async def test_ids_are_text_that_sorts(text: CosIdRadixText, width: int) -> None:
    """And that says time, machine id and sequence."""
    clock = ManualClock()
    async with CosIdGenerator(machines(), text=text, clock=clock) as gen:
        ids = [await gen.next_id(), gen.next_id_nowait(), *await gen.next_ids(3)]
        await clock.advance(0.001)
        state = await gen.next_state()
        assert gen.statistics().ids_handed_out == 6
    assert ids == sorted(set(ids))
    assert {len(each) for each in ids} == {width}
    assert [text.as_state(each).sequence for each in ids] == [1, 2, 3, 4, 5]
    assert state == CosIdState(text.as_state(ids[0]).timestamp_ms + 1, 0, 6)


@pytest.mark.asyncio
async def test_friendly_text() -> None:
    """Local time, machine id, sequence."""
    friendly = CosIdFriendlyText(zone="UTC")
    async with CosIdGenerator(machines(), text=friendly, clock=ManualClock()) as gen:
        assert await gen.next_id() == "20231114221320000-0000000-00001"
        assert "CosIdFriendlyText" in repr(gen)


@pytest.mark.asyncio
async def test_its_life_is_that_of_every_generator() -> None:
    """Opened, run in a task group, closed, and a used-up tick is not there at once."""
    gen = CosIdGenerator(machines(), text=CosIdRadixText(sequence_bits=1), clock=ManualClock())
    with pytest.raises(NotOpenError):
        await gen.next_id()
    async with anyio.create_task_group() as group:
        assert await group.start(gen.run) is gen
        await gen.next_id()
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        await gen.aclose()
    with pytest.raises(ClosedError):
        await gen.next_ids(2)
