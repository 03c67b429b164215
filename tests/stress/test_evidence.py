"""The short form of the evidence: histories of each new scenario, checked by the one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import SCENARIOS as CHAOS
from tests.chaos import Options
from tests.evidence._people import STORES
from tests.evidence._runs import judge, record
from tests.evidence._scenarios import REUSED, SCENARIOS

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(120)]

SHORT = {
    "offsets": "valkey",
    "moving-leaders": "etcd",
    "restored-floor": "valkey",
    "lost-leases": "valkey",
    "strict": "postgres",
    "volume": "valkey",
}
RUNS = [*SHORT.items(), *(("people", store) for store in STORES)]


@pytest.mark.parametrize(("name", "store"), RUNS)
def test_no_rule_is_broken(name: str, store: str, tmp_path: Path) -> None:
    options = Options(store=store, seconds=1, processes=2, ids=1_000_000)
    result = record(name, SCENARIOS[name], options, tmp_path)
    judged = judge(tmp_path)
    print(result.line(), judged.stdout, judged.stderr, sep="\n")  # noqa: T201 - when it fails
    assert result.failures == []
    assert judged.returncode == 0
    assert f" {result.faults.total()} faults;" in judged.stdout  # each with its time


def test_what_forgets_is_seen_to_repeat(tmp_path: Path) -> None:
    """Otherwise the histories, or the checker, would see nothing at all."""
    options = Options(store="plain", seconds=1, processes=2)
    record("redis-kill", CHAOS["redis-kill"], options, tmp_path)
    said = judge(tmp_path).stdout
    for rule in ("unique: an id came twice", "leases: two hold the same"):
        assert f"0 violations of {rule}" not in said.splitlines()


def test_every_scenario_of_its_own_has_a_short_form() -> None:
    assert set(SCENARIOS) - set(REUSED) <= {name for name, _ in RUNS}


def test_people_err_on_ten_stores() -> None:
    """On each of them in a way of which the store keeps a trace, so that nothing may vouch."""
    assert len(STORES) == 10
    for each in STORES.values():
        assert set(each.emptied) < set(each.acts)
