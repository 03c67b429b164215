"""What the dashboard shows: nothing is invented, and nothing is shown that is nobody's business."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from aiocosid.abc import Counter, Machine, MachineMarker, ServerInfo
from aiocosid.errors import IdOverflowError, StoreUnavailableError
from aiocosid.integrations.state import GeneratorState
from aiocosid.machine import MachineIdStatistics
from aiocosid.segment import GroupedStatistics, SegmentStatistics
from aiocosid.server._view import (
    COUNTERS,
    GENERATORS,
    LEASES,
    MACHINES,
    MOST_ROWS,
    QUARANTINES,
    STORES,
    Row,
    Shown,
    Traffic,
    counter_rows,
    generator_row,
    lease_row,
    machine_rows,
    quarantine_rows,
    store_row,
    table_of,
    time_text,
)
from aiocosid.stores.inspection import Rates, StoreReading, seconds_text

SILENT = StoreUnavailableError("redis", "redis://user:password@host is away")


def chain(**changed: Any) -> SegmentStatistics:
    facts: dict[str, Any] = {
        "kind": "SegmentChainId",
        "namespace": "shop",
        "name": "order",
        "step": 100,
        "head_sequence": None,
        "head_offset": None,
        "head_max_id": None,
        "fetch_time": None,
        "is_expired": False,
        "max_id": None,
        "remaining": 600,
        "safe_distance": 2,
        "prefetch_distance": 2,
        "starvations": 0,
        "waits": 0,
        "waiting": 0,
        "fetches": 10,
        "failures": 0,
        "ids_fetched": 0,
        "ids_handed_out": 1000,
        "ids_discarded": 0,
        "rate": 0.0,
        "seconds_left": None,
        "last_error": None,
        "ended": None,
        **changed,
    }
    return SegmentStatistics(**facts)


def lease(**changed: Any) -> MachineIdStatistics:
    facts: dict[str, Any] = {
        "namespace": "shop",
        "instance_id": "till:1",
        "machine_id": 4,
        "bits": 10,
        "term": 1,
        "seconds_left": 250.0,
        "fence_ms": 5_000,
        "fence_wait": 0.0,
        "renewals": 3,
        "failures": 0,
        "losses": 0,
        "last_error": None,
        "taken_ms": 1_000,
        **changed,
    }
    return MachineIdStatistics(**facts)


def named(columns: Sequence[str], row: Row) -> dict[str, Shown]:
    return dict(zip((each.lstrip("#") for each in columns), row, strict=True))


def generator(statistics: Any, rates: Rates | None = None, now: float = 0.0) -> dict[str, Shown]:
    return named(
        GENERATORS, generator_row("order", GeneratorState(statistics), rates or Rates(), now)
    )


class TestRates:
    @pytest.mark.parametrize(
        ("samples", "expected"),
        [
            ([(100, 10.0), (150, 12.0), (150, 14.0)], [None, 25, 0]),  # two make one
            ([(100, 10.0), (150, 12.0), (151, 12.1)], [None, 25, 25]),  # two browsers share it
            ([(100, 10.0), (9_000, 100.0)], [None, None]),  # a long time says nothing of now
            ([(100, 10.0), (5, 12.0), (7, 14.0)], [None, None, 1]),  # what fell begins anew
        ],
    )
    def test_a_rate(self, samples: list[tuple[int, float]], expected: list[float | None]) -> None:
        rates = Rates()
        assert [rates.rate("a", *each) for each in samples] == expected
        assert rates.rate("b", 7, 14.0) is None

    def test_old_samples_are_dropped(self) -> None:
        rates = Rates()
        rates.rate("a", 100, 10.0)
        rates.drop_old(100.0)
        assert rates._samples == {}


class TestGenerators:
    def test_how_long_the_ids_last(self) -> None:
        rates = Rates()
        assert generator(chain(), rates, 0.0)["They last"] == Shown("-", "measuring")
        row = generator(chain(ids_handed_out=1200), rates, 2.0)
        assert (row["Ids/s"], row["They last"]) == (Shown("100"), Shown("6 s"))
        row = generator(chain(ids_handed_out=1200), rates, 4.0)
        assert (row["Ids/s"], row["They last"]) == (Shown("0"), Shown("-", "no demand"))

    @pytest.mark.parametrize(
        ("changed", "state"),
        [
            ({}, Shown("up", level="good")),
            ({"last_error": SILENT}, Shown("up", "store fails", "warn")),
            ({"last_error": SILENT, "remaining": 0}, Shown("down", "no ids left", "bad")),
            ({"ended": SILENT}, Shown("ended", "StoreUnavailableError", "bad")),
        ],
    )
    def test_its_state(self, changed: dict[str, Any], state: Shown) -> None:
        assert generator(chain(**changed))["State"] == state

    def test_a_group_that_is_over_does_not_end_its_generator(self) -> None:
        """The outermost that tells its end counts: the next group has begun."""
        facts: dict[str, Any] = {
            "kind": "GroupedSegmentId",
            "namespace": "shop",
            "name": "order",
            "group": "20270101",
            "open_groups": 1,
            "dropped_groups": 0,
            "actual": chain(ended=IdOverflowError("order", limit=3)),
        }
        assert generator(GroupedStatistics(**facts, ended=None))["State"].text == "up"
        is_over = GroupedStatistics(**facts, ended=IdOverflowError("order", limit=3))
        assert generator(is_over)["State"].text == "ended"

    def test_an_error_is_named_by_its_class_alone(self) -> None:
        row = generator(chain(last_error=SILENT, failures=3))
        assert row["Last error"].text == "StoreUnavailableError"
        assert (row["Store calls"].text, row["Failed"]) == ("13", Shown("3", level="warn"))
        assert not any("password" in f"{each}" for each in row.values())

    def test_who_waits_now(self) -> None:
        assert generator(chain(waits=9, waiting=2))["Waits"] == Shown("9", "2 waiting now", "warn")

    def test_a_distance_that_is_not_at_rest(self) -> None:
        assert generator(chain(prefetch_distance=8))["Distance"] == Shown("8", "2 at rest")


class TestStores:
    def row(self, traffic: Traffic | None = None, **changed: Any) -> dict[str, Shown]:
        reading = StoreReading(label="redis", at_ms=0, **changed)
        return named(STORES, store_row(reading, traffic))

    def test_nothing_is_known(self) -> None:
        row = self.row()
        unknown = "Latency", "Calls", "Failed", "Clock error", "Durability", "Initialised"
        for name in unknown:
            assert row[name].text == "-"
            assert row[name].why

    def test_all_is_known(self) -> None:
        traffic = Traffic(count=1234, failures=2, latency=0.0004)
        row = self.row(
            traffic,
            took=0.1,
            clock_error=(-0.0121, 0.0003),
            is_initialized=True,
            server=ServerInfo(version="", durability_warnings=()),
        )
        assert row["Latency"] == Shown("0.4 ms", "mean of segment fetches")
        assert (row["Calls"].text, row["Failed"].text) == ("1,234", "2")
        assert row["Clock error"] == Shown("-12 ms", "± 0.3 ms")
        assert row["Durability"] == Shown("settings keep writes", level="good")
        assert row["Initialised"].text == "yes"

    def test_what_is_wrong_is_marked(self) -> None:
        row = self.row(
            took=0.1,
            clock_error=(3.0, 0.1),
            is_initialized=False,
            server=ServerInfo(
                version="", durability_warnings=["appendonly is no"], unproved=["fsync"]
            ),
            errors={"counters": "StoreError", "machines": "not kept by this store"},
        )
        assert row["State"] == Shown("fails", "StoreError", "bad")
        assert row["Clock error"].level == "warn"
        assert row["Durability"] == Shown("may lose writes", "appendonly is no; fsync", "bad")
        assert row["Initialised"] == Shown("no", level="warn")

    @pytest.mark.parametrize("unproved", [(), ("sync_interval cannot be read",)])
    def test_what_is_not_proved_is_not_good(self, unproved: tuple[str, ...]) -> None:
        """A store that does not answer, one that was not asked, and one that does not tell all."""
        silent = self.row(errors={"server": "no answer in 2 s"})["Durability"]
        assert (silent.text, silent.why, silent.level) == ("-", "no answer in 2 s", "")
        facts = ServerInfo(
            version="", durability_warnings=() if unproved else None, unproved=unproved
        )
        shown = self.row(server=facts)["Durability"]
        assert (shown.text, shown.level) == (("not proved", "warn") if unproved else ("-", ""))
        assert shown.why

    def test_what_a_store_does_not_keep_is_no_failure(self) -> None:
        row = self.row(errors={"machines": "not kept by this store"})
        assert row["State"].text == "answers"

    def test_counters(self) -> None:
        counters = [Counter(namespaced_name="shop.order", last_max_id=12345, last_fetch_time=60)]
        reading = StoreReading(label="redis", at_ms=0, counters=counters)
        [row] = counter_rows(reading, Rates(), 0.0)
        found = named(COUNTERS, row)
        assert found["Last max id"].text == "12345"  # to be copied
        assert found["Last fetch (UTC)"].text == "1970-01-01 00:01:00"


class TestMachines:
    def rows(self, *machines: Machine, guard: float | None = 300.0) -> list[dict[str, Shown]]:
        markers = [MachineMarker(namespace="shop", safe_guard=guard)]
        reading = StoreReading(label="redis", at_ms=0, machines=machines, markers=markers)
        return [named(MACHINES, each) for each in machine_rows(reading, [lease()])]

    def machine(self, instance: str = "till:1", **changed: Any) -> Machine:
        facts: dict[str, Any] = {"machine_id": 4, "last_timestamp_ms": 60_000, **changed}
        return Machine(namespace="shop", instance_id=instance, **facts)

    def test_one_of_this_process(self) -> None:
        [row] = self.rows(self.machine(fence_ms=90_000))
        assert row["Held since"].text == "1970-01-01 00:00:01"
        assert row["Held until (UTC)"].text == "1970-01-01 00:06:00"
        assert row["No id is later than (UTC)"].text == "1970-01-01 00:01:30"

    def test_one_of_another(self) -> None:
        [row] = self.rows(self.machine("other:1"))
        assert row["Held since"] == Shown("-", "only its holder knows")
        assert row["No id is later than (UTC)"] == Shown("-", "no fence")

    def test_a_stamp_of_zero_is_no_time(self) -> None:
        """CosId's numbers that were never used, and those that Java took from them."""
        free, held = (self.machine(who, last_timestamp_ms=0, fence_ms=0) for who in ("", "java:1"))
        for row in self.rows(held, free):
            assert row["Last renewal (UTC)"] == Shown("-", "never renewed")
            assert "1970" not in str(row)

    @pytest.mark.parametrize(
        ("stable", "guard", "until"),
        [
            (True, 300.0, Shown("does not end by itself")),
            (False, inf, Shown("does not end by itself")),
            (False, None, Shown("-", "no safe guard stored")),
        ],
    )
    def test_until_when_it_is_held(self, stable: bool, guard: float | None, until: Shown) -> None:
        [row] = self.rows(self.machine(stable=stable), guard=guard)
        assert row["Held until (UTC)"] == until

    def test_free_ones_come_last(self) -> None:
        free, held = self.rows(self.machine("", machine_id=1), self.machine(machine_id=9))[::-1]
        assert (held["Machine id"].text, free["Machine id"].text) == ("9", "1")
        assert free["Holder"] == Shown("-", "free")

    @pytest.mark.parametrize(
        ("seconds_left", "end"),
        [
            (0.0, Shown("-", "no quarantine")),
            (90.0, Shown("1970-01-01 00:01:30", "in 90 s")),
            (inf, Shown("does not end by itself")),
        ],
    )
    def test_quarantines(self, seconds_left: float, end: Shown) -> None:
        markers = [MachineMarker(namespace="shop", seconds_left=seconds_left)]
        reading = StoreReading(label="redis", at_ms=0, markers=markers)
        [row] = quarantine_rows(reading)
        assert named(QUARANTINES, row)["Ends"] == end

    def test_a_lease(self) -> None:
        row = named(LEASES, lease_row(lease(quarantine_left=60.0, losses=1), 0))
        assert row["Lasts unrenewed"].text == "4 min"
        assert row["Lost"] == Shown("1", level="bad")
        assert row["Quarantine ends"] == Shown("1970-01-01 00:01:00", "in 60 s", "bad")

    def test_a_lease_without_an_id(self) -> None:
        row = named(LEASES, lease_row(lease(machine_id=None, seconds_left=0.0, fence_ms=-1), 0))
        assert row["Machine id"] == Shown("-", "none now")
        assert row["Fence (UTC)"] == Shown("-", "no fence")


def test_a_long_table_is_cut() -> None:
    rows: list[Row] = [(Shown("x"),)] * (MOST_ROWS + 1234)
    table = table_of("key", "Title", ("Name",), rows, "none")
    assert len(table.rows) == MOST_ROWS
    assert table.note == "1,234 more rows are not shown; the command line shows all."
    assert table_of("key", "Title", ("Name",), [], "none").note == "none"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00012, "0.12 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (119, "119 s"),
        (600, "10 min"),
        (7_200, "2 h"),
        (10**6, "12 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_a_time_after_the_year_9999() -> None:
    assert time_text(2**53) == "9,007,199,254,740,992 ms"
