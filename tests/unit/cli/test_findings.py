"""What `doctor` makes of answers: when it warns, and what it says is to be done."""

from __future__ import annotations

from math import inf

import pytest

from aiocosid.abc import Counter, Machine, MachineMarker, ServerInfo
from aiocosid.cli._findings import (
    Finding,
    Status,
    judge_clock,
    judge_counters,
    judge_initialized,
    judge_machines,
    judge_markers,
    judge_migrator,
    judge_reading,
    judge_server,
)
from aiocosid.errors import StoreAuthenticationError
from aiocosid.stores.inspection import NOT_KEPT, StoreReading

NOW_MS = 1_800_000_000_000
MARKERS = {"shop": MachineMarker(namespace="shop", safe_guard=300.0)}


def machine(number: int, *, age_ms: int = 0, instance: str = "host:1", **more: bool) -> Machine:
    return Machine(
        namespace="shop",
        machine_id=number,
        instance_id=instance,
        last_timestamp_ms=NOW_MS - age_ms,
        fence_ms=-1,
        stable=more.get("stable", False),
    )


@pytest.mark.parametrize(
    ("ahead", "doubt", "status", "words"),
    [
        (0.002, 0.003, Status.OK, "agrees with the store's clock (± 3 ms)"),
        (0.5, 0.001, Status.OK, "500 ms ahead of the store's clock"),
        (1.2, 0.3, Status.OK, "1.2 s ahead of"),  # it may be less than a second
        (1.2, 0.1, Status.WARNING, "1.2 s ahead of"),
        (-1.2, 0.1, Status.WARNING, "1.2 s behind the store's"),
        (-3600.0, 0.1, Status.FAILED, "60 min behind"),
    ],
)
def test_a_clock_error(ahead: float, doubt: float, status: Status, words: str) -> None:
    found = judge_clock(ahead, doubt)
    assert (found.status, words in found.text) == (status, True)
    assert bool(found.remedy) is (status is not Status.OK)


def test_settings_that_lose_writes() -> None:
    """One warning for each; what cannot be read is said, and is never called durable."""

    def statuses(*durability_warnings: str) -> list[tuple[str, Status]]:
        facts = ServerInfo(version="Redis 8", durability_warnings=durability_warnings)
        return [(each.check, each.status) for each in judge_server(facts, 0.001, "redis 6")]

    assert statuses() == [("server", Status.OK), ("durable", Status.OK)]
    assert statuses("a", "b")[1:] == [("durable", Status.WARNING)] * 2
    _, unknown = judge_server(ServerInfo(version=""), 0.001, "")
    assert unknown.status is Status.SKIPPED
    untold = ServerInfo(
        version="", durability_warnings=(), unproved=("sync_interval cannot be read",)
    )
    _, told = judge_server(untold, 0.001, "")
    assert (told.status, told.text) == (Status.SKIPPED, *untold.unproved)


def test_a_store_for_tests() -> None:
    facts = ServerInfo(version="SQLite 3", durability_warnings=(), is_disposable=True)
    *_, found = judge_server(facts, 0.001, "")
    assert (found.check, found.status) == ("disposable", Status.WARNING)
    assert "--disposable" in found.remedy


def test_the_marker() -> None:
    assert judge_initialized(is_initialized=True).status is Status.OK
    missing = judge_initialized(is_initialized=False)
    assert (missing.status, "aiocosid init" in missing.remedy) == (Status.WARNING, True)


@pytest.mark.parametrize(
    ("left", "status", "words"),
    [(0.0, Status.OK, "no namespace"), (4.2, Status.WARNING, "5 s"), (inf, Status.FAILED, "until")],
)
def test_quarantines(left: float, status: Status, words: str) -> None:
    [found] = judge_markers([MachineMarker(namespace="shop", seconds_left=left)])
    assert (found.status, words in found.text) == (status, True)


@pytest.mark.parametrize(
    ("held", "status", "words"),
    [
        (0, Status.OK, "none is in use"),
        (6, Status.OK, "6 of 8"),
        (7, Status.WARNING, "7 of 8"),
        (8, Status.FAILED, "8 of 8 in use in namespace shop"),
    ],
)
def test_machine_ids_that_are_left(held: int, status: Status, words: str) -> None:
    found = judge_machines([machine(i) for i in range(held)], MARKERS, {"shop": 3}, NOW_MS)
    assert (found.status, words in found.text) == (status, True)


def test_machine_ids_that_are_free() -> None:
    """One that was given back, and one whose holder has died; a stable one never expires."""
    machines = [machine(0, instance=""), machine(1, age_ms=300_001), machine(2, age_ms=299_999)]
    machines.append(machine(3, age_ms=10**9, stable=True))
    found = judge_machines(machines, MARKERS, {}, NOW_MS)
    assert found.text == "2 in use in namespace shop"


@pytest.mark.parametrize(
    ("value", "status"), [(79, Status.OK), (80, Status.WARNING), (100, Status.FAILED)]
)
def test_ids_that_are_left(value: int, status: Status) -> None:
    """By the limit of the settings; the counters of groups share their generator's."""
    counters = [Counter(namespaced_name="shop.bill@2026", last_max_id=value)]
    counters.append(Counter(namespaced_name="shop.order", last_max_id=10**6))
    [found] = judge_counters(counters, {"shop.bill": 100})
    assert (found.status, "shop.bill@2026 has used" in found.text) == (status, True)
    assert bool(found.remedy) is (status is not Status.OK)


def test_a_reading_that_failed_in_part() -> None:
    """One finding for one reason, with all that it concerns; the rest is judged all the same."""
    denied = StoreAuthenticationError("redis", "NOPERM")
    reading = StoreReading(
        label="redis",
        at_ms=NOW_MS,
        errors={"machines": "X", "markers": "X", "clock_error": NOT_KEPT},
        causes={"machines": denied, "markers": denied},
        counters=[Counter(namespaced_name="shop.order", last_max_id=1)],
    )
    found: list[Finding] = list(judge_reading(reading, {}, {}))
    assert [(each.check, each.status) for each in found] == [
        ("read", Status.FAILED),
        ("read", Status.SKIPPED),
        ("counters", Status.OK),
    ]
    assert found[0].text == f"machine ids, quarantines: {denied}"


def test_expiry_is_judged_by_the_clock_of_the_store() -> None:
    """This machine is an hour ahead: no lease has expired because of that."""
    reading = StoreReading(
        label="redis",
        at_ms=NOW_MS + 3_600_000,
        clock_error=(3600.0, 0.01),
        machines=[machine(0)],
        markers=[MachineMarker(namespace="shop", safe_guard=300.0)],
    )
    assert "1 in use in namespace shop" in [each.text for each in judge_reading(reading, {}, {})]


@pytest.mark.parametrize(
    ("table", "status", "remedy"),
    [
        ("alembic_version", Status.WARNING, "aiocosid.integrations.alembic.options"),
        ("flyway_schema_history", Status.WARNING, "exclude the tables cosid"),
        ("DATABASECHANGELOG", Status.WARNING, "exclude the tables cosid"),
        ("django_migrations", Status.OK, ""),
    ],
)
def test_a_tool_that_may_drop_the_tables(table: str, status: Status, remedy: str) -> None:
    """Each is told how to leave them alone; Django leaves them alone by itself."""
    found = judge_migrator(table)
    assert (found.status, table in found.text) == (status, True)
    assert remedy in found.remedy
    facts = ServerInfo(version="PostgreSQL 18", migrators=[table])
    assert found in judge_server(facts, 0.001, "")
