"""Programs that fork; run by test_fork, each in a process of its own.

``python -m tests.unit.segment._forks SCENARIO FILE`` ends with 0 if all is as it has to be in the
parent and in its child.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

import aiocosid.segment
from aiocosid import connect
from aiocosid._life.fork import generation, watch
from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import WaitTimedOut
from aiocosid.errors import ClosedError, ForkedError
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from aiocosid.segment._opening import SegmentOpening
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import GatedDistributor, ManualClock, settle

from .._interrupted import interrupted
from .._kit import Ear

FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()


class FileDistributor(IdSegmentDistributor):
    """A counter that both processes reach."""

    async def next_max_id(self, step: int) -> int:
        with FILE.open("a+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            file.seek(0)
            max_id = int(file.read() or 0) + step
            file.truncate(0)
            file.write(str(max_id))
            return max_id


def in_child(main: Callable[[], object]) -> None:
    """Fork; run ``main`` in the child, and fail here if it fails there."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            main()
        except BaseException:  # noqa: BLE001 - the child must not go on as a second test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"


def forked() -> int | None:
    """Fork; None in the child, and in the parent, once the child has ended, how it ended."""
    pid = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else None


def refused(call: Callable[[], object]) -> ForkedError:
    """Make a call, driving it by hand if it is a coroutine: no loop runs in the child."""
    try:
        result = call()
        if asyncio.iscoroutine(result):
            result.send(None)
    except ForkedError as error:
        return error
    raise AssertionError(f"{call} was not refused")


async def a_generator_belongs_to_the_parent() -> None:
    """In the child every call is refused, ids in hand or not; the parent goes on."""
    memory = MemoryStore().segment_distributor(name="order", step=10)
    for distributor in (memory, FileDistributor(name="order", step=10)):
        for kind in (SegmentChainId, SegmentId):
            async with kind(distributor) as generator:
                ids = [await generator.next_id()]

                def child(generator: SegmentChainId | SegmentId = generator) -> None:
                    for call in (
                        generator.next_id_nowait,
                        generator.next_id,
                        partial(generator.next_ids, 1),
                        partial(generator.next_ids, 100),
                    ):
                        assert "open it again" in str(refused(call))
                    assert generator.statistics().remaining == 0
                    assert "ForkedError" in repr(generator)

                in_child(child)
                ids += await generator.next_ids(35)
                assert ids == list(range(ids[0], ids[0] + 36)), ids


class AtOnce(FileDistributor):
    """The same, for who does not wait."""

    def next_max_id_nowait(self, step: int) -> int:
        try:
            self.next_max_id(step).send(None)
        except StopIteration as answer:
            return int(answer.value)
        raise AssertionError("it waits")


async def a_fork_at_any_line_of_a_step() -> None:
    """By a signal handler: what the child puts in hand then is the parent's."""
    is_child = False
    statuses: set[int | None] = set()

    def handler() -> None:
        nonlocal is_child
        if not is_child:
            status = forked()
            is_child = status is None
            statuses.add(status)

    for kind in (SegmentChainId, SegmentId):
        async with kind(AtOnce(name="order", step=3)) as generator:
            ids: list[int] = []
            for _ in range(7):
                with suppress(ForkedError), interrupted(aiocosid.segment, "line", handler):
                    ids.append(generator.next_id_nowait())
                if is_child:
                    try:
                        refused(generator.next_id_nowait)
                    except BaseException:  # noqa: BLE001 - it must not go on as a second test
                        traceback.print_exc()
                        os._exit(1)
                    os._exit(0)
            assert len(ids) == 7
            assert ids == sorted(set(ids)), ids
    assert statuses == {0}, "a child failed"


async def closing_in_the_child_touches_nothing() -> None:
    """``async with`` ends silently there; the parent's tasks and connections are not its own."""
    store = GatedDistributor(FileDistributor(name="order", step=10))
    store.open()
    async with SegmentChainId(store) as generator:

        def child() -> None:
            with suppress(StopIteration):
                generator.aclose().send(None)
            assert store.closed == 0, "the child closed the parent's distributor"

        in_child(child)
        assert await generator.next_id() == 1


async def opened_anew_in_the_child() -> None:
    """Parent and child go on side by side, with ids of their own."""
    distributor = FileDistributor(name="order", step=10)
    generator = SegmentChainId(distributor)
    child_ids = FILE.with_suffix(".child")
    async with generator:
        ids = await generator.next_ids(5)

        def child() -> None:
            async def main() -> None:
                async with generator:
                    child_ids.write_text(" ".join(map(str, await generator.next_ids(55))))
                try:
                    await generator.next_id()
                except ClosedError:
                    return
                raise AssertionError("not closed")

            asyncio.run(main())

        in_child(child)
        ids += await generator.next_ids(55)
    theirs = [int(each) for each in child_ids.read_text().split()]
    assert len(theirs) == 55
    assert len({*ids, *theirs}) == 60 + 55, "parent and child share ids"


def a_child_of_a_closed_parent() -> None:
    """What was made, or used and closed, before the fork works in parent and child."""
    used = SegmentChainId(FileDistributor(name="order", step=10))
    unused = SegmentId(FileDistributor(name="order", step=10))
    child_ids = FILE.with_suffix(".child")

    async def take() -> list[int]:
        async with used, unused:
            return [*await used.next_ids(25), *await unused.next_ids(25)]

    ids = asyncio.run(take())
    in_child(lambda: child_ids.write_text(" ".join(map(str, asyncio.run(take())))))
    ids += asyncio.run(take())
    theirs = [int(each) for each in child_ids.read_text().split()]
    assert len({*ids, *theirs}) == 150, "parent and child share ids"


async def a_provider_belongs_to_the_parent() -> None:
    """In the child the provider and all its generators are refused; the parent goes on."""
    async with connect("memory://") as ids:
        orders, bills = await ids.segment_chain("order"), await ids.segment("bill")
        assert await orders.next_id() == 1

        def child() -> None:
            for name in ("order", "new"):
                refused(partial(ids.segment_chain, name))
                refused(partial(ids.segment, name))
            for generator in (orders, bills):
                refused(generator.next_id_nowait)
                refused(generator.next_id)

        in_child(child)
        assert await orders.next_id() == 2
        assert await ids.segment_chain("order") is orders
        assert await (await ids.segment_chain("new")).next_id() == 1


async def a_provider_opened_anew_in_the_child() -> None:
    """It has generators of its own there, also for a name that the parent was just opening."""
    gates: list[GatedDistributor] = []

    class Gated(MemoryStore):
        def segment_distributor(self, **about: Any) -> Any:
            gates.append(GatedDistributor(FileDistributor(**about)))
            return gates[-1]

    child_ids = FILE.with_suffix(".child")
    async with connect(Gated()) as ids, anyio.create_task_group() as group:
        group.start_soon(ids.segment, "order")
        await settle()

        def child() -> None:
            async def main() -> None:
                async with ids, anyio.create_task_group() as group:
                    group.start_soon(ids.segment, "order")
                    await settle()
                    gates[1].open()
                    await settle()
                    child_ids.write_text(str(await ids["order"].next_id()))

            asyncio.run(main())

        in_child(child)
        gates[0].open()
        await settle()
        first = await ids["order"].next_id()
    assert first != int(child_ids.read_text())


async def one_that_cannot_forget() -> None:
    """What goes wrong in one owner is logged, and all the others forget the parent all the same."""

    class Broken:
        def _forget(self) -> None:
            raise KeyError("odd")

    told: list[logging.LogRecord] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record)

    logging.getLogger("aiocosid").addHandler(Ear())
    owners = [Broken() for _ in range(20)]  # in no order
    async with SegmentChainId(FileDistributor(name="order", step=10)) as generator:
        for owner in owners:
            watch(owner)

        def child() -> None:
            refused(generator.next_id_nowait)
            assert len(told) == len(owners), told

        in_child(child)


async def groups_belong_to_the_parent() -> None:
    """In the child every call is refused; opened anew there it shares no id; the parent goes on."""
    orders = GroupedSegmentId(
        FileDistributor, name="order", group_by=GroupBy.key(lambda: "a"), step=10
    )
    child_ids = FILE.with_suffix(".child")
    async with orders:
        ids = [*await orders.next_ids(5)]

        def child() -> None:
            for call in (orders.next_id_nowait, orders.next_id, partial(orders.next_ids, 1)):
                assert "GroupedSegmentId" in str(refused(call))

            async def main() -> None:
                async with orders:
                    child_ids.write_text(" ".join(map(str, await orders.next_ids(55))))

            asyncio.run(main())

        in_child(child)
        ids += await orders.next_ids(55)
    theirs = [int(each) for each in child_ids.read_text().split()]
    assert len({*ids, *theirs}) == 60 + 55, "parent and child share ids"


def memory_counters_are_not_for_the_child() -> None:
    """It would count on from where the parent was: every use is refused, with the way out."""
    store = MemoryStore()
    distributor = store.segment_distributor(name="order")
    asyncio.run(distributor.next_max_id(10))

    def child() -> None:
        for call in (
            partial(distributor.next_max_id, 10),
            partial(distributor.next_max_id_nowait, 10),
            distributor.aopen,
            partial(store.set_floor, name="order", above=5),
            SegmentChainId(distributor).__aenter__,
        ):
            try:
                asyncio.run(_awaited(call))
            except ForkedError as error:
                assert "that both processes can reach" in str(error), error  # noqa: PT017
            else:
                raise AssertionError(f"{call} was not refused")
        fresh = MemoryStore().segment_distributor(name="order")
        assert asyncio.run(fresh.next_max_id(10)) == 10, "a store of the child's own works"

    in_child(child)
    assert asyncio.run(distributor.next_max_id(10)) == 20


async def _awaited(call: Callable[[], object]) -> object:
    result = call()
    return await result if isinstance(result, Awaitable) else result


class ForkingOpening(SegmentOpening):
    """Has its generator fork."""

    __slots__ = ("generator",)

    generator: ForkingId

    def _serve(self) -> None:
        super()._serve()
        self.generator.fork()


class ForkingId(SegmentId):
    """Forks when a waiter has just been served and has not run yet; the child runs on as well.

    The parent stands still meanwhile: both have the event loop, but one selector between them.
    """

    fork_at: str = ""
    is_child = False
    status: int | None = -1
    __slots__ = ("__dict__",)

    _opens = ForkingOpening

    def _reset(self) -> None:
        super()._reset()
        assert isinstance(self._opening, ForkingOpening)
        self._opening.generator = self

    def fork(self) -> None:
        if self.fork_at:
            reopen, self.fork_at = self.fork_at == "reopened", ""
            self.status = forked()
            self.is_child = self.status is None
            if self.is_child and reopen:
                self._claim()  # what opening it anew does first


def a_coroutine_suspended_across_the_fork(how: str, n: int) -> None:
    """It holds ids that the parent hands out: in the child it raises instead of returning them.

    On trio, because asyncio's loop does not run on in a child.
    """
    result: list[object] = []

    async def main() -> None:
        store = GatedDistributor(FileDistributor(name="order", step=10))
        store.open()
        generator = ForkingId(store)

        async def wait() -> None:
            try:
                result.append(await generator.next_ids(n) if n else await generator.next_id())
            except ForkedError as error:
                result.append(error)
            if generator.is_child:
                os._exit(0 if isinstance(result[0], ForkedError) else 3)

        async with generator, anyio.create_task_group() as group:
            await generator.next_ids(10)
            store.close()
            group.start_soon(wait)
            await settle()
            generator.fork_at = how
            store.open()
            await settle()
        assert generator.status == 0, "handed out there"

    anyio.run(main, backend="trio")
    first = result[0] if n == 0 else result[0][0]  # type: ignore[index]  # a list
    assert first == 11, result


def a_waiter_cancelled_in_the_child() -> None:
    """Opened anew there, the generator knows nothing of the parent's line, and leaves it alone."""

    async def main() -> None:
        store = GatedDistributor(FileDistributor(name="order", step=10))
        store.open()
        generator = SegmentId(store)
        scope = anyio.CancelScope()

        async def wait() -> None:
            with scope, suppress(ValueError):
                await generator.next_id()

        async with generator, anyio.create_task_group() as group:
            await generator.next_ids(10)
            store.close()
            group.start_soon(wait)
            await settle()
            status = forked()
            if status is None:
                generator._claim()  # what opening it anew does first
                scope.cancel()
                await settle()
                os._exit(0 if scope.cancelled_caught else 3)
            assert status == 0, "it ended with another error"
            scope.cancel()
            store.open()

    anyio.run(main, backend="trio")


def a_line_across_the_fork() -> None:
    """Each of those who wait finds itself in the child when its time is up, and not later."""

    async def main() -> None:
        store, clock = GatedDistributor(FileDistributor(name="order", step=10)), ManualClock()
        ear = Ear()
        generator = SegmentId(store, wait_timeout=3.0, clock=clock, instrument=ear)
        results: list[object] = []

        async def wait() -> None:
            try:
                results.append(await generator.next_id())
            except ForkedError as error:
                results.append(error)

        store.open()
        async with generator, anyio.create_task_group() as group:
            await generator.next_ids(10)
            store.close()
            for _ in range(5):
                group.start_soon(wait)
            await settle()
            status = forked()
            if status is None:
                await clock.advance(3)
                is_told = any(ear.of(WaitTimedOut))  # which is the parent's to tell
                found = [type(each) for each in results]
                os._exit(0 if found == [ForkedError] * 5 and not is_told else 3)
            assert status == 0, "some wait for ever"
            store.open()
        assert len(set(map(str, results))) == 5

    anyio.run(main, backend="trio")


def a_batch_listed_across_the_fork() -> None:
    """A long batch gives the loop turns while it is listed: what is half done is the parent's."""
    result: list[object] = []

    async def main() -> None:
        generator = SegmentChainId(FileDistributor(name="order", step=50_000))
        is_child = False

        async def take() -> None:
            try:
                result.append(len(await generator.next_ids(60_000)))
            except ForkedError as error:
                result.append(error)
            if is_child:
                os._exit(0 if isinstance(result[0], ForkedError) else 3)

        async with generator, anyio.create_task_group() as group:
            group.start_soon(take)
            await checkpoint()
            await checkpoint()
            assert not result, "it was not suspended"
            status = forked()
            if status is None:
                is_child = True
                generator._claim()  # what opening it anew does first
            else:
                assert status == 0, "handed out there"

    anyio.run(main, backend="trio")
    assert result == [60_000], result


SCENARIOS: dict[str, Callable[[], object]] = {
    "generator": lambda: asyncio.run(a_generator_belongs_to_the_parent()),
    "any line": lambda: asyncio.run(a_fork_at_any_line_of_a_step()),
    "closing": lambda: asyncio.run(closing_in_the_child_touches_nothing()),
    "anew": lambda: asyncio.run(opened_anew_in_the_child()),
    "closed": a_child_of_a_closed_parent,
    "provider": lambda: asyncio.run(a_provider_belongs_to_the_parent()),
    "provider, opened anew": lambda: asyncio.run(a_provider_opened_anew_in_the_child()),
    "groups": lambda: asyncio.run(groups_belong_to_the_parent()),
    "cannot forget": lambda: asyncio.run(one_that_cannot_forget()),
    "memory": memory_counters_are_not_for_the_child,
    "suspended": lambda: a_coroutine_suspended_across_the_fork("waiting", 0),
    "suspended batch": lambda: a_coroutine_suspended_across_the_fork("waiting", 3),
    "suspended, opened anew": lambda: a_coroutine_suspended_across_the_fork("reopened", 0),
    "suspended long batch, opened anew": lambda: a_coroutine_suspended_across_the_fork(
        "reopened", 30_000
    ),
    "cancelled, opened anew": a_waiter_cancelled_in_the_child,
    "line": a_line_across_the_fork,
    "listed": a_batch_listed_across_the_fork,
}

if __name__ == "__main__":
    assert generation == 0
    SCENARIOS[sys.argv[1]]()
