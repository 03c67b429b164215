"""The contract of every distributor of machine ids, as tests that its author inherits."""

from __future__ import annotations

import unittest
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..abc import InstanceId
from ..errors import InvalidArgumentError, MachineBitsMismatchError
from ._machine_crowds import MachineCrowds
from ._machine_kit import (
    ODD_TEXTS,
    SAFE_GUARD,
    MachineKit,
    assert_different,
    refused_as_full,
    refused_as_lost,
    refused_for_its_width,
)
from ._machine_quarantine import MachineQuarantines
from ._machine_times import MachineTimes
from ._workers import assert_refusals, fresh_namespace, refused

if TYPE_CHECKING:
    from ..abc import MachineIdDistributor
    from ._machine_kit import MakeMachineIdDistributor as Make

__all__ = ("MachineIdDistributorContract",)

FAR_MS: Final = 123_456_789_012_345
"""A time in the year 5882, with more than the 14 digits that Lua prints of a number."""

BAD: Final[dict[str, dict[str, object]]] = {
    "an empty namespace": {"namespace": ""},
    "a namespace with NUL": {"namespace": "a\0b"},
    "a namespace of 92 characters": {"namespace": "n" * 92},
    "an empty instance id": {"instance_id": ""},
    "an instance id with NUL": {"instance_id": "a\0b"},
    "an instance id of 101 characters": {"instance_id": "i" * 101},
    "half of a surrogate pair": {"instance_id": "a\ud800"},
    "no interval": {"interval": 0},
    "a safe guard of three intervals": {"interval": 100, "safe_guard": 300},
}


class MachineIdDistributorContract(MachineTimes, MachineCrowds, MachineQuarantines):
    """Checks a distributor.  Inherit, provide the fixture ``make_machines``, and run pytest.

    Mark your class ``@pytest.mark.asyncio`` for pytest-asyncio, or ``@pytest.mark.anyio`` for
    anyio's plugin::

        @pytest.mark.asyncio
        class TestMyDistributor(MachineIdDistributorContract):
            @pytest.fixture
            def make_machines(self) -> MakeMachineIdDistributor:
                return functools.partial(MyDistributor, client)

            async def age(self, namespace: str, seconds: float) -> None:
                await admin.execute("update ... set last_timestamp = last_timestamp - ...")

    Each test uses its own namespace, so the store need not be emptied.  If your store needs a
    marker for each namespace, as from `Store.initialize_namespace`, ``make_machines`` must write it
    for a new namespace.  Your fixture closes what the distributors open.  No test sleeps: `age`
    makes renewals older, and `forget` makes the store lose data; tests that need a method that you
    do not override are skipped.  Set `has_regions` if the distributor takes ``region`` and
    ``region_bits``.
    """

    has_regions: bool = False

    # The instance that takes an id.

    async def test_it_describes_itself(self, make_machines: Make) -> None:
        """Namespace, instance, safe guard and interval are as requested."""
        who = InstanceId("10.0.0.1:8080", stable=True)
        due: dict[str, Any] = {"safe_guard": 400, "interval": 50}
        due |= {"namespace": fresh_namespace(), "instance_id": who}
        distributor = make_machines(**due)
        described = {name: getattr(distributor, name) for name in due}
        assert described == due, f"its attributes are {described}"

    async def test_a_bad_description_is_refused(self, make_machines: Make) -> None:
        """Texts that no store can hold and times that do not fit are refused on creation."""
        assert_refusals(partial(make_machines, namespace="ns", instance_id="i"), BAD)

    async def test_a_width_outside_1_to_31_is_refused(self, make_machines: Make) -> None:
        """Nothing is taken then; a width of 31 bits works like any other."""
        kit = MachineKit(make_machines)
        for bits in (0, -1, 32, True):
            told = f"{bits!r} bits returned"
            await refused(InvalidArgumentError, told, kit.take, "a", bits=bits)
        grant = await kit.take("b", bits=31)
        assert grant.machine_id == 0, f"after refusals the first id is {grant.machine_id}"

    async def test_a_namespace_has_one_width(self, make_machines: Make) -> None:
        """Another width is refused and changes nothing; other namespaces may differ."""
        kit = MachineKit(make_machines)
        for number, text in enumerate("ab"):
            await kit.take(text, bits=1)
            await kit.renew(text, number)
        for text, bits in (("a", 2), ("c", 2), ("c", 31)):
            await refused_for_its_width(kit, text, bits=bits, found=1)
        await refused_as_full(kit, "c", bits=1)
        for number, text in enumerate("ab"):
            await kit.renew(text, number)
            await kit.of(text).release(number, last_ms=-1)
        await refused_for_its_width(kit, "c", bits=2, found=1)
        ids = [(await kit.take(text, bits=1)).machine_id for text in "cd"]
        assert sorted(ids) == [0, 1], f"0 and 1 were released, but {ids} were granted"
        assert (await MachineKit(make_machines).take("c", bits=2)).machine_id == 0

    async def test_a_region_has_a_part_of_the_ids(self, make_machines: Make) -> None:
        """Another region, another split, or no region is refused and changes nothing."""
        if not self.has_regions:
            raise unittest.SkipTest("has_regions is not set")
        kit = MachineKit(make_machines, region=2, region_bits=2)
        ids = await kit.take_all("ab", bits=3)
        assert ids == {"a": 4, "b": 5}, f"region 2 of 4 has 4 and 5, but {ids} were granted"
        await refused_as_full(kit, "c", bits=3)
        plain = MachineKit(make_machines)
        await plain.take("a", bits=3)
        for namespace, region, region_bits in (
            *((kit.namespace, 1, 2), (kit.namespace, 1, 1), (kit.namespace, None, 0)),
            (plain.namespace, 0, 1),
        ):
            split: dict[str, Any] = {"region": region, "region_bits": region_bits}
            other = MachineKit(make_machines, namespace, **split)
            told = f"with {split} an instance got"
            await refused(MachineBitsMismatchError, told, other.take, "c", bits=3)
        await refused_for_its_width(kit, "c", bits=4, found=3)
        await plain.renew("a", 0)
        for text, number in ids.items():
            await kit.renew(text, number)
        await kit.of("a").release(4, last_ms=-1)
        found = (await kit.take("c", bits=3)).machine_id
        assert found == 4, (
            f"machine id 4 was released, and must be granted next, but {found} was granted"
        )

    async def test_texts_may_hold_anything_but_nul(self, make_machines: Make) -> None:
        """Instances and namespaces may have any characters, stay distinct and are found again."""
        kit = MachineKit(make_machines)
        ids = await kit.take_all(ODD_TEXTS, bits=6)
        assert_different(ids)
        for text, due in ids.items():
            found = (await kit.take(text, bits=6)).machine_id
            assert found == due, f"instance {text!r} had {due}, but got {found}"
            await kit.renew(text, due)
        base = fresh_namespace()
        for text in ODD_TEXTS:
            grant = await MachineKit(make_machines, f"{base}{text}").take("a", bits=6)
            assert grant.machine_id == 0, f"namespace {text!r} is not separate: {grant}"
            assert grant.floor_ms == -1, f"namespace {text!r} is not separate: {grant}"

    # Which id is granted.

    async def test_ids_begin_with_0(self, make_machines: Make) -> None:
        """New ids are granted in order; no instance had them before."""
        kit = MachineKit(make_machines)
        grants = [await kit.take(text) for text in "abc"]
        ids = [grant.machine_id for grant in grants]
        assert ids == [0, 1, 2], f"three instances got {ids}"
        assert {type(each) for each in ids} == {int}, f"a machine id is not an int: {ids}"
        floors = [grant.floor_ms for grant in grants]
        assert floors == [-1, -1, -1], f"new ids have a floor: {floors}"

    async def test_an_instance_finds_its_own(self, make_machines: Make) -> None:
        """Another request, also from another object or when all ids are held, gets the same id."""
        kit = MachineKit(make_machines)
        ids = await kit.take_all("abcd")
        assert_different(ids)
        await refused_as_full(kit, "e")
        for text, due in ids.items():
            found = (await kit.anew(text).distribute(2, **kit.times())).machine_id
            assert found == due, f"instance {text} had {due}, but got {found}"

    async def test_a_full_pool_says_so(self, make_machines: Make) -> None:
        """The error says how many ids there are and who holds them; no id is granted twice."""
        kit = MachineKit(make_machines)
        ids = await kit.take_all(("a:1", "b:2", "c:3", "d:4"))
        assert sorted(ids.values()) == [0, 1, 2, 3], f"four instances got {ids}"
        for _ in range(3):
            error = await refused_as_full(kit, "e:5")
            assert (error.namespace, error.size) == (kit.namespace, 4), f"the error is {error}"
            assert error.holders, f"the error does not name the holders: {error}"
            assert set(error.holders) <= set(ids), (
                f"the error names instances without a machine id: {error.holders}"
            )
        await kit.of("c:3").release(ids["c:3"], last_ms=-1)
        found = (await kit.take("e:5")).machine_id
        assert found == ids["c:3"], f"{ids['c:3']} was released, but {found} was granted"

    async def test_returned_ids_come_before_new_ones(self, make_machines: Make) -> None:
        """An instance gets its own id first, then a released one, then a new one."""
        kit = MachineKit(make_machines)
        first, second = [(await kit.take(text)).machine_id for text in "ab"]
        await kit.of("a").release(first, last_ms=-1)
        assert (await kit.take("b")).machine_id == second, "b did not get its own id"
        ids = [(await kit.take(text)).machine_id for text in "cd"]
        assert ids == [first, 2], f"machine id {first} was released, but c and d got {ids}"

    async def test_new_ids_come_before_expired_ones(self, make_machines: Make) -> None:
        """An expired owner keeps the id until there is no other."""
        kit = MachineKit(make_machines)
        ids = [(await kit.take(text)).machine_id for text in "ab"]
        await self.age(kit.namespace, SAFE_GUARD + 10)
        ids += [(await kit.take(text)).machine_id for text in "cdef"]
        assert ids[:4] == [0, 1, 2, 3], f"an expired id was granted before a new one: {ids}"
        assert sorted(ids[4:]) == [0, 1], (
            f"expected the expired ids 0 and 1 last, but granted were {ids}"
        )
        await refused_as_full(kit, "g")

    async def test_other_namespaces_are_apart(self, make_machines: Make) -> None:
        """An instance may hold one id in each namespace, and releases each separately."""
        one, other = MachineKit(make_machines), MachineKit(make_machines)
        for kit in (one, other):
            await kit.take_all("ab")
        await one.renew("a", 0)
        await one.of("a").release(0, last_ms=-1)
        await other.renew("a", 0)
        await refused_as_lost(one, "a", 0)

    # How long an id is held.

    async def test_a_silent_one_is_recycled(self, make_machines: Make) -> None:
        """After the safe guard others get the ids, and the former owners get an error."""
        kit = MachineKit(make_machines)
        await kit.take_all("abcd")
        await refused_as_full(kit, "e")
        await self.age(kit.namespace, SAFE_GUARD + 10)
        ids = await kit.take_all("efgh")
        assert sorted(ids.values()) == [0, 1, 2, 3], (
            f"expected the four expired ids, but granted were {ids}"
        )
        for number in range(4):
            await refused_as_lost(kit, "abcd"[number], number)
        await refused_as_full(kit, "i")

    async def test_a_live_one_is_not(self, make_machines: Make) -> None:
        """A renewal in time keeps the id, as does a pause shorter than the safe guard."""
        kit = MachineKit(make_machines)
        await kit.hold("abcd")
        await self.age(kit.namespace, SAFE_GUARD - 60)
        await refused_as_full(kit, "e")
        for number, text in enumerate("abc"):
            await kit.renew(text, number)
        await self.age(kit.namespace, 120)
        found = (await kit.take("e")).machine_id
        assert found == 3, f"only 3 had expired, but {found} was granted"
        await refused_as_full(kit, "f")

    async def test_a_safe_guard_without_end(self, make_machines: Make) -> None:
        """With a safe guard of ``inf`` no id ever expires."""
        kit = MachineKit(make_machines, safe_guard=float("inf"))
        await kit.take_all("abcd")
        await self.age(kit.namespace, 1000 * SAFE_GUARD)
        await refused_as_full(kit, "e")

    async def test_an_expired_one_is_still_ones_own(self, make_machines: Make) -> None:
        """If no other instance took the id, a late renewal keeps it, and a request finds it."""
        kit = MachineKit(make_machines)
        await kit.take_all("abcd")
        await self.age(kit.namespace, SAFE_GUARD + 10)
        await kit.renew("c", 2)
        found = (await kit.take("d")).machine_id
        assert found == 3, f"no other instance took d's id 3, but d got {found}"
        ids = sorted([(await kit.take(text)).machine_id for text in "ef"])
        assert ids == [0, 1], f"0 and 1 had expired, but {ids} were granted"
        await refused_as_full(kit, "g")

    async def test_a_stable_one_keeps_its_id(self, make_machines: Make) -> None:
        """Whether released or expired, it goes to no other instance, stable or not."""
        kit = MachineKit(make_machines, stable=True)
        await kit.hold("abcd")
        await kit.of("a").release(0, last_ms=kit.now_ms())
        await self.age(kit.namespace, 1000 * SAFE_GUARD)
        await refused_as_full(kit, "e")
        await refused_as_full(MachineKit(make_machines, kit.namespace), "f")
        found = (await kit.take("a")).machine_id
        assert found == 0, f"the stable instance a had 0, but got {found}"

    # Which calls are allowed.

    async def test_only_the_owner_guards(self, make_machines: Make) -> None:
        """Instance and machine id must match; otherwise nothing is written."""
        kit = MachineKit(make_machines)
        await kit.hold("ab")
        for text, machine_id in (("a", 1), ("b", 0), ("a", 2), ("a", 3), ("c", 0), ("c", 2)):
            error = await refused_as_lost(kit, text, machine_id, fence_ms=FAR_MS)
            facts = (error.namespace, error.machine_id)
            assert facts == (kit.namespace, machine_id), f"the error names {facts}"
        floors = [(await kit.take(text)).floor_ms for text in "abc"]
        assert max(floors) < FAR_MS, f"a refused renewal wrote its fence: {floors}"

    async def test_who_gave_back_is_not_the_owner(self, make_machines: Make) -> None:
        """A renewal after the release is refused, and does not take the id again."""
        kit = MachineKit(make_machines)
        await kit.take("a")
        await kit.of("a").release(0, last_ms=-1)
        await refused_as_lost(kit, "a", 0)
        found = (await kit.take("b")).machine_id
        assert found == 0, (
            f"machine id 0 was released, and must be granted next, but {found} was granted"
        )
        await refused_as_lost(kit, "a", 0)

    async def test_giving_back_twice(self, make_machines: Make) -> None:
        """The second release does nothing, even if another instance has the id by then."""
        kit = MachineKit(make_machines)
        a = kit.of("a")
        await kit.take("a")
        for _ in range(2):
            await a.release(0, last_ms=kit.now_ms())
        await kit.take("b")
        mark = kit.now_ms() + 50_000
        await kit.renew("b", 0, fence_ms=mark)
        await a.release(0, last_ms=1)
        for machine_id in (0, 1, 3):
            await kit.of("c").release(machine_id, last_ms=1)
        await kit.renew("b", 0, fence_ms=-1)
        grant = await kit.take("b")
        assert grant.machine_id == 0, f"b had 0, but got {grant.machine_id}"
        assert grant.floor_ms >= mark, (
            f"another instance lowered b's fence {mark} to {grant.floor_ms}"
        )
        ids = await kit.take_all("bcde")
        assert_different(ids)

    async def test_giving_back_another_id(self, make_machines: Make) -> None:
        """Releasing another number does nothing, and the instance keeps its own id."""
        kit = MachineKit(make_machines)
        await kit.take_all("ab")
        for machine_id in (1, 2):
            await kit.of("a").release(machine_id, last_ms=-1)
        await kit.renew("a", 0)
        await kit.renew("b", 1)
        found = (await kit.take("c")).machine_id
        assert found == 2, f"no instance released an id, but c got {found}, expected 2"

    # Lifecycle.

    async def test_it_goes_on_after_closing(self, make_machines: Make) -> None:
        """Opening and closing may happen twice; closing releases no id."""
        kit = MachineKit(make_machines)
        a: MachineIdDistributor = kit.of("a")
        await a.aopen()
        await a.aopen()
        due = (await kit.take("a")).machine_id
        await a.aclose()
        await a.aclose()
        found = (await kit.take("b")).machine_id
        assert found != due, f"after a was closed, b got its id {due}"
        await a.aopen()
        await kit.renew("a", due)
        found = (await kit.take("a")).machine_id
        assert found == due, f"a had {due}, but got {found}"
        await a.aclose()

    async def age(self, namespace: str, seconds: float) -> None:  # noqa: ARG002
        """Make the last renewals of all machine ids of a namespace look older.

        Do it without the distributors and without waiting: subtract ``seconds`` from the stamps
        that the store compares with its clock, and from the beginning of a quarantine; or advance
        that clock.  The fences stay.  Override it where the store allows it; otherwise the tests
        that need it are skipped.

        Args:
            namespace: the namespace of the ids.
            seconds: the seconds by which each last renewal becomes older.
        """
        raise unittest.SkipTest("age is not overridden")

    async def forget(self, namespace: str, *, everything: bool) -> None:  # noqa: ARG002
        """Make the store lose data, unseen by the distributors, as in a restart or fail-over.

        Override it where the store can lose data; otherwise the tests that need it are skipped.

        Args:
            namespace: the namespace of the ids.
            everything: remove everything about the namespace, including the marker; otherwise write
                the identity of another store into the marker, and change nothing else.
        """
        raise unittest.SkipTest("forget is not overridden")
