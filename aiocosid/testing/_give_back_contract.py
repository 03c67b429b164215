"""The part of a distributor's contract about giving ids back."""

from __future__ import annotations

import random
import unittest
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ..segment import SegmentChainId
from ._own_tests import OwnTests
from ._workers import assert_unique, at_once, fresh_namespace

if TYPE_CHECKING:
    from ..abc import IdSegmentDistributor
    from ._distributor_contract import DistributorFactory as Make

__all__ = ("GiveBackContract",)

CHANGES = 15  # of a counter, by each of several distributors


class GiveBackContract(OwnTests):
    """Cases for distributors whose ``allow_give_back()`` is true; skipped for others."""

    async def test_unused_ids_go_back(self, make_distributor: Make) -> None:
        """The counter is lowered; who was there before, and the giver itself, go on from there."""
        giver, other = _pair(make_distributor)
        assert await other.next_max_id(10) == 10
        assert await giver.next_max_id(100) == 110
        assert await giver.give_back(110, 70) == 70, "the unused ids did not go back"
        assert await other.next_max_id(10) == 50, "the next range does not begin below them"
        assert await giver.next_max_id(10) == 60, "the giver does not go on from there"

    async def test_ids_go_back_once(self, make_distributor: Make) -> None:
        """A second call, for the same ids or what is left, gives nothing back."""
        giver, other = _pair(make_distributor)
        await giver.next_max_id(100)
        assert await giver.give_back(100, 40) == 40
        for max_id, unused in ((100, 40), (60, 20)):
            assert await giver.give_back(max_id, unused) == 0, "it gave back more, and unasked"
        assert await other.next_max_id(10) == 70

    async def test_nothing_goes_back_after_others(self, make_distributor: Make) -> None:
        """Not after another object's range, even if the counter has its former value by then."""
        giver, other = _pair(make_distributor)
        plain = make_distributor(namespace=giver.namespace, name=giver.name)
        await giver.next_max_id(100)
        await plain.next_max_id(10)
        assert await giver.give_back(100, 100) == 0, "another range lies above"
        await giver.next_max_id(100)
        assert await other.next_max_id(50) == 260
        assert await other.give_back(260, 50) == 50
        assert await giver.give_back(210, 100) == 0, "somebody had a range above in between"
        assert await plain.next_max_id(10) == 220

    async def test_a_run_of_ranges_goes_back(self, make_distributor: Make) -> None:
        """Ranges that were granted one after the other go back together; others end the run."""
        giver, other = _pair(make_distributor)
        await other.next_max_id(10)
        for due in (60, 110):
            assert await giver.next_max_id(50) == due
        assert await giver.give_back(110, 100) == 100, "the run was not given back as a whole"
        assert await giver.next_max_id(50) == 60
        assert await other.next_max_id(10) == 70
        assert await other.give_back(70, 10) == 10  # nobody sees that it was there, but it was
        assert await giver.next_max_id(50) == 110
        assert await giver.give_back(110, 100) == 50, "it went below what another has been granted"
        assert await other.next_max_id(10) == 70
        plain = make_distributor(namespace=giver.namespace, name=giver.name)
        assert await giver.next_max_id(10) == 80
        assert await plain.next_max_id(10) == 90
        assert await giver.next_max_id(10) == 100
        assert await giver.give_back(100, 30) == 10, "it gave back what is another's"
        for each, due in ((giver, 100), (other, 110), (giver, 120)):
            assert await each.next_max_id(10) == due
        assert await giver.give_back(120, 30) == 10, "it gave back what another may give back"

    async def test_generators_that_come_and_go_repeat_nothing(self, make_distributor: Make) -> None:
        """Several lives on one counter, one after the other, leave no gap between their ids."""
        namespace = fresh_namespace()
        ids = list[int]()
        for taken in (1, 150, 7):
            distributor = make_distributor(namespace=namespace, name="order", step=50)
            _ask(distributor)
            async with SegmentChainId(distributor, give_back=True) as generator:
                ids += await generator.next_ids(taken)
            assert generator.statistics().ids_discarded == 0, "ids were wasted"
        assert ids == list(range(1, 159)), f"the lives took {ids}"

    async def test_many_at_once_share_nothing(self, make_distributor: Make) -> None:
        """Whatever is granted and given back at once, also by a call that is cancelled."""
        namespace = fresh_namespace()
        used = list[int]()
        chance = random.Random(3)  # noqa: S311 - the same every time

        async def work(distributor: IdSegmentDistributor) -> None:
            for _ in range(CHANGES):
                step = chance.randint(1, 9)
                max_id = await distributor.next_max_id(step)
                unused = chance.randint(0, step)
                used.extend(range(max_id - step + 1, max_id - unused + 1))
                with anyio.move_on_after(chance.choice([None, None, 0.0])):
                    if unused:
                        await distributor.give_back(max_id, unused)

        plain, *givers = (make_distributor(namespace=namespace, name="order") for _ in range(4))
        for giver in givers:
            _ask(giver)
        await at_once(partial(work, each) for each in (plain, *givers))  # one is as CosId is
        assert_unique(used, "ids of which some were given back")


def _pair(make_distributor: Make) -> tuple[IdSegmentDistributor, IdSegmentDistributor]:
    namespace = fresh_namespace()
    one, other = (make_distributor(namespace=namespace, name="order") for _ in range(2))
    _ask(one)
    _ask(other)
    return one, other


def _ask(distributor: IdSegmentDistributor) -> None:
    if not distributor.allow_give_back():
        raise unittest.SkipTest("this distributor takes no ids back")
