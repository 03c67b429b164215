"""Three servers that lose their leader while ids are taken."""

from __future__ import annotations

import pytest

from tests.leader_kills import take_under_kills

pytestmark = [
    pytest.mark.stress,
    pytest.mark.integration,
    pytest.mark.asyncio,
    pytest.mark.timeout(180),
]


@pytest.mark.parametrize(
    "ensemble",
    [
        "etcd_ensemble",
        "zookeeper_ensemble",
        pytest.param("nats_cluster", marks=pytest.mark.nightly),
    ],
)
async def test_the_leader_is_killed(request: pytest.FixtureRequest, ensemble: str) -> None:
    """No caller gets an error, and none an id twice; the machine ids are kept."""
    taken = await take_under_kills(request.getfixturevalue(ensemble), kills=2)
    for kinds in ({"SegmentId", "SegmentChainId"}, {"SnowflakeId"}):
        ids = [new_id for each in taken if each.kind in kinds for new_id in each.ids]
        assert len(ids) == len(set(ids)) > 500
    for each in taken:
        assert each.ids == sorted(each.ids)
