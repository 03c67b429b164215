"""The part of the machine ids' contract about a store that lost the record of holders."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from ..abc.machines import QUARANTINE_MARGIN
from ..errors import MachineIdQuarantineError
from ._machine_kit import (
    SAFE_GUARD,
    SECOND,
    MachineKit,
    assert_different,
    refused_as_full,
    refused_as_lost,
    refused_for_its_width,
)
from ._own_tests import OwnTests
from ._workers import at_once, refused

if TYPE_CHECKING:
    from ._machine_kit import MakeMachineIdDistributor as Make

__all__ = ("MachineQuarantines",)

FULL: Final = SAFE_GUARD + QUARANTINE_MARGIN
OVER: Final = FULL + 10  # seconds after which it has ended, however long the calls took


class MachineQuarantines(OwnTests):
    """The behaviour without a marker.  `MachineIdDistributorContract` inherits it."""

    async def age(self, namespace: str, seconds: float) -> None:
        """Make all times of a namespace older; see `MachineIdDistributorContract`."""
        raise NotImplementedError

    async def forget(self, namespace: str, *, everything: bool) -> None:
        """Make the store lose data; see `MachineIdDistributorContract`."""
        raise NotImplementedError

    async def test_nobody_is_handed_one_in_a_quarantine(self, make_machines: Make) -> None:
        """No own, released or new id is granted until the longest lease has ended."""
        for everything in (True, False):
            kit = MachineKit(make_machines)
            await kit.hold("abc")
            await kit.of("c").release(2, last_ms=-1)
            await self.forget(kit.namespace, everything=everything)
            began_ms = kit.now_ms()
            for text in "abcda":
                error = await refused_by_quarantine(kit, text)
                assert error.namespace == kit.namespace, f"the error names {error.namespace}"
                left, passed = error.seconds_left, (kit.now_ms() - began_ms) / SECOND
                is_right = FULL - passed - 1 < left <= FULL
                assert is_right, f"{passed} of {FULL} s have passed, but {left} s are left"
            await self.age(kit.namespace, SAFE_GUARD - 60)
            for ahead in (0, 10**12):  # whatever the caller's clock shows
                left = (await refused_by_quarantine(kit, "d", ahead=ahead)).seconds_left
                assert 0 < left <= 60 + QUARANTINE_MARGIN, (
                    f"most of the quarantine is over, but {left} s are left"
                )
            await self.age(kit.namespace, OVER - SAFE_GUARD + 60)
            assert_different(await kit.take_all("defg"))
            await refused_as_full(kit, "h")

    async def test_owners_assert_their_ids(self, make_machines: Make) -> None:
        """An instance that asserts its id keeps it, with stamp, fence and width; others do not."""
        for everything, is_late in ((True, False), (True, True), (False, False)):
            kit = MachineKit(make_machines)
            mark = kit.now_ms() + 63 * SECOND
            for number, text in enumerate("abcd"):
                await kit.take(text)
                await kit.reassert(text, number, fence_ms=mark)
            await self.forget(kit.namespace, everything=everything)
            if is_late:
                await refused_by_quarantine(kit, "e")
            for _ in range(2):  # like a driver that resends
                for number in (3, 1):
                    await kit.reassert("abcd"[number], number, fence_ms=mark + number)
            await self.age(kit.namespace, OVER)
            for number in (3, 1):
                await kit.reassert("abcd"[number], number, fence_ms=mark)
            await refused_for_its_width(kit, "e", bits=3, found=2)
            ids = [(await kit.take(text)).machine_id for text in "ef"]
            assert sorted(ids) == [0, 2], f"b and d kept 1 and 3, but e and f got {ids}"
            await refused_as_full(kit, "g")
            for number in (0, 2):
                await refused_as_lost(kit, "abcd"[number], number)
            for number in (3, 1):
                grant = await kit.take("abcd"[number])
                due = (number, mark + number)
                found = (grant.machine_id, grant.floor_ms)
                assert found == due, f"{due} was asserted, but the grant is {found}"

    async def test_an_asserted_one_is_not_new(self, make_machines: Make) -> None:
        """However high the number is; the numbers below it are granted as well."""
        kit = MachineKit(make_machines)
        for text in "abcdefgh":
            await kit.take(text, bits=3)
        await self.forget(kit.namespace, everything=True)
        await kit.reassert("g", 6)
        await kit.reassert("d", 3)
        await self.age(kit.namespace, OVER)
        for text, number in (("g", 6), ("d", 3)):
            await kit.renew(text, number)
        ids = await kit.take_all("stuvwx", bits=3)
        assert_different({**ids, "g": 6, "d": 3})
        await refused_as_full(kit, "y", bits=3)

    async def test_a_lease_that_ended_asserts_nothing(self, make_machines: Make) -> None:
        """A plain renewal is refused, because another instance may have had the id."""
        for everything in (True, False):
            kit = MachineKit(make_machines)
            await kit.take("a")
            await self.forget(kit.namespace, everything=everything)
            for _ in range(2):
                await refused_by_quarantine(kit, "a", machine_id=0)
            await self.age(kit.namespace, OVER)
            await kit.take_all("bcde")
            await refused_as_lost(kit, "a", 0)

    async def test_what_was_not_handed_out_is_not_asserted(self, make_machines: Make) -> None:
        """Only the number that this object obtained, and still has, can be asserted."""
        for everything in (True, False):
            kit = MachineKit(make_machines)
            for number, text in enumerate("abc"):
                await kit.take(text)
                await kit.reassert(text, number)
            await kit.of("c").release(2, last_ms=-1)
            await self.forget(kit.namespace, everything=everything)
            for text, number in (("a", 1), ("a", 3), ("c", 2), ("d", 3)):
                await refused_by_quarantine(kit, text, machine_id=number, reassert=True)
            for number, text in enumerate("ab"):
                await kit.reassert(text, number)

    async def test_nothing_is_asserted_on_a_sound_store(self, make_machines: Make) -> None:
        """An id that was released, or went to another instance, stays lost."""
        kit = MachineKit(make_machines)
        await kit.take("a")
        await kit.reassert("a", 0)
        await kit.of("a").release(0, last_ms=-1)
        await refused_as_lost(kit, "a", 0, reassert=True)
        await kit.take("b")
        await refused_as_lost(kit, "a", 0, reassert=True)
        await kit.reassert("b", 0)

    async def test_of_two_owners_the_earlier_keeps_it(self, make_machines: Make) -> None:
        """The earlier grant wins, then the lower text, in any order of calls."""
        for first, second, later in (("a", "b", 5), ("b", "a", 5), ("a", "b", 0)):
            for order in ((first, second), (second, first)):
                kit = MachineKit(make_machines)
                await self._give_to_both(kit, first, second, later=later)
                for text in order:
                    if text == second and order[0] == first:
                        await refused_as_lost(kit, text, 0, reassert=True)
                    else:
                        await kit.reassert(text, 0)
                await refused_as_lost(kit, second, 0, reassert=True)
                await kit.reassert(first, 0)
                await refused_by_quarantine(kit, second)
                await self.age(kit.namespace, OVER)
                await kit.reassert(first, 0)
                found = (await kit.take(second)).machine_id
                assert found != 0, f"{first} kept 0, but {second} got it, too"

    async def _give_to_both(self, kit: MachineKit, first: str, second: str, *, later: int) -> None:
        """Grant 0 to both, on a store that loses data twice."""
        now_ms = kit.now_ms()
        await kit.of(first).distribute(2, now_ms=now_ms, latest_ms=2**53)
        await self.forget(kit.namespace, everything=True)
        await refused_by_quarantine(kit, second)
        await self.age(kit.namespace, OVER)
        grant = await kit.of(second).distribute(2, now_ms=now_ms + later, latest_ms=2**53)
        assert grant.machine_id == 0, f"the store had forgotten 0, but {grant} was granted"
        await self.forget(kit.namespace, everything=True)

    async def test_of_two_lives_the_later_keeps_it(self, make_machines: Make) -> None:
        """The later process with the same text wins, which was granted the id after the other."""
        orders: list[list[str]] = [["old", "new"], ["new", "old"]]
        for order in orders:
            kit = MachineKit(make_machines)
            now_ms = kit.now_ms()
            lives = {"old": kit.anew("a"), "new": kit.anew("a")}
            for number, life in enumerate(lives.values()):
                await life.distribute(2, now_ms=now_ms + number, latest_ms=2**53)
            await self.forget(kit.namespace, everything=True)
            for name in order:
                if name == "old" and order[0] == "new":
                    await refused_as_lost(kit, lives[name], 0, reassert=True)
                else:
                    await lives[name].reassert(0, now_ms=now_ms, fence_ms=-1)
            await refused_as_lost(kit, lives["old"], 0, reassert=True)
            await lives["new"].reassert(0, now_ms=now_ms, fence_ms=-1)

    async def test_a_stable_one_is_stable_again(self, make_machines: Make) -> None:
        """An asserted id stays with its owner, even without renewals after that."""
        kit = MachineKit(make_machines, stable=True)
        await kit.take("a")
        await self.forget(kit.namespace, everything=True)
        await kit.reassert("a", 0)
        await self.age(kit.namespace, 1000 * SAFE_GUARD)
        others = MachineKit(make_machines, kit.namespace)
        ids = [(await others.take(text)).machine_id for text in "bcd"]
        assert sorted(ids) == [1, 2, 3], (
            f"0 belongs to the stable instance a, but the others got {ids}"
        )
        await refused_as_full(others, "e")

    async def test_giving_back_in_a_quarantine(self, make_machines: Make) -> None:
        """The id is released, and granted afterwards above what was issued."""
        kit = MachineKit(make_machines)
        last = kit.now_ms() + 2 * SECOND
        await kit.hold("ab")
        await self.forget(kit.namespace, everything=True)
        await kit.reassert("b", 1, fence_ms=last + 60 * SECOND)
        for number, text in enumerate("ab"):
            await kit.of(text).release(number, last_ms=last)
        await refused_by_quarantine(kit, "b")
        await self.age(kit.namespace, OVER)
        floors = {grant.machine_id: grant.floor_ms for grant in [await kit.take(t) for t in "cdef"]}
        assert set(floors) == {0, 1, 2, 3}, f"all were free, but {sorted(floors)} were granted"
        assert last <= floors[1] < last + 60 * SECOND, (
            f"the last id had {last}, but the floor is {floors[1]}"
        )

    async def test_the_longest_lease_counts(self, make_machines: Make) -> None:
        """The longest lease among callers in a quarantine counts; one without end has no end."""
        kit = MachineKit(make_machines)
        kit.of("a")
        await self.forget(kit.namespace, everything=True)
        await refused_by_quarantine(kit, "a")
        longer = MachineKit(make_machines, kit.namespace, safe_guard=3 * SAFE_GUARD)
        for _ in range(2):
            left = (await refused_by_quarantine(longer, "b")).seconds_left
            due = 3 * SAFE_GUARD + QUARANTINE_MARGIN
            assert due - 60 < left <= due, f"expected {due} s, but {left} s are left"
        await self.age(kit.namespace, OVER)
        await refused_by_quarantine(kit, "a")
        await self.age(kit.namespace, 2 * SAFE_GUARD)
        await kit.take("a")
        endless = MachineKit(make_machines, safe_guard=inf)
        endless.of("a")
        await self.forget(endless.namespace, everything=True)
        await refused_by_quarantine(endless, "a")
        await self.age(endless.namespace, 1000 * SAFE_GUARD)
        left = (await refused_by_quarantine(endless, "a")).seconds_left
        assert left == inf, f"the quarantine has no end, but {left} s are left"

    async def test_a_longer_lease_of_before_counts(self, make_machines: Make) -> None:
        """This holds whichever instance asks first: the owner may run, not yet renewed."""
        for asserted in (False, True):
            short = MachineKit(make_machines)
            long = MachineKit(make_machines, short.namespace, safe_guard=3 * SAFE_GUARD)
            for text in ("a", "b"):
                await (long if text == "a" else short).take(text)
            if asserted:  # data is lost, then asserted in a quarantine, which then ends
                await self.forget(short.namespace, everything=True)
                await refused_by_quarantine(short, "c")
                await long.reassert("a", 0)
                await self.age(short.namespace, 3 * OVER)
                await short.take("c")
            await self.forget(short.namespace, everything=False)
            left = (await refused_by_quarantine(short, "d")).seconds_left
            due = 3 * SAFE_GUARD + QUARANTINE_MARGIN
            assert due - 60 < left <= due, f"expected {due} s, but {left} s are left"
            await self.age(short.namespace, OVER)
            await refused_by_quarantine(short, "d")
            await long.reassert("a", 0)
            await self.age(short.namespace, 2 * SAFE_GUARD)
            found = (await short.take("d")).machine_id
            assert found != 0, f"a has asserted 0, but d got {found}"

    async def test_it_begins_anew(self, make_machines: Make) -> None:
        """If the store loses data during a quarantine, ids must be asserted again."""
        kit = MachineKit(make_machines)
        await kit.take_all("ab")
        for _ in range(2):
            await self.forget(kit.namespace, everything=True)
            for number, text in enumerate("ab"):
                await kit.reassert(text, number)
            await self.age(kit.namespace, SAFE_GUARD - 60)
            left = (await refused_by_quarantine(kit, "c")).seconds_left
            assert left > 0, f"the quarantine did not begin again: {left} s are left"
        await self.age(kit.namespace, OVER - SAFE_GUARD + 60)
        await kit.take("c")

    async def test_many_at_once_in_a_quarantine(self, make_machines: Make) -> None:
        """Owners assert and others request ids concurrently: no id is lost, and none is granted."""
        kit = MachineKit(make_machines)
        ids = await kit.take_all(("i0", "i1", *"abcdef"), bits=4)
        await self.forget(kit.namespace, everything=True)

        asks = [partial(refused_by_quarantine, kit, f"new {text}", bits=4) for text in ids]
        asserts = [partial(kit.reassert, text, number) for text, number in ids.items()]
        await at_once([call for both in zip(asks, asserts, strict=True) for call in both])
        await self.age(kit.namespace, OVER)
        for text, number in ids.items():
            await kit.renew(text, number)
        ids |= await kit.take_all("stuvwxyz", bits=4)
        assert_different(ids)
        await refused_as_full(kit, "one more", bits=4)


async def refused_by_quarantine(
    kit: MachineKit,
    text: str,
    *,
    bits: int = 2,
    ahead: int = 0,
    machine_id: int | None = None,
    reassert: bool = False,
) -> MachineIdQuarantineError:
    """Let an instance request or renew an id in a quarantine, and return the error."""
    told = f"the store may have forgotten who holds what, but {text} got"
    if machine_id is not None:
        call = kit.reassert if reassert else kit.renew
        return await refused(MachineIdQuarantineError, told, call, text, machine_id)
    ask = partial(kit.of(text).distribute, bits, now_ms=kit.now_ms() + ahead, latest_ms=2**53)
    return await refused(MachineIdQuarantineError, told, ask)
