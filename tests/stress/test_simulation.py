"""Hundreds of simulated worlds, and nothing found in any."""

from __future__ import annotations

import pytest

from aiocosid.testing.simulation import SCENARIOS, simulate
from tests.unit.testing.simulation._planted import SOUND

pytestmark = [pytest.mark.stress, pytest.mark.timeout(900)]

SEEDS = 250


@pytest.mark.parametrize("name", SCENARIOS | SOUND)
def test_nothing_is_found_in_hundreds_of_worlds(name: str) -> None:
    """Other seeds than the quick tests', so that both together see more."""
    reports = simulate((SCENARIOS | SOUND)[name], range(1000, 1000 + SEEDS))
    assert sum(report.ids for report in reports) > 20 * SEEDS
