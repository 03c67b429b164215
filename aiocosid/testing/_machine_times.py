"""The part of the machine ids' contract about the times that the next owner gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MachineIdLostError
from ._machine_kit import SAFE_GUARD, SECOND, MachineKit, refused_as_full, refused_as_lost
from ._own_tests import OwnTests

if TYPE_CHECKING:
    from ._machine_kit import MakeMachineIdDistributor as Make

__all__ = ("MachineTimes",)


class MachineTimes(OwnTests):
    """Floors, stamps and fences.  `MachineIdDistributorContract` inherits it."""

    async def age(self, namespace: str, seconds: float) -> None:
        """Make the last renewals of a namespace older; see `MachineIdDistributorContract`."""
        raise NotImplementedError

    async def test_the_next_owner_begins_above_the_mark(self, make_machines: Make) -> None:
        """This holds after any owner and any change: released, expired, or found again."""
        kit = MachineKit(make_machines)
        mark = kit.now_ms() + 63 * SECOND
        await kit.hold("a", fence_ms=mark)
        again = kit.anew("a")
        floor = (await again.distribute(2, **kit.times())).floor_ms
        assert floor >= mark, f"found again after a crash: floor {floor}, fence {mark}"
        await again.release(0, last_ms=-1)
        floor = (await kit.take("b")).floor_ms
        assert floor >= mark, f"released unused: floor {floor}, fence {mark}"
        await kit.of("b").release(0, last_ms=-1)
        floor = (await kit.take("c")).floor_ms
        assert floor >= mark, f"released unused twice: floor {floor}, fence {mark}"

    async def test_the_mark_of_an_expired_one(self, make_machines: Make) -> None:
        """A recycled id's next owner also begins above the fence, and so does the one after it."""
        kit = MachineKit(make_machines)
        mark = kit.now_ms() + 63 * SECOND
        for number, text in enumerate("abcd"):
            await kit.take(text)
            await kit.renew(text, number, fence_ms=mark + number)
        for taker in "ef":
            await self.age(kit.namespace, SAFE_GUARD + 10)
            for number, text in enumerate(f"{taker}{each}" for each in "abcd"):
                grant = await kit.take(text)
                due = mark + grant.machine_id
                assert grant.floor_ms >= due, f"taker {number}: {grant}, fence {due}"

    async def test_a_mark_of_any_size(self, make_machines: Make) -> None:
        """Up to 2^53-1 it is kept to the millisecond; Lua and JSON have no larger integers."""
        kit = MachineKit(make_machines)
        for mark in (99_999_999_999_999, 123_456_789_012_345, 2**53 - 1):
            await kit.hold("a", fence_ms=mark)
            floor = (await kit.take("a")).floor_ms
            assert floor == mark, f"the fence {mark} was returned as {floor}"

    async def test_a_sign_of_life_lowers_nothing(self, make_machines: Make) -> None:
        """Neither stamp nor fence falls when the owner's clock does."""
        kit = MachineKit(make_machines)
        past, now, stamp, mark = kit.ahead(-3600, 0, 5, 63)
        await kit.take("a")
        await kit.of("a").renew(0, now_ms=stamp, fence_ms=mark)
        await kit.of("a").renew(0, now_ms=past, fence_ms=past)
        floor = (await kit.take("a")).floor_ms
        assert floor >= mark, f"the fence {mark} was lowered to {floor}"
        await kit.of("a").release(0, last_ms=now)
        grant = await kit.take("b")
        assert grant.floor_ms >= stamp, f"the stamp {stamp} was lowered to {grant.floor_ms}"
        assert grant.machine_id == 0, (
            f"machine id 0 was released, and must be granted next, but {grant.machine_id} was"
        )

    async def test_the_last_sign_of_life_counts(self, make_machines: Make) -> None:
        """A peer without a fence issues ids up to about its stamp, so the floor covers that too."""
        kit = MachineKit(make_machines)
        ahead = kit.now_ms() + 40 * SECOND
        await kit.take("a")
        await kit.of("a").renew(0, now_ms=ahead, fence_ms=-1)
        await kit.of("a").renew(0, now_ms=ahead - 30 * SECOND, fence_ms=-1)
        again = kit.anew("a")
        floor = (await again.distribute(2, **kit.times())).floor_ms
        assert floor >= ahead, f"the stamp was {ahead}, but the floor is {floor}"
        await again.release(0, last_ms=-1)
        floor = (await kit.take("b")).floor_ms
        assert floor >= ahead, f"the stamp was {ahead}, but after the release the floor is {floor}"

    async def test_giving_back_lowers_the_mark(self, make_machines: Make) -> None:
        """The fence falls to the last time used, so the next owner need not wait longer."""
        for stable, taker in ((False, "b"), (True, "a")):
            kit = MachineKit(make_machines, stable=stable)
            last, mark = kit.ahead(2, 63)
            await kit.hold("a", fence_ms=mark)
            await kit.of("a").release(0, last_ms=last)
            floor = (await kit.take(taker)).floor_ms
            assert last <= floor < mark, (
                f"the last id had {last}, the fence was {mark}, but the floor is {floor}"
            )

    async def test_a_return_that_comes_too_late(self, make_machines: Make) -> None:
        """A release from a former life of the instance takes nothing away, and lowers no fence."""
        for stable, lead in ((False, 63), (False, 5), (True, 63), (True, 5)):
            kit = MachineKit(make_machines, stable=stable)
            now, used, leading, mark = kit.ahead(0, 1, lead, 63)
            await kit.hold("a", fence_ms=mark)
            heir = kit.anew("a")
            await heir.distribute(2, **kit.times())
            await heir.renew(0, now_ms=now, fence_ms=leading)
            await kit.of("a").release(0, last_ms=used)
            try:
                await heir.renew(0, now_ms=now, fence_ms=-1)
            except MachineIdLostError as error:
                raise AssertionError(
                    f"a late release took the id from the next process: {error}"
                ) from error
            floor = (await heir.distribute(2, **kit.times())).floor_ms
            assert floor >= mark, f"a late release lowered the fence {mark} to {floor}"

    async def test_a_late_id_is_left_for_another(self, make_machines: Make) -> None:
        """An id that must wait for its floor is taken only if there is no other."""
        kit = MachineKit(make_machines)
        latest, mark = kit.ahead(2, 63)
        await kit.hold("a", fence_ms=mark)
        await kit.of("a").release(0, last_ms=-1)
        ids = [(await kit.take(text, latest_ms=latest)).machine_id for text in "bcd"]
        assert ids == [1, 2, 3], f"0 must wait and 1 to 3 were free, but {ids} were granted"
        grant = await kit.take("e", latest_ms=latest)
        assert grant.machine_id == 0, f"only 0 was left, but {grant} was granted"
        assert grant.floor_ms >= mark, f"the fence was {mark}, but the floor is {grant.floor_ms}"

    async def test_a_late_own_id_is_given_back(self, make_machines: Make) -> None:
        """After a crash and a clock step back, the instance takes another id, releasing its own."""
        kit = MachineKit(make_machines)
        latest, mark = kit.ahead(2, 63)
        await kit.hold("a", fence_ms=mark)
        found = (await kit.take("a", latest_ms=latest)).machine_id
        assert found == 1, f"its own id must wait and 1 was free, but a got {found}"
        await refused_as_lost(kit, "a", 0)
        await kit.renew("a", 1)
        grant = await kit.take("b")
        assert grant.machine_id == 0, (
            f"machine id 0 was released, and must be granted next, but {grant.machine_id} was"
        )
        assert grant.floor_ms >= mark, f"the fence was {mark}, but the floor is {grant.floor_ms}"

    async def test_a_late_own_id_is_kept_where_there_is_no_other(self, make_machines: Make) -> None:
        """If all ids are held, or the instance is stable, it gets the floor and must wait."""
        full = MachineKit(make_machines)
        latest, mark = full.ahead(2, 63)
        await full.hold("abcd", fence_ms=mark)
        stable = MachineKit(make_machines, stable=True)
        await stable.hold("a", fence_ms=mark)
        for kit in (full, stable):
            grant = await kit.take("a", latest_ms=latest)
            assert grant.machine_id == 0, f"a had 0, but got {grant.machine_id}"
            assert grant.floor_ms >= mark, (
                f"the fence was {mark}, but the floor is {grant.floor_ms}"
            )
            await kit.renew("a", 0)
        await refused_as_full(full, "e")

    async def test_a_late_expired_id_is_left_for_another(self, make_machines: Make) -> None:
        """Among several expired ids, one that need not wait is taken."""
        kit = MachineKit(make_machines)
        latest, mark = kit.ahead(2, 63)
        for number, text in enumerate("abcd"):
            await kit.take(text)
            await kit.renew(text, number, fence_ms=-1 if number == 2 else mark)
        await self.age(kit.namespace, SAFE_GUARD + 10)
        found = (await kit.take("e", latest_ms=latest)).machine_id
        assert found == 2, f"only 2 need not wait, but e got {found}"
