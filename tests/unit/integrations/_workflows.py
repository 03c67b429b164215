"""Workflows for Temporal's sandbox, which loads a module of its own for each run."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow

import aiocosid
import aiocosid.sync
from aiocosid.abc import IdGenerator
from aiocosid.generators import CounterId

threaded = aiocosid.sync.connect("memory://").segment_chain("order")
opened: list[IdGenerator] = []


@activity.defn
async def new_order_id() -> int:
    return await aiocosid.generator_named("order").next_id()  # type: ignore[return-value]


@workflow.defn
class TakesIdInActivity:
    @workflow.run
    async def run(self) -> int:
        within = timedelta(seconds=10)
        return await workflow.execute_activity(new_order_id, start_to_close_timeout=within)


@workflow.defn
class AsksTheDefaultProvider:
    @workflow.run
    async def run(self) -> int:
        return await aiocosid.generator_named("order").next_id()  # type: ignore[return-value]


@workflow.defn
class OpensGenerator:
    @workflow.run
    async def run(self) -> int:
        async with CounterId() as counter:
            return await counter.next_id()


@workflow.defn
class Connects:
    @workflow.run
    async def run(self) -> int:
        async with aiocosid.connect("memory://") as ids:
            return await (await ids.segment_chain("order")).next_id()


@workflow.defn
class TakesOpened:
    """Without a sandbox, a workflow reaches what its worker has opened."""

    @workflow.run
    async def run(self) -> int:
        return (await opened[0].next_ids(1))[0]


@workflow.defn
class AsksThread:
    @workflow.run
    async def run(self) -> int:
        return threaded.next_id()


REFUSED = [AsksTheDefaultProvider, OpensGenerator, Connects, AsksThread]
ALL = [TakesIdInActivity, TakesOpened, *REFUSED]
