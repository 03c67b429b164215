"""Hundreds of simulated worlds, and nothing found in any."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from aiocosid.testing.simulation import SCENARIOS, simulate
from tests.servers import RedisServer, ValkeyServer
from tests.unit.testing.simulation._planted import SOUND
from tests.unit.testing.simulation._sequences import OnServer, first_difference

pytestmark = [pytest.mark.stress, pytest.mark.timeout(900)]

SEEDS = 250


@pytest.mark.parametrize("name", SCENARIOS | SOUND)
def test_nothing_is_found_in_hundreds_of_worlds(name: str) -> None:
    """Other seeds than the quick tests', so that both together see more."""
    reports = simulate((SCENARIOS | SOUND)[name], range(1000, 1000 + SEEDS))
    assert sum(report.ids for report in reports) > 20 * SEEDS


def test_the_simulated_redis_answers_as_servers_do(
    valkey_factory: Callable[[], ValkeyServer], redis_factory: Callable[[], RedisServer]
) -> None:
    """Ten thousand sequences of commands and of all shipped scripts, and what is left of each."""
    started = [valkey_factory()]
    with suppress(pytest.skip.Exception):  # CI fails where there is none
        started.append(redis_factory())
    with ExitStack() as stack:
        servers = [stack.enter_context(OnServer(each.host, each.port)) for each in started]
        assert first_difference(range(1000, 11_000), servers) is None
