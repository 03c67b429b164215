"""The contract of every distributor, as tests that its author inherits."""

from __future__ import annotations

import unittest
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from anyio.lowlevel import checkpoint

from ..abc import MAX_ID, IdSegmentDistributor
from ..errors import (
    IdOverflowError,
    InvalidArgumentError,
    StoreRolledBackError,
    UnsupportedByStoreError,
    WouldBlock,
)
from ..segment import SegmentChainId, SegmentId
from ._own_tests import OwnTests
from ._workers import (
    assert_refusals,
    assert_rising,
    assert_unique,
    at_once,
    fresh_namespace,
    refused,
    storm,
    take_at_once,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import IdGenerator

__all__ = ("DistributorFactory", "IdSegmentDistributorContract")

FAR_AWAY = 10**12  # the offset of the second counter, so no answer fits both

ODD_NAMES = ("a-b", "a:b", "a/b", "{a}", "a b", "a.b", "ä€", "a'b", 'a"b', "a%s", "a\\b", "A-B")

BAD: Final[dict[str, dict[str, object]]] = {
    "empty": {"name": ""},
    "NUL": {"name": "a\0b"},
    "offset": {"offset": -1},
    "step": {"step": 0},
}


class DistributorFactory(Protocol):
    """Creates distributors on one store; those with one namespace and name share a counter."""

    def __call__(
        self, *, namespace: str, name: str, offset: int = 0, step: int = 100
    ) -> IdSegmentDistributor:
        """Return a new distributor; nothing needs to be written yet."""
        raise NotImplementedError


Make: TypeAlias = DistributorFactory


class IdSegmentDistributorContract(OwnTests):
    """Checks a distributor.  Inherit, provide the fixture ``make_distributor``, and run pytest.

    Mark your class ``@pytest.mark.asyncio`` for pytest-asyncio, or ``@pytest.mark.anyio`` for
    anyio's plugin::

        @pytest.mark.asyncio
        class TestMyDistributor(IdSegmentDistributorContract):
            @pytest.fixture
            def make_distributor(self) -> DistributorFactory:
                return functools.partial(MyDistributor, client)

    Each test uses its own names, so the store need not be emptied.  Your fixture closes what the
    distributors open.

    Attributes:
        ids_per_worker: ids that each of four workers takes through a generator; use fewer for a
            very slow store.
    """

    ids_per_worker = 1000

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:  # noqa: ARG002
        """Set the store's counter back to ``to`` without the distributor's knowledge.

        Override it where the store allows it; the test that needs it is skipped otherwise.
        """
        raise unittest.SkipTest("set_back is not overridden")

    # The counter.

    async def test_it_describes_its_counter(self, make_distributor: Make) -> None:
        """Namespace, name, offset and step are as requested."""
        namespace = fresh_namespace()
        distributor = make_distributor(namespace=namespace, name="order", offset=7, step=100)
        described = (distributor.namespace, distributor.name, distributor.namespaced_name)
        assert described == (namespace, "order", f"{namespace}.order"), f"its names are {described}"
        assert (distributor.offset, distributor.step) == (7, 100), "its offset or step differs"

    async def test_a_counter_begins_with_its_first_step(self, make_distributor: Make) -> None:
        """The first call creates the counter; it and the next one return the ends of ranges."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order", step=100)
        first = await distributor.next_max_id(100)
        assert first == 100, f"the first step of 100 of a new counter returned {first}"
        assert type(first) is int, f"it returned a {type(first).__name__}, not an int"
        second = await distributor.next_max_id(100)
        assert second == 200, f"the second step of 100 returned {second}"

    async def test_each_call_has_its_own_step(self, make_distributor: Make) -> None:
        """The step is the call's own, from 1 up to far more than 32 bits can hold."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order", step=100)
        due = 0
        for step in (50, 1, 2**31, 2**53 + 1, 7):
            due += step
            answer = await distributor.next_max_id(step)
            assert answer == due, f"a step of {step} returned {answer}, expected {due}"

    async def test_a_new_counter_starts_at_the_offset(self, make_distributor: Make) -> None:
        """The first id is ``offset + 1``; an existing counter ignores the offset."""
        namespace = fresh_namespace()
        distributor = make_distributor(namespace=namespace, name="order", offset=1000, step=10)
        answer = await distributor.next_max_id(10)
        assert answer == 1010, f"offset 1000 and step 10 returned {answer}"
        late = make_distributor(namespace=namespace, name="order", offset=5_000_000, step=10)
        answer = await late.next_max_id(10)
        assert answer == 1020, f"an existing counter was moved by an offset, to {answer}"

    async def test_distributors_of_one_name_share_the_counter(self, make_distributor: Make) -> None:
        """Two distributors, as in two processes, share one counter."""
        namespace = fresh_namespace()
        one, other = (make_distributor(namespace=namespace, name="order") for _ in range(2))
        answers = [await each.next_max_id(10) for each in (one, other, other, one)]
        assert answers == [10, 20, 30, 40], (
            f"two distributors of one name do not share the counter: {answers}"
        )

    async def test_counters_of_other_names_are_apart(self, make_distributor: Make) -> None:
        """Another name, or the same name in another namespace, is another counter."""
        namespaces = fresh_namespace(), fresh_namespace()
        names = [(space, name) for space in namespaces for name in ("order", "orders", "Order")]
        for space, name in names:
            answer = await make_distributor(namespace=space, name=name).next_max_id(10)
            assert answer == 10, f"{space}.{name} shares a counter: it began with {answer}"

    async def test_names_may_hold_anything_but_nul(self, make_distributor: Make) -> None:
        """Names may contain quotes, braces, blanks or letters of any script."""
        namespace = fresh_namespace()
        for due in (10, 20):
            for name in ODD_NAMES:
                answer = await make_distributor(namespace=namespace, name=name).next_max_id(10)
                assert answer == due, f"the counter {name!r} returned {answer}, expected {due}"

    async def test_a_bad_description_is_refused(self, make_distributor: Make) -> None:
        """An empty name, a step below 1 or an offset below 0 is refused on creation."""
        assert_refusals(partial(make_distributor, namespace="ns", name="a"), BAD)

    # The counter's limits.

    async def test_a_step_below_1_is_refused(self, make_distributor: Make) -> None:
        """So is a step that is not an integer.  Nothing is written; the next range is still due."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order", step=10)
        await distributor.next_max_id(10)
        steps: tuple[Any, ...] = (0, -1, -(2**63), 1.5, True, "a")
        for step in steps:
            told = f"a step of {step!r} returned"
            await refused(InvalidArgumentError, told, distributor.next_max_id, step)
        answer = await distributor.next_max_id(10)
        assert answer == 20, f"after refused steps the next range ends at {answer}, not at 20"

    async def test_int64_is_the_end(self, make_distributor: Make) -> None:
        """No counter passes 2^63-1: a step that does not fit is refused; one that fits works."""
        make = partial(make_distributor, namespace=fresh_namespace(), name="order")
        distributor = make(offset=MAX_ID - 10, step=5)
        answers = [await distributor.next_max_id(5)]
        await _refused_as_overflow(distributor, 6)
        answers.append(await distributor.next_max_id(5))
        assert answers == [MAX_ID - 5, MAX_ID], f"near the end the counter returned {answers}"
        for step in (1, 5, MAX_ID):
            await _refused_as_overflow(distributor, step)

    # Concurrent calls.

    async def test_concurrent_callers_share_nothing(self, make_distributor: Make) -> None:
        """Twenty concurrent steps of 1 on a new counter return exactly 1 to 20."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order")
        answers: list[int] = []

        async def call() -> None:
            answers.append(await distributor.next_max_id(1))

        await at_once([call] * 20)
        assert sorted(answers) == list(range(1, 21)), (
            f"twenty steps of 1 returned {sorted(answers)}"
        )

    async def test_concurrent_ranges_are_disjoint(self, make_distributor: Make) -> None:
        """Twenty callers with their own steps, through two distributors, get adjacent ranges."""
        namespace = fresh_namespace()
        both = [make_distributor(namespace=namespace, name="order") for _ in range(2)]
        ranges: list[tuple[int, int]] = []

        async def call(number: int) -> None:
            max_id = await both[number % 2].next_max_id(number)
            ranges.append((max_id - number, max_id))

        await at_once(partial(call, number) for number in range(1, 21))
        ends = [0, *(end for _, end in sorted(ranges))]
        starts = [start for start, _ in sorted(ranges)]
        assert starts == ends[:-1], f"the ranges overlap or leave gaps: {sorted(ranges)}"
        assert ends[-1] == sum(range(1, 21)), f"the counter ended at {ends[-1]}"

    async def test_a_cancelled_call_shares_no_range(self, make_distributor: Make) -> None:
        """A cancelled call may lose its range at any moment, but never another call's reply.

        Two counters with very different values share the connections: if a caller read another
        call's late reply, it would get the other counter's number, or one that another caller
        already has.
        """
        namespace = fresh_namespace()
        near = make_distributor(namespace=namespace, name="near")
        far = make_distributor(namespace=namespace, name="far", offset=FAR_AWAY)
        answers: dict[str, list[int]] = {"near": [], "far": []}

        async def call(distributor: IdSegmentDistributor) -> None:
            max_id = await distributor.next_max_id(10)
            answers[distributor.name].append(max_id)

        for seed in range(5):
            await storm(call, (near, far) * 20, seed)
        for each in (near, far):
            await call(each)
        assert_unique(answers["near"] + answers["far"], "ranges")
        is_apart = max(answers["near"]) < FAR_AWAY < min(answers["far"])
        assert is_apart, "a caller got the reply of a different counter"
        for ends in answers.values():
            assert max(ends) == ends[-1], "the last range is not the highest"

    async def test_nowait_is_the_same_or_nothing(self, make_distributor: Make) -> None:
        """`next_max_id_nowait` reserves the counter's next range, or raises WouldBlock."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order")
        await distributor.next_max_id(10)
        try:
            answer = distributor.next_max_id_nowait(10)
        except WouldBlock:
            answer = await distributor.next_max_id(10)
        assert answer == 20, f"the second range ended at {answer}"
        answer = await distributor.next_max_id(10)
        assert answer == 30, f"the third range ended at {answer}"

    async def test_a_look_changes_nothing(self, make_distributor: Make) -> None:
        """`peek` returns the last id reserved by any object, or raises UnsupportedByStoreError."""
        namespace = fresh_namespace()
        one, other = (make_distributor(namespace=namespace, name="order") for _ in range(2))
        try:
            seen = [await one.peek()]
        except UnsupportedByStoreError:
            return
        for step in (10, 1):
            await one.next_max_id(step)
            seen += [await one.peek(), await other.peek()]
        assert seen == [None, 10, 10, 11, 11], f"peek() around steps of 10 and 1 returned {seen}"
        answer = await other.next_max_id(10)
        assert answer == 21, f"after peek() the next range ended at {answer}"

    # Lifecycle.

    async def test_it_goes_on_after_closing(self, make_distributor: Make) -> None:
        """Opening and closing twice is allowed; a closed distributor reconnects when used."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order")
        await distributor.aopen()
        await distributor.aopen()
        answers = [await distributor.next_max_id(10)]
        await distributor.aclose()
        await distributor.aclose()
        await distributor.aopen()
        answers.append(await distributor.next_max_id(10))
        await distributor.aclose()
        assert answers == [10, 20], (
            "before and after it was closed and reopened, the distributor returned "
            f"{answers}, not [10, 20]"
        )

    async def test_a_counter_that_went_back_is_noticed(self, make_distributor: Make) -> None:
        """If a store lost writes, its generator ends with StoreRolledBackError; no id repeats."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order", step=10)
        async with SegmentId(distributor, wait_timeout=10) as generator:
            ids = await generator.next_ids(95)
            await self.set_back(distributor, 0)

            async def go_on() -> None:
                for _ in range(100):
                    ids.append(await generator.next_id())
                    await checkpoint()

            told = "the generator did not notice that the counter went back:"
            await refused(StoreRolledBackError, told, go_on)
        assert_rising(ids, "ids around the loss")

    # Generators on a distributor.

    async def test_four_workers_on_a_segment_id(self, make_distributor: Make) -> None:
        """Four tasks on one `SegmentId` take exactly the ids from 1 on, each rising."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order", step=100)
        async with SegmentId(distributor) as generator:
            await _take_all([generator], self.ids_per_worker)

    async def test_four_workers_on_a_chain(self, make_distributor: Make) -> None:
        """Four tasks on one `SegmentChainId` take exactly the ids from 1 on, each rising."""
        distributor = make_distributor(namespace=fresh_namespace(), name="order", step=100)
        async with SegmentChainId(distributor) as generator:
            await _take_all([generator], self.ids_per_worker)

    async def test_two_generators_take_turns(self, make_distributor: Make) -> None:
        """Two `SegmentId` on two distributors of one counter leave no gap and repeat no id."""
        make = partial(make_distributor, namespace=fresh_namespace(), name="order", step=100)
        # Each takes a whole number of segments, because remaining ids would be a gap.
        each = max(100, self.ids_per_worker // 100 * 100)
        async with SegmentId(make()) as one, SegmentId(make()) as other:
            await _take_all([one, other], each)


async def _take_all(generators: Sequence[IdGenerator], each: int) -> None:
    """Let four tasks take that many ids each, and check that no id is missing."""
    ids = await take_at_once(generators, workers=4, ids=each)
    due = set(range(1, len(ids) + 1))
    missing, foreign = sorted(due - set(ids)), sorted(set(ids) - due)
    assert not missing, f"ids below {len(ids)} are missing, such as {missing[:5]}"
    assert not foreign, f"ids above {len(ids)} were issued, such as {foreign[:5]}"


async def _refused_as_overflow(distributor: IdSegmentDistributor, step: int) -> None:
    told = f"a step of {step} that passes 2^63-1 returned"
    await refused(IdOverflowError, told, distributor.next_max_id, step)
