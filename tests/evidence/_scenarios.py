"""What is broken while histories are written: scenarios of tests/chaos, and others' accidents."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from tests.chaos import SCENARIOS as CHAOS
from tests.chaos import Scenario
from tests.chaos._crowds import soak

from . import _accidents, _people

NEVER: Final = CHAOS["workers"].stores["valkey"]  # a repeat

# Where an id may not come twice, and where the system has room for a line of history.
REUSED: Final = {
    "workers": ("valkey", "postgres", "sqlite"),
    "leases": ("valkey", "postgres", "sqlite"),
    "connections": ("valkey", "postgres"),
    "cancellation": ("valkey",),
    "redis-kill": ("tiered",),
    "sentinel": ("tiered",),
    "cluster": ("tiered",),
    "postgres": ("synchronous",),
}

SERVERS: Final = {"valkey": NEVER, "postgres": NEVER}
SCENARIOS: Final = {
    **{
        name: replace(CHAOS[name], stores={each: CHAOS[name].stores[each] for each in stores})
        for name, stores in REUSED.items()
    },
    "offsets": Scenario("TiDB 52622", _accidents.offsets, SERVERS, processes=4),
    "moving-leaders": Scenario(
        "TiDB 53016", _accidents.moving_leaders, {"etcd": NEVER}, processes=4
    ),
    "restored-floor": Scenario(
        "Redpanda 15054", _accidents.restored_floor, {"valkey": NEVER}, processes=4
    ),
    "lost-leases": Scenario(
        "CosId 342, 946", _accidents.lost_leases, {"valkey": NEVER}, processes=4
    ),
    "people": Scenario(
        "dropped, emptied, swapped",
        _people.people,
        dict.fromkeys(_people.STORES, NEVER),
        processes=4,
    ),
    "strict": Scenario("PostgreSQL killed", _accidents.strict, {"postgres": NEVER}, processes=4),
    "volume": Scenario(
        "very many ids", partial(soak, batch=99_000, singles=1_000), {"valkey": NEVER}, processes=4
    ),
}
