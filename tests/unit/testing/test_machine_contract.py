"""The contract of machine ids has teeth: each planted fault is seen by the test for it."""

from __future__ import annotations

import random
import unittest
from dataclasses import replace
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.errors import MachineIdLostError, MachineIdOverflowError
from aiocosid.testing import MachineIdDistributorContract, ManualClock

from ._pool import Claim, Entry, MachinePool, PoolDistributor, PoolStore
from .test_contracts import verdict

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]


class Sound(PoolDistributor):
    """Everything right, to be broken."""

    @property
    def entries(self) -> dict[int, Entry]:
        return self._pool.entries


class Modulo(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        try:
            return await super().distribute(bits, **times)
        except MachineIdOverflowError:
            return MachineGrant(len(self.instance_id.text) % 2**bits)


class SaysNothing(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        try:
            return await super().distribute(bits, **times)
        except MachineIdOverflowError as error:
            raise MachineIdOverflowError(error.namespace, size=error.size) from None


class ForgetsWho(Sound):
    """Each call is somebody else's."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        text = f"{self.instance_id.text}{random.random()}"  # noqa: S311 - no secret
        who = replace(self.instance_id, text=text)
        return self._pool.distribute(who, bits, seen=0, safe_guard=self.safe_guard, **times)


class FromOne(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        grant = await super().distribute(bits, **times)
        return replace(grant, machine_id=grant.machine_id + 1)


class OneNamespace(Sound):
    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self._pool = self._store._pools.setdefault("", MachinePool(self.namespace))


class PlainTexts(Sound):
    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        text = "".join(each for each in self.instance_id.text if each.isalnum()) or "x"
        self.instance_id = replace(self.instance_id, text=text)


class TakesAnyWidth(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        return await super().distribute(min(max(int(bits), 1), 31), **times)


class ForgetsWidths(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        self._pool.bits = None
        return await super().distribute(bits, **times)


class NotesWidthsLate(Sound):
    """Looks at the width, and takes an id a moment later."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        found = self._pool.bits
        await checkpoint()
        self._pool.bits = found
        return await super().distribute(bits, **times)


class ForgetsRegions(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        self._pool.region = None
        return await super().distribute(bits, **times)


class TakesFromAll(Sound):
    def __init__(self, **about: Any) -> None:
        about |= {"region": None, "region_bits": 0}
        super().__init__(**about)


class NewFirst(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        returned = [each for each in self.entries.values() if not each.holder]
        for each in returned:
            each.holder, each.stable = "nobody", True
        try:
            return await super().distribute(bits, **times)
        except MachineIdOverflowError:
            returned[0].release()
            return await super().distribute(bits, **times)


class ExpiredFirst(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        limit = self._store._clock.monotonic() - self.safe_guard
        for each in self.entries.values():
            if each.seen <= limit and not each.stable and each.holder != self.instance_id.text:
                each.release()
        return await super().distribute(bits, **times)


class NeverExpires(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        for each in self.entries.values():
            each.seen = 10.0**9
        return await super().distribute(bits, **times)


class ExpiresEarly(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        self.safe_guard = 1
        return await super().distribute(bits, **times)


class DropsExpired(Sound):
    """Who is late with a renewal is refused although nobody took the id."""

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        silent = self._store._clock.monotonic() - self.entries[machine_id].seen
        if silent >= self.safe_guard:
            raise MachineIdLostError(self.namespace, machine_id, reason="late")
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)


class NothingIsStable(Sound):
    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.instance_id = replace(self.instance_id, stable=False)


class StableByNewcomer(Sound):
    """As CosId: who is stable is not noted, so that an unstable one takes the id."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        kept = {each.machine_id: each.stable for each in self.entries.values()}
        for each in self.entries.values():
            each.stable = self.instance_id.stable
        try:
            return await super().distribute(bits, **times)
        finally:
            for machine_id, stable in kept.items():
                self.entries[machine_id].stable = stable


class GuardsAnyId(Sound):
    """As CosId's script: whose instance it is, and never mind the machine id."""

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        for each in self.entries.values():
            if each.holder == self.instance_id.text:
                machine_id = each.machine_id
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)


class GuardsAnybodys(Sound):
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        entry = self.entries.setdefault(machine_id, Entry(machine_id))
        entry.holder = entry.holder or self.instance_id.text
        entry.fence_ms = max(entry.fence_ms, fence_ms)


class WritesThenRefuses(Sound):
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        if machine_id in self.entries:
            self.entries[machine_id].fence_ms = max(self.entries[machine_id].fence_ms, fence_ms)
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)


class LowersMarks(Sound):
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)
        self.entries[machine_id].fence_ms = fence_ms


class LowersStamps(Sound):
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)
        self.entries[machine_id].stamp_ms = now_ms


class NoMarks(Sound):
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        await super().renew(machine_id, now_ms=now_ms, fence_ms=-1)


class FloatingMarks(Sound):
    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        await super().renew(machine_id, now_ms=now_ms, fence_ms=int(float(f"{fence_ms:.14g}")))


class ForgetsTimes(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        await super().release(machine_id, last_ms=last_ms)
        if not self.entries[machine_id].holder:
            self.entries[machine_id] = Entry(machine_id)


class KeepsMarks(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        await super().release(machine_id, last_ms=-1)


class ClearsUnusedMarks(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        await super().release(machine_id, last_ms=max(last_ms, 0))
        if last_ms < 0:
            self.entries[machine_id].fence_ms = -1


class RevertsAnybodys(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        if machine_id in self.entries:
            self.entries[machine_id].fence_ms = last_ms
            self.entries[machine_id].release()


class RevertsNamesakes(Sound):
    """Looks at the text alone."""

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        self._token = self.entries[machine_id].token
        await super().release(machine_id, last_ms=last_ms)


class RevertsByMark(Sound):
    """Whoever has the highest mark is right."""

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        if self._last_mark >= self.entries[machine_id].fence_ms:
            self._token = self.entries[machine_id].token
        await super().release(machine_id, last_ms=last_ms)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        self._last_mark = fence_ms
        await super().renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)


class RevertsOnce(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        if self.entries[machine_id].holder != self.instance_id.text:
            raise MachineIdLostError(self.namespace, machine_id, reason="given back already")
        await super().release(machine_id, last_ms=last_ms)


class RevertsByInstance(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        for each in self.entries.values():
            if each.holder == self.instance_id.text:
                each.release()


class RevertsNothing(Sound):
    async def release(self, machine_id: int, *, last_ms: int) -> None:
        pass


class NeverMindsLate(Sound):
    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        return await super().distribute(bits, now_ms=now_ms, latest_ms=2**60)


class KeepsLateOwn(Sound):
    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        is_known = any(each.holder == self.instance_id.text for each in self.entries.values())
        latest_ms = 2**60 if is_known else latest_ms
        return await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)


class RefusesLate(Sound):
    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        grant = await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        if grant.floor_ms > latest_ms:
            raise MachineIdOverflowError(self.namespace, size=2**bits)
        return grant


class TwoSteps(Sound):
    """Looks for a free one, and takes it a moment later."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        before = {number: replace(each) for number, each in self.entries.items()}
        grant = await super().distribute(bits, **times)
        taken = self.entries[grant.machine_id]
        if grant.machine_id in before:
            self.entries[grant.machine_id] = before[grant.machine_id]
        else:
            del self.entries[grant.machine_id]
        await checkpoint()
        self.entries[grant.machine_id] = taken
        return grant


class LeaksOnCancel(Sound):
    """Takes a number first, and writes later whose it is."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        if any(each.holder == self.instance_id.text for each in self.entries.values()):
            return await super().distribute(bits, **times)
        who = InstanceId(f"nobody {random.random()}")  # noqa: S311 - no secret
        grant = self._pool.distribute(who, bits, seen=10.0**9, safe_guard=300, token=self, **times)
        await checkpoint()
        await checkpoint()
        self.entries[grant.machine_id].holder = self.instance_id.text
        self._token = self
        return grant


class GivesBackOnClose(Sound):
    async def aclose(self) -> None:
        for each in self.entries.values():
            if each.holder == self.instance_id.text:
                each.release()


class Unchecked(Sound):
    def __init__(self, **about: Any) -> None:
        about["namespace"] = about["namespace"].replace("\0", "")[:91] or "x"
        super().__init__(**about)


class Misnamed(Sound):
    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.interval = 60


class NoQuarantine(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        self._pool.marker.write()
        return await super().distribute(bits, **times)


class AskersClock(Sound):
    """Whoever asks knows what time it is."""

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        if now_ms > 2 * 10**12:
            self._pool.marker.write()
        return await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)


class AssertsNothing(Sound):
    async def reassert(self, machine_id: int, **times: Any) -> None:
        await self.renew(machine_id, **times)


class AssertsWithoutTimes(Sound):
    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        fence_ms = -1 if self._pool.marker.since is not None else fence_ms
        await super().reassert(machine_id, now_ms=now_ms, fence_ms=fence_ms)


class AssertsWithoutStability(Sound):
    async def reassert(self, machine_id: int, **times: Any) -> None:
        await super().reassert(machine_id, **times)
        self.entries[machine_id].stable = False


class AssertsAlways(Sound):
    """Also after the end of its lease."""

    async def renew(self, machine_id: int, **times: Any) -> None:
        await self.reassert(machine_id, **times)


class AssertsOnASoundStore(Sound):
    kept: Claim | None = None

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        grant = await super().distribute(bits, **times)
        self.kept = self._claim
        return grant

    async def reassert(self, machine_id: int, **times: Any) -> None:
        assert self.kept is not None
        self._pool._assert(self.instance_id, machine_id, self.kept)
        await super().reassert(machine_id, **times)


class AssertsAnyNumber(Sound):
    def _claims(self, machine_id: int) -> bool:
        assert machine_id >= 0
        return self._claim is not None


class LastKeepsIt(Sound):
    async def reassert(self, machine_id: int, **times: Any) -> None:
        self._pool.marker.claims.clear()
        await super().reassert(machine_id, **times)


class CountsOn(Sound):
    """What lies below an asserted number is never new."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        for number in range(max(self.entries, default=0)):
            self.entries.setdefault(number, Entry(number, holder="nobody", stable=True))
        return await super().distribute(bits, **times)


class OwnLeaseCounts(Sound):
    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        self._pool.marker.longest = 0
        return await super().distribute(bits, **times)


class ForgetsLeases(Sound):
    """What was named before a quarantine does not count in it."""

    async def distribute(self, bits: int, **times: Any) -> MachineGrant:
        if not self._pool.marker.is_ours:
            self._pool.marker.longest = 0
        return await super().distribute(bits, **times)


class GoesOnCounting(Sound):
    """A second loss does not begin it anew."""

    async def reassert(self, machine_id: int, **times: Any) -> None:
        marker = self._pool.marker
        if not marker.is_ours and self._store._clock.monotonic() > 1:
            marker.write()
            marker.since, marker.longest = 0.0, 300.0
        await super().reassert(machine_id, **times)


class Contract(MachineIdDistributorContract):
    has_regions = True

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = PoolStore(clock=self.clock)

    async def age(self, namespace: str, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def forget(self, namespace: str, *, everything: bool) -> None:
        self.memory.forget_machines(namespace=namespace, everything=everything)


CASES: list[tuple[type[Sound], str, str]] = [
    (Misnamed, "test_it_describes_itself", "its attributes are"),
    (Unchecked, "test_a_bad_description_is_refused", "an empty namespace"),
    (TakesAnyWidth, "test_a_width_outside_1_to_31_is_refused", "0 bits returned"),
    (ForgetsWidths, "test_a_namespace_has_one_width", "a asked for 2 bits and got"),
    (ForgetsRegions, "test_a_region_has_a_part_of_the_ids", "'region': 1, 'region_bits': 2}"),
    (TakesFromAll, "test_a_region_has_a_part_of_the_ids", "region 2 of 4 has 4 and 5"),
    (NotesWidthsLate, "test_one_of_two_widths_wins", "by width"),
    (PlainTexts, "test_texts_may_hold_anything_but_nul", "more than one instance"),
    (OneNamespace, "test_texts_may_hold_anything_but_nul", "is not separate"),
    (OneNamespace, "test_other_namespaces_are_apart", ""),
    (FromOne, "test_ids_begin_with_0", "got [1, 2, 3]"),
    (ForgetsWho, "test_an_instance_finds_its_own", "are held"),
    (Modulo, "test_a_full_pool_says_so", "all machine ids are held"),
    (SaysNothing, "test_a_full_pool_says_so", "does not name the holders"),
    (RevertsNothing, "test_a_full_pool_says_so", "are held"),
    (NewFirst, "test_returned_ids_come_before_new_ones", "0 was released"),
    (ExpiredFirst, "test_new_ids_come_before_expired_ones", "before a new one"),
    (NeverExpires, "test_a_silent_one_is_recycled", "are held"),
    (ExpiresEarly, "test_a_live_one_is_not", "all machine ids are held"),
    (ExpiresEarly, "test_a_safe_guard_without_end", "all machine ids are held"),
    (DropsExpired, "test_an_expired_one_is_still_ones_own", "late"),
    (NothingIsStable, "test_a_stable_one_keeps_its_id", "all machine ids are held"),
    (StableByNewcomer, "test_a_stable_one_keeps_its_id", "all machine ids are held"),
    (GuardsAnyId, "test_only_the_owner_guards", "could renew 1"),
    (GuardsAnybodys, "test_only_the_owner_guards", "could renew"),
    (WritesThenRefuses, "test_only_the_owner_guards", "wrote its fence"),
    (GuardsAnybodys, "test_who_gave_back_is_not_the_owner", "could renew 0"),
    (RevertsAnybodys, "test_giving_back_twice", "is lost"),
    (RevertsOnce, "test_giving_back_twice", "given back already"),
    (RevertsByInstance, "test_giving_back_another_id", "is lost"),
    (TwoSteps, "test_concurrent_instances_share_nothing", "32 instances got"),
    (ForgetsWho, "test_concurrent_calls_of_one_instance", ""),
    (TwoSteps, "test_two_hundred_lives_on_four_ids", ""),
    (RevertsNothing, "test_two_hundred_lives_on_four_ids", "are held"),
    (LeaksOnCancel, "test_a_cancelled_call_loses_nothing", ""),
    (LeaksOnCancel, "test_a_storm_of_cancelled_lives", "are held"),
    (GivesBackOnClose, "test_it_goes_on_after_closing", "b got its id"),
    (NoMarks, "test_the_next_owner_begins_above_the_mark", "found again"),
    (ForgetsTimes, "test_the_next_owner_begins_above_the_mark", "released unused"),
    (ClearsUnusedMarks, "test_the_next_owner_begins_above_the_mark", "released unused"),
    (NoMarks, "test_the_mark_of_an_expired_one", "taker 0"),
    (FloatingMarks, "test_a_mark_of_any_size", "was returned as"),
    (LowersMarks, "test_a_sign_of_life_lowers_nothing", "the fence"),
    (LowersStamps, "test_a_sign_of_life_lowers_nothing", "the stamp"),
    (LowersStamps, "test_the_last_sign_of_life_counts", "the stamp was"),
    (ForgetsTimes, "test_the_last_sign_of_life_counts", "after the release"),
    (KeepsMarks, "test_giving_back_lowers_the_mark", "the floor is"),
    (RevertsNamesakes, "test_a_return_that_comes_too_late", "a late release took the id"),
    (RevertsByMark, "test_a_return_that_comes_too_late", "a late release took the id"),
    (NeverMindsLate, "test_a_late_id_is_left_for_another", "0 must wait"),
    (RefusesLate, "test_a_late_id_is_left_for_another", "are held"),
    (KeepsLateOwn, "test_a_late_own_id_is_given_back", "its own id must wait"),
    (RefusesLate, "test_a_late_own_id_is_kept_where_there_is_no_other", "are held"),
    (NothingIsStable, "test_a_late_own_id_is_kept_where_there_is_no_other", "got 1"),
    (NeverMindsLate, "test_a_late_expired_id_is_left_for_another", "only 2 need not wait"),
    (NoQuarantine, "test_nobody_is_handed_one_in_a_quarantine", "may have forgotten"),
    (AskersClock, "test_nobody_is_handed_one_in_a_quarantine", "may have forgotten"),
    (AssertsNothing, "test_owners_assert_their_ids", "emptied"),
    (AssertsWithoutTimes, "test_owners_assert_their_ids", "the grant is"),
    (CountsOn, "test_an_asserted_one_is_not_new", "are held"),
    (AssertsAlways, "test_a_lease_that_ended_asserts_nothing", "may have forgotten"),
    (AssertsOnASoundStore, "test_nothing_is_asserted_on_a_sound_store", "could renew 0"),
    (AssertsAnyNumber, "test_what_was_not_handed_out_is_not_asserted", "may have forgotten"),
    (LastKeepsIt, "test_of_two_owners_the_earlier_keeps_it", "could renew 0"),
    (LastKeepsIt, "test_of_two_lives_the_later_keeps_it", "could renew 0"),
    (AssertsWithoutStability, "test_a_stable_one_is_stable_again", "but e got"),
    (KeepsMarks, "test_giving_back_in_a_quarantine", "the last id had"),
    (OwnLeaseCounts, "test_the_longest_lease_counts", "may have forgotten"),
    (ForgetsLeases, "test_a_longer_lease_of_before_counts", "expected 905.0 s"),
    (GoesOnCounting, "test_it_begins_anew", "may have forgotten"),
    (NoQuarantine, "test_many_at_once_in_a_quarantine", "may have forgotten"),
]


@pytest.mark.parametrize(("broken", "test", "finding"), CASES)
async def test_a_broken_distributor_is_seen(broken: type[Sound], test: str, finding: str) -> None:
    """The contract's test for a fault fails on it, and says what is wrong."""
    contract = Contract()

    def make(**about: Any) -> Sound:
        return broken(memory=contract.memory, **about)

    found = await verdict(contract, test, make)
    assert found
    assert finding in found


TESTS = [name for name in dir(MachineIdDistributorContract) if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS)
async def test_a_sound_one_passes(test: str) -> None:
    """So that what is found above is the planted fault."""
    contract = Contract()
    assert await verdict(contract, test, contract.memory.machine_id_distributor) == ""


def test_every_test_has_a_broken_distributor_and_its_rule() -> None:
    """A test that no fault fails proves nothing; a stranger reads in the docstring what holds."""
    assert {test for _, test, _ in CASES} == set(TESTS)
    assert [name for name in TESTS if not getattr(MachineIdDistributorContract, name).__doc__] == []


async def test_a_store_that_cannot_be_aged_skips_the_test() -> None:
    """Pytest takes unittest's SkipTest for a skip."""
    with pytest.raises(unittest.SkipTest, match="age"):
        await MachineIdDistributorContract().age("ns", 1)
    with pytest.raises(unittest.SkipTest, match="forget"):
        await MachineIdDistributorContract().forget("ns", everything=True)
    with pytest.raises(unittest.SkipTest, match="has_regions"):
        await MachineIdDistributorContract().test_a_region_has_a_part_of_the_ids(PoolDistributor)
