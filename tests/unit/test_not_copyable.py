"""What hands out ids is there once: no copy, no pickle."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import aiocosid
from aiocosid import sync
from aiocosid.converter import Radix62IdConverter
from aiocosid.generators import CounterId, IntegerIdGenerator, Uuid7Id
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlite import SqliteStore

COPIES: tuple[Callable[[Any], object], ...] = (copy.copy, copy.deepcopy, pickle.dumps)


@dataclasses.dataclass
class Holder:
    """A user's."""

    orders: object


async def test_a_generator_or_what_holds_a_connection_is_not_copied() -> None:
    store = MemoryStore()
    machine = store.machine_id_distributor(namespace="copies")
    chain = aiocosid.SegmentChainId(MemoryStore().segment_distributor(name="order"))
    ids = sync.connect("memory://", namespace="copies")
    everything: tuple[object, ...] = (
        store,
        machine,
        chain,
        aiocosid.SegmentId(MemoryStore().segment_distributor(name="order")),
        aiocosid.SnowflakeId(machine),
        aiocosid.connect("memory://"),
        CounterId(),
        Uuid7Id(),
        ManualMachineIdDistributor(1),
        RedisStore.from_url("redis://localhost").machine_id_distributor(namespace="copies"),
        PostgresStore.from_url("postgresql://localhost/x").machine_id_distributor(
            namespace="copies"
        ),
        ids,
        ids.segment_chain("order"),
        ids.segment_chain("order")._session,
    )
    async with chain:  # open or not
        for each in everything:
            for make in COPIES:
                with pytest.raises(TypeError, match=f"{type(each).__name__} cannot be copied"):
                    make(each)
        with pytest.raises(TypeError, match="SegmentChainId cannot be copied"):
            dataclasses.asdict(Holder(chain))


def test_what_is_around_one_or_on_a_connection_is_not_copied_with_it() -> None:
    chain = aiocosid.SegmentChainId(MemoryStore().segment_distributor(name="order"))
    for each in (
        aiocosid.StringIdGenerator(chain, Radix62IdConverter()),
        IntegerIdGenerator(chain),
        MemoryStore().segment_distributor(name="order"),
        SqliteStore.from_url("sqlite:///ids.db"),
        RedisStore.from_url("redis://localhost").segment_distributor(name="order"),
        PostgresStore.from_url("postgresql://localhost/x"),
    ):
        for make in COPIES[1:]:
            with pytest.raises(TypeError, match="cannot be copied"):
                make(each)
