"""Namespaces that are split into regions: several stores, each with a part of the machine ids."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from aiocosid import connect
from aiocosid.abc import InstanceId
from aiocosid.abc.machines import region_code_of, region_ids
from aiocosid.errors import (
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdUnavailableError,
)
from aiocosid.machine import MachineIdLease, ManualMachineIdDistributor, administration, rules
from aiocosid.machine.cells import (
    Changes,
    Count,
    MachineRecord,
    MachineSlot,
    Marker,
    NamespaceRecord,
    Owner,
    ReadRequest,
    Snapshot,
)
from aiocosid.machine.operations import RenewOperation
from aiocosid.machine.operations import renew as renew_operation
from aiocosid.machine.rules import Caller, Decision
from aiocosid.snowflake import COSID_MS, TWITTER, SnowflakeId, SnowflakeLayout
from aiocosid.stores.http import HttpStore
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from ._lives import Bench

NOW: Final = 1_700_000_000_000
ME: Final = Caller("me", guard_ms=300_000, nonce="n")
SPACE: Final = NamespaceRecord("here", "e", bits=3, guard_ms=300_000, region_code=3)
WHOLE: Final = ReadRequest("me", is_complete=True, namespaces=True)
JAVA: Final = MachineSlot((Owner("java", NOW),))
FREE: Final = MachineSlot((Owner("", NOW - 5),))


def snapshot(**facts: Any) -> Snapshot:
    """A sound namespace in whose second half nothing is held, with CosId's adder."""
    usual: dict[str, Any] = {
        "now_ms": NOW,
        "marker": Marker("here", "e"),
        "space": SPACE,
        "count": Count("e", 0),
        "is_complete": True,
        "last_new": -1,
    }
    return Snapshot("shop", "here", **(usual | facts))


def hand_out(found: Snapshot, region_code: int = 3, caller: Caller = ME) -> Decision:
    return rules.hand_out(
        found,
        caller,
        bits=3,
        now_ms=NOW,
        latest_ms=NOW,
        token="t",  # noqa: S106 - no secret
        region_code=region_code,
    )


# Which machine ids a region has.


def test_regions_divide_all_ids() -> None:
    """Each id is in one region, that of its highest bits; without regions it is in the whole."""
    for bits in (2, 3, 10):
        assert region_ids(bits, 1) == range(1 << bits)
        for region_bits in range(1, bits):
            parts = [
                region_ids(bits, region_code_of(region, region_bits))
                for region in range(1 << region_bits)
            ]
            assert [each for part in parts for each in part] == [*range(1 << bits)]
            for region, part in enumerate(parts):
                assert {each >> bits - region_bits for each in part} == {region}
    assert region_ids(31, region_code_of(2**30 - 1, 30)) == range(2**31 - 2, 2**31)


def test_they_are_those_of_a_layout() -> None:
    """`machine_of` makes what a store of the region leases."""
    layout = SnowflakeLayout(41, 10, 12, "ms", NOW, region_bits=3)
    ids = region_ids(10, region_code_of(5, 3))
    assert [layout.machine_of(5, worker) for worker in range(128)] == [*ids]


@pytest.mark.parametrize(
    ("region", "region_bits", "argument"),
    [
        *((0, 0, "region"), (None, 2, "region"), (4, 2, "region"), (-1, 2, "region")),
        *((True, 2, "region"), (0, -1, "region_bits"), (0, 31, "region_bits")),
        *((None, True, "region_bits"), (1.0, 2, "region"), (None, None, "region_bits")),
    ],
)
def test_a_region_that_cannot_be(region: Any, region_bits: Any, argument: str) -> None:
    """It is refused when it is named."""
    split = {"region": region, "region_bits": region_bits}
    with pytest.raises(InvalidArgumentError) as info:
        MemoryStore().machine_id_distributor(**split)
    assert info.value.argument == argument
    with pytest.raises(InvalidArgumentError) as info:
        region_code_of(region, region_bits)
    assert info.value.argument == argument


async def test_a_region_that_leaves_no_bit() -> None:
    """It is refused as soon as the width is known, and before anything is sent."""
    distributor = MemoryStore().machine_id_distributor(region=1, region_bits=10)
    with pytest.raises(InvalidArgumentError, match="below the 10 machine bits"):
        MachineIdLease(distributor, bits=10)
    with pytest.raises(InvalidArgumentError, match="below the 9 machine bits"):
        await distributor.distribute(9, now_ms=NOW, latest_ms=NOW)
    assert MachineIdLease(distributor, bits=11).bits == 11
    for code in (0, -1, 1024):
        with pytest.raises(InvalidArgumentError, match="region_bits"):
            region_ids(10, code)


def test_a_layout_with_other_regions() -> None:
    """It would show other regions than the ids have; one without any shows none."""
    distributor = MemoryStore().machine_id_distributor(region=1, region_bits=3)
    assert TWITTER.region_bits == 5
    with pytest.raises(InvalidArgumentError, match="region_bits=3") as info:
        SnowflakeId(distributor, layout=TWITTER)
    assert info.value.argument == "layout"
    lease = MachineIdLease(distributor, bits=10)
    SnowflakeId(lease, layout=COSID_MS)
    SnowflakeId(lease, layout=SnowflakeLayout(41, 10, 12, "ms", NOW, region_bits=3))
    SnowflakeId(ManualMachineIdDistributor(5), layout=TWITTER)


# What a store that notes a region hands out.


def test_the_first_of_a_region() -> None:
    """On CosId's adder it goes on from there; the ids of lower regions are not given back."""
    found = hand_out(snapshot(space=None, count=None))
    assert found.answer.machine_id == 4
    assert found.changes.slots.keys() == {4}
    assert found.changes.last_new == 4
    assert found.changes.space == replace(SPACE, gaps=True)
    again = hand_out(snapshot(last_new=4, space=found.changes.space, slots={4: JAVA}))
    assert (again.answer.machine_id, again.changes.space) == (5, None)
    assert hand_out(snapshot(last_new=None, space=None)).changes.space == SPACE


def test_what_is_skipped_in_the_region_is_given_back() -> None:
    """As without regions: CosId's peers count on."""
    late = replace(FREE, owners=(Owner("", NOW + 9),))
    found = hand_out(snapshot(last_new=3, slots={4: late, 5: late}, space=replace(SPACE)))
    assert found.answer.machine_id == 6
    assert found.changes.slots.keys() == {6}
    found = rules.hand_out(
        snapshot(last_new=-1),
        ME,
        bits=3,
        now_ms=NOW,
        latest_ms=NOW,
        token="t",  # noqa: S106 - no secret
        spread=2,
        region_code=3,
    )
    assert found.answer.machine_id == 6
    holders = {number: each.holders for number, each in found.changes.slots.items()}
    assert holders == {4: (), 5: (), 6: ("me",)}


def test_another_region_is_never_entered() -> None:
    """Whatever is free there, or expired, or the caller's own; what it had there is given back."""
    slots = dict.fromkeys(range(4), FREE) | dict.fromkeys(range(4, 8), JAVA)
    found = hand_out(snapshot(last_new=7, slots=slots))
    assert str(found.error).startswith("all 4 machine ids of namespace 'shop' are held")
    mine = MachineSlot((Owner("me", NOW),), MachineRecord("me", token="s"))  # noqa: S106 - no secret
    found = hand_out(snapshot(last_new=4, slots={1: mine, 4: FREE}))
    assert found.answer.machine_id == 4
    assert found.changes.slots[1].holders == ()


def test_what_was_left_out_is_found_within_the_region() -> None:
    """Nothing below it, although that was left out, too."""
    slots = dict.fromkeys((4, 5, 7), JAVA)
    found = hand_out(snapshot(last_new=7, slots=slots, space=replace(SPACE, gaps=True)))
    assert found.answer.machine_id == 6


def test_a_lower_region_on_the_same_adder() -> None:
    """After an operator has changed the region; the adder is above all of the new one."""
    first = hand_out(snapshot(space=None, count=None)).changes
    assert first.space is not None
    slots = {4: FREE}
    changed = administration.set_bits(
        snapshot(last_new=4, slots=slots, space=first.space), ME, 3, region_code_of(0, 1)
    )
    assert changed.changes.space == replace(first.space, region_code=2)
    found = hand_out(snapshot(last_new=4, slots=slots, space=changed.changes.space), 2)
    assert (found.answer.machine_id, found.changes.last_new) == (0, None)


@pytest.mark.parametrize("region_code", [2, 3, 4, 7])
def test_a_sample_is_as_good_as_all(region_code: int) -> None:
    """What is taken of it is in the region, and what would be taken of all."""
    chance, taken = random.Random(7), 0  # noqa: S311 - the same every time
    ids = region_ids(3, region_code)
    for _ in range(2000):
        last_new = chance.choice((-1, *ids))
        kinds = (FREE, JAVA, MachineSlot((Owner("", NOW + 9),)))
        slots = {each: chance.choice(kinds) for each in ids if each <= last_new}
        space = replace(SPACE, region_code=region_code, gaps=True)
        whole = snapshot(slots=slots, last_new=last_new, space=space)
        pool = [each for each, slot in slots.items() if not slot.is_held][:2]
        sampled = {
            each: slots.get(each, MachineSlot())
            for each in pool or range(last_new + 1, last_new + 3)
        }
        sample = replace(whole, slots=sampled, is_complete=False, cells=len(slots), records=0)
        found, due = hand_out(sample, region_code), hand_out(whole, region_code)
        if found.need is not None:
            assert found.need == WHOLE
            continue
        taken += 1
        assert found.answer.machine_id in ids
        assert (found.answer, found.changes) == (due.answer, due.changes)
    assert taken > 500


def test_more_cells_than_the_region_has_handed_out() -> None:
    """The adder has lost its value, or a peer has handed out what it should not have."""
    facts: dict[str, Any] = {"is_complete": False, "records": 0, "last_new": 4}
    for cells, need in ((1, None), (2, WHOLE)):
        found = hand_out(snapshot(slots={4: JAVA, 5: MachineSlot()}, cells=cells, **facts))
        assert found.need == need


# Who is refused.


@pytest.mark.parametrize(
    ("noted", "asked", "told", "more"),
    [
        (
            *(3, 2, "has machine ids of 3 bits with region=1, region_bits=1 in this store, and 3 "),
            "bits with region=0, region_bits=1 were asked for; name that region, or the store of",
        ),
        (3, 1, "with region=1, region_bits=1 in this store, and 3 bits", " without regions were"),
        (3, 5, "and 3 bits with ", "region=1, region_bits=2 were asked for"),
        (1, 3, "3 bits without regions in this store, and 3 bits with ", "region=1, region_bits=1"),
    ],
)
def test_another_split_is_refused(noted: int, asked: int, told: str, more: str) -> None:
    """The error has what stands in the store, what was asked for, and what to do."""
    found = snapshot(space=replace(SPACE, region_code=noted))
    with pytest.raises(MachineBitsMismatchError) as info:
        hand_out(found, asked)
    assert told + more in str(info.value)
    assert (info.value.found_region, info.value.region_code) == (noted, asked)
    flags = {2: " --region 0 --region-bits 1", 3: " --region 1 --region-bits 1"}
    flags[5] = " --region 1 --region-bits 2"
    command = f"'aiocosid machines bits --namespace shop --set 3{flags.get(asked, '')} --store URL'"
    assert str(info.value).endswith(
        f"if the region has changed permanently, close all instances and run {command}"
    )


@pytest.mark.parametrize("outside", [JAVA, replace(JAVA, is_damaged=True, owners=())])
def test_a_namespace_in_use_gets_no_regions(outside: MachineSlot) -> None:
    """CosId on Java holds an id of another region: that region's store would hand it out, too."""
    facts: dict[str, Any] = {"space": replace(SPACE, bits=0, region_code=1), "last_new": 3}
    found = hand_out(snapshot(slots={3: outside}, **facts))
    assert isinstance(found.error, MachineIdInUseError)
    told = "another region of the machine ids of namespace 'shop' is in use by"
    assert str(found.error).startswith(f"{told} {'java' if outside.holders else 'an unknown'}")
    assert not found.changes
    assert hand_out(snapshot(slots={3: FREE}, **facts)).answer.machine_id == 4
    facts["last_new"] = 4
    assert hand_out(snapshot(slots={4: outside}, **facts)).answer.machine_id == 5
    sample = snapshot(slots={4: FREE}, is_complete=False, cells=1, records=0, **facts)
    assert hand_out(sample).need == WHOLE


def test_a_region_is_changed_as_a_width_is() -> None:
    """Nothing happens if it is there; nothing while an id is held."""
    assert administration.set_bits(snapshot(), ME, 3, 3) == Decision()
    found = administration.set_bits(snapshot(slots={4: JAVA}), ME, 3)
    assert isinstance(found.error, MachineIdInUseError)
    found = administration.set_bits(snapshot(), ME, 3)
    assert found.changes.space == replace(SPACE, region_code=1)


async def test_operators_change_a_region() -> None:
    """By the width's call; then the former region is refused."""
    store = MemoryStore()
    former = store.machine_id_distributor(region=1, region_bits=1)
    grant = await former.distribute(3, now_ms=NOW, latest_ms=NOW)
    with pytest.raises(MachineIdInUseError):
        await store.set_machine_bits(bits=3)
    await former.release(grant.machine_id, last_ms=-1)
    for bits, region, region_bits in ((3, 8, 3), (3, None, 1), (3, 1, 3), (32, None, 0)):
        with pytest.raises(InvalidArgumentError):
            await store.set_machine_bits(bits=bits, region=region, region_bits=region_bits)
    await store.set_machine_bits(bits=4, region=0, region_bits=2)
    with pytest.raises(MachineBitsMismatchError):
        await former.distribute(3, now_ms=NOW, latest_ms=NOW)
    now = store.machine_id_distributor(region=0, region_bits=2)
    assert (await now.distribute(4, now_ms=NOW, latest_ms=2**53)).machine_id == 0


# After a loss, and without the store.


def test_who_asserts_an_id_notes_the_region() -> None:
    """Whoever comes after the quarantine finds it."""
    lost = snapshot(
        space=NamespaceRecord("here", "e", quarantine="q", since_ms=NOW - 1, guard_ms=300_000)
    )
    asked = RenewOperation(
        instance="me",
        guard_ms=300_000,
        machine_id=4,
        now_ms=NOW,
        fence_ms=NOW,
        token="t",  # noqa: S106 - no secret
        bits=3,
        region_code=3,
        requested_ms=NOW - 5,
        is_valid=True,
    )
    found = renew_operation(asked, lost, asked.caller("n"))
    assert found.changes.space is not None
    assert (found.changes.space.bits, found.changes.space.region_code) == (3, 3)
    again = replace(found.changes.space, quarantine="", since_ms=0)
    with pytest.raises(MachineBitsMismatchError):
        hand_out(snapshot(space=again), 2)


async def test_a_store_that_was_emptied() -> None:
    """Its holder tells it the region again, before anybody is handed an id."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one = store.machine_id_distributor(instance_id="one", region=1, region_bits=1)
    times = {"now_ms": clock.now_ms(), "latest_ms": 2**53}
    grant = await one.distribute(3, **times)
    store.forget_machines(namespace="cosid", everything=True)
    await one.reassert(grant.machine_id, now_ms=clock.now_ms(), fence_ms=clock.now_ms())
    await clock.advance(400)
    other = store.machine_id_distributor(instance_id="other", region=0, region_bits=1)
    with pytest.raises(MachineBitsMismatchError):
        await other.distribute(3, **times)
    again = store.machine_id_distributor(instance_id="again", region=1, region_bits=1)
    assert (await again.distribute(3, **times)).machine_id == 5


@pytest.mark.parametrize("stays", [True, False])
async def test_a_start_without_the_store(stays: bool) -> None:
    """The id on the disk is used only if it is one of the region."""
    bench = Bench(600.0, region=1, region_bits=1)
    await bench.lease().__aenter__()
    await bench.clock.advance(1)
    bench.kill()
    bench.described["region"] = int(stays)
    again = bench.lease()
    bench.links[-1].cut()
    if stays:
        await bench.wait_of_start(again)
        assert again.machine_id == 512
    else:
        with pytest.raises(MachineIdUnavailableError):
            await bench.wait_of_start(again)
    await bench.end()


# How the cell is stored.


def test_a_namespace_without_regions_is_stored_as_before() -> None:
    """A process that knows no regions reads it; one with regions it does not understand."""
    assert "region_code" not in NamespaceRecord(bits=3).text()
    assert NamespaceRecord.read(NamespaceRecord(bits=3).text()) == NamespaceRecord(bits=3)
    assert '"region_code":3' in SPACE.text()
    assert NamespaceRecord.read(SPACE.text()) == SPACE
    for bits, code in ((3, 0), (3, -1), (3, 8), (0, 2)):
        with pytest.raises(ValueError, match="region_code"):
            NamespaceRecord.read(replace(SPACE, bits=bits, region_code=code).text())
    assert Changes().space is None


# Where it is named.


async def test_a_provider_passes_it_on() -> None:
    """And a machine id that has its own is refused with it."""
    async with connect(MemoryStore(), region=2, region_bits=2) as ids:
        order = await ids.snowflake("order")
        assert COSID_MS.parse(await order.next_id()).machine_id >> 8 == 2
        with pytest.raises(InvalidArgumentError, match="region"):
            await ids.snowflake("other", region=1)
        with pytest.raises(InvalidArgumentError, match="cannot be combined with machine"):
            await ids.snowflake("manual", machine=ManualMachineIdDistributor(1), region=1)


def test_a_store_that_notes_no_region() -> None:
    """CosId's proxy has no place for it."""
    store = HttpStore.from_url("cosid+http://cosid:8688")
    with pytest.raises(InvalidArgumentError, match="keeps no regions"):
        store.machine_id_distributor(
            instance_id=InstanceId("a", stable=True), region=1, region_bits=2
        )
