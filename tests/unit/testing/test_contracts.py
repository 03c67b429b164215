"""The contracts have teeth: each planted fault is seen by the test that is there for it."""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid.abc import MAX_ID, IdGenerator, IdSegmentDistributor
from aiocosid.errors import CosIdError, InvalidArgumentError, WouldBlock
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    IdGeneratorContract,
    IdSegmentDistributorContract,
    RolledBackDistributor,
    WrappedDistributor,
)

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]


def flat(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from flat(each)
    else:
        yield error


async def verdict(contract: object, test: str, make: object) -> str:
    """Run one test of a contract; return what it found, or nothing."""
    try:
        await getattr(contract, test)(make)
    except Exception as error:  # noqa: BLE001 - any way of failing is a finding
        return "; ".join(f"{type(each).__name__}: {each}" for each in flat(error))
    return ""


# Distributors with one fault each.


class Memory(IdSegmentDistributor):
    """A sound one, in small pieces to be broken."""

    def __init__(self, counters: dict[str, int], **about: Any) -> None:
        super().__init__(**about)
        self.counters = counters

    def key(self) -> str:
        return self.namespaced_name

    def read(self) -> int:
        return self.counters.get(self.key(), self.offset)

    def check(self, step: int) -> None:
        if type(step) is not int or step < 1:
            raise InvalidArgumentError("step", step, "must be at least 1")
        MemoryStore().segment_distributor(name="x", offset=self.read()).next_max_id_nowait(step)

    def write(self, max_id: int) -> int:
        self.counters[self.key()] = max_id
        return max_id

    async def next_max_id(self, step: int) -> int:
        self.check(step)
        return self.write(self.read() + step)


class AnswersTheStart(Memory):
    async def next_max_id(self, step: int) -> int:
        return await super().next_max_id(step) - step


class AnswersFloats(Memory):
    async def next_max_id(self, step: int) -> int:
        return float(await super().next_max_id(step))  # type: ignore[return-value]  # the fault


class OwnStep(Memory):
    async def next_max_id(self, step: int) -> int:
        return await super().next_max_id(self.step)


class ThirtyTwoBits(Memory):
    def write(self, max_id: int) -> int:
        return super().write(max_id % 2**32)


class NoOffset(Memory):
    def read(self) -> int:
        return self.counters.get(self.key(), 0)


class OffsetMoves(Memory):
    def read(self) -> int:
        return max(self.counters.get(self.key(), 0), self.offset)


class Private(Memory):
    def __init__(self, counters: dict[str, int], **about: Any) -> None:
        super().__init__({}, **about)


class OneForAll(Memory):
    def key(self) -> str:
        return "counter"


class NoNamespace(Memory):
    def key(self) -> str:
        return self.name


class LowerCase(Memory):
    def key(self) -> str:
        return self.namespaced_name.lower()


class PlainLetters(Memory):
    def key(self) -> str:
        return re.sub(r"[^\w.]", "_", self.namespaced_name)


class Misnamed(Memory):
    @property
    def namespaced_name(self) -> str:
        return self.name


class Careless(Memory):
    def __init__(self, counters: dict[str, int], **about: Any) -> None:
        with suppress(InvalidArgumentError):
            super().__init__(counters, **about)


class TakesAnyStep(Memory):
    def check(self, step: int) -> None:
        if step > 0:
            super().check(step)


class WritesThenRefuses(Memory):
    async def next_max_id(self, step: int) -> int:
        if type(step) is int:
            self.write(self.read() + abs(step))
        if type(step) is not int or step < 1:
            raise InvalidArgumentError("step", step, "must be at least 1")
        return self.read()


class Wraps(Memory):
    def check(self, step: int) -> None:
        if step < 1:
            super().check(step)

    def write(self, max_id: int) -> int:
        return super().write(max_id if max_id <= MAX_ID else max_id - 2**64)


class Saturates(Memory):
    def check(self, step: int) -> None:
        if step < 1:
            super().check(step)

    def write(self, max_id: int) -> int:
        return super().write(min(max_id, MAX_ID))


class StopsEarly(Memory):
    def check(self, step: int) -> None:
        super().check(step)
        super().check(step + 1)


class ReadsThenWrites(Memory):
    async def next_max_id(self, step: int) -> int:
        self.check(step)
        max_id = self.read() + step
        await checkpoint()
        return self.write(max_id)


class PooledReplies(Memory):
    """A reply that nobody waits for stays on the connection, for the next one to read."""

    replies: list[int]

    async def next_max_id(self, step: int) -> int:
        self.check(step)
        connection: list[int] = self.counters.setdefault("connection", [])  # type: ignore[arg-type,assignment]
        connection.append(self.write(self.read() + step))
        await checkpoint()
        await checkpoint()
        return connection.pop(0)


class PutsBack(Memory):
    """Gives the range of a cancelled call back, although others have gone on from it."""

    async def next_max_id(self, step: int) -> int:
        self.check(step)
        max_id = self.write(self.read() + step)
        try:
            await checkpoint()
            await checkpoint()
        except BaseException:
            self.write(self.read() - step)
            raise
        return max_id


class NowaitApart(Memory):
    def next_max_id_nowait(self, step: int) -> int:
        return self.write(self.read() + 2 * step) - step


class StaysClosed(Memory):
    is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True

    async def next_max_id(self, step: int) -> int:
        if self.is_closed:
            raise CosIdError("closed")
        return await super().next_max_id(step)


class StartsAnew(Memory):
    async def aclose(self) -> None:
        self.counters.clear()


class WastesIds(Memory):
    async def next_max_id(self, step: int) -> int:
        await super().next_max_id(step)
        return await super().next_max_id(step)


@pytest.mark.parametrize(
    ("broken", "test", "finding"),
    [
        (Misnamed, "test_it_describes_its_counter", "its names are"),
        (AnswersTheStart, "test_a_counter_begins_with_its_first_step", "returned 0"),
        (AnswersFloats, "test_a_counter_begins_with_its_first_step", "float"),
        (WastesIds, "test_a_counter_begins_with_its_first_step", "returned 200"),
        (OwnStep, "test_each_call_has_its_own_step", "expected 50"),
        (ThirtyTwoBits, "test_each_call_has_its_own_step", "expected"),
        (NoOffset, "test_a_new_counter_starts_at_the_offset", "returned 10"),
        (OffsetMoves, "test_a_new_counter_starts_at_the_offset", "moved by an offset"),
        (Private, "test_distributors_of_one_name_share_the_counter", "do not share"),
        (OneForAll, "test_counters_of_other_names_are_apart", "shares a counter"),
        (NoNamespace, "test_counters_of_other_names_are_apart", "shares a counter"),
        (LowerCase, "test_counters_of_other_names_are_apart", "shares a counter"),
        (PlainLetters, "test_names_may_hold_anything_but_nul", "expected"),
        (Careless, "test_a_bad_description_is_refused", "accepted: empty"),
        (TakesAnyStep, "test_a_step_below_1_is_refused", "a step of 0 returned 10"),
        (WritesThenRefuses, "test_a_step_below_1_is_refused", "after refused steps"),
        (Wraps, "test_int64_is_the_end", "returned -"),
        (Saturates, "test_int64_is_the_end", "returned 9"),
        (StopsEarly, "test_int64_is_the_end", "IdOverflowError"),
        (ReadsThenWrites, "test_concurrent_callers_share_nothing", "twenty steps"),
        (ReadsThenWrites, "test_concurrent_ranges_are_disjoint", "overlap"),
        (PooledReplies, "test_a_cancelled_call_shares_no_range", ""),
        (PutsBack, "test_a_cancelled_call_shares_no_range", "more than once"),
        (NowaitApart, "test_nowait_is_the_same_or_nothing", "the third range"),
        (StaysClosed, "test_it_goes_on_after_closing", "closed"),
        (StartsAnew, "test_it_goes_on_after_closing", "[10, 10]"),
        (ReadsThenWrites, "test_two_generators_take_turns", ""),
        (WastesIds, "test_four_workers_on_a_segment_id", "missing"),
        (WastesIds, "test_four_workers_on_a_chain", "missing"),
    ],
)
async def test_a_broken_distributor_is_seen(
    broken: Callable[..., IdSegmentDistributor], test: str, finding: str
) -> None:
    """The contract's test for a fault fails on it, and says what is wrong."""
    found = await verdict(IdSegmentDistributorContract(), test, partial(broken, {}))
    assert found
    assert finding in found


@pytest.mark.parametrize(
    "test",
    [
        name
        for name, each in vars(IdSegmentDistributorContract).items()
        if name.startswith("test_")
        and each.__qualname__ == f"{IdSegmentDistributorContract.__name__}.{name}"
    ],
)
async def test_the_double_is_sound_before_it_is_broken(test: str) -> None:
    """Without a planted fault each test passes: it is the fault that is seen."""

    class Contract(IdSegmentDistributorContract):
        async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
            counters[distributor.namespaced_name] = to

    counters: dict[str, int] = {}
    assert await verdict(Contract(), test, partial(Memory, counters)) == ""


async def test_what_goes_back_unnoticed_is_seen() -> None:
    """If ids come twice after the loss the contract says so; a set back that does nothing too."""

    class Idle(IdSegmentDistributorContract):
        async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
            pass

    test = "test_a_counter_that_went_back_is_noticed"
    assert "did not notice" in await verdict(Idle(), test, partial(Memory, {}))


async def test_a_store_that_cannot_be_set_back_skips_the_test() -> None:
    """Pytest takes unittest's SkipTest for a skip, and the kit needs no pytest for it."""
    with pytest.raises(unittest.SkipTest, match="set_back"):
        await IdSegmentDistributorContract().set_back(Memory({}, name="a"), 0)


# Generators with one fault each.


class Broken(SegmentChainId):
    """A sound generator, but for what a subclass breaks."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(WrappedDistributor(store.segment_distributor(name="order", step=10)))


class FromZero(Broken):
    async def next_id(self) -> int:
        return await super().next_id() - 1


class Falls(Broken):
    async def next_id(self) -> int:
        return 1000 - await super().next_id()


class OneShort(Broken):
    async def next_ids(self, n: int) -> list[int]:
        return (await super().next_ids(n))[: max(1, n - 1)]


class Caps(Broken):
    async def next_ids(self, n: int) -> list[int]:
        return await super().next_ids(min(n, 10) if n > 30 else n)


class TakesBadSizes(Broken):
    async def next_ids(self, n: int) -> list[int]:
        return await super().next_ids(max(1, int(n or 1)))


class NowaitRepeats(Broken):
    def next_id_nowait(self) -> int:
        return super().next_id_nowait() - 1


class Hoards(Broken):
    """Has so many ids in hand that it never lets go."""

    async def __aenter__(self) -> Any:
        await super().__aenter__()
        self.hoard = iter(await SegmentChainId.next_ids(self, 50_000))
        return self

    async def next_id(self) -> int:
        return next(self.hoard)


class HoardsBatches(Hoards):
    async def __aenter__(self) -> Any:
        await super().__aenter__()
        self.hoard = iter(await SegmentChainId.next_ids(self, 70_000))
        return self

    async def next_id(self) -> int:
        await checkpoint()
        return 1

    async def next_ids(self, n: int) -> list[int]:
        return [next(self.hoard) for _ in range(n)]


class HandsOutTwice(Broken):
    """Every second caller gets the id of the one before."""

    calls = last = 0

    async def next_id(self) -> int:
        self.calls += 1
        if self.calls % 2:
            self.last = await super().next_id()
        await checkpoint()
        return self.last


class PutsIdsBack(Broken):
    """An id of a cancelled caller goes to the next one, and to the caller all the same."""

    back: int | None = None

    async def next_ids(self, n: int) -> list[int]:
        ids = await super().next_ids(n)
        if self.back is not None:
            ids[0], self.back = self.back, None
        try:
            await checkpoint()
        except BaseException:
            self.back = ids[0]
            raise
        return ids


class Unnamed(SegmentChainId):
    def __repr__(self) -> str:
        return "<generator>"


class Miscounts(Broken):
    lent = 0

    async def next_id(self) -> int:
        ids = await super().next_ids(2)
        return ids[0]


class OpensByItself(Broken):
    async def next_id(self) -> int:
        try:
            return await super().next_id()
        except CosIdError:
            await super().__aenter__()
            return await super().next_id()


class KeepsSome(Broken):
    """Ids in hand are handed out after closing."""

    async def next_id(self) -> int:
        self.kept = (await super().next_ids(2))[1]
        return self.kept - 1

    def next_id_nowait(self) -> int:
        return self.kept


class ClosesOnce(Broken):
    is_closed = False

    async def aclose(self) -> None:
        if self.is_closed:
            raise CosIdError("closed already")
        self.is_closed = True
        await super().aclose()


class LeavesWaiting(Broken):
    """Who takes ids while it closes is told something else."""

    async def next_id(self) -> int:
        try:
            return await super().next_id()
        except CosIdError:
            raise WouldBlock from None


class ClosesInCancelledScope(Broken):
    async def aclose(self) -> None:
        await checkpoint()
        await super().aclose()


class OpensTwice(Broken):
    async def __aenter__(self) -> Any:
        await super().aclose()
        return await super().__aenter__()


class OpensOnce(Broken):
    times = 0

    async def __aenter__(self) -> Any:
        self.times += 1
        if self.times > 1:
            raise CosIdError("used up")
        return await super().__aenter__()


class Nested(Broken):
    """Enters a task group in the task that opens it."""

    async def __aenter__(self) -> Any:
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        return await super().__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()
        await self.group.__aexit__(None, None, None)


class StartsNobody(Broken):
    async def run(self, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started(None)
        await super().run()


class OutlivesItsGroup(Broken):
    async def run(self, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        await super().__aenter__()
        task_status.started(self)


def rolled_back(_: MemoryStore) -> SegmentChainId:
    """Each generator begins where the one before it began."""
    return SegmentChainId(
        RolledBackDistributor(MemoryStore().segment_distributor(name="order", step=10))
    )


def forgets(_: MemoryStore) -> SegmentChainId:
    """Its counter is gone when it is closed."""
    return SegmentChainId(StartsAnew({}, name="order", step=10))


def on(kind: type[SegmentChainId]) -> Callable[[MemoryStore], SegmentChainId]:
    return lambda store: kind(store.segment_distributor(name="order", step=10))


@pytest.mark.parametrize(
    ("broken", "test", "finding"),
    [
        (FromZero, "test_ids_are_positive_and_rising", "not positive"),
        (Falls, "test_ids_are_positive_and_rising", "follows"),
        (OneShort, "test_next_ids_returns_exactly_n", "returned 9 ids"),
        (Caps, "test_next_ids_returns_exactly_n", "returned 10 ids"),
        (TakesBadSizes, "test_a_bad_n_is_refused", "expected InvalidArgumentError"),
        (NowaitRepeats, "test_nowait_returns_an_id_or_raises", "follows"),
        (Hoards, "test_a_greedy_consumer_lets_others_run", "30001 ids were issued"),
        (HoardsBatches, "test_a_greedy_consumer_lets_others_run", "batch of 70,000"),
        (HandsOutTwice, "test_four_workers", ""),
        (rolled_back, "test_two_generators_are_disjoint", "more than once"),
        (PutsIdsBack, "test_a_storm_of_cancelled_callers", ""),
        (on(Unnamed), "test_statistics_say_who_it_is", "does not name it"),
        (Miscounts, "test_statistics_add_up", "ids were taken"),
        (OpensByItself, "test_before_it_is_opened", "expected NotOpenError"),
        (KeepsSome, "test_a_closed_generator_says_so", "expected ClosedError"),
        (ClosesOnce, "test_closing_twice_and_from_another_task", "closed already"),
        (LeavesWaiting, "test_closing_twice_and_from_another_task", ""),
        (ClosesInCancelledScope, "test_closing_in_a_cancelled_scope", "expected ClosedError"),
        (OpensTwice, "test_opening_twice", "expected BusyError"),
        (OpensOnce, "test_opening_anew", "used up"),
        (forgets, "test_opening_anew", "StoreRolledBackError"),
        (StartsNobody, "test_run_in_a_task_group", "start(run) returned None"),
        (OutlivesItsGroup, "test_run_in_a_cancelled_task_group", "expected ClosedError"),
    ],
)
async def test_a_broken_generator_is_seen(
    broken: Callable[[MemoryStore], SegmentChainId], test: str, finding: str
) -> None:
    """The contract's test for a fault fails on it, and says what is wrong."""
    made: list[SegmentChainId] = []
    store = MemoryStore()

    def make() -> SegmentChainId:
        made.append(broken(store))
        return made[-1]

    with anyio.CancelScope():
        found = await verdict(IdGeneratorContract(), test, make)
        for generator in made:
            await SegmentChainId.aclose(generator)
    assert found
    assert finding in found


def test_a_generator_that_enters_a_scope_in_its_opener_is_seen() -> None:
    """Closing in any order is what a task group in ``__aenter__`` cannot do."""

    async def main() -> None:
        contract, store = IdGeneratorContract(), MemoryStore()
        await contract.test_closing_in_any_order(lambda: Nested(store))

    with pytest.raises(RuntimeError, match="cancel scope"):
        anyio.run(main)


def test_every_test_of_the_contracts_has_its_rule() -> None:
    """A stranger reads in the docstring what has to hold."""
    for contract in (IdSegmentDistributorContract, IdGeneratorContract):
        tests = {name: test for name, test in vars(contract).items() if name.startswith("test_")}
        assert tests
        assert [name for name, test in tests.items() if not test.__doc__] == []


def test_a_segment_id_is_a_generator_too() -> None:
    """What the kit is told to check is typed as the contract."""
    made: IdGenerator = SegmentId(MemoryStore().segment_distributor(name="order"))
    assert isinstance(made, IdGenerator)
