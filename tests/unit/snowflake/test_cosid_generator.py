"""CosId's own generator: the sequencer of Snowflake ids, as text."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid._life import fork
from aiocosid.errors import (
    ClosedError,
    ForkedError,
    InvalidArgumentError,
    LayoutExpiredError,
    NotOpenError,
    WouldBlock,
)
from aiocosid.snowflake import (
    RADIX36,
    RADIX62,
    CosIdFriendlyText,
    CosIdGenerator,
    CosIdRadixText,
    CosIdState,
)
from aiocosid.snowflake._sequencer import Behind, Full, Sequencer
from aiocosid.testing import ManualClock

from .._vectors import params
from ._kit import FOREVER_MS, machines


@pytest.mark.parametrize("vector", params("cosid_generator", "cosid.generate_sequence"))
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


async def test_friendly_text() -> None:
    """Local time, machine id, sequence."""
    friendly = CosIdFriendlyText(zone="UTC")
    async with CosIdGenerator(machines(), text=friendly, clock=ManualClock()) as gen:
        assert await gen.next_id() == "20231114221320000-0000000-00001"
        assert "CosIdFriendlyText" in repr(gen)


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


async def test_the_loop_has_turns_while_a_batch_is_written() -> None:
    """After every 200 texts at the latest; a caller that is cancelled there is let go."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with (
        CosIdGenerator(machines(), clock=ManualClock()) as gen,
        anyio.create_task_group() as group,
    ):
        group.start_soon(turn)
        ids = await gen.next_ids(5001)
        assert turns >= 20
        assert ids == sorted(set(ids))
        assert len(ids) == 5001
        with anyio.CancelScope() as scope:
            group.start_soon(_after(3, scope.cancel))
            await gen.next_ids(5000)
        assert scope.cancelled_caught
        group.cancel_scope.cancel()


def _after(turns: int, act: Callable[[], None]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def run() -> None:
        for _ in range(turns):
            await checkpoint()
        act()

    return run


async def test_a_batch_written_across_a_fork_is_the_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child has the same texts half done, and gets ForkedError instead."""
    async with (
        CosIdGenerator(machines(), clock=ManualClock()) as gen,
        anyio.create_task_group() as group,
    ):
        group.start_soon(
            _after(3, lambda: monkeypatch.setattr(fork, "generation", fork.generation + 1))
        )
        with pytest.raises(ForkedError):
            await gen.next_ids(5000)
        monkeypatch.undo()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Africa/Casablanca"])
def test_a_zone_with_summer_time_is_refused(zone: str) -> None:
    """Its texts can be read, but for an hour a year no id could be written."""
    text = CosIdFriendlyText(zone=zone)
    with pytest.raises(InvalidArgumentError, match=rf"'UTC'.* not .*{zone}"):
        CosIdGenerator(machines(), text=text)
    assert text.as_state("20240701120000000-0000000-00001").sequence == 1


@pytest.mark.parametrize("zone", ["UTC", "+05:30", "Asia/Shanghai", "Etc/GMT-3"])
def test_a_zone_with_one_offset_will_do(zone: str) -> None:
    """Whatever offsets it had in the past."""
    CosIdGenerator(machines(), text=CosIdFriendlyText(zone=zone))


async def test_a_clock_that_jumps_too_far_is_refused() -> None:
    """`max_forward_jump` is passed on."""
    with pytest.raises(InvalidArgumentError, match="max_forward_jump"):
        CosIdGenerator(machines(), max_forward_jump=-1)
