"""Stores and generators with a defect each, in scenarios that have to find it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from aiocosid import CosIdError, SegmentChainId
from aiocosid.abc import IdGenerator, IdSegmentDistributor, Statistics
from aiocosid.errors import StoreUnavailableError
from tests.simulation import Link, Node, Scenario, World, churn

STEP = 10

Counters = dict[str, int]
MakeDistributor = Callable[[Node, Counters], IdSegmentDistributor]


class Counter(IdSegmentDistributor):
    """A sound counter, for the others to break."""

    def __init__(self, counters: Counters) -> None:
        super().__init__(name="order", step=STEP)
        self.counters = counters

    def get(self) -> int:
        return self.counters.get(self.name, 0)

    async def next_max_id(self, step: int) -> int:
        self.counters[self.name] = self.get() + step
        return self.get()


class ReadsThenWrites(Counter):
    """Not atomic: two calls may read the same value."""

    async def next_max_id(self, step: int) -> int:
        value = self.get()
        await asyncio.sleep(0.002)
        self.counters[self.name] = value + step
        return value + step


class AnswersTheResend(Counter):
    """Takes a second call within a moment for the first one, sent again: answers the same."""

    async def next_max_id(self, step: int) -> int:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if now_ms - self.counters.get("answered at", -1000) < 10:
            return self.counters["answer"]
        value = await super().next_max_id(step)
        self.counters |= {"answered at": now_ms, "answer": value}
        return value


class ReadsAgain(IdSegmentDistributor):
    """After a lost reply, reads the counter, and believes that its last range is ours."""

    def __init__(self, link: Link, counters: Counters) -> None:
        super().__init__(name="order", step=STEP)
        self._link = link
        self._inner = Counter(counters)

    async def next_max_id(self, step: int) -> int:
        try:
            return await self._link.call("memory", "add", lambda: self._inner.next_max_id(step))
        except StoreUnavailableError:
            return await self._link.call("memory", "read", self._read)

    async def _read(self) -> int:
        return self._inner.get()


class LowersAfterCrash(Counter):
    """Gives back, at the next start, what the process that died had in hand, as it believes."""

    def __init__(self, counters: Counters, node: Node) -> None:
        super().__init__(counters)
        self._node = node

    async def aopen(self) -> None:
        if self._node.lives > 1:
            self.counters[self.name] = max(0, self.get() - STEP)


def chains(make: MakeDistributor, **options: Any) -> Scenario:
    """Segment chains on a counter of one's own making."""

    async def scenario(world: World) -> None:
        counters: Counters = {}
        await churn(
            world, lambda node: SegmentChainId(make(node, counters), clock=node.clock), **options
        )

    return scenario


def linked(kind: Callable[[Counters], IdSegmentDistributor]) -> MakeDistributor:
    return lambda node, counters: node.link().segments(kind(counters))


class Naive(IdGenerator):
    """Counts under a lock, a call to the store each; its subclasses have a defect each."""

    def __init__(self, node: Node, counters: Counters) -> None:
        self.node = node
        self.distributor = node.link().segments(Counter(counters))
        self.left: list[int] = []

    async def next_ids(self, n: int) -> list[int]:
        max_id = await self.distributor.next_max_id(n)
        return list(range(max_id - n + 1, max_id + 1))

    async def next_id(self) -> int:
        return (await self.next_ids(1))[0]

    def next_id_nowait(self) -> int:
        raise StoreUnavailableError("memory", "nothing in hand")

    def statistics(self) -> Statistics:
        return Statistics(kind=type(self).__name__, namespace="cosid", name="order")

    async def run(self, **_: Any) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self


class PutsBack(Naive):
    """A cancelled caller's ids go to the next one, although later ones have been handed out."""

    async def next_ids(self, n: int) -> list[int]:
        if len(self.left) >= n:
            ids, self.left = self.left[:n], self.left[n:]
            return ids
        ids = await super().next_ids(n)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.left = ids
            raise
        return ids


class NeverGivesUp(Naive):
    """Tries for as long as the store is away."""

    async def next_ids(self, n: int) -> list[int]:
        while True:
            try:
                return await super().next_ids(n)
            except CosIdError:
                await self.node.clock.sleep(0.1)


class RaisesAnything(Naive):
    """Lets an error through that is none of ours."""

    async def next_ids(self, n: int) -> list[int]:
        try:
            return await super().next_ids(n)
        except StoreUnavailableError as error:
            raise ConnectionError(*error.args) from error


class LeavesTask(Naive):
    """Forgets its task."""

    async def aclose(self) -> None:
        self.task = asyncio.create_task(asyncio.sleep(3600), name="forgotten")


class LeavesTimer(Naive):
    """Forgets its timer."""

    async def aclose(self) -> None:
        asyncio.get_running_loop().call_later(3600, print)


class StaysSilent(Naive):
    """Does not come back once the store was away."""

    is_broken = False

    async def next_ids(self, n: int) -> list[int]:
        if self.is_broken:
            raise StoreUnavailableError("memory", "was away")
        try:
            return await super().next_ids(n)
        except StoreUnavailableError:
            self.is_broken = True
            raise


def naive(kind: Callable[[Node, Counters], Naive]) -> Scenario:
    async def scenario(world: World) -> None:
        counters: Counters = {}
        await churn(
            world,
            lambda node: kind(node, counters),
            acts=("crash", "stop", "cut"),
            every=2.0,
            seconds=15.0,
            longest=15.0,
            fair=False,
        )

    return scenario


SOUND = {"counter": chains(linked(Counter))}

DEFECTS: dict[str, tuple[Scenario, str]] = {
    "reads, then writes": (chains(linked(ReadsThenWrites)), "handed out twice"),
    # The generator sees the counter stand still, and ends.
    "answers the resend": (chains(linked(AnswersTheResend), seconds=8.0, every=0.5), "got no ids"),
    "reads again": (chains(lambda n, c: ReadsAgain(n.link(), c)), "handed out twice"),
    "lowers after a crash": (
        chains(lambda n, c: n.link().segments(LowersAfterCrash(c, n))),
        "handed out twice",
    ),
    "puts back": (naive(PutsBack), "had been returned before"),
    "never gives up": (naive(NeverGivesUp), "did not end by its deadline"),
    "raises anything": (naive(RaisesAnything), "is no CosIdError"),
    "leaves a task": (naive(LeavesTask), "left behind: forgotten"),
    "leaves a timer": (naive(LeavesTimer), "left behind: a timer"),
    "stays silent": (naive(StaysSilent), "got no ids"),
}
"""A scenario each, and what the simulation says of it."""
