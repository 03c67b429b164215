"""Keys of groups, as CosId writes them (tests/vectors), and what is refused."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.segment import GroupBy, GroupedSegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from .._vectors import document

KINDS = {
    "group_by.year": GroupBy.year,
    "group_by.year_month": GroupBy.month,
    "group_by.year_month_day": GroupBy.day,
}
JAVAS_OWN = {
    "grouped_key.text",  # the text of a Java object
    "grouped_key.ttl",  # ours looks at the clock with each call instead
}
RUN = "grouped_segment_id.run"


def current_tenant() -> str:
    return "a"


def vectors() -> list[dict[str, Any]]:
    found = document("segment_grouped")
    assert {vector["op"] for vector in found} == {*KINDS, RUN, *JAVAS_OWN}
    return found


def test_keys_are_cosids() -> None:
    """The key of a moment, and the last second in which it holds."""
    for vector in vectors():
        if vector["op"] not in KINDS:
            continue
        args, due = vector["args"], vector["result"]
        group_by = KINDS[vector["op"]](zone=args["zone"], pattern=args["pattern"])
        end = due["ttl_at"] * 1000 + 999
        assert group_by.key_at(args["now_ms"]) == due["key"], vector
        assert group_by.key_at(end) == due["key"] != group_by.key_at(end + 1), vector


async def test_generators_count_as_cosids() -> None:
    """The same ids from the same counters; where Java raises in a last second, ours goes on."""
    for vector in vectors():
        if vector["op"] != RUN:
            continue
        args, due = vector["args"], vector["result"]
        clock, store = ManualClock(wall_ms=args["now_s"][0] * 1000), MemoryStore()
        async with GroupedSegmentId(
            store,
            namespace=args["namespace"],
            name=args["name"],
            group_by=GroupBy.day(zone=UTC, pattern=args["pattern"]),
            offset=args["offset"],
            step=args["step"],
            group_kind=args["kind"],
            ttl=None if args["ttl"] == "forever" else args["ttl"] + 0.5,  # Java's whole seconds
            clock=clock,
        ) as generator:
            last = ""
            for now_s, javas in zip(args["now_s"], due["ids"], strict=True):
                await clock.advance(now_s - clock.now_ms() / 1000)
                for java in javas:
                    new_id = await generator.with_group.next_id()
                    if isinstance(java, str):
                        assert f"{new_id.group}-{new_id}" == java, vector
                        last = new_id.group
                    else:
                        assert new_id.group == last, vector
        names = [counter.namespaced_name for counter in await store.counters()]
        assert names == sorted(due["distributors"])


def test_days_that_begin_or_end_oddly() -> None:
    """The local date decides, minute by minute, also where midnight is left out or comes twice."""
    for name, day in (
        ("America/Sao_Paulo", datetime(2018, 11, 4, tzinfo=UTC)),  # 00:00 is left out
        ("America/Sao_Paulo", datetime(2018, 2, 18, tzinfo=UTC)),  # from 00:00 back to 23:00
        ("America/Toronto", datetime(1919, 3, 31, tzinfo=UTC)),  # from 23:30 to 00:30
        ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
        ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),  # a day left out
    ):
        group_by, zone = GroupBy.day(zone=name), ZoneInfo(name)
        for minutes in range(0, 36 * 60, 5):
            at = day + timedelta(minutes=minutes - 6 * 60)
            due = at.astimezone(zone).strftime("%Y%m%d")
            assert group_by.key_at(round(at.timestamp() * 1000)) == due


def test_a_pattern_with_which_a_counter_would_not_restart_is_refused() -> None:
    """Nor is one whose text changes within a period."""
    for make, pattern, reason in (
        (GroupBy.month, "MM", "run on instead of restarting"),
        (GroupBy.day, "MMdd", "2027-01-01 and 2028-01-01"),
        (GroupBy.day, "yyyydd", "2027-01-01 and 2027-02-01"),
        (GroupBy.day, "yyyyMd", "2027-01-11 and 2027-11-01"),
        (GroupBy.year, "'order'", "run on instead of restarting"),
        (GroupBy.year, "yyyyMM", "shorter than a year"),
        (GroupBy.month, "yyyyMMdd", "shorter than a month"),
        (GroupBy.day, "yyyyMMddHH", "shorter than a day"),
        (GroupBy.day, "%Y%m%d", "Java's 'yyyyMMdd'"),
    ):
        with pytest.raises(InvalidArgumentError, match=reason):
            make(zone="UTC", pattern=pattern)
    for pattern in ("yyMMdd", "yyyyDDD", "yyyy-M-d", "ddMMyyyy"):
        GroupBy.day(zone="UTC", pattern=pattern)


def test_bad_arguments() -> None:
    """Each is named at once."""
    with pytest.raises(InvalidArgumentError, match="zone"):
        GroupBy.day(zone="Mars/Base")
    with pytest.raises(InvalidArgumentError, match="function"):
        GroupBy.key("tenant")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidArgumentError, match="have one width"):
        GroupBy.day(zone="UTC", pattern="yyyy-M-d", within=lambda: "shop")
    for key in ("", "a\0b", None, 7):
        function: Any = [key].pop
        with pytest.raises(InvalidArgumentError, match="group must be"):
            GroupBy.key(function).key_at(0)


def test_keys_of_any_kind() -> None:
    """A context variable's value, alone or with a date; what it raises comes out."""
    shop = ContextVar[str]("shop")
    group_by = GroupBy.day(zone="Asia/Shanghai", within=shop.get)
    with pytest.raises(LookupError):
        group_by.key_at(0)
    shop.set("shop-7")
    assert group_by.key_at(1_768_550_400_000) == "shop-7-20260116"
    assert GroupBy.key(shop.get).key_at(0) == "shop-7"


def test_two_that_group_alike_are_equal() -> None:
    """Not two functions of one name, nor two zones of one."""
    shop, tenant = ContextVar[str]("shop"), ContextVar[str]("tenant")
    day = GroupBy.day(zone="UTC", within=shop.get)
    same = GroupBy.day(zone="UTC", within=shop.get)
    assert (day, hash(day)) == (same, hash(same))
    for other in (
        GroupBy.day(zone="UTC", within=tenant.get),
        GroupBy.day(zone="UTC"),
        GroupBy.day(zone="+08:00", within=shop.get),
        GroupBy.day(zone="UTC", pattern="yyMMdd", within=shop.get),
        GroupBy.month(zone="UTC", within=shop.get),
        GroupBy.key(shop.get),
        "20260116",
    ):
        assert day != other


def test_its_repr_says_what_it_is() -> None:
    """Zone and pattern, or the function."""
    assert repr(GroupBy.day(zone="UTC")) == "GroupBy.day(zone='UTC', pattern='yyyyMMdd')"
    assert repr(GroupBy.key(current_tenant)) == "GroupBy.key(current_tenant)"


def test_a_hash_is_of_what_is_compared() -> None:
    """Equal ones have the same, also with zones that are equal and not the same."""
    one = GroupBy.day(zone=ZoneInfo("UTC"))
    other = GroupBy.day(zone=ZoneInfo.no_cache("UTC"))
    assert hash(one) == hash(GroupBy.day(zone="UTC")) == hash(other)
