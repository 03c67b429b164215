"""The statistics of generators as CosId 3.2.1 writes them at ``/actuator/cosid``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from aiocosid import configure
from aiocosid.abc import MAX_ID, Statistics
from aiocosid.segment import GroupBy, GroupedSegmentId
from aiocosid.server.dialects._cosid_statistics import actuator_tree
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping

AT_MS: Final = 1_715_911_764_000
"""2024-05-17 02:09:24 UTC."""

RADIX: Final = {
    "kind": "Radix62IdConverter",
    "radix": 62,
    "charSize": 11,
    "padStart": True,
    "maxId": MAX_ID,
}
NO_GROUP: Final = {"key": "", "ttlAt": MAX_ID}


async def actuator(section: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """What is shown of a generator that has handed out one id."""
    store = MemoryStore()
    await store.initialize(confirm_no_holders=True)
    named = {"store": store, "generators": {"it": section}, **settings}
    async with configure(named, default=False) as ids:
        await ids["it"].next_id()
        tree: dict[str, Any] = json.loads(json.dumps(actuator_tree(ids["it"].statistics())))
        return tree


def segment(tree: dict[str, Any], kind: str, *, key: Mapping[str, object] = NO_GROUP) -> None:
    """Compare with a segment of 100 ids of which one is used, but for its time."""
    assert tree.pop("fetchTime") > 1_700_000_000
    assert tree == {
        "kind": kind,
        "maxId": 100,
        "offset": 0,
        "sequence": 1,
        "step": 100,
        "groupedKey": key,
        "converter": RADIX,
        "expired": False,
        "overflow": False,
        "available": True,
    }


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ({"kind": "chain", "safe_distance": 1}, "SegmentChainId"),
        ({"kind": "segment"}, "DefaultSegmentId"),
        ({"kind": "segment", "converter": "radix62"}, "DefaultSegmentId"),
    ],
)
async def test_segments(section: dict[str, Any], kind: str) -> None:
    """Without a converter the texts are CosId's by default, and so are the levels."""
    tree = await actuator({"step": 100, **section})
    segment(tree.pop("actual"), kind)
    assert tree == {"kind": "StringSegmentId", "converter": RADIX}


async def test_converters_one_in_another() -> None:
    """As CosId's page of scenarios prints them."""
    converter = {"type": "to-string", "pad_start": True, "char_size": 10, "prefix": "BIZ"}
    tree = await actuator({"kind": "chain", "converter": converter})
    assert tree["converter"] == {
        "kind": "PrefixIdConverter",
        "prefix": "BIZ",
        "actual": {"kind": "ToStringIdConverter", "padStart": True, "charSize": 10},
    }


@pytest.mark.parametrize(
    ("group_by", "key", "ends"),
    [
        (GroupBy.year(zone="+08:00"), "2024", 1_735_660_799),
        (GroupBy.month(zone="+08:00"), "202405", 1_717_171_199),
        (GroupBy.day(zone="UTC"), "20240517", 1_715_990_399),
        (GroupBy.key(lambda: "shop"), "shop", MAX_ID),
    ],
)
async def test_groups(group_by: GroupBy, key: str, ends: int) -> None:
    """Until the last second of the period; the first two as CosId's page prints them."""
    clock = ManualClock(wall_ms=AT_MS)
    ids = GroupedSegmentId(
        MemoryStore(), name="it", group_by=group_by, step=100, safe_distance=1, clock=clock
    )
    before = actuator_tree(ids.statistics())["actual"]
    assert isinstance(before, dict)
    assert (before["maxId"], before["available"], before["groupedKey"]) == (-1, False, NO_GROUP)
    async with ids:
        await ids.next_id()
        tree: Any = actuator_tree(ids.statistics())
    segment(tree["actual"], "SegmentChainId", key={"key": key, "ttlAt": ends})


@pytest.mark.parametrize(
    ("layout", "kind", "bits", "sizes"),
    [
        ("cosid-ms", "MillisecondSnowflakeId", (1_577_203_200_000, 41, 10, 12), (4, 4)),
        ("cosid-s", "SecondSnowflakeId", (1_577_203_200, 31, 10, 22), (4, 7)),
    ],
)
async def test_snowflakes(
    layout: str, kind: str, bits: tuple[int, ...], sizes: tuple[int, int]
) -> None:
    converter = {"type": "friendly", "pad_start": True, "zone": "UTC"}
    tree = await actuator({"kind": "snowflake", "layout": layout, "converter": converter})
    assert tree["actual"]["actual"].pop("lastTimestamp") > 1_700_000_000
    assert tree == {
        "kind": "StringSnowflakeId",
        "actual": {
            "kind": "ClockSyncSnowflakeId",
            "actual": {
                "kind": kind,
                **dict(
                    zip(("epoch", "timestampBit", "machineBit", "sequenceBit"), bits, strict=True)
                ),
                "machineId": 0,
                "converter": RADIX,
                "safeJavascript": False,
            },
            "converter": RADIX,
        },
        "converter": {
            "kind": "SnowflakeFriendlyIdConverter",
            "padStart": True,
            "machineCharSize": sizes[0],
            "sequenceCharSize": sizes[1],
        },
    }


@pytest.mark.parametrize(
    ("text", "kind", "parser"),
    [
        ({"text": "radix62"}, "Radix62CosIdGenerator", "RadixCosIdStateParser"),
        ({"text": "radix36"}, "Radix36CosIdGenerator", "RadixCosIdStateParser"),
        (
            {"text": "friendly", "zone": "UTC"},
            "FriendlyCosIdGenerator",
            "FriendlyIdStateParser",
        ),
    ],
)
async def test_cosid_generators(text: dict[str, str], kind: str, parser: str) -> None:
    tree = await actuator({"kind": "cosid_text", **text})
    assert tree["actual"].pop("lastTimestamp") > 1_700_000_000_000
    assert tree == {
        "kind": "ClockSyncCosIdGenerator",
        "actual": {"kind": kind, "machineId": 0, "converter": {"kind": parser}},
        "converter": {"kind": parser},
    }


def test_a_kind_that_cosid_does_not_have() -> None:
    """Its own figures, without nulls."""
    seen = Statistics(kind="Other", namespace="shop", name="it")
    assert actuator_tree(seen) == {"kind": "Other", "namespace": "shop", "name": "it"}
