"""The short forms of what ``make chaos`` and ``make evidence`` do at length."""

from __future__ import annotations

import pytest

from tests.chaos import CHAOS, EVIDENCE, SCENARIOS, Options, run
from tests.chaos._people import STORES

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
    **{
        (name, store): Options(store=store, seconds=1, processes=2, ids=1_000_000)
        for name in SCENARIOS.keys() - CHAOS.keys()
        for store in EVIDENCE[name]
        if (name, store) != ("offsets", "postgres")
    },
}


# ``make evidence`` has people on all of their stores, for longer.
NIGHTLY = {("people", store) for store in STORES.keys() - {"sqlite", "valkey", "etcd"}}


@pytest.mark.parametrize(
    ("name", "store"),
    [
        pytest.param(*each, marks=pytest.mark.nightly) if each in NIGHTLY else each
        for each in sorted(SHORT)
    ],
)
def test_nothing_comes_twice(name: str, store: str) -> None:
    """In every scenario; but a Redis that forgets and is not guarded has to be seen to repeat."""
    result = run(name, SCENARIOS[name], SHORT[name, store])
    print(result.line(), result.said, sep="\n")  # noqa: T201 - shown when it fails
    assert result.failures == [], "\n".join(result.details)
    assert f" {result.faults.total()} faults;" in result.said  # each with its time
    assert (result.duplicates > 0) == (store in {"plain", "published"})
    if store == "plain":
        assert result.violations["leases: two hold the same"] > 0


def test_every_scenario_has_a_short_form() -> None:
    assert {name for name, _ in SHORT} == set(SCENARIOS)


def test_people_err_on_ten_stores() -> None:
    """On each of them in a way of which the store keeps a trace, so that nothing may vouch."""
    assert len(STORES) == 10
    for each in STORES.values():
        assert set(each.emptied) < set(each.acts)
