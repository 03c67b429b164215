"""What is planted is found, and nothing where nothing is."""

from __future__ import annotations

import re

import pytest

from aiocosid.testing.simulation import SCENARIOS, Scenario, World, first_failure, simulate

from ._broken import BROKEN, SHIPPED
from ._planted import DEFECTS, SOUND

ENOUGH = 80
"""Worlds in which each defect of a small store or generator has to show."""

SOUND_SCENARIOS = SCENARIOS | SOUND


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str) -> None:
    scenario, said = DEFECTS[name]
    error = first_failure(scenario, range(ENOUGH))
    assert error is not None
    assert said in error.reason
    assert 0 < len(error.trace) <= 40


QUICK = ("no fence", "no fork guard", "two sequencers on one lease")
"""Shows at once; the others are in tests/stress."""


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_line_is_found(name: str) -> None:
    scenario, said = BROKEN[name]
    error = first_failure(scenario, range(20))
    assert error is not None
    assert re.search(said, error.reason)


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_found_where_no_line_is_broken(name: str) -> None:
    assert all(report.ids > 20 for report in simulate(SHIPPED[name], range(2)))


@pytest.mark.parametrize("name", SOUND_SCENARIOS)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    reports = simulate(SOUND_SCENARIOS[name], range(15))
    assert all(report.ids > 20 for report in reports)


@pytest.mark.parametrize("name", ["segment_chain_forks", "redis_snowflakes", "sqlite_snowflakes"])
def test_a_seed_says_it_all(name: str) -> None:
    """Also with Lua, SQLite, real forks, and tokens that are drawn elsewhere."""
    first, second = (World(7).run(SCENARIOS[name]).digest for _ in range(2))
    assert first == second


@pytest.mark.parametrize("scenario", [SCENARIOS["segment_chain_faults"]])
def test_a_world_has_troubles(scenario: Scenario) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    (report,) = simulate(scenario, [1])
    assert report.ids > 200
    assert report.events["loses"] >= 1
    assert report.events["is stopped"] >= 1
    assert report.events["is cut off"] >= 1
    assert report.seconds > 5
