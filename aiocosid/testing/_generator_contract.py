"""The contract of every generator, as tests that its author inherits."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, suppress
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.lowlevel import checkpoint

from ..errors import BusyError, ClosedError, InvalidArgumentError, NotOpenError, WouldBlock
from ..segment import SegmentStatistics
from ._own_tests import OwnTests
from ._workers import assert_rising, assert_unique, refused, storm, take_at_once

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from ..abc import IdGenerator
    from ..errors import CosIdError

__all__ = ("IdGeneratorContract", "MakeGenerator")

TURN_AFTER = 10_000  # ids after which a generator must yield to the loop
TURNS = 20  # yields to check; on a server each may be a round trip


class MakeGenerator(Protocol):
    """Creates generators that are not open yet; all generators of one test share one counter."""

    def __call__(self) -> IdGenerator:
        """Return a new generator."""
        raise NotImplementedError


class IdGeneratorContract(OwnTests):
    """Checks a generator.  Inherit, provide the fixture ``make_generator``, and run pytest.

    Mark your class ``@pytest.mark.asyncio`` for pytest-asyncio, or ``@pytest.mark.anyio`` for
    anyio's plugin::

        @pytest.mark.asyncio
        class TestMyGenerator(IdGeneratorContract):
            @pytest.fixture
            def make_generator(self) -> MakeGenerator:
                store = MyStore()
                return lambda: MyGenerator(store, name="order")

    Attributes:
        step: ids that your generator reserves at once, from which batch sizes are derived.
        ids_per_worker: ids that each of four workers takes; use fewer if your generator is slow.
    """

    step = 10
    ids_per_worker = 4000

    # Ids.

    async def test_ids_are_positive_and_rising(self, make_generator: MakeGenerator) -> None:
        """Each id is an int above 0 and above every earlier id."""
        async with make_generator() as generator:
            ids = [await generator.next_id() for _ in range(3 * self.step + 1)]
        assert_rising(ids, "next_id")

    async def test_next_ids_returns_exactly_n(self, make_generator: MakeGenerator) -> None:
        """A batch has exactly ``n`` rising ids, whether or not it fits the buffered ids."""
        async with make_generator() as generator:
            every = [await generator.next_id()]
            for n in (1, self.step, 3 * self.step + 1, 1, 2 * self.step, 25_000):
                ids = await generator.next_ids(n)
                assert type(ids) is list, f"next_ids({n}) returned a {type(ids).__name__}"
                assert len(ids) == n, f"next_ids({n}) returned {len(ids)} ids"
                every += [*ids, await generator.next_id()]
        assert_rising(every, "next_id and next_ids in turn")

    async def test_a_bad_n_is_refused(self, make_generator: MakeGenerator) -> None:
        """A value below 1, or not an int, raises InvalidArgumentError and takes no id."""
        bad: tuple[Any, ...] = (0, -1, -(2**63), 1.0, "1", None, True, 2**63)
        async with make_generator() as generator:
            ids = [await generator.next_id()]
            for n in bad:
                before = _handed_out(generator)
                await _raises(InvalidArgumentError, generator.next_ids, n)
                assert _handed_out(generator) == before, f"next_ids({n!r}) took ids"
            ids.append(await generator.next_id())
        assert_rising(ids, "ids around a refused call")

    async def test_nowait_returns_an_id_or_raises(self, make_generator: MakeGenerator) -> None:
        """`next_id_nowait` returns the next id or raises WouldBlock; `next_id` continues above."""
        async with make_generator() as generator:
            ids = [await generator.next_id()]
            for _ in range(10 * self.step):
                try:
                    ids.append(generator.next_id_nowait())
                except WouldBlock:
                    ids.append(await generator.next_id())
        assert_rising(ids, "next_id_nowait and next_id in turn")

    async def test_a_greedy_consumer_lets_others_run(self, make_generator: MakeGenerator) -> None:
        """The loop gets a turn after at most 10,000 ids, plus perhaps a last batch."""
        watch = _Watch()
        async with make_generator() as generator:
            await watch.wait_for(generator.next_ids(7 * TURN_AFTER))
            assert watch.turns >= 6, f"the loop had {watch.turns} turns in a batch of 70,000 ids"
            stretches = Counter[int]()
            for size in (1, self.step + 1):
                end = watch.turns + TURNS
                for _ in range(3 * TURN_AFTER // size + 1):
                    call = generator.next_ids(size) if size > 1 else generator.next_id()
                    await watch.wait_for(call)
                    stretches[watch.turns] += size
                    if watch.turns >= end:
                        break
        longest = max(stretches.values())
        assert longest <= TURN_AFTER + self.step, (
            f"{longest} ids were issued between two loop turns"
        )

    # Many tasks.

    async def test_four_workers(self, make_generator: MakeGenerator) -> None:
        """Four tasks on one generator get no id twice, and each task's ids rise."""
        async with make_generator() as generator:
            await take_at_once([generator], workers=4, ids=self.ids_per_worker)

    async def test_two_generators_are_disjoint(self, make_generator: MakeGenerator) -> None:
        """Two generators on one counter, as in two processes, never issue the same id."""
        async with make_generator() as one, make_generator() as other:
            await take_at_once([one, other], workers=4, ids=self.ids_per_worker // 4)

    async def test_a_storm_of_cancelled_callers(self, make_generator: MakeGenerator) -> None:
        """Callers cancelled at any moment do no harm: all ids are unique, and more can be taken."""
        taken: list[list[int]] = []

        async with make_generator() as generator:

            async def call(n: int) -> None:
                taken.append(await generator.next_ids(n) if n else [await generator.next_id()])

            for seed in range(10):
                sizes = [(number * 7 + seed) % (2 * self.step + 2) for number in range(60)]
                await storm(call, sizes, seed)
                highest = max((ids[-1] for ids in taken), default=0)
                taken.append(await generator.next_ids(3 * self.step + 1))
                assert taken[-1][0] > highest, (
                    "an id issued after the storm is not above all earlier ids"
                )
            _check_statistics(generator, sum(map(len, taken)))
        for ids in taken:
            assert_rising(ids, "one call")
        assert_unique((each for ids in taken for each in ids), "callers in a storm")

    # Statistics.

    async def test_statistics_say_who_it_is(self, make_generator: MakeGenerator) -> None:
        """Kind, namespace and name are known before, while and after it is open; so is a repr."""
        generator = make_generator()
        before = generator.statistics()
        async with generator:
            await generator.next_id()
            opened = generator.statistics()
            described = repr(generator)
        # Here a generator of texts is wrapped in another one.
        kind = getattr(generator, "described_as", type(generator).__name__)
        for each in (before, opened, generator.statistics()):
            assert each.kind == kind, f"its kind is {each.kind!r}"
            assert each.name, "it has no name"
            names = (each.namespace, each.name)
            assert names == (before.namespace, before.name), "its name changed"
        assert opened.name in described, f"the repr {described} does not name it"

    async def test_statistics_add_up(self, make_generator: MakeGenerator) -> None:
        """For a segment generator, fetched = issued + discarded + remaining at any moment."""
        async with make_generator() as generator:
            taken = 0
            for n in (1, self.step, 3 * self.step + 1, 2):
                await generator.next_ids(n)
                await generator.next_id()
                taken += n + 1
                _check_statistics(generator, taken)
        _check_statistics(generator, taken)

    # Lifecycle.

    async def test_before_it_is_opened(self, make_generator: MakeGenerator) -> None:
        """A generator that is not open yet raises NotOpenError; closing it does nothing."""
        generator = make_generator()
        await generator.aclose()
        await _raises_everywhere(NotOpenError, generator)

    async def test_a_closed_generator_says_so(self, make_generator: MakeGenerator) -> None:
        """After closing every call raises ClosedError, even if ids are still buffered."""
        async with make_generator() as generator:
            await generator.next_id()
        await _raises_everywhere(ClosedError, generator)

    async def test_closing_twice_and_from_another_task(self, make_generator: MakeGenerator) -> None:
        """`aclose` is idempotent, may be called by several tasks, and wakes waiting callers."""
        ended: list[str] = []
        ids: list[int] = []

        async def consume(generator: IdGenerator) -> None:
            try:
                while True:
                    ids.append(await generator.next_id())
                    await checkpoint()
            except ClosedError:
                ended.append("consumer")

        async with make_generator() as generator:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(consume, generator)
                for _ in range(5):
                    await checkpoint()
                for _ in range(3):
                    group.start_soon(generator.aclose)
            await generator.aclose()
        assert len(ended) == 5, f"{len(ended)} of 5 consumers got ClosedError"
        assert_unique(ids, "consumers until the end")

    async def test_closing_in_a_cancelled_scope(self, make_generator: MakeGenerator) -> None:
        """Cancelling the block around a generator closes it and leaves no task behind."""
        generator = make_generator()
        with anyio.CancelScope() as scope:
            async with generator:
                await generator.next_id()
                scope.cancel()
                await checkpoint()
        await _raises(ClosedError, generator.next_id)

    async def test_closing_in_any_order(self, make_generator: MakeGenerator) -> None:
        """The first generator opened may be closed first, and the other one continues."""
        async with AsyncExitStack() as later:
            sooner = AsyncExitStack()
            one = await sooner.enter_async_context(make_generator())
            other = await later.enter_async_context(make_generator())
            ids = [await one.next_id()]
            await sooner.aclose()
            ids.append(await other.next_id())
        assert_unique(ids, "two generators")

    async def test_opening_twice(self, make_generator: MakeGenerator) -> None:
        """An open generator cannot be opened again, and is not affected by the attempt."""
        async with make_generator() as generator:
            ids = [await generator.next_id()]
            await _raises(BusyError, generator.__aenter__)
            await _raises(BusyError, generator.run)
            ids.append(await generator.next_id())
        assert_rising(ids, "ids around the attempt")

    async def test_opening_anew(self, make_generator: MakeGenerator) -> None:
        """A closed generator can be reopened, and continues above all ids that it issued."""
        generator = make_generator()
        ids: list[int] = []
        for _ in range(3):
            async with generator:
                ids += await generator.next_ids(self.step + 1)
        async with anyio.create_task_group() as group:
            await group.start(generator.run)
            ids.append(await generator.next_id())
            await generator.aclose()
        assert_rising(ids, "ids of four openings")

    async def test_run_in_a_task_group(self, make_generator: MakeGenerator) -> None:
        """``start(run)`` returns once ids are buffered; `run` ends when the generator is closed."""
        generator = make_generator()
        async with anyio.create_task_group() as group:
            started = await group.start(generator.run)
            await generator.next_ids(3)
            await generator.aclose()
        assert started is generator, f"start(run) returned {started!r}, not the generator"
        await _raises_everywhere(ClosedError, generator)

    async def test_run_in_a_cancelled_task_group(self, make_generator: MakeGenerator) -> None:
        """Cancelling the task group closes the generator."""
        generator = make_generator()
        async with anyio.create_task_group() as group:
            await group.start(generator.run)
            await generator.next_id()
            group.cancel_scope.cancel()
        await _raises_everywhere(ClosedError, generator)


class _Watch:
    """Waits for calls, and counts the loop turns that they take.

    Another task could not count them, because trio runs the tasks of one turn in any order.
    """

    def __init__(self) -> None:
        self.turns = 0

    @coroutine
    def wait_for(self, call: Awaitable[object]) -> Generator[Any, Any, None]:
        steps = call.__await__()
        with suppress(StopIteration):
            suspended = next(steps)
            while True:
                self.turns += 1
                try:
                    answer = yield suspended
                except BaseException as error:  # noqa: BLE001 - raised to the caller
                    suspended = steps.throw(error)
                else:
                    suspended = steps.send(answer)


async def _raises(kind: type[CosIdError], function: Callable[..., object], *args: object) -> None:
    what = f"{getattr(function, '__name__', function)}{args} returned"
    await refused(kind, what, function, *args)


async def _raises_everywhere(kind: type[CosIdError], generator: IdGenerator) -> None:
    await _raises(kind, generator.next_id)
    await _raises(kind, generator.next_ids, 1)
    await _raises(kind, generator.next_id_nowait)


def _handed_out(generator: IdGenerator) -> int:
    statistics = generator.statistics()
    return statistics.ids_handed_out if isinstance(statistics, SegmentStatistics) else 0


def _check_statistics(generator: IdGenerator, taken: int) -> None:
    """Check the statistics of a segment generator; other kinds have other figures."""
    seen = generator.statistics()
    if not isinstance(seen, SegmentStatistics):
        return
    assert seen.ids_handed_out == taken, f"{taken} ids were taken, {seen.ids_handed_out} counted"
    accounted = seen.ids_handed_out + seen.ids_discarded + seen.remaining
    assert seen.ids_fetched == accounted, f"{seen.ids_fetched} fetched, {accounted} accounted for"
    assert min(seen.ids_handed_out, seen.ids_discarded, seen.remaining) >= 0, "a count is negative"
