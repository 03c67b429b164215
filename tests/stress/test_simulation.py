"""A thousand simulated worlds and more: what is broken is found, and nothing where nothing is."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from tests.servers import RedisServer, ValkeyServer
from tests.simulation import first_failure, simulate
from tests.simulation._fleet import run_all
from tests.unit.simulation._broken import BROKEN
from tests.unit.simulation._planted import SOUND
from tests.unit.simulation._sequences import OnServer, first_difference

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

SEEDS = range(1000, 1500)


def test_nothing_is_found_in_a_thousand_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    """Other seeds than the quick tests', each in a tenth of the scenarios.

    ``make simulate`` goes on from there.
    """
    assert run_all(SEEDS, share=10) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_in_small_stores(name: str) -> None:
    simulate(SOUND[name], range(1000, 1100))


@pytest.mark.parametrize("name", [name for name, each in BROKEN.items() if each.seed < 100])
def test_a_broken_line_is_found_within_a_hundred_worlds(name: str) -> None:
    """From the beginning; the quick tests begin with the world that does.

    The ten defects by which the simulation is measured are among them.
    """
    defect = BROKEN[name]
    error = first_failure(defect.scenario, range(101))
    assert error is not None
    assert re.search(defect.said, error.reason)


def test_the_simulated_redis_answers_as_servers_do(
    valkey_factory: Callable[[], ValkeyServer], redis_factory: Callable[[], RedisServer]
) -> None:
    """Four thousand sequences of commands and of all shipped scripts, and what is left of each."""
    started = [valkey_factory()]
    with suppress(pytest.skip.Exception):  # CI fails where there is none
        started.append(redis_factory())
    with ExitStack() as stack:
        servers = [stack.enter_context(OnServer(each.host, each.port)) for each in started]
        assert first_difference(range(1000, 5000), servers) is None
