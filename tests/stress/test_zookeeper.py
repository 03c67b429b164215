"""ZooKeeper's leader is killed while ids are taken."""

from __future__ import annotations

import pytest

from tests.servers import ZookeeperEnsemble

from ._leader import under_load

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.asyncio]


@pytest.mark.timeout(120)
async def test_a_leader_that_is_killed(zookeeper_ensemble: ZookeeperEnsemble) -> None:
    """No id twice, and each kind goes on after it; generators wait for the election."""
    told = await under_load(zookeeper_ensemble, kills=2, every=3)
    for name, each in told.items():
        assert each.duplicates == 0, name
        assert len(each.ids) > 100, (name, each.errors)
    assert told["chain"].errors == told["snowflake"].errors == {}
