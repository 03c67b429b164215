"""An ensemble of etcd that loses its leader."""

from __future__ import annotations

import pytest

from tests.leader_kills import take_under_kills
from tests.servers import EtcdEnsemble

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.asyncio]


async def test_the_leader_is_killed(etcd_ensemble: EtcdEnsemble) -> None:
    """No caller gets an error, and none an id twice; the machine ids are kept."""
    taken = await take_under_kills(etcd_ensemble, kills=2)
    for kinds in ({"SegmentId", "SegmentChainId"}, {"SnowflakeId"}):
        ids = [new_id for each in taken if each.kind in kinds for new_id in each.ids]
        assert len(ids) == len(set(ids)) > 500
    for each in taken:
        assert each.ids == sorted(each.ids)
