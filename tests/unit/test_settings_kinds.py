"""Settings of the kinds that other systems have brought."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest

from aiocosid import configure
from aiocosid.compat.leaf import LeafStore
from aiocosid.converter import SqidsConverter
from aiocosid.errors import IdOverflowError, InvalidSettingsError, RingEmptyError
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.provider.settings import check_settings, configured_stores
from aiocosid.segment import GroupedSegmentId, LeafSegmentId, RemoteId, SegmentId
from aiocosid.snowflake import (
    COSID_MS,
    LEAF,
    UID_GENERATOR_HA,
    CachedSnowflakeId,
    ShardedId,
    ShardedLayout,
    SnowflakeId,
)
from aiocosid.testing import ManualClock


def settings(kind: str, **others: Any) -> dict[str, Any]:
    """Return settings of one generator; ``machine`` goes to its own table."""
    machine = others.pop("machine", {})
    return {
        "store": others.pop("store", "memory://"),
        "machine": machine,
        "generators": {"order": {"kind": kind, **others}},
    }


def problems(given: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        configure(given)
    return [str(each) for each in caught.value.problems]


async def test_leaf_takes_the_step_of_the_row(tmp_path: Path) -> None:
    """Whatever the settings say; and has keys of its own."""
    url = f"sqlite:///{tmp_path}/leaf.db"
    async with LeafStore.from_url(url) as store:
        await store.create_schema()
        await store.create_tag("order", step=20)
    for told in ({}, {"step": 7}, {"step": 50}):
        given = settings("leaf_segment", store=f"leaf+{url}", prefetch_at=0.9, max_step=100, **told)
        async with configure(given, default=False) as ids:
            order = ids["order"]
            assert isinstance(order, LeafSegmentId)
            await order.next_id()
            assert order.statistics().ids_fetched == 20


async def test_strict_order() -> None:
    """Of a segment alone, on a store that keeps it."""
    async with configure(settings("segment", strict=True), default=False) as ids:
        order = ids["order"]
        assert isinstance(order, SegmentId)
        assert order.strict


async def test_strict_order_in_groups() -> None:
    """With segments; chains fetch ahead."""
    year: dict[str, Any] = {"group_by": "year", "zone": "UTC", "strict": True, "step": 10}
    async with (
        configure(settings("grouped", group_kind="segment", **year), default=False) as one,
        configure(settings("grouped", group_kind="segment", **year), default=False) as two,
    ):
        assert [await each["order"].next_id() for each in (one, two, one)] == [1, 2, 3]


async def test_leaf_on_a_counter_without_rows() -> None:
    """The usual step."""
    async with configure(settings("leaf_segment", name="settings-kinds"), default=False) as ids:
        order = ids["order"]
        assert isinstance(order, LeafSegmentId)
        assert order.statistics().step == 1000


TENANT: ContextVar[str] = ContextVar("tenant")


async def test_groups_by_key() -> None:
    """By a function of the user's, which is named by its path, or given in a mapping."""
    clock = ManualClock(wall_ms=1_768_550_400_000)
    path = f"{__name__}:TENANT.get"
    tried: list[tuple[dict[str, Any], str]] = [
        ({"group_by": "key", "key": path}, "{}"),
        ({"group_by": "key", "key": TENANT.get}, "{}"),
        ({"group_by": "day", "zone": "UTC", "key": path}, "{}-20260116"),
    ]
    for number, (told, group) in enumerate(tried):
        given = settings("grouped", name=f"by-key-{number}", max_groups=1, **told)
        async with configure(given, default=False, clock=clock) as ids:
            order = ids["order"]
            assert isinstance(order, GroupedSegmentId)
            for tenant, new_id in (("shop-1", 1), ("shop-1", 2), ("shop-2", 1)):
                TENANT.set(tenant)
                found = await order.with_group.next_id()
                assert (found.group, found) == (group.format(tenant), new_id)
            assert order.statistics().dropped_groups == 1


def test_a_report_asks_for_no_key() -> None:
    """No call is being made, so that there may be none."""
    given = settings("grouped", group_by="key", key=refused_key, converter={"group_prefix": {}})
    assert check_settings(given).generators[0].example == "key-00000000001"
    given = settings("grouped", group_by="year", zone="UTC", key=refused_key, pattern="'Y'yyyy")
    given["generators"]["order"]["converter"] = {"group_prefix": {}}
    assert check_settings(given).generators[0].example.startswith("key-Y2")


def refused_key() -> str:
    raise LookupError


async def test_cached() -> None:
    """With its ring, as it is told."""
    ring = {"boost": 2, "padding_factor": 60, "max_borrow": 10, "on_empty": "raise"}
    given = settings("cached_snowflake", refill_interval=30, **ring)
    async with configure(given, default=False) as ids:
        order = ids["order"]
        assert isinstance(order, CachedSnowflakeId)
        assert order.layout is UID_GENERATOR_HA
        assert order.statistics().capacity == 4 * 8192
        assert await order.next_id() < await order.next_id()
        with pytest.raises(RingEmptyError):
            await order.next_ids(12 * 8192)


async def test_a_random_start() -> None:
    """Is handed on."""
    async with configure(settings("snowflake", random_start=4096), default=False) as ids:
        order = ids["order"]
        assert isinstance(order, SnowflakeId)
        assert {order.layout.parse(await order.next_id()).sequence for _ in range(1000)} != {0}


@pytest.mark.parametrize("kind", ["snowflake", "cosid_text"])
async def test_a_sequence_that_begins_anew_in_each_tick(kind: str) -> None:
    """``"none"`` is the None of the argument: 0 in each tick, where -1 goes on from the last."""
    clock = ManualClock(wall_ms=1_760_000_000_000)
    for told, at_0 in (("none", 3), (None, 3), (-1, 1)):
        given = settings(kind, namespace=f"reset-{kind}-{told}", sequence_reset_threshold=told)
        async with configure(given, default=False, clock=clock) as ids:
            sequences = []
            for _ in range(3):
                await clock.advance(1)
                sequences.append(sequence_of(ids["order"], await ids["order"].next_id()))
        assert sequences.count(sequences[0]) == at_0, told


def sequence_of(generator: Any, new_id: Any) -> int:
    """Return the sequence of an id, number or text."""
    if isinstance(new_id, int):
        return int(generator.layout.parse(new_id).sequence)
    return int(generator.text.as_state(new_id).sequence)


def test_machine_ids_that_are_never_recycled() -> None:
    """By a safe guard without end."""
    provider = configure(settings("snowflake", machine={"safe_guard": inf}), default=False)
    assert [lease.distributor.safe_guard for lease in provider._leases()] == [inf]


async def test_kinds_that_need_no_store() -> None:
    """UUIDs, and a counter, as text too."""
    given: dict[str, Any] = {
        "namespace": "shop",
        "generators": {
            "four": {"kind": "uuid4"},
            "seven": {"kind": "uuid7", "name": "other"},
            "count": {"kind": "counter", "namespace": "test"},
            "text": {"kind": "counter", "converter": {"type": "radix62", "prefix": "T"}},
        },
    }
    async with configure(given, default=False) as ids:
        found = [uuid.UUID(str(await ids[name].next_id())).version for name in ("four", "seven")]
        assert found == [4, 7]
        assert await ids["seven"].next_id() < await ids["seven"].next_id()  # type: ignore[operator]
        assert await ids["count"].next_ids(2) == [1, 2]
        assert await ids["text"].next_id() == "T00000000001"
    seen = {each.name: each for each in check_settings(given).generators}
    assert [(each.store, each.counter) for each in seen.values()] == [
        ("", "shop.four"),
        ("", "shop.other"),
        ("", "test.count"),
        ("", "shop.text"),
    ]
    assert uuid.UUID(seen["four"].example).version == 4
    assert uuid.UUID(seen["seven"].example).version == 7
    assert (seen["count"].example, seen["text"].example) == ("1", "T00000000001")
    warned = [each.key for each in check_settings(given).warnings]
    assert warned == ["generators.count", "generators.text"]


def around(kind: str, inner: dict[str, Any], **others: Any) -> dict[str, Any]:
    return settings(kind, inner=inner, **others)


async def test_kinds_around_another_one() -> None:
    """With its counter, store and life; what is inside is told of as if it stood alone."""
    inner = {"kind": "segment", "step": 10, "name": "around-1", "max_id": 100}
    given = around("uncertainty", inner, bits=8, converter="to-string")
    async with configure(given, default=False) as ids:
        found = [int(await ids["order"].next_id()) for _ in range(20)]
    assert [each >> 8 for each in found] == list(range(1, 21))
    assert len({each & 255 for each in found}) > 3
    [seen] = check_settings(given).generators
    assert (seen.kind, seen.store, seen.counter, seen.step, seen.example) == (
        "uncertainty",
        "memory://",
        "cosid.around-1",
        10,
        "256",
    )
    inner = {"kind": "segment", "step": 1, "name": "around-2", "offset": 2**31 - 2}
    given = around("int32", inner)
    async with configure(given, default=False) as ids:
        assert await ids["order"].next_id() == 2**31 - 1
        with pytest.raises(IdOverflowError):
            await ids["order"].next_id()
    [warning] = check_settings(given).warnings
    assert warning.key == "generators.order.inner"
    assert "one process only" in warning.reason
    layout = {"timestamp_bits": 41, "machine_bits": 8, "sequence_bits": 8, "unit": "ms"}
    flake = {"kind": "snowflake", "layout": {**layout, "epoch": 1_760_000_000_000}}
    flake["store"] = "sqlite:///inner.db"
    assert check_settings(around("uncertainty", flake, bits=4)).warnings == ()
    inner["store"] = "sqlite:///inner.db"
    assert [url for url, *_ in configured_stores(given)] == ["memory://", "sqlite:///inner.db"]


SHARDED = {"store": "redis://localhost/0", "epoch": 1_546_300_800}


def test_sharded() -> None:
    """With its layout, and an example of now."""
    given = settings("sharded", **SHARDED, sharding_id=7, zone="+08:00", broken_threshold=inf)
    order = configure(given, default=False)._generators["order"]
    assert isinstance(order, ShardedId)
    assert order.layout == ShardedLayout(1_546_300_800, zone="+08:00")
    [seen] = check_settings(given).generators
    parts = order.layout.parse(int(seen.example))
    assert (parts.sharding_id, parts.sequence) == (7, 1)
    assert seen.ends.startswith("2155-")
    assert any("JavaScript" in str(each) for each in check_settings(given).warnings)


async def test_sharded_without_a_server_or_a_layout() -> None:
    """The layout by default, and its texts."""
    converter = {"type": "sharded", "prefix": "A"}
    given = settings("sharded", store="memory:", sharding_id=7, converter=converter)
    layout = ShardedLayout()
    async with configure(given, default=False) as ids:
        text = await ids["order", str].next_id()
    assert layout.parse_text(text, "A").sharding_id == 7
    [seen] = check_settings(given).generators
    assert layout.parse_text(seen.example, "A").sharding_id == 7


def test_a_shard_outside_of_the_layout() -> None:
    assert "sharding_id" in problems(settings("sharded", **SHARDED, sharding_id=4096))[0]


def test_lanes_are_machine_ids() -> None:
    """Of a namespace of their own, so that Snowflakes beside keep their width."""
    given = settings("sharded", **SHARDED, on_unavailable="lane", max_sequence=458_751)
    given["generators"]["event"] = {"kind": "snowflake"}
    provider = configure(given, default=False)
    assert {each.distributor.namespace for each in provider._leases()} == {"cosid", "cosid.lane"}
    # Their sequences lie above the others'.
    del given["generators"]["order"]["max_sequence"]
    assert "max_sequence" in problems(given)[0]


def test_lanes_of_another_store(tmp_path: Path) -> None:
    """Which is there when the one of the sequences is not; of the generator's own without it."""
    lanes = f"sqlite:///{tmp_path}/lanes.db"
    lane = {"on_unavailable": "lane", "max_sequence": 458_751}
    for told, kind in (({}, "Redis"), ({"lane_store": lanes}, "SQLite")):
        given = settings("sharded", **SHARDED, **lane, **told)
        [lease] = configure(given, default=False)._leases()
        assert kind.lower() in lease.distributor.store.lower()
        urls = [url for url, *_ in configured_stores(given)]
        assert urls == ["redis://localhost/0", lanes][: len(told) + 1]
    given = settings("sharded", **SHARDED, **lane, lane_store="redis://u:s3cret@h/0?x=1")
    [problem] = problems(given)
    assert problem.startswith("generators.order.lane_store: url cannot have the option 'x'")
    assert "s3cret" not in problem


def test_lanes_by_hand(tmp_path: Path) -> None:
    """As all machine ids, if their source says so."""
    machine = {"source": "manual", "machine_id": 63, "state_dir": str(tmp_path)}
    lane = {"on_unavailable": "lane", "max_sequence": 458_751, "machine": machine}
    [lease] = configure(settings("sharded", **SHARDED, **lane), default=False)._leases()
    assert isinstance(lease.distributor, ManualMachineIdDistributor)
    assert lease.distributor.namespace == "cosid.lane"
    [problem] = problems(settings("sharded", **SHARDED, **lane, lane_store="memory:"))
    assert problem.startswith("generators.order.lane_store: is not used")


def test_remote() -> None:
    """Of a server alone."""
    url = "aiocosid+unix:///run/aiocosid.sock"
    given = settings("remote", store=url, block=50, max_age=inf, limit="javascript")
    order = configure(given, default=False)["order"]
    assert isinstance(order, RemoteId)
    assert (order._pace.step, order._options.lifetime) == (50, inf)
    assert order._options.max_id == 2**53 - 1
    [report] = check_settings(given).generators
    assert (report.counter, report.example) == ("", "")


async def test_converters_of_other_formats() -> None:
    """The text of each; a Snowflake's shows its time."""
    blocked = SqidsConverter("abcdefgh", 6).as_str(1)
    converters: dict[str, Any] = {
        "crockford": {
            "type": "crockford",
            "prefix": "ord_",
            "check": False,
            "lower_case": True,
        },
        "sqids": {"type": "sqids", "min_length": 6, "alphabet": "abcdefgh", "blocklist": [blocked]},
        "ulid": "ulid",
        "uuid": "uuid",
        "typeid": {"type": "typeid", "prefix": "ord"},
    }
    counters = {name: {"kind": "counter", "converter": given} for name, given in converters.items()}
    flakes = {
        f"{name} of a time": {"kind": "snowflake", "converter": name} for name in ("ulid", "uuid")
    }
    given = {"store": "memory://", "machine": {"source": "manual", "machine_id": 1}}
    async with configure(given | {"generators": counters | flakes}, default=False) as ids:
        assert [await ids[name].next_id() for name in converters] == [
            "ord_0000000000001",
            SqidsConverter("abcdefgh", 6, (blocked,)).as_str(1),
            "00000000000000000000000001",
            "00000000-0000-8000-8000-000000000001",
            "ord_0000000000g008000000000001",
        ]
        assert str(await ids["ulid of a time"].next_id()).startswith("01")
        assert uuid.UUID(str(await ids["uuid of a time"].next_id())).version == 7


# ShardingSphere's YAML.

PROPS = {
    "datetime-lower": datetime.fromisoformat("2021-12-08T22:00"),  # as YAML reads it
    "datetime-upper": "2022-12-01 00:00:00",
    "sharding-suffix-pattern": "yyyyMM",
    "datetime-interval-unit": "MONTHS",
    "datetime-interval-amount": 1,
}
UTC_PROPS = {**PROPS, "zone-id": "UTC"}
AT = 1_640_995_200_000  # 2022-01-01T00:00Z


def sharded(*, props: bool, **algorithms: dict[str, Any]) -> dict[str, Any]:
    """The part ``sharding-algorithms`` of that file, or the same as our own tables are."""
    if not props:
        algorithms = {n: {"type": each["type"], **each["props"]} for n, each in algorithms.items()}
    machine = {"source": "manual", "machine_id": 1}
    generators = {"snowflake": {"kind": "snowflake"}}
    return {
        "machine": machine,
        "generators": generators,
        "share": {"kind": "snowflake", "layout": "leaf"},
        "sharding": algorithms,
    }


@pytest.mark.parametrize("props", [True, False])
def test_shardings_as_in_shardingspheres_yaml(*, props: bool) -> None:
    """The examples of CosId's own page, with a zone, which is not the system's here."""
    found = configure(
        sharded(
            props=props,
            table={"type": "COSID_MOD", "props": {"mod": 2, "logic-name-prefix": "t_table_"}},
            date={
                "type": "COSID_INTERVAL_DATE",
                "props": {"logic-name-prefix": "t_date_log_", **UTC_PROPS, "id-name": "cosid-name"},
            },
            ldt={"type": "COSID_INTERVAL_LDT", "props": {"logic-name-prefix": "t_ldt_", **PROPS}},
            ts={"type": "COSID_INTERVAL_TS", "props": {"logic-name-prefix": "t_ts_", **UTC_PROPS}},
            second={
                "type": "COSID_INTERVAL_TS_SECOND",
                "props": {"logic-name-prefix": "t_s_", **UTC_PROPS},
            },
            named={
                "type": "COSID_INTERVAL_SNOWFLAKE",
                "props": {"logic-name-prefix": "t_snow_", "id-name": "snowflake", **UTC_PROPS},
            },
            shared={
                "type": "COSID_INTERVAL_SNOWFLAKE",
                "props": {"logic-name-prefix": "t_share_", **UTC_PROPS},
            },
        ),
        default=False,
    ).sharding
    moment = datetime.fromtimestamp(AT / 1000, UTC)
    assert found["table"].exact(3) == "t_table_1"
    assert found["date"].exact(moment) == "t_date_log_202201"
    assert found["ldt"].exact(moment.replace(tzinfo=None)) == "t_ldt_202201"
    assert found["ts"].exact(AT) == "t_ts_202201"
    assert found["second"].exact(AT // 1000) == "t_s_202201"
    assert found["named"].exact((AT - COSID_MS.epoch_ms) << 22) == "t_snow_202201"
    assert found["shared"].exact((AT - LEAF.epoch_ms) << 22) == "t_share_202201"


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ({"type": "COSID_MOD", "props": {"mod": 0, "logic-name-prefix": "t_"}}, "sharding.a.mod"),
        ({"type": "COSID_NOPE", "props": {}}, "sharding.a.type"),
        ({"type": ["COSID_MOD"], "props": {}}, "sharding.a.type"),
        ({"type": "COSID_MOD", "props": 7}, "sharding.a.type"),
        ({"type": "mod", "mod": 2, "logic-name-prefix": "t_", "props": {}}, "sharding.a.props"),
        (
            {"type": "COSID_INTERVAL_TS", "props": {"logic-name-prefix": "t_", **PROPS}},
            "sharding.a",
        ),
        (
            {
                "type": "COSID_INTERVAL_SNOWFLAKE",
                "props": {"logic-name-prefix": "t_", "id-name": "nope", **UTC_PROPS},
            },
            "sharding.a.generator",
        ),
    ],
)
def test_what_is_wrong_with_them(algorithm: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSettingsError) as error:
        configure(sharded(props=True, a=algorithm))
    assert error.value.problems[0].key.startswith(key)
