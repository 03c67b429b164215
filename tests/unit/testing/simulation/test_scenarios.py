"""What is planted is found, and nothing where nothing is."""

from __future__ import annotations

import pytest

from aiocosid.testing.simulation import SCENARIOS, Scenario, first_failure, simulate

from ._planted import DEFECTS, SOUND

ENOUGH = 40
"""Worlds in which each defect has to show."""

SOUND_SCENARIOS = SCENARIOS | SOUND


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str) -> None:
    scenario, said = DEFECTS[name]
    error = first_failure(scenario, range(ENOUGH))
    assert error is not None
    assert said in error.reason
    assert 0 < len(error.trace) <= 40


@pytest.mark.parametrize("name", SOUND_SCENARIOS)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    reports = simulate(SOUND_SCENARIOS[name], range(15))
    assert all(report.ids > 20 for report in reports)


@pytest.mark.parametrize("scenario", [SCENARIOS["segment_chain_faults"]])
def test_a_world_has_troubles(scenario: Scenario) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    (report,) = simulate(scenario, [1])
    assert report.ids > 300
    assert report.events["loses"] >= 1
    assert report.events["is stopped"] >= 1
    assert report.events["is cut off"] >= 1
    assert report.seconds > 10
