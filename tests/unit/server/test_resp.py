"""RESP: bytes in, bytes out."""

from __future__ import annotations

import pytest

from aiocosid.stores.memory import MemoryStore

from ._wire import Wire, command

pytestmark = pytest.mark.asyncio

KEY = "cosid:{shop.order}.adder"


async def test_cosids_key_is_the_counter_of_that_namespace_and_name() -> None:
    """A Java client and a node of ours on the same store share it."""
    store = MemoryStore()
    wire = Wire(store)
    assert await wire.ask(command("INCRBY", KEY, 1000), command("INCR", KEY)) == [1000, 1001]
    counter = store.segment_distributor(namespace="shop", name="order")
    assert await counter.next_max_id(9) == 1010
    assert await wire.ask(command("GET", KEY), command("GET", "other")) == [b"1010", None]


async def test_a_pipeline_is_answered_in_order() -> None:
    """Other commands between additions see what came before."""
    wire = Wire()
    asked = [command("INCRBY", "a", 2), command("INCRBY", "b", 5), command("INCRBY", "a", 3)]
    asked += [command("GET", "a"), command("PING"), *[command("INCRBY", "a", 1)] * 3]
    assert await wire.ask(*asked) == [2, 5, 5, b"5", b"PONG", 6, 7, 8]
