"""The short form of each scenario of tests/chaos; ``make chaos`` runs the long ones."""

from __future__ import annotations

import pytest

from tests.chaos import SCENARIOS, Options, Result, run

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(180)]

SHORT = {
    ("redis-kill", "plain"): Options(store="plain", seconds=2, processes=4),
    ("redis-kill", "tiered"): Options(store="tiered", seconds=5, processes=6),
    ("redis-kill", "published"): Options(store="published", seconds=5, processes=4),
    ("redis-kill", "sharded"): Options(store="sharded", seconds=2, processes=4),
    ("sentinel", "sharded"): Options(store="sharded", seconds=3, processes=3),
    ("redis-aof", "tiered"): Options(store="tiered", seconds=2, processes=4),
    ("sentinel", "tiered"): Options(store="tiered", seconds=8, processes=4),
    ("cluster", "tiered"): Options(store="tiered", seconds=5, processes=4),
    ("postgres", "synchronous"): Options(store="synchronous", seconds=1, processes=3),
    ("disk-full", "sqlite"): Options(store="sqlite", seconds=2, processes=3),
    ("workers", "valkey"): Options(store="valkey", seconds=2, processes=4),
    ("workers", "sqlite"): Options(store="sqlite", seconds=2, processes=4),
    ("workers", "postgres"): Options(store="postgres", seconds=2, processes=4),
    ("leases", "postgres"): Options(store="postgres", seconds=3, processes=4),
    ("clock", "sqlite"): Options(store="sqlite", seconds=2, processes=4),
    ("cancellation", "sqlite"): Options(store="sqlite", seconds=2, processes=3),
    ("limits", "valkey"): Options(store="valkey", seconds=2, processes=3),
    ("connections", "postgres"): Options(store="postgres", seconds=3, processes=4),
    ("machines", "valkey"): Options(store="valkey", seconds=1, processes=20),
    ("soak", "valkey"): Options(store="valkey", seconds=1, processes=4, ids=1_000_000),
}


def played(name: str, store: str) -> Result:
    result = run(name, SCENARIOS[name], SHORT[name, store])
    print(result.line())  # noqa: T201 - shown when it fails
    assert result.failures == [], "\n".join(result.details)
    return result


@pytest.mark.parametrize(("name", "store"), SHORT)
def test_nothing_comes_twice(name: str, store: str) -> None:
    """In every scenario; but a Redis that forgets and is not guarded has to be seen to repeat."""
    result = played(name, store)
    assert (result.duplicates > 0) == (store in {"plain", "published"})


def test_every_scenario_has_a_short_form() -> None:
    assert {name for name, _ in SHORT} == set(SCENARIOS)
