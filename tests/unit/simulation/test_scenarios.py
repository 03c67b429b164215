"""What is planted is found, and nothing where nothing is."""

from __future__ import annotations

import re

import pytest

from tests.simulation import SCENARIOS, Scenario, first_failure, simulate

from ._broken import BROKEN, SHIPPED
from ._planted import DEFECTS, SOUND

ENOUGH = 80
"""Worlds in which each defect of a small store or generator has to show."""

NEARBY = 40
"""Worlds in which a broken line has to show; one, as long as nobody changes what is drawn."""

SOUND_SCENARIOS = SCENARIOS | SOUND


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str) -> None:
    scenario, said = DEFECTS[name]
    error = first_failure(scenario, range(ENOUGH))
    assert error is not None
    assert said in error.reason
    assert 0 < len(error.trace) <= 40


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_found(name: str) -> None:
    """Each where it was found first, or nearby; in tests/stress from the beginning."""
    defect = BROKEN[name]
    error = first_failure(defect.scenario, range(defect.seed, defect.seed + NEARBY))
    assert error is not None
    assert re.search(defect.said, error.reason)


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_found_where_no_line_is_broken(name: str) -> None:
    assert all(report.ids > 20 for report in simulate(SHIPPED[name], range(1)))


@pytest.mark.parametrize("name", SOUND_SCENARIOS)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    reports = simulate(SOUND_SCENARIOS[name], range(3))
    assert all(report.ids > 20 for report in reports)


@pytest.mark.parametrize("scenario", [SCENARIOS["segment_chain_faults"]])
def test_a_world_has_troubles(scenario: Scenario) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    (report,) = simulate(scenario, [1])
    assert report.ids > 200
    assert report.events["loses"] >= 1
    assert report.events["is stopped"] >= 1
    assert report.events["is cut off"] >= 1
    assert report.seconds > 3
